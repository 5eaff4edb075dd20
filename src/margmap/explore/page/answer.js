// The answer: the state, how likely it is, the proof, the bounds on the way, the best states.

import { find, make, probability, svg } from "./dom.js";

/** More asked variables than this are listed in a box that scrolls. */
const MANY = 12;

export class Answer {
  constructor(question) {
    this.question = question;
    this.result = undefined;
    this.top = [];
    this.history = [];
  }

  /** A question was asked: the last answer stays until there is another, but is marked as old. */
  begin() {
    this.history = [];
    delete find("answer").dataset.fresh;
    find("answer-panel").setAttribute("aria-busy", "true");
    find("error").hidden = true;
    if (this.question.asked.length === 0) {
      this.result = undefined;
      this.top = [];
      find("answer").replaceChildren(make("p", { className: "empty", textContent:
        "Nothing is asked yet: mark a variable as asked to see its most likely state. What is observed already changes how likely everything else is." }));
      this.badge("", "");
      find("top-section").hidden = find("changes-section").hidden = find("bounds").hidden = true;
    }
  }

  badge(kind, text) {
    const badge = find("status");
    badge.dataset.kind = kind;
    badge.textContent = text;
  }

  /** Both bounds so far, for a question that takes longer. */
  progress(event) {
    this.history.push(event);
    if (event.seconds < 0.3) return;
    find("stop").hidden = false;
    this.badge("busy", "Searching …");
    if (event.best) {
      find("answer").replaceChildren(this.state(event.best), make("p", { className: "quiet", textContent: "The best state so far." }));
      find("answer").dataset.fresh = "";
    }
    find("top-section").hidden = find("changes-section").hidden = true;
    this.bounds();
  }

  bounds() {
    const known = this.history.filter(event => event.lower !== null && event.upper !== null);
    const figure = find("bounds");
    if (known.length === 0) {
      figure.hidden = this.history.length === 0;
      find("bounds-text").textContent = this.history.length ? `${this.history.at(-1).doing}, ${this.history.at(-1).seconds.toFixed(1)} s` : "";
      return;
    }
    figure.hidden = false;
    const last = known.at(-1);
    const end = Math.max(last.seconds, 1e-9);
    const low = Math.min(...known.map(event => event.lower)), high = Math.max(...known.map(event => event.upper));
    const span = Math.max(high - low, 1e-9);
    const x = event => 320 * event.seconds / end;
    const y = value => 92 - 88 * (value - low) / span;
    const path = key => known.map((event, i) => i === 0 ? `M0 ${y(event[key])}H${x(event)}` : `H${x(event)}V${y(event[key])}`).join("");
    figure.querySelector("svg").replaceChildren(
      svg("path", { d: `${path("upper")}V${y(last.lower)}${known.slice().reverse().map(event => `V${y(event.lower)}H${x(event)}`).join("")}H0Z`, class: "between" }),
      svg("path", { d: path("upper"), class: "upper" }), svg("path", { d: path("lower"), class: "lower" }));
    find("bounds-text").textContent =
      `After ${last.seconds.toFixed(1)} s: ${last.lower.toFixed(4)} (best state, solid) to ${last.upper.toFixed(4)} (dashed), ${(last.upper - last.lower).toPrecision(3)} nats apart; ${last.doing}`;
  }

  show(event) {
    this.result = event;
    this.top = event.best ? [event.best] : [];
    const proven = event.status === "optimal";
    this.badge(proven ? "proven" : "open", proven ? "✓ Proven optimal" : event.best ? `Not proven: ${event.status.replaceAll("_", " ")}` : "No state yet");
    const parts = [];
    if (event.best) {
      parts.push(this.state(event.best));
      const given = this.question.columns("observed").length ? "given the evidence" : "";
      parts.push(make("p", { className: "probability" },
        make("strong", { textContent: probability(event.best.log_conditional ?? event.best.log_prob) }),
        ` ${event.best.log_conditional === null ? "together with the evidence" : given}`,
        make("span", { className: "quiet", textContent: ` log p = ${event.best.log_prob.toFixed(6)}` })));
    }
    parts.push(make("p", { className: "proof", textContent: capital(event.proof) }));
    parts.push(make("p", { className: "quiet", textContent: `Method ${event.method}, ${duration(event.seconds)}${event.why ? `: ${event.why}` : ""}` }));
    find("answer").replaceChildren(...parts);
    find("changes-section").hidden = !event.best || this.question.columns("observed").length === 0;
    find("changes").replaceChildren();
    find("changes-text").textContent = "";
    find("top-section").hidden = !event.best;
    this.table();
  }

  /** The state as a list of variables and values; for a grid the picture says it. */
  state(best) {
    const { variables } = this.question.model;
    const list = make("dl", { className: this.question.asked.length > MANY ? "found many" : "found" });
    if (this.question.asked.length > MANY) {
      list.tabIndex = 0;
      list.setAttribute("role", "region");
      list.setAttribute("aria-label", "The answer");
    }
    this.question.asked.forEach((column, i) => {
      const text = variables[column].states[best.state[i]];
      list.append(make("div", {}, make("dt", { textContent: variables[column].name }), make("dd", { textContent: text })));
    });
    return list;
  }

  /** What the answer is in one sentence, for screen readers. */
  said() {
    const { variables } = this.question.model;
    const best = this.result?.best;
    if (!best) return "";
    const shown = this.question.asked.slice(0, MANY).map((column, i) => `${variables[column].name} ${variables[column].states[best.state[i]]}`);
    const more = this.question.asked.length > MANY ? ` and ${this.question.asked.length - MANY} more` : "";
    return `Answer: ${shown.join(", ")}${more}; ${probability(best.log_conditional)}; ${this.result.proof}`;
  }

  several(event) {
    this.top = event.top;
    this.table(event.why);
  }

  table(why) {
    const { variables } = this.question.model;
    const first = this.top[0];
    const rows = this.top.map((one, rank) => {
      const differs = this.question.asked.flatMap((column, i) => rank === 0 || one.state[i] !== first.state[i]
        ? [[variables[column].name, variables[column].states[one.state[i]]]] : []);
      const cell = make("td");
      if (rank === 0 && this.question.asked.length > 4) cell.append(make("span", { className: "quiet", textContent: "the answer" }));
      else differs.forEach(([name, state], i) => cell.append(i ? ", " : "", make("span", { className: "quiet", textContent: `${name} ` }), make("b", { textContent: state })));
      return make("tr", {}, make("th", { textContent: rank + 1, set: { scope: "row" } }), cell,
        make("td", { className: "n", textContent: probability(one.log_conditional ?? one.log_prob) }));
    });
    const head = make("thead", {}, make("tr", {}, ...["Rank", "State, or what differs", "Probability"].map(text => make("th", { textContent: text, set: { scope: "col" } }))));
    find("top").replaceChildren(head, make("tbody", {}, ...rows));
    if (why) find("top").append(make("caption", { textContent: why }));
  }

  end(how) {
    find("answer-panel").setAttribute("aria-busy", "false");
    find("stop").hidden = true;
    if (how === "stopped") this.badge("open", "Stopped before the proof");
    else if (this.history.length && this.history.at(-1).seconds >= 0.3) this.bounds();
    else find("bounds").hidden = true;
  }

  error(text) {
    this.result = undefined;
    find("error").hidden = false;
    find("error").textContent = text;
    find("answer").replaceChildren();
    this.badge("open", "No answer");
    find("top-section").hidden = find("changes-section").hidden = true;
  }
}

const capital = text => text.charAt(0).toUpperCase() + text.slice(1);
const duration = seconds => seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
