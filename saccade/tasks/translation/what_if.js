// What if the model had looked elsewhere? Interventions that somebody made, the translation before them, and a button that undoes them.

import {ask} from "/static/api.js";
import {bold, element, labelled, option} from "/static/views/dom.js";

export class WhatIf {
  // `show(answer)` puts an outcome on the page; `back()` shows the translation as it was.
  constructor(show, back, failed) {
    Object.assign(this, {show, back, failed});
    this.made = [];
    this.reach = element("select", {title: "What turns when a cell is dragged"}, option("all", "all layers and heads"), option("layer", "this layer"), option("head", "this head"));
    this.reachLabel = labelled("A drag turns", this.reach);
    this.before = element("p", {className: "before"});
    this.list = element("ul", {className: "made"});
    const reset = element("button", {type: "button", textContent: "Reset", onclick: () => { this.clear(); this.back(); }});
    this.root = element("section", {className: "whatif", hidden: true, "aria-label": "What if"},
      element("div", {className: "made-row"}, element("h3", {textContent: "What if"}), this.list, reset), this.before);
  }

  clear() {
    this.made = [];
    this.root.hidden = true;
  }

  // Which reaches make sense for a map: a model of one layer and one head has nothing to choose.
  offer(layers, heads, headChosen) {
    const [, layer, head] = this.reach.options;
    layer.hidden = layer.disabled = layers < 2;
    head.hidden = head.disabled = heads < 2 || !headChosen;
    if (this.reach.selectedOptions[0].disabled) this.reach.value = "all";
    this.reachLabel.hidden = layers < 2 && heads < 2;
  }

  // All attention of the word `step` onto the word `onto`, in the map and head that are shown or in all.
  turn(question, map, head, step, onto) {
    const reach = this.reach.value, where = reach === "all" ? {} : {map: map.name, ...(reach === "head" && head !== null ? {head} : {})};
    const place = reach === "all" ? "" : ` (${map.label}${where.head === undefined ? "" : `, head ${head}`})`;
    return this.make(question, {step, onto, ...where}, ["where ", bold(map.queries.labels[step]), " stood, look at ", bold(map.keys.labels[onto]), place]);
  }

  cut(question, map, head) {
    return this.make(question, {map: map.name, head}, [`head ${head} of ${map.label} is cut off`]);
  }

  isCut(map, head) { return this.made.some(({asked}) => asked.step === undefined && asked.map === map.name && asked.head === head); }

  async make(question, asked, said) {
    // A turn changes all that follows: later words that were turned before are no more, and the same word turned twice means the later turn.
    const isSame = (other) => other.step === asked.step && other.map === asked.map && other.head === asked.head;
    const kept = this.made.filter(({asked: other}) => asked.step === undefined || other.step === undefined || (other.step <= asked.step && !isSame(other)));
    const made = [...kept, {asked, said}];
    try {
      const answer = await ask("what-if", {...question, interventions: made.map((change) => change.asked)});
      this.made = made;
      this.root.hidden = false;
      this.list.replaceChildren(...made.map((change) => element("li", {}, ...change.said)));
      const words = answer.before.words.map((word) => element(word.changed ? "del" : "span", {dir: "auto", textContent: word.text}));
      this.before.replaceChildren(element("span", {className: "quiet", textContent: "Before: "}), ...words.flatMap((word) => [word, " "]));
      if (!answer.after.words.some((word) => word.changed) && !answer.before.words.some((word) => word.changed)) {
        this.before.append(element("span", {className: "quiet", textContent: "— the same words: what was changed did not matter here."}));
      }
      await this.show(answer);
    } catch (error) {
      this.failed(error);
    }
  }
}
