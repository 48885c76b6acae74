// The start of a self-contained page: the View that stands in it as JSON, drawn.

import {Chart} from "./chart.js";
import {byId, element} from "./dom.js";
import {answerOf, heading} from "./heading.js";
import {followSystemTheme} from "./palette.js";
import {ViewDisplay} from "./view.js";

export async function showFile() {
  followSystemTheme();
  const view = JSON.parse(byId("data").textContent), display = new ViewDisplay(), chart = new Chart(), single = view.maps.length === 1 ? view.maps[0] : null;
  const name = single && single.label !== view.title ? [element("p", {className: "quiet", textContent: single.label})] : [];
  byId("view").replaceChildren(...heading(view), ...name, chart.root, display.root, ...answerOf(view));
  chart.show(view.chart);
  await display.show(view);
}

showFile();
