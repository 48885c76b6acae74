// A run on the page, whatever its task: its answer, and the View of what it looked at. Tasks with more to show have a panel of their own
// (tasks/NAME/page.js), made of these parts.

import {figure, look} from "/static/api.js";
import {Chart} from "/static/views/chart.js";
import {element} from "/static/views/dom.js";
import {answerOf} from "/static/views/heading.js";
import {ViewDisplay} from "/static/views/view.js";

export const titled = (run, ...inside) => element("article", {className: "panel", "aria-label": run.name},
  element("div", {className: "title"}, element("h2", {textContent: run.name}), element("span", {className: "quiet", textContent: run.description || run.model})),
  ...inside);

// While `work` runs the panel says that it is busy.
export async function busy(root, work) {
  root.classList.add("busy");
  root.setAttribute("aria-busy", "true");
  try {
    return await work();
  } finally {
    root.classList.remove("busy");
    root.removeAttribute("aria-busy");
  }
}

export function save(blob, name) {
  const link = element("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Buttons for files of what is shown: `question()` asks for a figure, `view()` is what is on the page.
export function downloads(run, question, view, failed) {
  const download = (kind) => {
    const name = `attention-${run.name}.${kind}`;
    if (kind === "json") return save(new Blob([JSON.stringify(view())], {type: "application/json"}), name);
    return figure({run: run.name, ...question(), format: kind}).then((blob) => save(blob, name), failed);
  };
  return element("div", {className: "downloads"}, element("span", {className: "quiet", textContent: "Download"}),
    ...["png", "svg", "json"].map((kind) => element("button", {type: "button", textContent: kind.toUpperCase(), onclick: () => download(kind)})));
}

export class Panel {
  // `actions` are those of a ViewDisplay.
  constructor(run, state, changed, failed, actions = {}) {
    Object.assign(this, {run, state, changed, failed});
    this.display = new ViewDisplay({state, changed, ...actions});
    this.text = element("p", {className: "answer", dir: "auto"});
    this.bars = element("div");
    this.chart = new Chart();
    this.nothing = element("p", {className: "quiet", textContent: "This model has no attention: there is only its answer to see."});
    this.files = downloads(run, () => this.question, () => this.view, failed);
    this.result = element("div", {hidden: true}, this.text, this.chart.root, this.nothing, element("div", {className: "seen"}, this.display.root, this.bars), this.files);
    this.root = titled(run, this.result);
  }

  // `question` is {text} or {image}, and whatever else the run takes.
  answer(question) {
    return busy(this.root, async () => {
      const view = await look({run: this.run.name, ...question});
      Object.assign(this, {question, view});
      await this.show(view);
    });
  }

  async show(view) {
    const bars = answerOf(view);
    this.bars.replaceChildren(...bars);
    this.text.textContent = bars.length || view.maps.some((map) => map.queries.probabilities?.length) ? "" : view.text;
    this.text.hidden = !this.text.textContent;
    this.nothing.hidden = Boolean(view.maps.length);
    this.files.hidden = !view.maps.length && !view.chart;
    this.chart.show(view.chart);
    this.result.hidden = false;
    await this.display.show(view);
  }
}
