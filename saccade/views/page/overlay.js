// Anything that looks at a picture: words, one query, or the cells of the picture themselves.

import {isGrid} from "./axes.js";
import {element} from "./dom.js";
import {Items} from "./items.js";
import {blank, fit, paintPlain} from "./photo.js";
import {Stage} from "./stage.js";
import {averageRow, column, limitOf} from "./weights.js";

const MOST_COMPARED = 64;      // queries whose rows share one scale

// Words or cells × the cells of a picture. Words are compared with each other, so all have one scale; the rows of cells, which are many
// and differ by orders of magnitude, have a scale each, which the legend says.
export class Overlay {
  constructor(map, photo, probabilities = null) {
    Object.assign(this, {map, photo: photo ?? blank(map.keys)});
    this.keys = new Stage("key", map.keys, this.photo, map.key_title);
    this.looking = isGrid(map.queries) ? new Stage("query", map.queries, photo ?? blank(map.queries), map.query_title) : null;
    this.words = this.looking ? null : new Items("query", map.queries.labels, probabilities);
    this.root = element("div", {className: `looks pictures ${this.looking ? "" : "worded"}`}, this.looking ? this.looking.root : this.wordSide(), this.keys.root);
  }

  wordSide() {
    const {query_title} = this.map, side = element("div", {className: "side queries", role: "group", "aria-label": query_title},
      element("h3", {textContent: query_title}), this.words.root);
    if (this.map.queries.labels.length > 1 || !this.photo.colour) return side;
    const plain = element("canvas", {className: "plain"});      // one query: the picture itself stands beside what it looks at
    fit(plain, this.photo);
    paintPlain(plain, this.photo);
    plain.setAttribute("aria-hidden", "true");
    side.append(plain);
    return side;
  }

  // The row of weights on show: of the chosen query; else of the only one, or the mean of all cells. Words show nothing until one is chosen.
  row({weights, chosen, pinned}) {
    const query = chosen.query ?? pinned?.query;
    if (query !== undefined) return weights[query];
    if (weights.length === 1) return weights[0];
    return this.looking ? averageRow(weights) : null;
  }

  limit(state) {
    const row = this.row(state), cells = (weights) => weights.slice(this.map.keys.extra);
    if (row && (this.looking || state.weights.length > MOST_COMPARED)) return limitOf([cells(row)]);
    return limitOf(state.weights.map(cells));
  }

  update(state) {
    const {weights, chosen, strength} = state, row = this.row(state), limit = this.limit(state);
    const {labels} = this.map.queries, query = chosen.query ?? state.pinned?.query;
    const who = query !== undefined ? labels[query] : weights.length === 1 ? labels[0] : "the average cell";
    this.keys.paint(row, limit, strength, chosen.key ?? state.marked, row ? `The picture, coloured where ${who} looks` : "The picture");
    this.keys.extras.update({...state, limit});
    if (this.words) return this.words.update({...state, limit});
    const seen = chosen.key === undefined || chosen.query !== undefined ? null : column(weights, chosen.key);
    this.looking.paint(seen, seen && limitOf([seen.slice(this.map.queries.extra)]), strength, query,
      seen ? `The picture, coloured where ${this.map.keys.labels[chosen.key]} is looked at from` : `The picture that looks${query === undefined ? "" : `, from ${who}`}`);
    this.looking.extras.update({...state, limit});
  }
}

// Cells of a picture × a few names (scales, classes): one picture for each name, all at one scale.
export class Multiples {
  constructor(map, photo) {
    const {queries, keys, key_title} = map;
    Object.assign(this, {map, photo: photo ?? blank(queries)});
    this.names = new Items("key", keys.labels);
    this.stages = keys.labels.map((label) => new Stage("query", queries, this.photo, label));
    this.root = element("div", {className: "looks multiples", role: "group", "aria-label": key_title},
      ...this.stages.map((stage, key) => { stage.root.querySelector("h3").replaceChildren(this.names.buttons[key]); return stage.root; }));
  }

  limit({weights}) { return limitOf(weights); }

  update(state) {
    const {weights, chosen, strength} = state, limit = this.limit(state);
    this.names.update({...state, limit});
    this.stages.forEach((stage, key) => {
      stage.paint(column(weights, key), limit, strength, chosen.query, `The picture, coloured where cells look at ${this.map.keys.labels[key]}`);
      stage.extras.update({...state, limit});
      stage.root.classList.toggle("faded", chosen.key !== undefined && chosen.key !== key);
    });
  }
}
