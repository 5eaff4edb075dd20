// The page: the question, the list of variables, the grid, the answer, and what connects them.

import { Answer } from "./answer.js";
import { Asker } from "./ask.js";
import { find, make, percent } from "./dom.js";
import { Exports } from "./export.js";
import { Grid } from "./grid.js";
import { Question, fromLink, toLink } from "./state.js";
import { Variables } from "./variables.js";

const body = document.body;

async function start() {
  let model;
  try {
    model = await (await fetch("model")).json();
  } catch {
    find("gone").hidden = false;
    find("again").onclick = () => location.reload();
    return;
  }
  find("model").textContent = model.name;
  find("size").textContent = `${model.kind === "network" ? "Network" : "Circuit"}, ${model.size}`;
  document.title = `${model.name} – margmap explore`;

  // On a narrow screen the variables would be far below.
  for (const part of document.querySelectorAll("details")) part.open = matchMedia("(min-width: 62rem)").matches;
  const question = new Question(model);
  const variables = new Variables(question);
  const grid = model.grid ? new Grid(question) : undefined;
  const answer = new Answer(question);
  new Exports(question, answer, grid);
  const asker = new Asker("ask");
  const changes = new Asker("changes");

  function ask(begun) {
    changes.stop();
    changesEnd();
    body.dataset.state = "asking";
    answer.begin();
    asker.ask(question.request(), event => hear(event, begun), how => {
      answer.end(how);
      find("gone").hidden = how !== "gone";
      if (body.dataset.state !== "error" || how === "gone") body.dataset.state = how === "gone" ? "gone" : "answered";
      body.dataset.answered = asker.number;
    });
  }

  function hear(event, begun) {
    find("gone").hidden = true;
    if (event.kind === "progress") answer.progress(event);
    else if (event.kind === "error") {
      answer.error(event.error);
      body.dataset.state = "error";
      find("announce").textContent = event.error;
      painted(begun);
    } else if (event.kind === "answer") {
      answer.show(event);
      const best = new Map(event.best ? question.asked.map((column, i) => [column, event.best.state[i]]) : []);
      variables.show(undefined, best);
      grid?.show(undefined, best);
      announce();
      painted(begun);
    } else if (event.kind === "posteriors") {
      find("no-posteriors").hidden = !event.why;
      find("no-posteriors").textContent = event.why ? `How likely the states are is not shown: ${event.why}` : "";
      variables.show(event.posteriors, question.asked.length ? undefined : new Map());
      grid?.show(event.posteriors, question.asked.length ? undefined : new Map());
      if (question.asked.length === 0) painted(begun);
    } else if (event.kind === "top") answer.several(event);
  }

  // How long the answer took from the click to the screen, for whoever measures.
  function painted(begun) {
    requestAnimationFrame(() => performance.measure("answer", { start: begun, end: performance.now() }));
  }

  let speaking;
  function announce() {
    clearTimeout(speaking);
    speaking = setTimeout(() => { find("announce").textContent = answer.said(); }, 600);
  }

  function counts() {
    const observed = question.columns("observed").length, asked = question.asked.length;
    find("counts").textContent = `${observed} observed, ${asked} asked, ${model.variables.length - observed - asked} summed out`;
  }

  // Several changes between two frames are one question.
  let waiting = false;
  question.listeners.push(() => {
    counts();
    if (waiting) return;
    waiting = true;
    const begun = performance.now();
    queueMicrotask(() => {
      waiting = false;
      history.replaceState(null, "", `#${toLink(question.shared())}`);
      ask(begun);
    });
  });

  // What would change the answer.
  function changesEnd() { find("changes-find").disabled = false; }

  find("changes-find").onclick = () => {
    const list = find("changes"), text = find("changes-text");
    list.replaceChildren();
    text.textContent = "Trying every single change of what is known …";
    find("changes-find").disabled = true;
    const base = answer.result?.best;
    changes.ask(question.request(), event => {
      if (event.kind === "error") text.textContent = event.error;
      else if (event.kind === "tried") {
        const found = list.childElementCount;
        text.textContent = `${found ? `${found} of ${event.tried}` : `None of ${event.tried}`} single changes would change the answer${event.complete ? "" : " (not all could be tried in time)"}.`;
      } else if (event.kind === "change") {
        const variable = model.variables[event.column];
        const how = event.to === null ? "not observed" : variable.states[event.to];
        const differs = question.asked.flatMap((column, i) => base && base.state[i] === event.state[i] ? [] : [`${model.variables[column].name} ${model.variables[column].states[event.state[i]]}`]);
        const shown = differs.length > 4 ? `${differs.slice(0, 4).join(", ")} and ${differs.length - 4} more` : differs.join(", ");
        list.append(make("li", {}, make("button", {
          type: "button", className: "link", textContent: `${variable.name}: ${how}`,
          title: "Make this change",
          onclick: () => event.to === null ? question.sumOut(event.column) : question.set(event.column, { role: "observed", form: "value", value: event.to }),
        }), `${event.probability === undefined ? "" : ` (${percent(event.probability)} likely)`} gives ${shown}${event.proven ? "" : ", not proven"}`));
      }
    }, how => { changesEnd(); if (how === "gone") text.textContent = "The server does not answer."; });
  };

  find("k").onchange = event => { question.k = Number(event.target.value); ask(performance.now()); };
  find("clear").onclick = () => question.clear();
  find("ask-rest").onclick = () => question.askRest();
  find("stop").onclick = () => asker.stop();
  find("again").onclick = () => ask(performance.now());
  addEventListener("keydown", event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) { find("search").focus(); event.preventDefault(); }
    if (event.key === "Escape" && event.target === find("search")) { find("search").value = ""; find("search").oninput(); find("variables").querySelector("[tabindex='0']")?.focus(); }
  });
  addEventListener("hashchange", () => { const shared = fromLink(location.hash); if (shared) question.load(shared); });

  counts();
  const shared = fromLink(location.hash);
  if (shared) question.load(shared);
  else ask(performance.now());
}

start();
