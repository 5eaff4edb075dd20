// The question and the answer, to take along.

import { find, make, probability } from "./dom.js";

const NAMES = { json: ["question.json", "application/json"], python: ["question.py", "text/x-python"],
  cli: ["question.sh", "text/x-sh"], csv: ["answer.csv", "text/csv"] };

export class Exports {
  constructor(question, answer, grid) {
    Object.assign(this, { question, answer, grid });
    for (const button of document.querySelectorAll("[data-export]")) button.onclick = () => this.run(button.dataset.export);
    find("copy").onclick = () => this.copy(find("exported-text").textContent);
    find("download").onclick = () => save(new Blob([find("exported-text").textContent], { type: NAMES[this.kind][1] }), NAMES[this.kind][0]);
    find("open").onchange = async event => {
      const file = event.target.files[0];
      event.target.value = "";
      if (!file) return;
      try {
        const unknown = question.load(JSON.parse(await file.text()));
        this.note(unknown.length ? `Left out, because this model does not have it: ${unknown.join(", ")}` : "Opened.");
      } catch { this.note("That file is not the JSON of a question."); }
    };
  }

  note(text) { find("export-note").textContent = text; }

  async run(kind) {
    this.note("");
    if (kind === "link") { await this.copy(location.href); return; }
    if (kind === "png") { await this.png(); return; }
    if (kind === "csv") { this.show(kind, this.csv()); return; }
    try {
      const answer = await fetch("export", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(this.question.request()) });
      const texts = await answer.json();
      if (texts.error) this.note(texts.error);
      else this.show(kind, texts[kind]);
    } catch { this.note("The server does not answer."); }
  }

  show(kind, text) {
    this.kind = kind;
    find("exported").hidden = false;
    find("exported-text").textContent = text;
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.note("Copied.");
    } catch {
      find("exported").hidden = false;
      find("exported-text").textContent = text;
      this.kind = "json";
      getSelection().selectAllChildren(find("exported-text"));
      this.note("Selected: copy it with the keyboard.");
    }
  }

  /** The best states, a row each; cells that a spreadsheet would compute are quoted as text. */
  csv() {
    const { variables } = this.question.model;
    const cell = text => {
      const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const head = ["rank", ...this.question.asked.map(column => variables[column].name), "log_prob", "log_conditional"];
    const rows = this.answer.top.map((one, rank) => [String(rank + 1),
      ...this.question.asked.map((column, i) => variables[column].states[one.state[i]]), String(one.log_prob), String(one.log_conditional ?? "")]);
    return [head, ...rows].map(row => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  async png() {
    const blob = await new Promise(done => this.picture().toBlob(done, "image/png"));
    save(blob, "answer.png");
    this.note("Saved as answer.png.");
  }

  /** A picture of the question and the answer, black on white. */
  picture() {
    const { model } = this.question;
    const best = this.answer.result?.best;
    const name = column => model.variables[column].name;
    const lines = [[`${model.name}`, "bold 20px sans-serif"]];
    const observed = this.question.shared().evidence;
    const shown = Object.entries(observed).slice(0, 20).map(([key, value]) => `${key} = ${typeof value === "object" ? JSON.stringify(value) : value}`);
    if (!this.grid) {
      lines.push([`Given: ${shown.length ? shown.join(", ") : "nothing"}`, "14px sans-serif"]);
      this.question.asked.slice(0, 30).forEach((column, i) => {
        if (best) lines.push([`${name(column)} = ${model.variables[column].states[best.state[i]]}`, "bold 16px sans-serif"]);
      });
    }
    if (best) {
      lines.push([`probability ${probability(best.log_conditional)}, log p = ${best.log_prob.toFixed(6)}`, "14px sans-serif"]);
      lines.push([this.answer.result.proof, "14px sans-serif"]);
    }
    const side = this.grid ? Math.min(24, Math.floor(560 / model.grid[1])) : 0;
    const height = 40 + lines.length * 26 + (this.grid ? side * model.grid[0] + 20 : 0);
    const canvas = make("canvas", { width: 1400, height: 2 * height });
    const context = canvas.getContext("2d");
    context.scale(2, 2);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, 700, height);
    context.fillStyle = "#111";
    lines.forEach(([text, font], i) => { context.font = font; context.fillText(text, 20, 36 + 26 * i, 660); });
    if (this.grid) {
      const top = 36 + 26 * lines.length;
      model.variables.forEach((_, column) => {
        const [x, y] = [20 + side * (column % model.grid[1]), top + side * Math.floor(column / model.grid[1])];
        const level = Math.round(255 * (1 - this.grid.shade(column)[0]));
        context.fillStyle = `rgb(${level},${level},${level})`;
        context.fillRect(x, y, side, side);
        context.strokeStyle = this.question.role(column) === "asked" ? "#1659c7" : "#ccc";
        context.lineWidth = this.question.role(column) === "asked" ? 2 : 0.5;
        context.strokeRect(x + 1, y + 1, side - 2, side - 2);
      });
    }
    return canvas;
  }
}

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
