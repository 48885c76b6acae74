// A path over a picture, step by step: numbered windows, what was seen in each, and what the model believed after it.

import {element, shape} from "./dom.js";
import {Beliefs} from "./beliefs.js";
import {stepColour} from "./palette.js";
import {Stage} from "./stage.js";
import {limitOf} from "./weights.js";

const UNSEEN = .3;      // how bright the picture is where nothing was seen yet
const PAUSE = 900;      // milliseconds between the steps of a film

export class Player {
  constructor(map, photo, choose) {
    Object.assign(this, {map, photo, choose, axis: map.queries, count: map.queries.labels.length, timer: null});
    this.stage = new Stage("key", map.keys, photo, map.key_title);
    Object.assign(this.stage.canvas, {locate: () => null, tabIndex: -1});      // windows are chosen by their numbers
    this.path = shape("svg", {viewBox: `0 0 ${photo.columns} ${photo.rows}`, "aria-hidden": "true", class: "path"});
    this.buttons = this.axis.labels.map((label, step) => element("button", {type: "button", className: "step", textContent: step + 1,
      "aria-label": label, "aria-pressed": "false", "--colour": stepColour(step, this.count), onclick: () => { this.stop(); this.choose(step); }}));
    this.play = element("button", {type: "button", textContent: "Play", onclick: () => this.timer ? this.stop() : this.start()});
    this.beliefs = this.axis.probabilities?.length ? new Beliefs(this.axis.classes, this.axis.probabilities) : null;
    this.build();
  }

  build() {
    const steps = element("div", {className: "steps", role: "group", "aria-label": this.map.query_title}, ...this.buttons, this.play);
    steps.addEventListener("keydown", (event) => this.move(event));
    this.said = element("h3");
    this.patches = element("div", {className: "patches"});
    this.stage.root.replaceChildren(element("div", {className: "framed"}, this.stage.canvas, this.path));
    this.root = element("div", {className: "looks pictures film"}, this.stage.root, element("div", {className: "side"}, steps, this.said, this.patches,
      ...(this.beliefs ? [element("h3", {textContent: "Probability of each class after this step"}), this.beliefs.root] : [])));
  }

  limit({weights}) { return limitOf(weights); }

  step({chosen, pinned}) { return chosen.query ?? pinned?.query ?? this.count - 1; }

  update(state) {
    const step = this.shown = this.step(state), {windows, patches, labels} = this.axis;
    this.buttons.forEach((button, place) => {
      button.setAttribute("aria-pressed", String(place === step));
      button.tabIndex = place === step ? 0 : -1;
    });
    if (windows?.length) this.paintWindows(step);
    else this.stage.paint(state.weights[step], this.limit(state), state.strength, undefined, `The picture, coloured where ${labels[step]} looks`);
    const seen = patches?.[step] ?? [];
    this.said.textContent = `${labels[step]} of ${this.count}${seen.length ? `: what it sees${seen.length > 1 ? ", sharp to coarse" : ""}` : ""}`;
    this.patches.replaceChildren(...seen.map((address) => element("img", {src: address, alt: "", "--colour": stepColour(step, this.count)})));
    this.beliefs?.show(this.axis.probabilities[step]);
  }

  // The picture dark where nothing was seen yet, as in figures, and as it is inside the sharpest windows so far; coarser ones uncover half
  // as much.
  paintWindows(last) {
    const {canvas} = this.stage, pen = canvas.getContext("2d"), scale = canvas.width / this.photo.columns;
    pen.globalAlpha = 1;
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.globalAlpha = UNSEEN;
    if (this.photo.colour) pen.drawImage(this.photo.colour, 0, 0);
    const shown = this.axis.windows.slice(0, last + 1), scales = Math.max(...shown.map((squares) => squares.length));
    for (let level = scales - 1; level >= 0; level--) shown.forEach((squares) => {
      if (!squares[level] || !this.photo.colour) return;
      const [left, top, width, height] = this.inside(squares[level]).map((value) => value * scale);
      pen.globalAlpha = .5 ** level;
      if (width > 0 && height > 0) pen.drawImage(this.photo.colour, left, top, width, height, left, top, width, height);
    });
    pen.globalAlpha = 1;
    canvas.setAttribute("aria-label", `The picture after ${last + 1} of ${this.count} steps, dark where nothing was seen yet`);
    this.drawPath(last);
  }

  // The part of a window inside the picture: left, top, width, height.
  inside([row, column, side]) {
    const left = Math.max(column, 0), top = Math.max(row, 0);
    return [left, top, Math.min(column + side, this.photo.columns) - left, Math.min(row + side, this.photo.rows) - top];
  }

  drawPath(last) {
    const {windows} = this.axis, size = Math.max(this.photo.rows, this.photo.columns) / 26;
    const points = windows.map(([[row, column, side]]) => [column + side / 2, row + side / 2]), parts = [];
    for (let step = 0; step <= last; step++) {
      const stroke = stepColour(step, this.count), isLast = step === last;
      windows[step].forEach((square, level) => {
        if (level && !isLast) return;
        const [x, y, width, height] = level ? this.inside(square) : [square[1], square[0], square[2], square[2]];
        parts.push(shape("rect", {x, y, width, height, stroke, class: level ? "coarse" : "", opacity: isLast ? 1 : .5}));
      });
      if (step) parts.push(shape("path", {d: `M${points[step - 1]} L${points[step]}`, stroke}));
    }
    const places = apart(points.slice(0, last + 1), 2.1 * size);
    for (let step = 0; step <= last; step++) {
      const [cx, cy] = places[step], r = step === last ? 1.15 * size : size;
      parts.push(shape("circle", {cx, cy, r, fill: stepColour(step, this.count)}),
        shape("text", {x: cx, y: cy, "font-size": 1.25 * r}, String(step + 1)));
    }
    this.path.replaceChildren(...parts);
  }

  move(event) {
    const by = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? this.count - 1 : by ? this.shown + by : null;
    if (next === null || event.target === this.play) return;
    event.preventDefault();
    event.stopPropagation();
    if (!this.buttons[next]) return;
    this.stop();
    this.choose(next);
    this.buttons[next].focus();
  }

  start() {
    this.play.textContent = "Stop";
    this.choose(0);
    this.timer = setInterval(() => this.root.isConnected && this.shown + 1 < this.count ? this.choose(this.shown + 1) : this.stop(), PAUSE);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }
}

// Where numbers go that would hide each other: the latest stays in its place, earlier ones move aside.
function apart(points, distance) {
  const placed = [];
  const isFree = ([x, y]) => placed.every(([u, v]) => Math.hypot(x - u, y - v) >= .95 * distance);
  [...points].reverse().forEach(([x, y]) => {
    const around = Array.from({length: 24}, (_, turn) => {
      const angle = turn * Math.PI / 4 - Math.PI / 2, reach = distance * Math.ceil((turn + 1) / 8);
      return [x + reach * Math.cos(angle), y + reach * Math.sin(angle)];
    });
    placed.push([[x, y], ...around].find(isFree) ?? [x, y]);
  });
  return placed.reverse();
}
