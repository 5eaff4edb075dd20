// The question: for each variable whether it is observed, asked or summed out. Variables are columns, values are codes.

const HIDDEN = Object.freeze({ role: "hidden" });

export class Question {
  constructor(model) {
    this.model = model;
    this.entries = model.variables.map(() => HIDDEN);
    this.k = 5;
    this.listeners = [];
  }

  role(column) { return this.entries[column].role; }

  get asked() { return this.columns("asked"); }

  columns(role) { return this.entries.flatMap((entry, column) => entry.role === role ? [column] : []); }

  /** Change some entries at once; whoever listens hears of it once. */
  change(changes) {
    for (const [column, entry] of changes) if (this.allowed(column, entry)) this.entries[column] = Object.freeze(entry);
    for (const listen of this.listeners) listen(changes.map(([column]) => column));
  }

  allowed(column, entry) {
    const variable = this.model.variables[column];
    return variable !== undefined && !(entry.role === "asked" && (variable.continuous || !variable.mentioned));
  }

  set(column, entry) { this.change([[column, entry]]); }

  ask(column) { this.set(column, this.role(column) === "asked" ? HIDDEN : { role: "asked" }); }

  sumOut(column) { this.set(column, HIDDEN); }

  /** Observe a value, or take the observation back if it is that already. */
  observe(column, value) {
    const entry = this.entries[column];
    const same = entry.role === "observed" && entry.form === "value" && entry.value === value;
    this.set(column, same ? HIDDEN : { role: "observed", form: "value", value });
  }

  /** Add a value to the set of which one holds, or take it out. */
  toggle(column, code) {
    const entry = this.entries[column];
    const before = entry.form === "set" ? entry.codes : entry.form === "value" ? [entry.value] : [];
    const codes = before.includes(code) ? before.filter(x => x !== code) : [...before, code].sort((a, b) => a - b);
    this.set(column, codes.length === 0 ? HIDDEN : { role: "observed", form: "set", codes });
  }

  clear() { this.change(this.entries.map((_, column) => [column, HIDDEN])); }

  askRest() {
    this.change(this.entries.flatMap((entry, column) => entry.role === "hidden" ? [[column, { role: "asked" }]] : []));
  }

  /** What the server is sent. */
  request() {
    const evidence = {};
    for (const column of this.columns("observed")) {
      const entry = this.entries[column];
      if (entry.form === "set") evidence[column] = entry.codes;
      else if (entry.form === "soft") evidence[column] = Object.fromEntries(entry.weights.map((w, code) => [code, w]));
      else evidence[column] = entry.value;
    }
    return { query: this.asked, evidence, k: this.k };
  }

  /** The question in names, as a link holds it and as `margmap solve --instance` reads it. */
  shared() {
    const { variables } = this.model;
    const evidence = {};
    for (const column of this.columns("observed")) {
      const { name, states } = variables[column];
      const entry = this.entries[column];
      if (entry.form === "set") evidence[name] = entry.codes.map(code => states[code]);
      else if (entry.form === "soft") evidence[name] = Object.fromEntries(entry.weights.map((w, code) => [states[code], w]));
      else evidence[name] = entry.form === "real" ? entry.value : states[entry.value];
    }
    return { query: this.asked.map(column => variables[column].name), evidence };
  }

  /** Take a question in names over; what this model does not have is left out, and told. */
  load(shared) {
    const { variables } = this.model;
    const column = new Map(variables.map((variable, at) => [variable.name, at]));
    const changes = new Map(variables.map((_, at) => [at, HIDDEN]));
    const unknown = [];
    for (const name of Array.isArray(shared?.query) ? shared.query : []) {
      const at = column.get(String(name));
      if (at === undefined) unknown.push(String(name));
      else changes.set(at, { role: "asked" });
    }
    for (const [name, given] of Object.entries(shared?.evidence ?? {})) {
      const at = column.get(name);
      const entry = at === undefined ? undefined : entryOf(variables[at], given);
      if (entry === undefined) unknown.push(name);
      else changes.set(at, entry);
    }
    this.change([...changes]);
    return unknown;
  }
}

/** The entry for evidence in names; undefined where it means nothing for this variable. */
function entryOf(variable, given) {
  const code = state => { const at = variable.states.indexOf(String(state)); return at < 0 ? undefined : at; };
  if (variable.continuous) {
    return typeof given === "number" && Number.isFinite(given) ? { role: "observed", form: "real", value: given } : undefined;
  }
  if (Array.isArray(given)) {
    const codes = given.map(code);
    return codes.length && !codes.includes(undefined) ? { role: "observed", form: "set", codes } : undefined;
  }
  if (given !== null && typeof given === "object") {
    const weights = variable.states.map(() => 0);
    for (const [state, weight] of Object.entries(given)) {
      if (code(state) === undefined || !(weight >= 0)) return undefined;
      weights[code(state)] = Number(weight);
    }
    return { role: "observed", form: "soft", weights };
  }
  return code(given) === undefined ? undefined : { role: "observed", form: "value", value: code(given) };
}

/** Text for the part of an address after #, and back. */
export function toLink(shared) {
  const bytes = new TextEncoder().encode(JSON.stringify(shared));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return `q=${btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

export function fromLink(hash) {
  const found = /^#?q=([\w-]+)$/.exec(hash);
  if (!found) return undefined;
  try {
    const text = atob(found[1].replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, c => c.charCodeAt(0))));
  } catch { return undefined; }
}
