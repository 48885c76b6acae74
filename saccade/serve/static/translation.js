// A run that translates: the translation with its alternatives, and what each word looked at.

import {ask, figure} from "./api.js";
import {openCalculation} from "./calculation.js";
import {byId, digits, element, option, save, share} from "./dom.js";
import {MapView} from "./mapview.js";

const END = "<end>";

export class TranslationPanel {
  constructor(run, state, changed, failed) {
    Object.assign(this, {run, state, changed, failed});
    this.answer = element("p", {className: "answer", role: "group", "aria-label": "Translation"});
    this.hint = element("p", {className: "quiet", textContent: "The bar under a word is its probability. Click a word for its alternatives."});
    this.list = element("ol", {className: "nbest"});
    this.nbest = element("details", {}, element("summary", {textContent: "Other translations"}), this.list);
    this.map = element("select", {onchange: () => this.chosen({map: this.map.value})});
    this.head = element("select", {onchange: () => this.chosen({head: this.head.value})});
    this.unit = element("select", {onchange: () => this.chosenUnit()}, option("words", "words"), option("pieces", "the model's tokens"));
    this.step = element("input", {type: "range", min: 0, oninput: () => this.scrubbed()});
    this.written = element("span", {className: "number"});
    this.limit = element("span");
    this.view = new MapView((query, key) => this.calculate(query, key));
    const label = (text, ...inside) => element("label", {}, text, ...inside);
    this.looking = element("div", {},
      element("div", {className: "controls"}, label("Attention", this.map), label("Head", this.head), label("Shown as", this.unit),
        label("Step", this.step, this.written), element("span", {className: "legend", role: "img", "aria-label": "Pale is weight 0, dark is strong"}, "0", element("i"), this.limit)),
      this.view.root, this.downloads());
    this.nothing = element("p", {className: "quiet", textContent: "This model has no attention: nothing to look at but its translation."});
    this.root = element("article", {className: "panel", "aria-label": run.name},
      element("div", {className: "title"}, element("h2", {textContent: run.name}), element("span", {className: "quiet", textContent: run.description || run.model})),
      this.answer, this.hint, this.nbest, this.looking, this.nothing);
    this.looking.hidden = this.nothing.hidden = this.nbest.hidden = this.hint.hidden = true;
  }

  downloads() {
    const make = (kind) => element("button", {type: "button", textContent: kind.toUpperCase(), onclick: () => this.download(kind)});
    return element("div", {className: "downloads"}, element("span", {className: "quiet", textContent: "Download"}), ...["png", "svg", "json"].map(make));
  }

  async translate(text, prefix = "") {
    this.abort?.abort();
    this.abort = new AbortController();
    const {signal} = this.abort;
    this.root.classList.add("busy");
    this.root.setAttribute("aria-busy", "true");
    try {
      const found = await ask("predict", {run: this.run.name, text, best: 5, prefix}, signal);
      Object.assign(this, {text, prefix, translations: found.translations});
      await this.choose(0, signal);
    } finally {
      if (this.abort.signal === signal) {
        this.root.classList.remove("busy");
        this.root.removeAttribute("aria-busy");
      }
    }
  }

  async choose(place, signal) {
    this.place = place;
    const target = this.translations[place].text;
    this.seen = await ask("look", {run: this.run.name, text: this.text, target, words: this.state.unit !== "pieces"}, signal);
    this.showAnswer();
    this.showList();
    this.showMaps();
  }

  showAnswer() {
    const forced = this.prefix ? this.prefix.split(" ").length : 0;
    const words = this.seen.words.map((word, index) => element("button",
      {type: "button", className: `${index < forced ? "forced" : ""} ${word.text === END ? "end" : ""}`, textContent: word.text, dir: "auto",
        title: `probability ${share(word.probability)}`, "aria-haspopup": "dialog", "aria-expanded": "false",
        "--probability": word.probability, "--place": index, onclick: (event) => this.alternatives(index, event.currentTarget)}));
    this.answer.replaceChildren(...words);
    this.hint.hidden = false;
  }

  showList() {
    const items = this.translations.map((each, place) => element("li", {}, element("button",
      {type: "button", "aria-current": String(place === this.place), onclick: () => this.choose(place).catch(this.failed)},
      element("span", {className: "number", textContent: digits(each.score), title: "score: log-probability with the length penalty"}),
      element("span", {dir: "auto", textContent: each.text || "(nothing)"}))));
    this.list.replaceChildren(...items);
    this.nbest.hidden = items.length < 2;
  }

  showMaps() {
    const {maps} = this.seen;
    this.looking.hidden = !maps.length;
    this.nothing.hidden = Boolean(maps.length);
    if (!maps.length) return;
    const names = maps.map((each) => each.name);
    const crossing = maps.filter((each) => each.query_title === "translation");
    const wanted = names.includes(this.state.map) ? this.state.map : (crossing.at(-1) ?? maps.at(-1)).name;
    this.map.replaceChildren(...maps.map((each) => option(each.name, each.label, each.name === wanted)));
    this.unit.value = this.state.unit === "pieces" ? "pieces" : "words";
    this.showMap();
  }

  showMap() {
    const map = this.seen.maps.find((each) => each.name === this.map.value);
    const heads = map.weights.length, wanted = Number(this.state.head) < heads ? this.state.head : "average";
    const choices = map.weights.map((_, head) => option(String(head), String(head)));
    this.head.replaceChildren(...(heads > 1 ? [option("average", `average of ${heads}`)] : []), ...choices);
    this.head.value = heads > 1 ? wanted ?? "average" : "0";
    this.head.parentElement.hidden = heads === 1;
    const chosen = this.headNumber() === null ? map.weights : [map.weights[this.headNumber()]];
    const weights = chosen[0].map((row, query) => row.map((_, key) => chosen.reduce((sum, head) => sum + head[query][key], 0) / chosen.length));
    const writes = map.name.startsWith("decoder");
    this.step.parentElement.hidden = !writes;
    this.step.max = map.queries.labels.length;
    this.step.value = this.step.max;
    this.current = map;
    this.view.step = null;
    this.view.draw(map, weights);
    this.limit.textContent = digits(this.view.limit);
    this.sayStep();
  }

  headNumber() { return this.head.value === "average" ? null : Number(this.head.value); }

  chosen(change) {
    Object.assign(this.state, change);
    this.changed();
    this.showMap();
  }

  chosenUnit() {
    this.state.unit = this.unit.value;
    this.changed();
    this.choose(this.place).catch(this.failed);
  }

  // The slider stands after so many words: the last one is being written, later ones are not there yet.
  scrubbed() {
    const count = Number(this.step.value), all = count === Number(this.step.max);
    this.view.step = all ? null : Math.max(count - 1, 0);
    this.view.pinned = this.view.hovered = null;
    this.view.show();
    this.sayStep();
    const inWords = this.state.unit !== "pieces";
    [...this.answer.children].forEach((word, index) => word.classList.toggle("unwritten", inWords && !all && index > this.view.step));
  }

  sayStep() {
    const all = this.view.step === null;
    this.written.textContent = all ? "all" : `${this.view.step + 1} of ${this.step.max}`;
    this.step.setAttribute("aria-valuetext", all ? "all words" : `word ${this.view.step + 1}: ${this.current.queries.labels[this.view.step]}`);
  }

  async alternatives(word, button) {
    try {
      const found = await ask("alternatives", {run: this.run.name, text: this.text, target: this.seen.target, word});
      this.offer(found.alternatives, button);
    } catch (error) {
      this.failed(error);
    }
  }

  offer(alternatives, button) {
    const box = byId("alternatives"), shown = button.textContent;
    const close = () => {
      box.hidden = true;
      button.setAttribute("aria-expanded", "false");
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", escape);
    };
    const outside = (event) => { if (!box.contains(event.target)) close(); };
    const escape = (event) => { if (event.key === "Escape") { close(); button.focus(); } };
    const items = alternatives.map((each) => element("li", {}, element("button",
      {type: "button", disabled: each.prefix === null, "--probability": each.probability,
        onclick: () => { close(); this.force(each.prefix); }},
      element("span", {dir: "auto", textContent: each.text}), element("span", {className: "number", textContent: share(each.probability)}))));
    box.replaceChildren(element("p", {className: "quiet"}, "Instead of ", element("b", {}, element("bdi", {textContent: shown})), " (the rest is translated anew):"),
      element("ul", {}, ...items));
    box.hidden = false;
    button.setAttribute("aria-expanded", "true");
    const place = button.getBoundingClientRect(), left = Math.min(place.left, document.documentElement.clientWidth - box.offsetWidth - 10);
    box.style.left = `${Math.max(left, 8) + scrollX}px`;
    box.style.top = `${place.bottom + 6 + scrollY}px`;
    box.querySelector("button:enabled")?.focus();
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape);
  }

  force(prefix) {
    this.state.prefix = prefix;
    this.changed();
    this.translate(this.text, prefix).catch(this.failed);
  }

  calculate(query, key) {
    const map = this.current, weights = map.weights.map((head) => head[query][key]);
    const question = {run: this.run.name, text: this.text, target: this.seen.target, map: map.name, query, key, words: this.state.unit !== "pieces"};
    openCalculation(question, map.label, weights, this.headNumber()).catch(this.failed);
  }

  async download(kind) {
    const name = `attention-${this.run.name}`;
    if (kind === "json") return save(new Blob([JSON.stringify(this.seen)], {type: "application/json"}), `${name}.json`);
    const question = {run: this.run.name, text: this.text, target: this.seen.target, words: this.state.unit !== "pieces", only: this.current.name, format: kind};
    if (this.headNumber() !== null) question.head = this.headNumber();
    await figure(question).then((blob) => save(blob, `${name}.${kind}`), this.failed);
  }
}
