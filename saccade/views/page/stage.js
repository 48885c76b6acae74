// One grid on one picture: a canvas to point at, with the positions beside the cells ("[class]") as words above it.

import {boxOf, cellAt, placeOn} from "./axes.js";
import {element} from "./dom.js";
import {Items} from "./items.js";
import {fit, frame, paintPlain, paintWeights} from "./photo.js";

export class Stage {
  // `kind` is "query" or "key". `photo` is a picture, or the form of the grid alone.
  constructor(kind, grid, photo, title) {
    Object.assign(this, {kind, grid, photo});
    this.extras = new Items(kind, grid.labels.slice(0, grid.extra));
    this.canvas = element("canvas", {className: "stage", tabIndex: 0, role: "img", data: {stage: kind}});
    this.canvas.locate = (event) => ({[kind]: grid.extra + cellAt(grid, photo, placeOn(this.canvas, event))});
    fit(this.canvas, photo);
    this.extras.root.hidden = !grid.extra;
    this.root = element("div", {className: `side ${kind === "key" ? "keys" : "queries"}`, role: "group", "aria-label": title},
      element("h3", {textContent: title}), this.extras.root, this.canvas);
  }

  // `row` has a weight for every position of the grid, or is null for the picture as it is.
  paint(row, limit, strength, marked, label) {
    if (row) paintWeights(this.canvas, this.photo, this.grid, row.slice(this.grid.extra), limit, strength);
    else paintPlain(this.canvas, this.photo);
    if (marked !== undefined && marked >= this.grid.extra) frame(this.canvas, boxOf(this.grid, this.photo, marked - this.grid.extra));
    this.canvas.setAttribute("aria-label", label);
  }

  // The cell one step away from `index`, for the arrow keys.
  neighbour(index, [right, down]) {
    const cell = (index ?? this.grid.extra) - this.grid.extra, {rows, columns} = this.grid;
    const row = Math.floor(cell / columns) + down, column = cell % columns + right;
    return row < 0 || column < 0 || row >= rows || column >= columns ? null : this.grid.extra + row * columns + column;
  }
}
