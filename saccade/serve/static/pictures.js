// A run that names pictures: class probabilities, and the attention over the picture, or the path of its glimpses.

import {ask, figure} from "./api.js";
import {digits, downloads, element, fillHeads, labelled, ofHead, option, save, share, titled} from "./dom.js";
import {cellOf, loaded, paintOverlay, paintPicture, pixelAt} from "./overlay.js";

const SIDE = 448;

export class PicturePanel {
  constructor(run, state, changed, failed) {
    Object.assign(this, {run, state, changed, failed});
    this.canvas = element("canvas", {width: SIDE, height: SIDE, role: "img"});
    this.classes = element("ol", {className: "classes", "aria-label": "Classes"});
    this.map = element("select", {onchange: () => { state.map = this.map.value; changed(); this.showMap(); }});
    this.head = element("select", {onchange: () => { state.head = this.head.value; changed(); this.paint(); }});
    this.strength = element("input", {type: "range", min: 0, max: 100, value: 75, oninput: () => this.paint()});
    this.glimpse = element("input", {type: "range", min: 1, oninput: () => { this.stop(); this.paint(); }});
    this.play = element("button", {type: "button", textContent: "Play", onclick: () => this.toggle()});
    this.status = element("p", {className: "status", role: "status"});
    this.controls = element("div", {className: "controls"}, labelled("Attention", this.map), labelled("Head", this.head),
      labelled("Overlay", this.strength), labelled("Glimpse", this.glimpse), this.play);
    this.result = element("div", {hidden: true}, this.controls, this.status,
      element("div", {className: "seen"}, element("div", {className: "frame"}, this.canvas), this.classes),
      downloads((kind) => this.download(kind)));
    this.root = titled(run, this.result);
    this.canvas.addEventListener("pointermove", (event) => this.pointed(event));
    this.canvas.addEventListener("click", (event) => this.clicked(event));
  }

  async look(image, pixel = null) {
    this.stop();
    this.root.classList.add("busy");
    try {
      const question = {run: this.run.name, image, ...(pixel ? {pixel} : {})};
      this.seen = await ask("look", question);
      Object.assign(this, {image, pixel});
      this.picture = await loaded(this.seen.picture.address);
      this.result.hidden = false;
      this.showMaps();
    } finally {
      this.root.classList.remove("busy");
    }
  }

  showMaps() {
    const {maps, glimpses} = this.seen;
    this.map.replaceChildren(...maps.map((each) => option(each.name, each.label, each.name === this.state.map)));
    this.map.parentElement.hidden = maps.length < 2;
    this.glimpse.parentElement.hidden = this.play.hidden = !glimpses;
    this.strength.parentElement.hidden = Boolean(glimpses) || !maps.length;
    if (glimpses) {
      this.glimpse.max = glimpses.length;
      this.glimpse.value = glimpses.length;
    }
    this.showMap();
  }

  showMap() {
    this.current = this.seen.maps.find((each) => each.name === this.map.value) ?? this.seen.maps[0];
    fillHeads(this.head, this.current?.weights.length ?? 1, this.state.head);
    this.paint();
    this.say();
  }

  // The weights of the cells of the picture, without those of tokens that are no cell.
  cells() {
    const row = this.seen.glimpses ? Number(this.glimpse.value) - 1 : 0;
    return ofHead(this.current.weights, this.head.value)[row].slice(this.current.keys.extra);
  }

  paint() {
    paintPicture(this.canvas, this.picture, this.seen.picture);
    const context = this.canvas.getContext("2d"), {width, height} = this.canvas;
    if (this.seen.glimpses) this.paintGlimpses(context, width, height);
    else if (this.current) this.paintWeights(context, width, height);
    this.showClasses();
    const best = this.seen.classes[0];
    this.canvas.setAttribute("aria-label", `The picture as the model sees it, taken for ${best.class}, with the places it looked at brightened`);
  }

  paintWeights(context, width, height) {
    paintOverlay(this.canvas, this.cells(), this.current.keys, this.seen.picture, this.strength.value / 100);
    if (!this.pixel) return;
    const {rows: tall, columns: broad} = this.seen.picture;
    context.strokeStyle = "#ff3b6b";
    context.lineWidth = 3;
    context.strokeRect(this.pixel[1] * width / broad, this.pixel[0] * height / tall, Math.max(6, width / broad), Math.max(6, height / tall));
  }

  paintGlimpses(context, width, height) {
    const {glimpses, picture} = this.seen, count = Number(this.glimpse.value), x = width / picture.columns, y = height / picture.rows;
    const middle = (glimpse) => { const {row, column, side} = glimpse.windows[0]; return [(column + side / 2) * x, (row + side / 2) * y]; };
    context.lineWidth = 3;
    context.strokeStyle = "rgb(255 170 40 / .8)";
    context.beginPath();
    glimpses.slice(0, count).forEach((glimpse, place) => context[place ? "lineTo" : "moveTo"](...middle(glimpse)));
    context.stroke();
    glimpses.slice(0, count).forEach((glimpse, place) => {
      context.strokeStyle = place === count - 1 ? "#ff3b6b" : "rgb(255 170 40 / .55)";
      glimpse.windows.forEach(({row, column, side}) => context.strokeRect(column * x, row * y, side * x, side * y));
    });
  }

  showClasses() {
    let classes = this.seen.classes;
    if (this.seen.glimpses) {
      const now = this.seen.glimpses[Number(this.glimpse.value) - 1].probabilities;
      classes = Object.entries(now).map(([name, probability]) => ({class: name, probability})).sort((a, b) => b.probability - a.probability);
    }
    this.classes.replaceChildren(...classes.slice(0, 10).map((each) => element("li", {},
      element("span", {textContent: each.class, dir: "auto"}), element("span", {}, element("i", {"--probability": each.probability})),
      element("span", {className: "number", textContent: share(each.probability)}))));
  }

  say(cell = null) {
    if (!this.current) return this.status.replaceChildren("This model has no attention: nothing to look at but its answer.");
    const {keys, queries} = this.current;
    if (this.seen.glimpses) return this.status.replaceChildren("Each frame is a glimpse, the bars what the model believed after it.");
    const click = this.pixel ? "Click another place, or this one again for the whole picture." : "Click the picture to see where that place looks.";
    if (cell === null) return this.status.replaceChildren(`Where ${queries.labels[0]} looks. ${click}`);
    this.status.replaceChildren(`${keys.labels[keys.extra + cell]}: weight ${digits(this.cells()[cell], 3)}`);
  }

  pointed(event) {
    if (!this.current || this.seen.glimpses) return;
    this.say(cellOf(pixelAt(this.canvas, event, this.seen.picture), this.current.keys, this.seen.picture));
  }

  clicked(event) {
    if (!this.current || this.seen.glimpses) return;
    const {keys} = this.current, {picture} = this.seen, pixel = pixelAt(this.canvas, event, picture);
    const again = this.pixel && cellOf(pixel, keys, picture) === cellOf(this.pixel, keys, picture);
    this.look(this.image, again ? null : pixel).catch(this.failed);
  }

  toggle() {
    if (this.timer) return this.stop();
    this.play.textContent = "Stop";
    this.glimpse.value = 1;
    this.paint();
    this.timer = setInterval(() => {
      if (Number(this.glimpse.value) === Number(this.glimpse.max)) return this.stop();
      this.glimpse.value = Number(this.glimpse.value) + 1;
      this.paint();
    }, 700);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  async download(kind) {
    const name = `attention-${this.run.name}`;
    if (kind === "json") return save(new Blob([JSON.stringify(this.seen)], {type: "application/json"}), `${name}.json`);
    const question = {run: this.run.name, image: this.image, format: kind, ...(this.pixel ? {pixel: this.pixel} : {})};
    await figure(question).then((blob) => save(blob, `${name}.${kind}`), this.failed);
  }
}
