"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const config = JSON.parse(document.getElementById("data").textContent);

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const shape = (name, attributes = {}, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };

  // ---- Tables: a click on a heading sorts, a second one turns the order round.

  const keyOf = (row, column, number) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent;
    if (!number) return text === "–" ? null : text;
    const value = cell.dataset.v === undefined ? NaN : Number(text);
    return Number.isNaN(value) ? null : value;
  };
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));

  const sortBy = (table, headings, column) => {
    const heading = headings[column];
    const number = heading.classList.contains("n");
    const now = heading.getAttribute("aria-sort");
    const sign = now === "ascending" ? -1 : 1;
    for (const other of headings) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: keyOf(row, column, number) }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      return sign * compare(a.key, b.key);
    });
    table.tBodies[0].append(...rows.map((entry) => entry.row));
  };

  for (const table of document.querySelectorAll("table")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = element("button", { type: "button" }, ...heading.childNodes);
      heading.replaceChildren(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sortBy(table, headings, column));
    });
  }

  // ---- Numbers on axes, as in the SVG files.

  const digits = (value, most) => String(Number(value.toPrecision(most)));
  const short = (value) => {
    const size = Math.abs(value);
    for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= unit) return digits(value / unit, 6) + letter;
    }
    return size > 0 && size < 1e-3 ? value.toExponential(2).replace(/\.?0+e/, "e") : digits(value, 6);
  };
  const stepFor = (least) => {
    const unit = 10 ** Math.floor(Math.log10(least));
    return unit * [1, 2, 5, 10].find((factor) => unit * factor >= least * (1 - 1e-9));
  };
  const linearTicks = (first, last, most) => {
    const step = stepFor((last - first) / most);
    const ticks = [];
    for (let i = Math.ceil(first / step); i <= Math.floor(last / step); i++) ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
  };
  const logTicks = (first, last, most) => {
    if (last - first < 0.7) {
      return linearTicks(10 ** first, 10 ** last, most).filter((value) => value > 0);
    }
    let inside = [];
    for (const factors of [[1, 2, 5], [1]]) {
      inside = [];
      for (let decade = Math.floor(first); decade <= Math.ceil(last); decade++) {
        for (const factor of factors) {
          const value = Number(`${factor}e${decade}`);
          if (Math.log10(value) >= first && Math.log10(value) <= last) inside.push(value);
        }
      }
      if (inside.length <= most) return inside;
    }
    const every = Math.ceil(inside.length / most);
    return inside.filter((_, i) => i % every === 0);
  };

  // ---- Plots that can be zoomed.

  class Plot {
    constructor(figure, data) {
      this.data = data;
      this.box = figure.querySelector(".plot");
      const still = this.box.querySelector("svg");
      this.named = [still.querySelector("title"), still.querySelector("desc")];
      this.labelled = still.getAttribute("aria-labelledby");
      this.hidden = new Set();
      this.series = data.series.map((series) => ({
        ...series,
        at: series.points.map(([x, y]) => [data.x.log ? Math.log10(x) : x, data.y.log ? Math.log10(y) : y]),
      }));
      this.home = this.extent();
      this.view = { ...this.home };
      this.pointers = new Map();
      this.build(still);
      this.draw();
      new ResizeObserver(() => this.later()).observe(this.canvas);
    }

    extent() {
      const range = (axis, log) => {
        let [first, last] = [Infinity, -Infinity];
        for (const series of this.series) {
          for (const point of series.at) {
            first = Math.min(first, point[axis]);
            last = Math.max(last, point[axis]);
          }
        }
        if (first > last) [first, last] = [0, 1];
        const margin = (last - first) * 0.03 || 0.5;
        return [first === 0 && !log ? 0 : first - margin, last + margin];
      };
      const [x0, x1] = range(0, this.data.x.log);
      const [y0, y1] = range(1, this.data.y.log);
      return { x0, x1, y0, y1 };
    }

    build(still) {
      const name = this.named[0].textContent;
      this.canvas = element("div", { class: "canvas", tabindex: "0", role: "group", "aria-label": `${name}. Zoom with plus and minus, move with the arrow keys, 0 shows all.` });
      this.tip = element("div", { class: "tip", hidden: "" });
      const legend = element("div", { class: "legend", role: "group", "aria-label": "Lines to show" });
      this.series.forEach((series, i) => legend.append(this.legendButton(series, i)));
      const tool = (text, label, action) => {
        const button = element("button", { type: "button", "aria-label": `${label}: ${name}`, title: label }, text);
        button.addEventListener("click", action);
        return button;
      };
      const tools = element("div", { class: "tools" },
        tool("+", "Zoom in", () => this.zoom(0.6)),
        tool("−", "Zoom out", () => this.zoom(1 / 0.6)),
        tool("Reset", "Show all", () => this.reset()));
      const hint = element("p", { class: "hint" }, "Drag to zoom into a part, double-click to see all. After a click the wheel zooms too; Shift and drag moves. On a touch screen, pinch.");
      still.remove();
      this.box.prepend(element("div", { class: "bar" }, legend, tools), this.canvas, this.tip, hint);
      this.listen();
    }

    legendButton(series, i) {
      const swatch = shape("svg", { viewBox: "0 0 30 14", "aria-hidden": "true" });
      swatch.append(this.line(series, "M1 7H29"), this.markers(series, [[15, 7]]));
      const button = element("button", { type: "button", "aria-pressed": "true" }, swatch, series.label);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(i)) this.hidden.add(i);
        button.setAttribute("aria-pressed", String(!this.hidden.has(i)));
        this.later();
      });
      return button;
    }

    line(series, d) {
      const dash = config.dashes[series.dash % config.dashes.length];
      return shape("path", { class: `line s${series.style % config.markers.length}`, d, ...(dash && { "stroke-dasharray": dash }) });
    }

    markers(series, points) {
      const style = series.style % config.markers.length;
      const d = points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}${config.markers[style]}`).join("");
      return shape("path", { class: `m s${style}`, d });
    }

    later() {
      this.waiting ??= requestAnimationFrame(() => {
        this.waiting = undefined;
        this.draw();
      });
    }

    place(point) {
      const { x0, x1, y0, y1 } = this.view;
      const { left, right, top, bottom } = this.area;
      return [left + ((point[0] - x0) / (x1 - x0)) * (right - left), bottom - ((point[1] - y0) / (y1 - y0)) * (bottom - top)];
    }

    /** From a place on the paper back to a point of the plot. */
    point(x, y) {
      const { x0, x1, y0, y1 } = this.view;
      const { left, right, top, bottom } = this.area;
      return [x0 + ((x - left) / (right - left)) * (x1 - x0), y0 + ((bottom - y) / (bottom - top)) * (y1 - y0)];
    }

    draw() {
      const width = Math.max(220, Math.round(this.canvas.clientWidth));
      const height = Math.round(Math.min(440, Math.max(250, width * 0.56)));
      const { x0, x1, y0, y1 } = this.view;
      const { x, y } = this.data;
      const yTicks = (y.log ? logTicks : linearTicks)(y0, y1, Math.max(3, Math.floor(height / 50)));
      const xTicks = (x.log ? logTicks : linearTicks)(x0, x1, Math.max(3, Math.floor(width / 75)));
      const longest = Math.max(1, ...yTicks.map((value) => short(value).length));
      this.area = { left: 30 + 7 * longest, right: width - 12, top: 10, bottom: height - 44 };
      const { left, right, top, bottom } = this.area;
      const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": this.labelled });
      svg.append(...this.named);
      for (const value of xTicks) {
        const [at] = this.place([x.log ? Math.log10(value) : value, y0]);
        svg.append(shape("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }));
        svg.append(shape("text", { class: "x-tick", x: at, y: bottom + 17, "text-anchor": "middle" }, short(value)));
      }
      for (const value of yTicks) {
        const at = this.place([x0, y.log ? Math.log10(value) : value])[1];
        svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
        svg.append(shape("text", { class: "y-tick", x: left - 5, y: at + 4, "text-anchor": "end" }, short(value)));
      }
      const clip = `clip-${this.data.name}`;
      const clipPath = shape("clipPath", { id: clip });
      clipPath.append(shape("rect", { x: left, y: top, width: right - left, height: bottom - top }));
      const lines = shape("g", { "clip-path": `url(#${clip})` });
      this.shown = [];
      this.series.forEach((series, i) => {
        if (!this.hidden.has(i) && series.at.length) lines.append(...this.drawn(series));
      });
      this.mark = shape("circle", { class: "near", r: 6, visibility: "hidden" });
      this.choice = shape("rect", { class: "choice", visibility: "hidden" });
      svg.append(clipPath, lines, shape("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }));
      svg.append(shape("text", { x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, this.fitted(x.label, right - left)));
      svg.append(shape("text", { transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label));
      svg.append(this.mark, this.choice);
      this.svg = svg;
      this.canvas.replaceChildren(svg);
      this.tip.hidden = true;
    }

    /** A label without what is in parentheses where there is no room for it. */
    fitted(text, room) {
      return text.length * 6.5 > room ? text.replace(/ \(.*/, "") : text;
    }

    drawn(series) {
      const places = series.at.map((point) => this.place(point));
      let d = "";
      places.forEach(([x, y], i) => {
        const [px, py] = [x.toFixed(1), y.toFixed(1)];
        d += i === 0 ? `M${px} ${py}` : series.step ? `H${px}V${py}` : `L${px} ${py}`;
      });
      const { left, right, top, bottom } = this.area;
      const inside = [];
      places.forEach(([x, y], i) => {
        if (x >= left - 1 && x <= right + 1 && y >= top - 1 && y <= bottom + 1) {
          inside.push([x, y]);
          this.shown.push({ x, y, series, values: series.points[i] });
        }
      });
      const every = Math.max(1, Math.floor(inside.length / 14));
      const marked = inside.filter((_, i) => i % every === 0 || i === inside.length - 1);
      return [this.line(series, d), this.markers(series, marked)];
    }

    set(view) {
      for (const axis of ["x", "y"]) {
        const [low, high] = [view[`${axis}0`], view[`${axis}1`]];
        const all = this.home[`${axis}1`] - this.home[`${axis}0`];
        if (!(high - low > all * 1e-6 && high - low <= all * 1.0001)) {
          if (high - low <= all * 1e-6) return;
          view[`${axis}0`] = this.home[`${axis}0`];
          view[`${axis}1`] = this.home[`${axis}1`];
        } else if (low < this.home[`${axis}0`]) {
          view[`${axis}0`] = this.home[`${axis}0`];
          view[`${axis}1`] = this.home[`${axis}0`] + high - low;
        } else if (high > this.home[`${axis}1`]) {
          view[`${axis}1`] = this.home[`${axis}1`];
          view[`${axis}0`] = this.home[`${axis}1`] - (high - low);
        }
      }
      this.view = view;
      this.later();
    }

    zoom(factor, center) {
      const { x0, x1, y0, y1 } = this.view;
      const [cx, cy] = center ?? [(x0 + x1) / 2, (y0 + y1) / 2];
      this.set({ x0: cx + (x0 - cx) * factor, x1: cx + (x1 - cx) * factor, y0: cy + (y0 - cy) * factor, y1: cy + (y1 - cy) * factor });
    }

    move(dx, dy) {
      const { x0, x1, y0, y1 } = this.view;
      const [mx, my] = [dx * (x1 - x0), dy * (y1 - y0)];
      this.set({ x0: x0 + mx, x1: x1 + mx, y0: y0 + my, y1: y1 + my });
    }

    reset() {
      this.set({ ...this.home });
    }

    where(event) {
      const frame = this.canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    }

    listen() {
      const { canvas } = this;
      canvas.addEventListener("wheel", (event) => {
        if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(Math.exp(Math.max(-50, Math.min(50, event.deltaY)) * 0.006), this.point(...this.where(event)));
      }, { passive: false });
      canvas.addEventListener("dblclick", () => this.reset());
      canvas.addEventListener("keydown", (event) => {
        const actions = {
          "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.reset(),
          Escape: () => this.reset(), ArrowLeft: () => this.move(-0.15, 0), ArrowRight: () => this.move(0.15, 0),
          ArrowUp: () => this.move(0, 0.15), ArrowDown: () => this.move(0, -0.15),
        };
        if (event.key in actions && !event.ctrlKey && !event.metaKey && !event.altKey) {
          event.preventDefault();
          actions[event.key]();
        }
      });
      canvas.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        this.pointers.set(event.pointerId, this.where(event));
        canvas.setPointerCapture(event.pointerId);
        this.begin = event.pointerType === "mouse" && !event.shiftKey ? this.where(event) : undefined;
        if (event.pointerType !== "mouse") this.pointAt(this.where(event));
      });
      canvas.addEventListener("pointermove", (event) => this.moved(event));
      const end = (event) => this.ended(event);
      canvas.addEventListener("pointerup", end);
      canvas.addEventListener("pointercancel", end);
      canvas.addEventListener("pointerleave", (event) => {
        if (event.pointerType === "mouse") this.pointAt(undefined);
      });
    }

    moved(event) {
      const now = this.where(event);
      const before = this.pointers.get(event.pointerId);
      if (!before) {
        this.pointAt(now);
        return;
      }
      const { left, right, top, bottom } = this.area;
      if (this.begin) {
        this.pointAt(undefined);
        const [x, y, width, height] = this.chosen(now);
        for (const [key, value] of Object.entries({ x, y, width, height, visibility: "visible" })) this.choice.setAttribute(key, value);
        return;
      }
      this.pointers.set(event.pointerId, now);
      if (this.pointers.size === 2) {
        const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
        const apart = (a, b) => Math.max(20, Math.hypot(a[0] - b[0], a[1] - b[1]));
        this.zoom(apart(before, other) / apart(now, other), this.point((now[0] + other[0]) / 2, (now[1] + other[1]) / 2));
      } else {
        this.move(-(now[0] - before[0]) / (right - left), (now[1] - before[1]) / (bottom - top));
      }
    }

    /** The rectangle between where dragging began and here; as high as the plot if it is flat. */
    chosen(now) {
      const { left, right, top, bottom } = this.area;
      const inside = ([x, y]) => [Math.min(right, Math.max(left, x)), Math.min(bottom, Math.max(top, y))];
      const [a, b] = [inside(this.begin), inside(now)];
      const [x, width] = [Math.min(a[0], b[0]), Math.abs(a[0] - b[0])];
      const [y, height] = [Math.min(a[1], b[1]), Math.abs(a[1] - b[1])];
      return height < 8 ? [x, top, width, bottom - top] : [x, y, width, height];
    }

    ended(event) {
      if (!this.pointers.delete(event.pointerId) || !this.begin) return;
      const [x, y, width, height] = this.chosen(this.where(event));
      this.begin = undefined;
      this.choice.setAttribute("visibility", "hidden");
      if (event.type !== "pointerup" || width < 8) return;
      const [x0, y1] = this.point(x, y);
      const [x1, y0] = this.point(x + width, y + height);
      this.set({ x0, x1, y0, y1 });
    }

    pointAt(place) {
      let best;
      let least = 30 * 30;
      for (const entry of place ? this.shown : []) {
        const distance = (entry.x - place[0]) ** 2 + (entry.y - place[1]) ** 2;
        if (distance < least) [least, best] = [distance, entry];
      }
      this.tip.hidden = !best;
      this.mark.setAttribute("visibility", best ? "visible" : "hidden");
      if (!best) return;
      this.mark.setAttribute("cx", best.x);
      this.mark.setAttribute("cy", best.y);
      const text = (axis, value) => `${this.data[axis].label.replace(/ \(pruned.*/, "")}: ${digits(value, 7)}`;
      this.tip.textContent = `${best.series.label}\n${text("x", best.values[0])}\n${text("y", best.values[1])}`;
      const frame = this.canvas.getBoundingClientRect();
      const outer = this.box.getBoundingClientRect();
      const room = outer.width - this.tip.offsetWidth - 8;
      this.tip.style.left = `${Math.max(4, Math.min(room, best.x + frame.left - outer.left + 12))}px`;
      this.tip.style.top = `${Math.max(4, best.y + frame.top - outer.top - this.tip.offsetHeight - 10)}px`;
    }
  }

  for (const data of config.plots) new Plot(document.getElementById(`figure-${data.name}`), data);
})();
