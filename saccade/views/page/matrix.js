// Any two axes as a table of weights: rows look, columns are looked at. Weights that round to 0.00 are blanks.

import {digits, element} from "./dom.js";
import {ink, isStrong} from "./palette.js";
import {isSlight} from "./weights.js";

export const LARGEST_TABLE = 12000;      // cells

const UPRIGHT = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}/u;

export class Matrix {
  // `isButton`: a cell can be clicked, for example to see how its weight came about.
  constructor(map, isButton) {
    Object.assign(this, {map, isButton});
    this.caption = element("p", {className: "quiet caption"});
    this.scroller = element("div", {className: "scroller", tabIndex: 0, role: "region", "aria-label": "Matrix of attention weights"}, this.table());
    this.root = element("div", {className: "tabled"}, this.caption, this.scroller);
    this.describe("");
  }

  describe(hint) { this.caption.textContent = `Rows: ${this.map.query_title}. Columns: ${this.map.key_title}.${hint}`; }

  table() {
    const {queries, keys} = this.map;
    this.columnHeads = keys.labels.map((label) => element("th", {scope: "col", title: label, className: UPRIGHT.test(label) ? "upright" : ""},
      element("span", {textContent: label})));
    this.rowHeads = queries.labels.map((label) => element("th", {scope: "row", title: label, dir: "auto", textContent: label}));
    this.cells = queries.labels.map((_, query) => keys.labels.map((_, key) => this.cell(query, key)));
    const rows = this.cells.map((row, query) => element("tr", {}, this.rowHeads[query], ...row));
    return element("table", {className: "matrix"}, element("thead", {}, element("tr", {}, element("th", {scope: "col"}), ...this.columnHeads)),
      element("tbody", {}, ...rows));
  }

  cell(query, key) {
    const inside = this.isButton ? [element("button", {type: "button", tabIndex: query || key ? -1 : 0})] : [];
    return element("td", {className: "cell", data: {query, key}}, ...inside);
  }

  update({weights, limit, chosen, step, target}) {
    if (this.filled !== weights) this.fill(weights, limit);
    const isPair = chosen.query !== undefined && chosen.key !== undefined;
    this.cells.forEach((row, query) => {
      row[0].parentElement.classList.toggle("unwritten", step !== null && query > step);
      row.forEach((cell, key) => {
        cell.classList.toggle("chosen", isPair && chosen.query === query && chosen.key === key);
        cell.classList.toggle("aimed", target?.query === query && target.key === key);
      });
    });
    this.columnHeads.forEach((head, key) => head.classList.toggle("chosen", key === chosen.key));
    this.rowHeads.forEach((head, query) => head.classList.toggle("chosen", query === chosen.query));
  }

  fill(weights, limit) {
    const {queries, keys} = this.map;
    this.filled = weights;
    this.cells.forEach((row, query) => row.forEach((cell, key) => {
      const weight = weights[query][key], place = this.isButton ? cell.firstChild : cell;
      place.textContent = isSlight(weight) ? "" : digits(weight);
      cell.style.backgroundColor = ink(weight / limit);
      cell.classList.toggle("strong", isStrong(weight / limit));
      if (this.isButton) place.setAttribute("aria-label", `${queries.labels[query]} looks at ${keys.labels[key]}: ${digits(weight)}`);
    }));
  }
}
