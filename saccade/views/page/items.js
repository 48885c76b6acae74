// Positions of an axis as a list of words, each a button with room for a number: weights are written beside it, strong ones behind it.

import {digits, element, share} from "./dom.js";
import {ink, isStrong} from "./palette.js";
import {isSlight, weightBeside} from "./weights.js";

export class Items {
  // `kind` is "query" or "key". `probabilities`, where they are known, become bars under the words.
  constructor(kind, labels, probabilities = null) {
    this.kind = kind;
    this.buttons = labels.map((label, index) => element("button",
      {type: "button", className: probabilities ? "item probable" : "item", tabIndex: index ? -1 : 0, data: {kind, index},
        ...(probabilities ? {title: `probability ${share(probabilities[index])}`, "--probability": probabilities[index]} : {})},
      element("span", {className: "word", dir: "auto", textContent: label}), element("span", {className: "number"})));
    this.root = element("div", {className: "items"}, ...this.buttons);
  }

  update({weights, limit, chosen, step}) {
    const nothing = chosen.query === undefined && chosen.key === undefined;
    this.buttons.forEach((button, index) => {
      const unwritten = this.kind === "query" && step !== null && index > step;
      const weight = unwritten ? null : weightBeside(this.kind, index, weights, chosen);
      const isChosen = chosen[this.kind] === index, isBlank = weight === null || isSlight(weight);
      this.mark(button, isBlank ? null : weight, limit, isChosen);
      button.classList.toggle("faded", unwritten || (!nothing && !isChosen && isBlank));
      button.classList.toggle("unwritten", unwritten);
    });
  }

  mark(button, weight, limit, isChosen) {
    const [word, number] = button.children, shaded = weight !== null && !isChosen;
    button.classList.toggle("chosen", isChosen);
    button.classList.toggle("shaded", shaded);
    button.classList.toggle("strong", shaded && isStrong(weight / limit));
    button.setAttribute("aria-pressed", String(isChosen));
    word.style.backgroundColor = shaded ? ink(weight / limit) : "";
    number.textContent = weight === null ? "" : digits(weight);
  }
}
