// An answer that is a course over time: what was known, the forecast with its interval, and what came, for each variable.

import {digits, element, shape} from "./dom.js";

const HEIGHT_OF_COURSE = 90, WIDTH_OF_COURSE = 1000, MARGIN = 6;

export class Chart {
  constructor() {
    this.root = element("div", {className: "courses", hidden: true});
  }

  show(chart) {
    this.root.hidden = !chart;
    this.root.replaceChildren(...(chart ? [legend(chart), ...chart.courses.map((course) => drawn(course, chart.labels)), ends(chart.labels)] : []));
  }
}

function legend({courses}) {
  const shown = ["known", "forecast", ...(courses.some(({truth}) => truth.length) ? ["came"] : [])];
  return element("p", {className: "legend-of-courses"}, ...shown.map((kind) => element("span", {className: kind, textContent: kind === "came" ? "what came" : kind})));
}

function drawn({name, known, forecast, low, high, truth}, labels) {
  const all = [...known, ...forecast, ...low, ...high, ...truth].filter((value) => value !== null), smallest = Math.min(...all), largest = Math.max(...all);
  const x = (place) => (place + .5) / labels.length * WIDTH_OF_COURSE, spread = largest - smallest || 1;
  const y = (value) => HEIGHT_OF_COURSE - MARGIN - (value - smallest) / spread * (HEIGHT_OF_COURSE - 2 * MARGIN);
  const line = (values, start) => values.map((value, place) => value === null ? "" : `${place && values[place - 1] !== null ? "L" : "M"}${x(start + place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const band = [...high.map((value, place) => [value, place]), ...low.map((value, place) => [value, place]).reverse()];
  const svg = shape("svg", {viewBox: `0 0 ${WIDTH_OF_COURSE} ${HEIGHT_OF_COURSE}`, preserveAspectRatio: "none", class: "course", role: "img",
    "aria-label": `${name}: forecast from ${digits(forecast[0])} to ${digits(forecast.at(-1))}`},
    shape("line", {class: "now", x1: x(known.length - .5), x2: x(known.length - .5), y1: 0, y2: HEIGHT_OF_COURSE}),
    ...(band.length ? [shape("path", {class: "band", d: `M${band.map(([value, place]) => `${x(known.length + place).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}Z`})] : []),
    shape("path", {class: "known", d: line(known, 0)}), shape("path", {class: "forecast", d: line([known.at(-1) ?? null, ...forecast], known.length - 1)}),
    ...(truth.length ? [shape("path", {class: "came", d: line(truth, known.length)})] : []));
  return element("div", {className: "course-of"}, element("div", {className: "series-name"}, element("b", {textContent: name}),
    element("span", {textContent: digits(largest)}), element("span", {textContent: digits(smallest)})), svg);
}

const ends = (labels) => element("div", {className: "ends-of-courses"}, element("span", {textContent: labels[0]}), element("span", {textContent: labels.at(-1)}));
