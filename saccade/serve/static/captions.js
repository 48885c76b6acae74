// A run that describes pictures: the caption, other ones, and the region of the picture that each word looked at.

import {ask, figure} from "./api.js";
import {bold, digits, downloads, element, fillHeads, labelled, ofHead, option, save, share, titled} from "./dom.js";
import {loaded, paintOverlay, paintPicture} from "./overlay.js";

const SIDE = 640;

export class CaptionPanel {
  constructor(run, state, changed, failed) {
    Object.assign(this, {run, state, changed, failed});
    this.canvas = element("canvas", {width: SIDE, height: SIDE, role: "img"});
    this.answer = element("p", {className: "answer", role: "group", "aria-label": "Caption"});
    this.list = element("ol", {className: "nbest"});
    this.nbest = element("details", {}, element("summary", {textContent: "Other captions"}), this.list);
    this.map = element("select", {onchange: () => { state.map = this.map.value; changed(); this.showMap(); }});
    this.head = element("select", {onchange: () => { state.head = this.head.value; changed(); this.light(); }});
    this.strength = element("input", {type: "range", min: 0, max: 100, value: 85, oninput: () => this.light()});
    this.status = element("p", {className: "status", role: "status"});
    this.controls = element("div", {className: "controls"}, labelled("Attention", this.map), labelled("Head", this.head), labelled("Overlay", this.strength));
    this.result = element("div", {hidden: true}, this.answer, this.status,
      element("div", {className: "seen"}, element("div", {className: "photo"}, this.canvas), element("div", {className: "beside"}, this.controls, this.nbest)),
      downloads((kind) => this.download(kind)));
    this.root = titled(run, this.result);
    this.answer.addEventListener("keydown", (event) => this.move(event));
  }

  async look(image) {
    this.root.classList.add("busy");
    try {
      const found = await ask("predict", {run: this.run.name, image, best: this.run.decode?.search === "greedy" ? 1 : 5});
      Object.assign(this, {image, captions: found.captions});
      await this.choose(0);
    } finally {
      this.root.classList.remove("busy");
    }
  }

  async choose(place) {
    this.place = place;
    this.seen = await ask("look", {run: this.run.name, image: this.image, target: this.captions[place].text});
    this.picture = await loaded(this.seen.picture.address);
    this.pinned = this.hovered = null;
    this.result.hidden = false;
    this.showWords();
    this.showList();
    const {maps} = this.seen, wanted = maps.some((each) => each.name === this.state.map) ? this.state.map : maps.at(-1)?.name;
    this.map.replaceChildren(...maps.map((each) => option(each.name, each.label, each.name === wanted)));
    this.map.parentElement.hidden = maps.length < 2;
    this.controls.hidden = !maps.length;
    this.showMap();
  }

  showWords() {
    const words = this.seen.words.map((word, index) => element("button",
      {type: "button", className: word.text === "<end>" ? "end" : "", textContent: word.text, dir: "auto", tabIndex: index ? -1 : 0,
        title: `probability ${share(word.probability)}`, "aria-pressed": "false", "--probability": word.probability, "--place": index,
        onpointerenter: () => this.light(index), onpointerleave: () => this.light(null), onfocus: () => this.pin(index), onclick: () => this.pin(index)}));
    this.answer.replaceChildren(...words);
  }

  showList() {
    const items = this.captions.map((each, place) => element("li", {}, element("button",
      {type: "button", "aria-current": String(place === this.place), onclick: () => this.choose(place).catch(this.failed)},
      element("span", {className: "number", textContent: digits(each.score), title: "score: log-probability with the length penalty"}),
      element("span", {dir: "auto", textContent: each.text || "(nothing)"}))));
    this.list.replaceChildren(...items);
    this.nbest.hidden = items.length < 2;
  }

  showMap() {
    this.current = this.seen.maps.find((each) => each.name === this.map.value);
    fillHeads(this.head, this.current?.weights.length ?? 1, this.state.head);
    this.light();
  }

  pin(index) {
    this.pinned = index;
    this.light();
  }

  // Light the region of the word under the pointer, else of the one that was chosen.
  light(hovered = this.hovered) {
    this.hovered = hovered;
    const word = this.hovered ?? this.pinned;
    [...this.answer.children].forEach((button, index) => {
      button.classList.toggle("shown", index === word);
      button.setAttribute("aria-pressed", String(index === this.pinned));
    });
    paintPicture(this.canvas, this.picture, this.seen.picture);
    const cells = this.current && word !== null ? ofHead(this.current.weights, this.head.value)[word] : null;
    if (cells) paintOverlay(this.canvas, cells, this.current.keys, this.seen.picture, this.strength.value / 100);
    this.say(word, cells);
  }

  say(word, cells) {
    this.canvas.setAttribute("aria-label", cells ? `The picture, bright where ${this.seen.words[word].text} looked` : `The picture: ${this.seen.target}`);
    if (!this.current) return this.status.replaceChildren("This model does not look at the picture while it writes: it saw it once.");
    if (!cells) return this.status.replaceChildren("Point at a word to see where it looked; click to keep it lit.");
    const most = cells.indexOf(Math.max(...cells)), {rows, columns} = this.current.keys;
    this.status.replaceChildren(bold(this.seen.words[word].text),
      ` looked most, ${digits(cells[most])}, at row ${Math.floor(most / columns) + 1} of ${rows}, column ${most % columns + 1} of ${columns}; even would be ${digits(1 / cells.length, 3)}.`);
  }

  move(event) {
    const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key], words = [...this.answer.children];
    if (event.key === "Escape") this.pin(null);
    const next = step && words[words.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    words.forEach((each) => { each.tabIndex = each === next ? 0 : -1; });
    next.focus();
  }

  async download(kind) {
    const name = `attention-${this.run.name}`;
    if (kind === "json") return save(new Blob([JSON.stringify(this.seen)], {type: "application/json"}), `${name}.json`);
    const question = {run: this.run.name, image: this.image, target: this.seen.target, format: kind};
    if (this.current && this.seen.maps.length > 1) question.only = this.current.name;
    await figure(question).then((blob) => save(blob, `${name}.${kind}`), this.failed);
  }
}
