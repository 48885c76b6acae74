// What stands above a View: its title, where the example came from, the answer and the reference.

import {answerBars} from "./beliefs.js";
import {element} from "./dom.js";

export function heading(view) {
  const lines = [element("h1", {textContent: view.title})];
  if (view.text && view.text !== view.title && !view.title.includes(view.text)) lines.push(element("p", {className: "answer-line", dir: "auto", textContent: view.text}));
  if (view.subtitle) lines.push(element("p", {className: "subtitle quiet", textContent: view.subtitle}));
  if (view.truth && !(view.subtitle ?? "").includes(view.truth.slice(0, 40))) lines.push(element("p", {className: "quiet truth", textContent: `reference: ${view.truth}`}));
  return lines;
}

// The answer in classes, unless the steps of a map show what was believed after each.
export function answerOf(view) {
  const classes = view.answer?.classes, isShown = view.maps.some((map) => map.queries.probabilities?.length);
  return Array.isArray(classes) && classes.length && !isShown ? [answerBars(classes)] : [];
}
