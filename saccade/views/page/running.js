// One look at a text as running text: the words in reading order, each on paper as dark as its weight.

import {brief, element} from "./dom.js";
import {ink, isStrong} from "./palette.js";

const CLOSES = /^([.,;:!?)\]}…%”’]+|['’]\w{1,2}|n['’]t)$/, OPENS = /^[([{“‘#@$£]+$/;

export const isRunning = ({queries, keys}) => queries.kind === "tokens" && keys.kind === "tokens" && queries.labels.length === 1;

export class Running {
  constructor({keys, key_title}) {
    this.words = keys.labels.map((label, index) => element("button",
      {type: "button", className: "running-word", tabIndex: index ? -1 : 0, dir: "auto", textContent: label, data: {kind: "key", index}}));
    const isApart = (label, index) => index && !CLOSES.test(label) && !OPENS.test(keys.labels[index - 1]);
    this.root = element("p", {className: "running", role: "group", "aria-label": key_title},
      ...keys.labels.flatMap((label, index) => [isApart(label, index) ? " " : "", this.words[index]]));
  }

  update({weights, limit, chosen}) {
    this.words.forEach((word, index) => {
      const weight = weights[0][index], isChosen = chosen.key === index;
      word.style.backgroundColor = ink(weight / limit);
      word.classList.toggle("strong", isStrong(weight / limit));
      word.classList.toggle("chosen", isChosen);
      word.setAttribute("aria-pressed", String(isChosen));
      word.title = `weight ${brief(weight)}`;
    });
  }
}
