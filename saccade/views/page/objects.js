// Objects × the cells of a picture: every object has its box on the picture; a chosen one shows where it looked.

import {element, shape} from "./dom.js";
import {Items} from "./items.js";
import {stepColour} from "./palette.js";
import {blank} from "./photo.js";
import {Stage} from "./stage.js";
import {limitOf} from "./weights.js";

export class Boxes {
  constructor(map, photo) {
    const {queries, keys} = map;
    Object.assign(this, {map, photo: photo ?? blank(keys)});
    this.names = new Items("query", queries.labels);
    this.stage = new Stage("key", keys, this.photo, map.key_title);
    this.boxes = queries.boxes.map((box, index) => this.box(box, index));
    const layer = shape("svg", {viewBox: "0 0 1 1", preserveAspectRatio: "none", class: "boxes"}, ...this.boxes);
    const {canvas} = this.stage;
    canvas.replaceWith(element("div", {className: "framed"}));
    this.stage.root.lastChild.append(canvas, layer);
    this.root = element("div", {className: "looks pictures worded"}, element("div", {className: "side queries", role: "group", "aria-label": map.query_title},
      element("h3", {textContent: map.query_title}), this.names.root), this.stage.root);
  }

  box([x, y, width, height], index) {
    const {labels} = this.map.queries;
    return shape("rect", {x, y, width, height, stroke: stepColour(index, labels.length), "data-kind": "query", "data-index": index},
      shape("title", {}, labels[index]));
  }

  limit({weights}) { return limitOf(weights.map((row) => row.slice(this.map.keys.extra))); }

  update(state) {
    const {weights, chosen, pinned, strength} = state, limit = this.limit(state), query = chosen.query ?? pinned?.query;
    const label = query === undefined ? "The picture with its objects" : `The picture, coloured where ${this.map.queries.labels[query]} looks`;
    this.stage.paint(query === undefined ? null : weights[query], limit, strength, chosen.key, label);
    this.names.update({...state, limit});
    this.boxes.forEach((box, index) => box.classList.toggle("faded", query !== undefined && query !== index));
  }
}
