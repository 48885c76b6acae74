// A series under its dates: weights as a strip along the dates, and under it every series on the same axis, with the weights of the
// chosen row as bars behind it. Dates always run from left to right, whichever side of the map they are on.

import {placeOn} from "./axes.js";
import {digits, element, shape} from "./dom.js";
import {ink} from "./palette.js";
import {averageRow, column, limitOf} from "./weights.js";

const TICKS = 6, HEIGHT = 72, WIDTH = 1000;      // of a series, in the units of its drawing
const ROW = 14, TALLEST = 320;      // pixels of the strip

const transposed = (weights) => weights[0].map((_, key) => column(weights, key));

export class DatesChart {
  constructor(map) {
    const along = map.keys.kind === "dates" ? "key" : "query", across = along === "key" ? "query" : "key";
    Object.assign(this, {map, along, across, dates: along === "key" ? map.keys : map.queries, others: along === "key" ? map.queries : map.keys});
    this.strip = element("canvas", {className: "strip-of-dates", role: "img", tabIndex: 0, width: this.dates.labels.length, height: this.others.labels.length,
      data: {stage: along}});
    this.strip.style.height = `${Math.min(TALLEST, Math.max(24, ROW * this.others.labels.length))}px`;
    this.strip.locate = (event) => {
      const [x, y] = placeOn(this.strip, event);
      return {[along]: Math.floor(x * this.dates.labels.length), [across]: Math.floor(y * this.others.labels.length)};
    };
    this.series = Object.entries(this.dates.series ?? {}).map(([name, values]) => this.chart(name, values));
    this.root = element("div", {className: "looks dates"}, this.names(), this.strip, ...this.series.flatMap(({label, svg}) => [label, svg]),
      element("span"), this.ticks());
  }

  names() {
    const {labels, kind} = this.others, title = this.along === "key" ? this.map.query_title : this.map.key_title;
    const isLong = kind === "dates" || labels.length * ROW > TALLEST;
    const shown = isLong ? [labels[0], labels.at(-1)] : labels;
    return element("div", {className: `names ${isLong ? "ends" : ""}`, role: "group", "aria-label": title},
      ...shown.map((text) => element("span", {textContent: text, title: text})));
  }

  ticks() {
    const {labels} = this.dates, every = Math.max(1, Math.ceil(labels.length / TICKS));
    const shown = labels.map((label, place) => [label, place]).filter(([, place]) => place % every === 0);
    return element("div", {className: "ticks"}, ...shown.map(([label, place]) => element("span", {textContent: label, "--place": (place + .5) / labels.length})));
  }

  // One series: gaps where a value is missing.
  chart(name, values) {
    const known = values.filter((value) => value !== null), low = Math.min(...known), high = Math.max(...known);
    const x = (place) => (place + .5) / values.length * WIDTH, y = (value) => high === low ? HEIGHT / 2 : HEIGHT - 6 - (value - low) / (high - low) * (HEIGHT - 12);
    const bars = shape("g"), marks = shape("g", {class: "marks"}, ...this.markedRects(values.length)), line = values.map((value, place) => value === null ? "" : `${place && values[place - 1] !== null ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const marker = shape("line", {class: "marker", y1: 0, y2: HEIGHT});
    const svg = shape("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "series", role: "img", "aria-label": `${name}: from ${digits(low)} to ${digits(high)}`},
      marks, bars, shape("path", {d: line}), marker);
    svg.locate = (event) => ({[this.along]: Math.floor(placeOn(svg, event)[0] * values.length)});
    const label = element("div", {className: "series-name"}, element("b", {textContent: name}), element("span", {textContent: digits(high)}), element("span", {textContent: digits(low)}));
    return {label, svg, bars, marker, values};
  }

  // Behind every date that is marked, such as clouded ones.
  markedRects(count) {
    const width = WIDTH / count;
    return (this.dates.marked ?? []).flatMap((isMarked, place) => isMarked ? [shape("rect", {x: place * width, width, y: 0, height: HEIGHT})] : []);
  }

  // The place one step away on the strip, for the arrow keys.
  neighbour(chosen, [right, down]) {
    const move = (index, by, count) => Math.min(Math.max((index ?? 0) + by, 0), count - 1);
    return {[this.along]: move(chosen[this.along], right, this.dates.labels.length), [this.across]: move(chosen[this.across], down, this.others.labels.length)};
  }

  limit({weights}) { return limitOf(weights); }

  update(state) {
    const rows = this.along === "key" ? state.weights : transposed(state.weights), limit = this.limit(state);
    const pen = this.strip.getContext("2d"), chosen = state.chosen[this.across] ?? state.pinned?.[this.across], date = state.chosen[this.along];
    rows.forEach((row, other) => row.forEach((weight, place) => {
      pen.fillStyle = ink(weight / limit);
      pen.fillRect(place, other, 1, 1);
    }));
    this.strip.setAttribute("aria-label", `Weights along ${this.dates.labels.length} dates`);
    const row = chosen === undefined ? averageRow(rows) : rows[chosen], width = WIDTH / row.length;
    const height = (place) => HEIGHT * Math.min(1, row[place] / limit);
    for (const {bars, marker, values} of this.series) {
      bars.replaceChildren(...values.map((_, place) => shape("rect", {x: place * width, width: .9 * width, y: HEIGHT - height(place), height: height(place)})));
      marker.setAttribute("visibility", date === undefined ? "hidden" : "visible");
      for (const end of ["x1", "x2"]) marker.setAttribute(end, ((date ?? 0) + .5) * width);
    }
    [...this.root.querySelectorAll(".names:not(.ends) span")].forEach((name, place) => name.classList.toggle("chosen", place === chosen));
  }
}
