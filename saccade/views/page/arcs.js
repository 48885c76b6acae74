// Two lists of words with arcs between them, as strong as their weights. Unless a word is chosen, only arcs that stand out are drawn:
// all of them at once would be a hairball.

import {element, shape} from "./dom.js";
import {Items} from "./items.js";
import {standingOut} from "./weights.js";

const GAP = 4;      // pixels between words

export class Arcs {
  constructor(map) {
    this.items = {key: new Items("key", map.keys.labels), query: new Items("query", map.queries.labels)};
    this.lines = shape("svg", {"aria-hidden": "true", class: "lines"});
    this.root = element("div", {className: "looks rows"}, this.lines, this.side("key", map.key_title), this.side("query", map.query_title));
  }

  side(kind, title) {
    return element("div", {className: `side ${kind === "key" ? "keys" : "queries"}`, role: "group", "aria-label": title},
      element("h3", {textContent: title}), this.items[kind].root);
  }

  // Two rows where both sentences fit on a line, two columns where they do not.
  arrange() {
    this.root.className = "looks rows";
    const length = (kind) => this.items[kind].buttons.reduce((sum, button) => sum + button.offsetWidth + GAP, 0);
    if (Math.max(length("key"), length("query")) > this.root.clientWidth) this.root.className = "looks columns";
    const frame = this.root.getBoundingClientRect();
    this.ends = {key: this.endsOf("key", frame), query: this.endsOf("query", frame)};
  }

  get isInRows() { return this.root.classList.contains("rows"); }

  // Where the arcs of each word begin.
  endsOf(kind, frame) {
    const isKey = kind === "key";
    return this.items[kind].buttons.map((button) => {
      const box = button.firstChild.getBoundingClientRect();
      return this.isInRows ? [box.left + box.width / 2 - frame.left, (isKey ? box.bottom + 2 : box.top - 2) - frame.top]
        : [(isKey ? box.right + 2 : box.left - 2) - frame.left, box.top + box.height / 2 - frame.top];
    });
  }

  update(state) {
    const {weights, limit, chosen, step} = state;
    if (!this.ends) this.arrange();
    this.items.key.update(state);
    this.items.query.update(state);
    const arcs = standingOut(weights, chosen, limit).filter(({query}) => step === null || query <= step);
    this.lines.replaceChildren(...arcs.map(({query, key, weight}) => shape("path",
      {d: this.curve(this.ends.key[key], this.ends.query[query]), opacity: Math.min(weight / limit, 1).toFixed(4)})));
  }

  curve([x, y], [u, v]) {
    const bend = this.isInRows ? `${x} ${(y + v) / 2} ${u} ${(y + v) / 2}` : `${(x + u) / 2} ${y} ${(x + u) / 2} ${v}`;
    return `M${x} ${y} C${bend} ${u} ${v}`;
  }
}
