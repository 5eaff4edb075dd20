// The list of variables: search, filter, and for each one its states with how likely they are.

import { choice, find, make, percent } from "./dom.js";

const AT_ONCE = 200;
const ROLES = [["observed", "Observed"], ["asked", "Asked"], ["hidden", "Summed out"]];

export class Variables {
  constructor(question) {
    this.question = question;
    this.rows = new Map();
    this.posteriors = {};
    this.best = new Map();
    this.filter = "all";
    this.limit = AT_ONCE;
    this.active = 0;
    this.list = find("variables");
    choice(find("filters"), [["all", "All"], ...ROLES], "all", value => { this.filter = value; this.render(); });
    find("search").oninput = () => { this.limit = AT_ONCE; this.render(); };
    find("more").onclick = () => { this.limit += AT_ONCE; this.render(); };
    this.list.onkeydown = event => this.key(event);
    this.list.addEventListener("focusin", event => {
      const row = event.target.closest("li");
      if (row) this.activate(Number(row.dataset.column));
    });
    question.listeners.push(columns => this.changed(columns));
    this.render();
  }

  /** The columns that the search and the filter leave. */
  matching() {
    const { variables } = this.question.model;
    const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    return variables.flatMap((variable, column) => {
      if (this.filter !== "all" && this.question.role(column) !== this.filter) return [];
      const text = [variable.name, ...variable.states].join("\n").toLowerCase();
      return words.every(word => text.includes(word)) ? [column] : [];
    });
  }

  render() {
    const found = this.matching();
    const shown = found.slice(0, this.limit);
    const rows = shown.map(column => {
      if (!this.rows.has(column)) this.rows.set(column, this.row(column));
      return this.rows.get(column);
    });
    this.list.replaceChildren(...rows);
    for (const column of shown) this.update(column);
    if (!shown.includes(this.active) && shown.length) this.activate(shown[0]);
    else this.activate(this.active);
    const all = this.question.model.variables.length;
    find("shown").textContent = found.length === all ? `${all}` : `${found.length} of ${all}`;
    find("more").hidden = found.length <= this.limit;
  }

  activate(column) {
    const before = this.rows.get(this.active);
    if (before) before.tabIndex = -1;
    this.active = column;
    const row = this.rows.get(column);
    if (row) row.tabIndex = 0;
  }

  row(column) {
    const variable = this.question.model.variables[column];
    const row = make("li", { className: "variable", tabIndex: -1, data: { column } });
    const roles = make("div", { className: "roles", set: { role: "group", "aria-label": "Role" } });
    for (const [role, text] of ROLES) {
      const off = role === "asked" && (variable.continuous || !variable.mentioned);
      roles.append(make("button", {
        type: "button", tabIndex: -1, textContent: text, data: { role }, disabled: off,
        title: off ? "Only discrete variables that the model mentions can be asked for" : "",
        onclick: () => this.take(column, role),
      }));
    }
    row.append(make("div", { className: "head" }, make("span", { className: "name", textContent: variable.name }), roles));
    row.append(variable.continuous ? this.real(column) : this.states(column));
    return row;
  }

  states(column) {
    const variable = this.question.model.variables[column];
    const holder = make("div", { className: "states" });
    variable.states.forEach((state, code) => {
      holder.append(make("button", {
        type: "button", className: "state", tabIndex: -1, data: { code },
        onclick: event => {
          if ((event.shiftKey || event.ctrlKey || event.metaKey || this.question.entries[column].form === "set")
            && this.can("set")) this.question.toggle(column, code);
          else this.question.observe(column, code);
        },
      }, make("span", { className: "bar" }), make("span", { className: "text", textContent: state }),
      make("span", { className: "number" })));
    });
    const forms = make("div", { className: "forms" });
    if (this.can("set") && variable.states.length > 2) {
      forms.append(make("button", {
        type: "button", className: "link", tabIndex: -1, textContent: "any of", data: { form: "set" },
        title: "Observe that it is one of several states (also: Shift and click)", onclick: () => this.anyOf(column),
      }));
    }
    if (this.can("soft")) {
      forms.append(make("button", {
        type: "button", className: "link", tabIndex: -1, textContent: "likelihood", data: { form: "soft" },
        title: "Give each state a likelihood", onclick: () => this.soft(column),
      }));
    }
    const sliders = make("div", { className: "sliders", hidden: true });
    return make("div", { className: "body" }, holder, forms, sliders);
  }

  real(column) {
    const input = make("input", {
      type: "number", step: "any", tabIndex: -1, placeholder: "a number",
      set: { "aria-label": `Value of ${this.question.model.variables[column].name}` },
      onchange: () => {
        const value = input.value === "" ? NaN : Number(input.value);
        if (Number.isFinite(value)) this.question.set(column, { role: "observed", form: "real", value });
        else this.question.sumOut(column);
      },
    });
    return make("div", { className: "body" }, input, make("span", { className: "number" }));
  }

  can(form) { return this.question.model.forms.includes(form); }

  /** The most likely state that is known of. */
  likely(column) {
    const numbers = this.posteriors[column] ?? [];
    return Math.max(0, numbers.indexOf(Math.max(...numbers)));
  }

  take(column, role) {
    if (role === "asked") this.question.ask(column);
    else if (role === "hidden") this.question.sumOut(column);
    else if (this.question.model.variables[column].continuous) {
      this.question.set(column, { role: "observed", form: "real", value: Number((this.posteriors[column]?.[0] ?? 0).toPrecision(4)) });
    } else this.question.set(column, { role: "observed", form: "value", value: this.likely(column) });
  }

  anyOf(column) {
    const entry = this.question.entries[column];
    if (entry.form === "set") this.question.sumOut(column);
    else {
      const codes = [entry.form === "value" ? entry.value : this.likely(column)];
      this.question.set(column, { role: "observed", form: "set", codes });
    }
  }

  soft(column) {
    const entry = this.question.entries[column];
    const { states } = this.question.model.variables[column];
    if (entry.form === "soft") this.question.sumOut(column);
    else this.question.set(column, { role: "observed", form: "soft", weights: states.map(() => 1) });
  }

  changed(columns) {
    if (this.filter !== "all") this.render();
    else for (const column of columns) this.update(column);
  }

  /** Show what is known of a variable now. */
  update(column) {
    const row = this.rows.get(column);
    if (!row) return;
    const entry = this.question.entries[column];
    const variable = this.question.model.variables[column];
    row.dataset.role = entry.role;
    for (const button of row.querySelectorAll(".roles button")) {
      button.setAttribute("aria-pressed", button.dataset.role === entry.role);
    }
    const numbers = this.posteriors[column];
    const best = this.best.get(column);
    if (variable.continuous) {
      row.querySelector(".number").textContent = entry.role !== "observed" && numbers
        ? `mean ${Number(numbers[0].toPrecision(4))}, deviation ${Number(numbers[1].toPrecision(3))}` : "";
      const input = row.querySelector("input");
      if (document.activeElement !== input) input.value = entry.form === "real" ? entry.value : "";
    }
    let said = { asked: "asked", hidden: "summed out", observed: "observed" }[entry.role];
    row.querySelectorAll(".state").forEach((button, code) => {
      const on = (entry.form === "value" && entry.value === code) || (entry.form === "set" && entry.codes.includes(code));
      button.setAttribute("aria-pressed", on);
      button.classList.toggle("best", entry.role === "asked" && best === code);
      const p = entry.form === "value" ? (on ? 1 : 0) : numbers?.[code];
      button.querySelector(".bar").style.width = p === undefined ? "0" : `${100 * p}%`;
      button.querySelector(".number").textContent = p === undefined || entry.form === "value" ? "" : percent(p);
      if (on) said += `, ${variable.states[code]}`;
      if (entry.role === "asked" && best === code) said += `, answer ${variable.states[code]}`;
    });
    for (const button of row.querySelectorAll(".forms button")) {
      button.setAttribute("aria-pressed", entry.form === button.dataset.form);
    }
    const sliders = row.querySelector(".sliders");
    if (sliders) this.sliders(sliders, column, entry);
    row.setAttribute("aria-label", `${variable.name}: ${said}`);
  }

  sliders(holder, column, entry) {
    holder.hidden = entry.form !== "soft";
    if (holder.hidden) { holder.replaceChildren(); return; }
    if (holder.childElementCount) return;
    const { states } = this.question.model.variables[column];
    states.forEach((state, code) => {
      const input = make("input", {
        type: "range", min: 0, max: 1, step: 0.01, value: entry.weights[code], tabIndex: 0,
        oninput: () => {
          const weights = [...this.question.entries[column].weights];
          weights[code] = Number(input.value);
          number.textContent = input.value;
          this.question.set(column, { role: "observed", form: "soft", weights });
        },
      });
      const number = make("output", { textContent: entry.weights[code] });
      holder.append(make("label", {}, make("span", { textContent: state }), input, number));
    });
  }

  /** New posteriors, by column, and the answer's values of those that are asked. */
  show(posteriors, best) {
    this.posteriors = posteriors ?? this.posteriors;
    this.best = best ?? this.best;
    for (const row of this.list.children) this.update(Number(row.dataset.column));
  }

  key(event) {
    const row = event.target.closest("li");
    if (!row || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
    const column = Number(row.dataset.column);
    const variable = this.question.model.variables[column];
    const move = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling,
      Home: this.list.firstElementChild, End: this.list.lastElementChild }[event.key];
    if (move) move.focus();
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const inside = [...row.querySelectorAll("button:enabled, input")];
      const at = inside.indexOf(document.activeElement) + (event.key === "ArrowRight" ? 1 : -1);
      (inside[at] ?? row).focus();
    } else if (event.key === "a") this.question.ask(column);
    else if (event.key === "s" || event.key === "Delete" || event.key === "Backspace") this.question.sumOut(column);
    else if (event.key === "o") this.take(column, "observed");
    else if (/^[0-9]$/.test(event.key) && Number(event.key) < variable.states.length) this.question.observe(column, Number(event.key));
    else return;
    event.preventDefault();
  }
}
