// Asking the server: one question at a time, the next one ends the one before.

const tab = crypto.randomUUID();

export class Asker {
  constructor(path) {
    this.path = path;
    this.controller = undefined;
    this.number = 0;
  }

  stop() {
    this.controller?.abort();
    this.controller = undefined;
  }

  /** Ask, and hand over each event while nothing newer was asked. `ended` hears how it went: done, stopped or gone. */
  async ask(request, hear, ended) {
    this.stop();
    const controller = this.controller = new AbortController();
    const number = ++this.number;
    const current = () => number === this.number && !controller.signal.aborted;
    try {
      const answer = await fetch(this.path, {
        method: "POST", headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ ...request, tab, number }), signal: controller.signal,
      });
      for await (const event of lines(answer.body)) if (current()) hear(event);
      if (current()) ended("done");
    } catch (error) {
      if (current()) ended("gone");
      else if (number === this.number) ended("stopped");
    }
  }
}

/** The lines of JSON in a stream of bytes. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
  if (rest.trim()) yield JSON.parse(rest);
}
