// A run that translates: the translation with its alternatives, and what each word looked at.

import {ask, figure, stream} from "./api.js";
import {openCalculation} from "./calculation.js";
import {byId, digits, downloads, element, fillHeads, labelled, ofHead, option, save, share, titled} from "./dom.js";
import {MapView} from "./mapview.js";
import {SearchView} from "./search.js";
import {WhatIf} from "./whatif.js";

const END = "<end>", BEST = 5;

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
    this.view = new MapView((query, key) => this.calculate(query, key), (query, key) => this.turn(query, key));
    this.whatIf = new WhatIf((answer) => this.showOutcome(answer), () => this.choose(this.place).catch(failed), failed);
    this.search = new SearchView((prefix) => this.force(prefix), failed);
    this.cut = element("button", {type: "button", textContent: "Cut this head", onclick: () => this.cutHead()});
    this.files = downloads((kind) => this.download(kind));
    this.looking = element("div", {},
      element("div", {className: "controls"}, labelled("Attention", this.map), labelled("Head", this.head), this.cut, labelled("Shown as", this.unit),
        this.whatIf.reachLabel, labelled("Step", this.step, this.written),
        element("span", {className: "legend", role: "img", "aria-label": "Pale is weight 0, dark is strong"}, "0", element("i"), this.limit)),
      this.view.root, this.files);
    this.nothing = element("p", {className: "quiet", textContent: "This model has no attention: nothing to look at but its translation."});
    this.root = titled(run, this.answer, this.hint, this.whatIf.root, this.nbest, this.search.root, this.looking, this.nothing);
    this.looking.hidden = this.nothing.hidden = this.nbest.hidden = this.hint.hidden = true;
  }

  async translate(text, prefix = "") {
    this.abort?.abort();
    this.abort = new AbortController();
    this.search.question = null;
    const {signal} = this.abort;
    this.root.classList.add("busy");
    this.root.setAttribute("aria-busy", "true");
    try {
      await this.write(text, prefix, signal);
      const found = await ask("predict", {run: this.run.name, text, best: this.run.decode?.search === "greedy" ? 1 : BEST, prefix}, signal);
      Object.assign(this, {text, prefix, translations: found.translations});
      await this.choose(0, signal);
      this.search.about({run: this.run.name, text, prefix, best: BEST});
    } finally {
      if (this.abort.signal === signal) {
        this.root.classList.remove("busy");
        this.root.removeAttribute("aria-busy");
      }
    }
  }

  // Word by word as it comes, greedily; what the search finds takes its place. Whatever goes wrong, the search says it better.
  async write(text, prefix, signal) {
    try {
      for await (const told of stream({run: this.run.name, text, prefix}, signal)) {
        if (told.text !== undefined) this.answer.replaceChildren(element("span", {className: "coming", dir: "auto", textContent: told.text}));
      }
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
  }

  async choose(place, signal) {
    this.place = place;
    this.whatIf.clear();
    this.search.root.hidden = !this.search.question;
    const target = this.translations[place].text;
    this.seen = await ask("look", {run: this.run.name, text: this.text, target, words: this.inWords()}, signal);
    this.showAnswer();
    this.showList();
    this.showMaps();
  }

  inWords() { return this.state.unit !== "pieces"; }

  showAnswer() {
    const forced = this.prefix ? this.prefix.split(" ").length : 0;
    const words = this.seen.words.map((word, index) => element("button",
      {type: "button", className: `${index < forced ? "forced" : ""} ${word.changed ? "changed" : ""} ${word.text === END ? "end" : ""}`, textContent: word.text, dir: "auto",
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
    this.files.hidden = this.whatIf.made.length > 0; // files are made of the model's own weights
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
    fillHeads(this.head, map.weights.length, this.state.head);
    const weights = ofHead(map.weights, this.head.value);
    const writes = map.name.startsWith("decoder");
    this.step.parentElement.hidden = !writes;
    this.step.max = map.queries.labels.length;
    this.step.value = this.step.max;
    this.current = map;
    this.view.step = null;
    this.offerChanges(map);
    this.view.draw(map, weights);
    this.limit.textContent = digits(this.view.limit);
    this.sayStep();
  }

  headNumber() { return this.head.value === "average" ? null : Number(this.head.value); }

  // What of this map can be changed: attention to the source can be turned, one head of several can be cut off.
  offerChanges(map) {
    const layers = this.seen.maps.filter((each) => each.query_title === "translation").length, head = this.headNumber();
    this.view.turns = map.query_title === "translation" && map.key_title === "source";
    this.whatIf.offer(layers, map.weights.length, head !== null);
    if (!this.view.turns) this.whatIf.reachLabel.hidden = true;
    const isCut = head !== null && this.whatIf.isCut(map, head);
    this.cut.hidden = map.weights.length === 1;
    this.cut.disabled = head === null || isCut;
    this.cut.textContent = isCut ? "This head is cut off" : "Cut this head";
    this.cut.title = head === null ? "Choose one head first" : "Translate without what this head passes on";
  }

  changing() { return {run: this.run.name, text: this.text, target: this.seen.target, words: this.inWords()}; }

  turn(query, key) { return this.whatIf.turn(this.changing(), this.current, this.headNumber(), query, key); }

  cutHead() { return this.whatIf.cut(this.changing(), this.current, this.headNumber()); }

  showOutcome({after, maps, source}) {
    this.seen = {run: this.run.name, source, target: after.text, log_prob: after.log_prob, words: after.words, maps};
    this.search.root.hidden = true; // it found the words before, not these
    this.showAnswer();
    this.showMaps();
  }

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
    [...this.answer.children].forEach((word, index) => word.classList.toggle("unwritten", this.inWords() && !all && index > this.view.step));
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
    const question = {run: this.run.name, text: this.text, target: this.seen.target, map: map.name, query, key, words: this.inWords()};
    const turn = this.view.turns ? () => this.turn(query, key).then(() => this.view.focusCell(query, key)) : null;
    openCalculation(question, map.label, weights, this.headNumber(), turn, this.whatIf.made.length > 0).catch(this.failed);
  }

  async download(kind) {
    const name = `attention-${this.run.name}`;
    if (kind === "json") return save(new Blob([JSON.stringify(this.seen)], {type: "application/json"}), `${name}.json`);
    const question = {run: this.run.name, text: this.text, target: this.seen.target, words: this.inWords(), only: this.current.name, format: kind};
    if (this.headNumber() !== null) question.head = this.headNumber();
    await figure(question).then((blob) => save(blob, `${name}.${kind}`), this.failed);
  }
}
