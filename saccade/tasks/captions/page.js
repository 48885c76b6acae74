// A run that describes pictures: the caption, other ones, and the region of the picture that each word looked at.

import {ask, look} from "/static/api.js";
import {busy, downloads, titled} from "/static/panel.js";
import {digits, element, share} from "/static/views/dom.js";
import {fit, loadPhoto, paintPlain} from "/static/views/photo.js";
import {ViewDisplay} from "/static/views/view.js";

const BEST = 5;

export class Panel {
  constructor(run, state, changed, failed) {
    Object.assign(this, {run, failed});
    this.display = new ViewDisplay({state, changed});
    this.unseen = element("div", {className: "unseen-caption"});
    this.list = element("ol", {className: "nbest"});
    this.nbest = element("details", {}, element("summary", {textContent: "Other captions"}), this.list);
    this.files = downloads(run, () => this.figureQuestion(), () => this.view, failed);
    this.result = element("div", {hidden: true}, this.display.root, this.unseen, this.nbest, this.files);
    this.root = titled(run, this.result);
  }

  answer({image}) {
    return busy(this.root, async () => {
      const {captions} = await ask("predict", {run: this.run.name, image, best: this.run.decode?.search === "greedy" ? 1 : BEST});
      Object.assign(this, {image, captions});
      await this.choose(0);
    });
  }

  async choose(place) {
    this.place = place;
    this.view = await look({run: this.run.name, image: this.image, target: this.captions[place].text});
    this.view.maps = this.view.maps.map((map) => ({...map, query_title: "Caption", key_title: "Picture"}));
    this.result.hidden = false;
    this.showList();
    await this.display.show(this.view, this.view.maps.at(-1)?.name);
    this.files.hidden = !this.view.maps.length;
    this.unseen.hidden = Boolean(this.view.maps.length);
    if (!this.unseen.hidden) await this.showUnseen();
  }

  // A model whose words look nowhere: the caption and the picture.
  async showUnseen() {
    const photo = await loadPhoto(this.view.picture), canvas = element("canvas", {className: "plain", role: "img", "aria-label": `The picture: ${this.view.text}`});
    fit(canvas, photo);
    paintPlain(canvas, photo);
    const words = this.view.words.map((word) => element("span", {textContent: word.text, title: `probability ${share(word.probability)}`}));
    this.unseen.replaceChildren(element("p", {className: "answer", role: "group", "aria-label": "Caption"}, ...words.flatMap((word) => [word, " "])),
      element("p", {className: "quiet", textContent: "This model does not look at the picture while it writes: it saw it once."}), canvas);
  }

  showList() {
    const items = this.captions.map((caption, place) => element("li", {}, element("button",
      {type: "button", "aria-current": String(place === this.place), onclick: () => this.choose(place).catch(this.failed)},
      element("span", {className: "number", textContent: digits(caption.score), title: "score: log-probability with the length penalty"}),
      element("span", {dir: "auto", textContent: caption.text || "(nothing)"}))));
    this.list.replaceChildren(...items);
    this.nbest.hidden = items.length < 2;
  }

  figureQuestion() {
    const only = this.view.maps.length > 1 ? {only: this.display.current.name} : {};
    return {image: this.image, target: this.view.text, ...only};
  }
}
