// The start of a self-contained page: the View that stands in it as JSON, drawn.

import {Chart} from "./chart.js";
import {byId, element} from "./dom.js";
import {Expectations} from "./expectations.js";
import {answerOf, heading} from "./heading.js";
import {followSystemTheme} from "./palette.js";
import {ViewDisplay} from "./view.js";

export async function showFile() {
  followSystemTheme();
  const view = JSON.parse(byId("data").textContent), display = new ViewDisplay(), single = view.maps.length === 1 ? view.maps[0] : null;
  const chart = new Chart(), expectations = new Expectations();
  const name = single && single.label !== view.title ? [element("p", {className: "quiet", textContent: single.label})] : [];
  byId("view").replaceChildren(...heading(view), ...name, chart.root, display.root, ...answerOf(view), expectations.root);
  chart.show(view.chart);
  expectations.show(view.beliefs);
  await display.show(view);
}

showFile();
