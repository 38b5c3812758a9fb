/* Values over the last minutes, with axes. */
const LEFT = 46, RIGHT = 12, TOP = 9, BOTTOM = 19;

class Plot {
  constructor(title, keys, empty, tell) {
    Object.assign(this, {title, empty, tell, keys, stepped: keys.length === 1, cursor: null});
    this.svg = draw("svg", {tabindex: "0", role: "img"});
    this.told = make("span", {class: "soft"});
    const head = make("div", {class: "head"}, make("h3", {}, title), this.told);
    const made = make("div", {}, head, this.svg);
    if (keys.length > 1) head.after(make("div", {class: "soft"}, ...keys.map((name, index) =>
      make("span", {class: index ? "key second" : "key"}, name))));
    at("plots").append(made);
    this.periods = [];
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    for (const name of ["pointerleave", "blur"])
      this.svg.addEventListener(name, () => { this.cursor = null; this.render(); });
    this.svg.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.render()).observe(this.svg);
  }

  /* `periods`: {from, to} in seconds ago and `values`, null where there is none; oldest first. */
  show(periods) {
    this.periods = periods;
    this.render();
  }

  point(x) {
    const age = (1 - (x - LEFT) / (this.width - LEFT - RIGHT)) * this.span;
    const found = this.periods.findIndex((one) => age <= one.from && age >= one.to);
    this.cursor = found < 0 ? null : this.periods.length - found;
    this.render();
  }

  step(event) {
    const by = {ArrowLeft: 1, ArrowRight: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    this.cursor = Math.min(Math.max((this.cursor || 0) + by, 1), this.periods.length) || null;
    this.render();
  }

  x(age) {
    return LEFT + (1 - Math.min(age / this.span, 1)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    return TOP + (1 - value / this.top) * (this.height - TOP - BOTTOM);
  }

  render() {
    const periods = this.periods, known = periods.flatMap((one) => one.values)
      .filter((value) => value !== null);
    const most = Math.max(0, ...known);
    [this.width, this.height] = [this.svg.clientWidth, this.svg.clientHeight];
    if (!this.width) return;
    this.span = [60, 120, 300].find((span) => periods.length && periods[0].from <= span) || 600;
    if (!periods.length) this.span = 60;
    this.top = most ? nice(most) : 1;
    const drawn = most ? this.stepped ? this.area() : this.lines() : [draw("text",
      {x: (LEFT + this.width) / 2, y: this.height / 2 - 4, "text-anchor": "middle"}, this.empty)];
    this.svg.replaceChildren(...this.axes(most), ...drawn, ...this.marked());
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("aria-label", `${this.title}, ${most ? this.told.textContent
      : this.empty}, over the last ${duration(this.span)}; arrow keys go through the values`);
  }

  axes(most) {
    const right = this.width - RIGHT, made = [];
    for (const value of most ? [0, this.top / 2, this.top] : [0]) {
      const y = this.y(value);
      made.push(draw("line", {class: "grid", x1: LEFT, x2: right, y1: y, y2: y}), draw("text",
        {x: LEFT - 6, y: y + 4, "text-anchor": "end"}, value ? this.tick(value) : "0"));
    }
    for (const part of most ? [1, 0.5, 0] : [1, 0]) {
      const age = part * this.span, x = this.x(age);
      made.push(draw("line", {class: "grid", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM}),
        draw("text", {x, y: this.height - 4,
          "text-anchor": part === 1 ? "start" : part ? "middle" : "end"},
        age ? `${duration(age)} ago` : "now"));
    }
    return made;
  }

  tick(value) {
    return this.stepped ? number(value) : wait(value);
  }

  area() {
    const points = this.periods.flatMap((one) => {
      const y = this.y(one.values[0]);
      return [`${this.x(one.from)},${y}`, `${this.x(one.to)},${y}`];
    });
    const floor = this.y(0), first = this.x(this.periods[0].from);
    const last = this.x(this.periods[this.periods.length - 1].to);
    return [
      draw("polygon", {class: "area", points: `${first},${floor} ${points.join(" ")} ${last},${floor}`}),
      draw("polyline", {class: "series", points: points.join(" ")})];
  }

  lines() {
    return this.keys.flatMap((_, index) => {
      const name = index ? " second" : "", made = [];
      let run = [];
      const end = () => {
        if (run.length > 1)
          made.push(draw("polyline", {class: `series${name}`, points: run.join(" ")}));
        else if (run.length)
          made.push(draw("circle", {class: `point${name}`, r: 3, cx: run[0][0], cy: run[0][1]}));
        run = [];
      };
      for (const one of this.periods) {
        if (one.values[index] === null) end();
        else run.push([this.x((one.from + one.to) / 2), this.y(one.values[index])]);
      }
      end();
      return made;
    });
  }

  /* What is under the pointer, or else the newest values. */
  marked() {
    const chosen = this.cursor && this.periods[this.periods.length - this.cursor];
    const newest = this.periods.findLast((one) => one.values[0] !== null);
    const one = chosen || newest;
    const told = one ? one.values[0] === null ? "none" : this.tell(...one.values) : "";
    const when = chosen ? `${duration(chosen.from)} ago: ` : "";
    put(this.told, `${when}${told}`);
    if (!chosen) return [];
    const x = this.x((chosen.from + chosen.to) / 2);
    return [draw("line", {class: "at", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM})];
  }
}

function nice(most) {
  const base = 10 ** Math.floor(Math.log10(most));
  return base * [1, 2, 4, 6, 8, 10].find((factor) => factor * base >= most * 0.999);
}

const plots = {
  rate: new Plot("New tokens a second", ["tokens/s"], "no new tokens yet",
    (rate) => `${number(rate)} tokens/s`),
  first: new Plot("Time to first token", ["p50", "p99"], "no request yet",
    (p50, p99) => `p50 ${wait(p50)}, p99 ${wait(p99)}`),
  between: new Plot("Time between tokens of a stream", ["p50", "p99"], "no stream yet",
    (p50, p99) => `p50 ${wait(p50)}, p99 ${wait(p99)}`),
};

function showHistory(history) {
  const whole = history.filter((one, index) => index < history.length - 1 || one.seconds >= 1);
  let age = history.length > whole.length ? history[history.length - 1].seconds : 0;
  const spans = whole.map((one) => one).reverse().map((one) => {
    const to = age;
    age += one.seconds;
    return {one, from: age, to};
  }).reverse();
  const times = (found) => found ? [found.p50, found.p99] : [null, null];
  const series = (values) => spans.map(({one, from, to}) => ({from, to, values: values(one)}));
  plots.rate.show(series((one) => [one.new_tokens / one.seconds]));
  plots.first.show(series((one) => times(one.first_token)));
  plots.between.show(series((one) => times(one.between_tokens)));
}
