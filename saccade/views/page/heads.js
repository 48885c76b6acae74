// All layers and heads as a grid of thumbnails to choose from, at one scale: a row for each layer, a column for each head.

import {isGrid} from "./axes.js";
import {element} from "./dom.js";
import {ink, onTheme} from "./palette.js";
import {averageRow, limitOf} from "./weights.js";

const MOST_THUMBNAILS = 480;      // thumbnails

export class HeadGrid {
  // `choose(map, head)` is called with the map and the number of the head.
  constructor(choose) {
    this.choose = choose;
    this.grid = element("div", {className: "head-grid", role: "group", "aria-label": "Layers and heads"});
    this.summary = element("summary");
    this.root = element("details", {className: "all-heads", hidden: true, ontoggle: () => this.paint()}, this.summary, this.grid);
    onTheme(() => this.paint());
  }

  show(maps) {
    const count = maps.reduce((sum, map) => sum + map.weights.length, 0);
    this.root.hidden = count < 2 || count > MOST_THUMBNAILS;
    if (this.root.hidden) return;
    const isLayered = maps.length > 1;
    this.summary.textContent = isLayered ? `Choose from all ${count} heads of ${maps.length} layers` : `Choose from ${count} heads`;
    this.thumbnails = maps.flatMap((map) => map.weights.map((weights, head) => this.thumbnail(map, weights, head)));
    this.grid.replaceChildren(...maps.map((map) => element("div", {className: "layer"},
      ...(isLayered ? [element("span", {textContent: map.label, title: map.label})] : []),
      element("div", {className: "thumbnails"}, ...this.thumbnails.filter((thumbnail) => thumbnail.map === map).map(({button}) => button)))));
    this.paint();
  }

  thumbnail(map, weights, head) {
    const canvas = element("canvas"), button = element("button", {type: "button", title: `${map.label}, head ${head}`, "aria-label": `${map.label}, head ${head}`,
      "aria-pressed": "false", onclick: () => this.choose(map, head)}, canvas);
    return {map, head, canvas, button, rows: thumbnailRows(map, weights)};
  }

  paint() {
    if (!this.root.open || this.root.hidden || !this.thumbnails) return;
    const limit = limitOf(this.thumbnails.flatMap(({rows}) => rows));
    for (const {canvas, rows} of this.thumbnails) {
      Object.assign(canvas, {width: rows[0].length, height: rows.length});
      const pen = canvas.getContext("2d");
      rows.forEach((row, y) => row.forEach((weight, x) => { pen.fillStyle = ink(weight / limit); pen.fillRect(x, y, 1, 1); }));
    }
  }

  mark(chosen, chosenHead) {
    this.thumbnails?.forEach(({map, head, button}) => button.setAttribute("aria-pressed",
      String(map === chosen && (String(head) === chosenHead || map.weights.length === 1))));
  }
}

// The matrix itself; over a picture the cells of the row that is shown first, or of the mean.
function thumbnailRows({keys, from}, weights) {
  if (!isGrid(keys)) return weights;
  const row = (Number.isInteger(from) ? weights[from] : averageRow(weights)).slice(keys.extra);
  return Array.from({length: keys.rows}, (_, y) => row.slice(y * keys.columns, (y + 1) * keys.columns));
}
