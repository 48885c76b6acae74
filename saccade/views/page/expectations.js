// What a model expected at every position of a text: its tokens in place, tinted by how probable each was, and for the one that is pointed
// at the likeliest choices as bars, and what each layer would have said.

import {answerBars} from "./beliefs.js";
import {element, share} from "./dom.js";
import {ink, isStrong} from "./palette.js";

export class Expectations {
  constructor() {
    this.text = element("p", {className: "expected", role: "group", "aria-label": "The text, tinted by how probable each token was"});
    this.what = element("h3");
    this.bars = element("div");
    this.lens = element("table", {className: "lens"});
    this.layers = element("div", {}, element("h3", {textContent: "What each layer would say"}), this.lens);
    this.root = element("div", {className: "expectations", hidden: true}, this.text, element("div", {className: "believed"}, element("div", {}, this.what, this.bars), this.layers));
  }

  // `beliefs` as the JSON of a View has them; without any, nothing is shown.
  show(beliefs) {
    this.beliefs = beliefs;
    this.root.hidden = !beliefs;
    if (!beliefs) return;
    const {positions, at_position: isHere} = beliefs, last = beliefs.table.at(-1);
    this.tokens = positions.map((label, place) => {
      const before = isHere ? last[place] : last[place - 1];
      const isKnown = before && before.truth !== null, probability = isKnown ? before.truth_probability : null;
      const token = element("button", {type: "button", textContent: label, dir: "auto", title: isKnown ? `probability ${share(probability)}` : "",
        onmouseenter: () => this.point(place), onfocus: () => this.point(place), onclick: () => this.point(place)});
      if (isKnown) {
        token.style.backgroundColor = ink(1 - probability);
        token.classList.toggle("strong", isStrong(1 - probability));
      }
      return token;
    });
    this.text.replaceChildren(...this.tokens);
    this.point(positions.length - 1);
  }

  point(place) {
    const {positions, layers, table, at_position: isHere} = this.beliefs, belief = table.at(-1)[place];
    this.tokens.forEach((token, index) => token.classList.toggle("pointed", index === place));
    this.what.textContent = isHere ? `Expected at “${positions[place]}”` : `Expected after “${positions[place]}”`;
    this.bars.replaceChildren(answerBars(belief.choices.map(([name, probability]) => ({class: name, probability}))));
    this.layers.hidden = layers.length < 2;
    const rows = layers.map((layer, number) => {
      const [name, probability] = table[number][place].choices[0];
      return element("tr", {}, element("th", {scope: "row", textContent: layer}), element("td", {textContent: name, dir: "auto"}),
        element("td", {className: "number", textContent: share(probability)}));
    });
    this.lens.replaceChildren(...rows.reverse());
  }
}
