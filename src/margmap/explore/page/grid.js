// Variables that form a picture, painted with the pointer.

import { choice, find, make, percent } from "./dom.js";

export class Grid {
  constructor(question) {
    this.question = question;
    this.posteriors = {};
    this.best = new Map();
    const [rows, columns] = question.model.grid;
    this.width = columns;
    const values = Math.max(...question.model.variables.map(variable => variable.states.length));
    this.levels = values;
    find("grid-panel").hidden = false;
    const names = values === 2 ? ["Blank (0)", "Ink (1)"] : [...Array(values).keys()].map(String);
    const brushes = [...(values <= 12 ? names : []).map((name, code) => [`value ${code}`, name]),
      ["asked", "Ask"], ["hidden", "Sum out"]];
    this.brush = values === 2 ? "value 1" : "asked";
    choice(find("brushes"), brushes, this.brush, value => { this.brush = value; });
    this.holder = find("grid");
    this.holder.style.setProperty("--columns", columns);
    this.cells = [];
    for (let y = 0; y < rows; y++) {
      const row = make("div", { className: "grid-row", set: { role: "row" } });
      for (let x = 0; x < columns; x++) {
        const column = y * columns + x;
        const cell = make("button", { type: "button", className: "cell", tabIndex: column ? -1 : 0, data: { column }, set: { role: "gridcell" } });
        this.cells.push(cell);
        row.append(cell);
      }
      this.holder.append(row);
    }
    this.painting = undefined;
    this.holder.onpointerdown = event => {
      const column = this.at(event);
      if (column === undefined || event.button !== 0) return;
      event.preventDefault();
      this.cells[column].focus({ preventScroll: true });
      // A stroke that begins where the brush has been already takes it away again.
      this.painting = this.has(column) ? "hidden" : this.brush;
      this.paint([column]);
      this.last = column;
    };
    this.holder.onpointermove = event => {
      const column = this.painting === undefined ? undefined : this.at(event);
      if (column === undefined || column === this.last) return;
      this.paint(this.between(this.last, column));
      this.last = column;
    };
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { this.painting = undefined; });
    this.holder.onkeydown = event => this.key(event);
    question.listeners.push(columns => columns.forEach(column => this.update(column)));
    this.cells.forEach((_, column) => this.update(column));
  }

  at(event) {
    const cell = document.elementFromPoint(event.clientX, event.clientY)?.closest(".cell");
    return cell && this.holder.contains(cell) ? Number(cell.dataset.column) : undefined;
  }

  /** The cells on the way from one to another, so that a quick stroke has no holes. */
  between(from, to) {
    const [x0, y0, x1, y1] = [from % this.width, Math.floor(from / this.width), to % this.width, Math.floor(to / this.width)];
    const steps = Math.max(Math.abs(x1 - x0), Math.abs(y1 - y0), 1);
    return Array.from({ length: steps }, (_, i) => {
      const t = (i + 1) / steps;
      return Math.round(y0 + t * (y1 - y0)) * this.width + Math.round(x0 + t * (x1 - x0));
    });
  }

  entry(brush) {
    return brush.startsWith("value ") ? { role: "observed", form: "value", value: Number(brush.slice(6)) } : { role: brush };
  }

  has(column) {
    const entry = this.question.entries[column];
    const wanted = this.entry(this.brush);
    return entry.role === wanted.role && entry.value === wanted.value && entry.role !== "hidden";
  }

  paint(columns) {
    const entry = this.entry(this.painting);
    const changes = columns.filter(column => {
      const before = this.question.entries[column];
      return (before.role !== entry.role || before.value !== entry.value)
        && (entry.value === undefined || entry.value < this.question.model.variables[column].states.length);
    });
    if (changes.length) this.question.change(changes.map(column => [column, entry]));
  }

  key(event) {
    const column = Number(event.target.dataset.column);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.width, ArrowUp: -this.width }[event.key];
    if (step !== undefined && this.cells[column + step]) {
      this.cells[column].tabIndex = -1;
      this.cells[column + step].tabIndex = 0;
      this.cells[column + step].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      this.painting = this.has(column) ? "hidden" : this.brush;
      this.paint([column]);
      this.painting = undefined;
    } else if (event.key === "a") this.question.ask(column);
    else if (event.key === "s" || event.key === "Delete") this.question.sumOut(column);
    else if (/^[0-9]$/.test(event.key) && Number(event.key) < this.levels) this.question.observe(column, Number(event.key));
    else return;
    event.preventDefault();
  }

  /** How dark a cell is, from 0 to 1, and what a screen reader says of it. */
  shade(column) {
    const entry = this.question.entries[column];
    const { states } = this.question.model.variables[column];
    const most = Math.max(1, states.length - 1);
    if (entry.form === "value") return [entry.value / most, `observed ${states[entry.value]}`];
    const best = this.best.get(column);
    if (entry.role === "asked") return best === undefined ? [0.5, "asked"] : [best / most, `asked, answer ${states[best]}`];
    const numbers = this.posteriors[column];
    if (!numbers) return [0.5, "summed out"];
    const mean = numbers.reduce((sum, p, code) => sum + p * code, 0) / most;
    return [mean, `${entry.role === "observed" ? "observed in part" : "summed out"}, ${percent(mean)} dark`];
  }

  update(column) {
    const cell = this.cells[column];
    const [dark, said] = this.shade(column);
    cell.dataset.role = this.question.role(column);
    cell.style.setProperty("--dark", `${(100 * dark).toFixed(1)}%`);
    cell.setAttribute("aria-label", `${this.question.model.variables[column].name}: ${said}`);
  }

  show(posteriors, best) {
    this.posteriors = posteriors ?? this.posteriors;
    this.best = best ?? this.best;
    this.cells.forEach((_, column) => this.update(column));
  }
}
