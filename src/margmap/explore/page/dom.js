// Small helpers. Names of variables and states only ever become text, never markup.

/** An element with properties, attributes (in `set`) and children; strings become text. */
export function make(tag, properties = {}, ...children) {
  const { set = {}, data = {}, ...plain } = properties;
  const element = Object.assign(document.createElement(tag), plain);
  for (const [name, value] of Object.entries(set)) if (value !== undefined) element.setAttribute(name, value);
  Object.assign(element.dataset, data);
  element.append(...children);
  return element;
}

export const find = id => document.getElementById(id);

/** An element of SVG. */
export function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A set of buttons of which one is on; arrow keys move within it. */
export function choice(holder, options, chosen, choose) {
  const buttons = options.map(([value, text]) => make("button", {
    type: "button", textContent: text, data: { value },
    set: { role: "radio" },
    onclick: () => { show(value); choose(value); },
  }));
  function show(value) {
    for (const button of buttons) {
      const on = button.dataset.value === value;
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
  }
  holder.replaceChildren(...buttons);
  holder.onkeydown = event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  };
  show(chosen);
  return show;
}

/** A probability given by its logarithm, as people read it. */
export function probability(log) {
  if (log === null || log === undefined) return "unknown";
  const p = Math.exp(Math.min(log, 0));
  if (p >= 0.9999 && p < 1) return `${(100 * p).toFixed(4)} %`;
  if (p >= 0.0001) return `${Number((100 * p).toPrecision(4))} %`;
  const power = Math.floor(log / Math.LN10 + 1e-12);
  return `${(10 ** (log / Math.LN10 - power)).toFixed(2)}·10${superscript(power)}`;
}

function superscript(number) {
  return [...String(number)].map(c => ({ "-": "⁻" })[c] ?? "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join("");
}

export const percent = p => p >= 0.9995 && p < 1 ? ">99.9 %" : p > 0 && p < 0.0005 ? "<0.1 %" : `${(100 * p).toFixed(1)} %`;
