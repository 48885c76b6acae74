// A run that translates: the translation with its alternatives, what each word looked at, and what would have become of it otherwise.

import {ask, look, stream} from "/static/api.js";
import {downloads, titled} from "/static/panel.js";
import {openCalculation} from "/static/tasks/translation/calculation.js";
import {SearchView} from "/static/tasks/translation/search.js";
import {WhatIf} from "/static/tasks/translation/what_if.js";
import {byId, digits, element, labelled, option, share} from "/static/views/dom.js";
import {ViewDisplay} from "/static/views/view.js";

const END = "<end>", BEST = 5;

// Whether a map aligns what is written with what is read; such a map can be changed by hand.
const isAlignment = (map) => map.query_title === "translation" && map.key_title === "source";

export class Panel {
  static action = "Translate";

  constructor(run, state, changed, failed) {
    Object.assign(this, {run, state, changed, failed});
    this.words = element("p", {className: "answer", role: "group", "aria-label": "Translation"});
    this.hint = element("p", {className: "quiet", textContent: "The bar under a word is its probability. Click a word for its alternatives."});
    this.list = element("ol", {className: "nbest"});
    this.nbest = element("details", {}, element("summary", {textContent: "Other translations"}), this.list);
    this.display = new ViewDisplay({state, changed, drawn: (map) => this.drawn(map),
      onCell: (query, key) => this.calculate(query, key), onTurn: (query, key) => this.turn(query, key)});
    this.whatIf = new WhatIf((answer) => this.showOutcome(answer), () => this.choose(this.place).catch(failed), failed);
    this.search = new SearchView((prefix) => this.force(prefix), failed);
    this.files = downloads(run, () => this.figureQuestion(), () => this.view, failed);
    this.nothing = element("p", {className: "quiet", textContent: "This model has no attention: there is only its translation to see."});
    this.looking = element("div", {hidden: true}, this.display.root, this.files);
    this.addControls();
    this.root = titled(run, this.words, this.hint, this.whatIf.root, this.nbest, this.search.root, this.looking, this.nothing);
    this.nothing.hidden = this.nbest.hidden = this.hint.hidden = true;
  }

  addControls() {
    this.cut = element("button", {type: "button", textContent: "Cut this head", onclick: () => this.cutHead()});
    this.unit = element("select", {onchange: () => this.chosenUnit()}, option("words", "words"), option("pieces", "the model's tokens"));
    this.step = element("input", {type: "range", min: 0, oninput: () => this.scrubbed()});
    this.written = element("span", {className: "number"});
    this.display.legend.root.before(this.cut, labelled("Shown as", this.unit), this.whatIf.reachLabel, labelled("Step", this.step, this.written));
  }

  // A sentence that somebody typed begins as the model likes; only a link brings a forced beginning with it.
  answer({text}, isFromLink = false) {
    if (!isFromLink) this.state.prefix = "";
    return this.translate(text, this.state.prefix ?? "");
  }

  async translate(text, prefix) {
    this.abort?.abort();
    this.abort = new AbortController();
    const {signal} = this.abort;
    this.forget();
    this.root.classList.add("busy");
    this.root.setAttribute("aria-busy", "true");
    try {
      await this.write(text, prefix, signal);
      const {translations} = await ask("predict", {run: this.run.name, text, best: this.run.decode?.search === "greedy" ? 1 : BEST, prefix}, signal);
      Object.assign(this, {text, prefix, translations});
      await this.choose(0, signal);
      this.search.about({run: this.run.name, text, prefix, best: BEST});
    } finally {
      if (this.abort.signal === signal) {
        this.root.classList.remove("busy");
        this.root.removeAttribute("aria-busy");
      }
    }
  }

  // Arcs and words of the sentence before are no answer to the next one.
  forget() {
    this.search.question = null;
    if (!this.root.classList.contains("old")) return;
    this.words.replaceChildren();
    this.looking.hidden = this.nbest.hidden = this.hint.hidden = this.search.root.hidden = true;
    this.whatIf.clear();
  }

  // Word by word as it comes, greedily; the result of the search takes its place. If this fails, so does the search, and says why.
  async write(text, prefix, signal) {
    try {
      for await (const told of stream({run: this.run.name, text, prefix}, signal)) {
        this.root.classList.remove("old");
        if (told.text !== undefined) this.words.replaceChildren(element("span", {className: "coming", dir: "auto", textContent: told.text}));
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
    const view = await look({run: this.run.name, text: this.text, target, subwords: !this.inWords()}, signal);
    this.showList();
    await this.show(view);
  }

  inWords() { return this.state.unit !== "pieces"; }

  async show(view) {
    this.view = view;
    this.showWords();
    this.looking.hidden = !view.maps.length;
    this.nothing.hidden = Boolean(view.maps.length);
    this.files.hidden = this.whatIf.made.length > 0;      // files are made of the model's own weights
    this.unit.value = this.state.unit === "pieces" ? "pieces" : "words";
    await this.display.show(view, (view.maps.findLast(isAlignment) ?? view.maps.at(-1))?.name);
  }

  showWords() {
    const forced = this.prefix ? this.prefix.split(" ").length : 0;
    this.words.replaceChildren(...this.view.words.map((word, index) => element("button",
      {type: "button", className: `${index < forced ? "forced" : ""} ${word.changed ? "changed" : ""} ${word.text === END ? "end" : ""}`, textContent: word.text, dir: "auto",
        title: `probability ${share(word.probability)}`, "aria-haspopup": "dialog", "aria-expanded": "false",
        "--probability": word.probability, "--place": index, onclick: (event) => this.alternatives(index, event.currentTarget)})));
    this.hint.hidden = false;
  }

  showList() {
    const items = this.translations.map((translation, place) => element("li", {}, element("button",
      {type: "button", "aria-current": String(place === this.place), onclick: () => this.choose(place).catch(this.failed)},
      element("span", {className: "number", textContent: digits(translation.score), title: "score: log-probability with the length penalty"}),
      element("span", {dir: "auto", textContent: translation.text || "(nothing)"}))));
    this.list.replaceChildren(...items);
    this.nbest.hidden = items.length < 2;
  }

  // Before a map is drawn: what of it can be changed, and how many steps it has.
  drawn(map) {
    const {mapView, headNumber: head} = this.display, layers = this.display.view.maps.filter(isAlignment).length;
    mapView.turns = isAlignment(map);
    this.whatIf.offer(layers, map.weights.length, head !== null);
    if (!mapView.turns) this.whatIf.reachLabel.hidden = true;
    const isCut = head !== null && this.whatIf.isCut(map, head);
    this.cut.hidden = map.weights.length === 1;
    this.cut.disabled = head === null || isCut;
    this.cut.textContent = isCut ? "This head is cut off" : "Cut this head";
    this.cut.title = head === null ? "Choose one head first" : "Translate without what this head passes on";
    this.step.parentElement.hidden = !map.name.startsWith("decoder");
    this.step.max = this.step.value = map.queries.labels.length;
    this.sayStep(map);
  }

  // The slider stands after so many words: the last one is being written, later ones are not there yet.
  scrubbed() {
    const {mapView, current} = this.display, count = Number(this.step.value), isAll = count === Number(this.step.max);
    mapView.step = isAll ? null : Math.max(count - 1, 0);
    mapView.pinned = mapView.hovered = null;
    mapView.update();
    this.sayStep(current);
    [...this.words.children].forEach((word, index) => word.classList.toggle("unwritten", this.inWords() && !isAll && index > mapView.step));
  }

  sayStep(map) {
    const {step} = this.display.mapView, isAll = step === null;
    this.written.textContent = isAll ? "all" : `${step + 1} of ${this.step.max}`;
    this.step.setAttribute("aria-valuetext", isAll ? "all words" : `word ${step + 1}: ${map.queries.labels[step]}`);
  }

  chosenUnit() {
    this.state.unit = this.unit.value;
    this.changed();
    this.choose(this.place).catch(this.failed);
  }

  // What if

  changing() { return {run: this.run.name, text: this.text, target: this.view.text, words: this.inWords()}; }
  turn(query, key) { return this.whatIf.turn(this.changing(), this.display.current, this.display.headNumber, query, key); }
  cutHead() { return this.whatIf.cut(this.changing(), this.display.current, this.display.headNumber); }

  showOutcome({after, maps, source}) {
    this.search.root.hidden = true;      // it found the words before, not these
    return this.show({run: this.run.name, source, text: after.text, log_prob: after.log_prob, words: after.words, maps});
  }

  // Alternatives

  async alternatives(word, button) {
    try {
      const {alternatives} = await ask("alternatives", {run: this.run.name, text: this.text, target: this.view.text, word});
      this.offer(alternatives, button);
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
    const items = alternatives.map(({text, prefix, probability}) => element("li", {}, element("button",
      {type: "button", disabled: prefix === null, "--probability": probability, onclick: () => { close(); this.force(prefix); }},
      element("span", {dir: "auto", textContent: text}), element("span", {className: "number", textContent: share(probability)}))));
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
    const {current: map, mapView, headNumber} = this.display, weights = map.weights.map((head) => head[query][key]);
    const question = {run: this.run.name, text: this.text, target: this.view.text, map: map.name, query, key, words: this.inWords()};
    const turn = mapView.turns ? () => this.turn(query, key).then(() => mapView.focusCell(query, key)) : null;
    openCalculation(question, map.label, weights, headNumber, turn, this.whatIf.made.length > 0).catch(this.failed);
  }

  figureQuestion() {
    const {current, headNumber} = this.display;
    return {text: this.text, target: this.view.text, subwords: !this.inWords(), only: current.name, ...(headNumber === null ? {} : {head: headNumber})};
  }
}
