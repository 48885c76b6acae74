// Probabilities of classes as bars. The order of the classes never changes once it is shown.

import {element, share} from "./dom.js";

const MOST_CLASSES = 12;

export class Beliefs {
  // `rows` [step][class]: the probabilities that will be shown one after another; they decide which classes have a bar.
  constructor(classes, rows) {
    const peaks = classes.map((_, index) => Math.max(...rows.map((row) => row[index])));
    const order = classes.map((_, index) => index);
    this.order = classes.length > MOST_CLASSES ? order.sort((a, b) => peaks[b] - peaks[a]).slice(0, MOST_CLASSES) : order;
    this.bars = this.order.map((index) => element("li", {}, element("span", {textContent: classes[index], dir: "auto"}),
      element("span", {}, element("i")), element("span", {className: "number"})));
    this.root = element("ol", {className: "classes", "aria-label": "Classes"}, ...this.bars);
  }

  show(probabilities) {
    const best = probabilities.indexOf(Math.max(...probabilities));
    this.bars.forEach((bar, place) => {
      const probability = probabilities[this.order[place]];
      bar.classList.toggle("best", this.order[place] === best);
      bar.querySelector("i").style.setProperty("--probability", probability);
      bar.lastChild.textContent = share(probability);
    });
  }
}

// An answer in classes, the likeliest first.
export function answerBars(classes) {
  const sorted = [...classes].sort((a, b) => b.probability - a.probability).slice(0, MOST_CLASSES);
  const probabilities = sorted.map(({probability}) => probability);
  const beliefs = new Beliefs(sorted.map((named) => named.class), [probabilities]);
  beliefs.show(probabilities);
  return beliefs.root;
}
