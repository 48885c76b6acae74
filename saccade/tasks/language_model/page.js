// A run that writes on: type, see it write, point at a token to see what was expected there, change the temperature, cut a head.
// A run that guesses masked words: the guesses, and what was expected everywhere.

import {ask, look, stream} from "/static/api.js";
import {downloads, titled} from "/static/panel.js";
import {answerBars} from "/static/views/beliefs.js";
import {digits, element, labelled} from "/static/views/dom.js";
import {Expectations} from "/static/views/expectations.js";
import {ViewDisplay} from "/static/views/view.js";

const WAIT = 150;      // ms after the last move of a slider

export class Panel {
  static action = "Write on";

  constructor(run, state, changed, failed) {
    Object.assign(this, {run, state, changed, failed, heads: []});
    this.writes = run.asks.includes("next");
    this.display = new ViewDisplay({state, changed, drawn: () => this.drawn()});
    this.expectations = new Expectations();
    this.prompt = element("span", {className: "given", dir: "auto"});
    this.coming = element("span", {dir: "auto"});
    this.text = element("p", {className: "answer written-on", "aria-live": "polite"}, this.prompt, this.coming);
    this.temperature = element("input", {type: "range", min: 0, max: 2, step: .05, value: state.temperature ?? .8, oninput: () => this.moved()});
    this.degree = element("span", {className: "number"});
    this.tokens = element("input", {type: "number", min: 1, max: 2000, value: state.tokens ?? 100, onchange: () => this.remember()});
    this.again = element("button", {type: "button", textContent: "Write another", onclick: () => this.another()});
    this.stop = element("button", {type: "button", textContent: "Stop", hidden: true, onclick: () => this.abort?.abort()});
    this.cut = element("button", {type: "button", onclick: () => this.cutHead()});
    this.next = element("div");
    this.bits = element("h3");
    this.following = element("div", {hidden: true}, this.bits, this.next);
    this.controls = element("div", {className: "controls"}, labelled("Temperature", this.temperature, this.degree), labelled("Tokens", this.tokens), this.again, this.stop);
    this.controls.hidden = !this.writes;
    this.guesses = element("div");
    this.files = downloads(run, () => ({text: this.whole}), () => this.view, failed);
    this.seen = element("div", {hidden: true}, this.expectations.root, this.following, this.display.root, this.files);
    this.root = titled(run, this.controls, this.text, this.guesses, this.seen);
    if (this.writes) this.display.legend.root.before(this.cut);
    this.showDegree();
  }

  answer({text}) {
    this.question = text;
    return this.writes ? this.write() : this.guess();
  }

  another() {
    this.state.seed = Number(this.state.seed ?? 1) + 1;
    this.changed();
    return this.write().catch(this.failed);
  }

  async write() {
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    this.remember();
    this.whole = this.question;
    this.prompt.textContent = this.question;
    this.coming.textContent = "";
    this.stop.hidden = false;
    this.root.setAttribute("aria-busy", "true");
    const {temperature, tokens} = this.state, seed = Number(this.state.seed ?? 1);
    try {
      for await (const told of stream({run: this.run.name, text: this.question, temperature, tokens, seed}, abort.signal)) {
        if (told.error) throw new Error(told.error);
        if (!told.done) this.coming.textContent += told.text;
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      if (this.abort === abort) {
        this.stop.hidden = true;
        this.root.removeAttribute("aria-busy");
      }
    }
    if (this.abort !== abort) return;
    this.whole = this.question + this.coming.textContent;
    await this.show();
  }

  async guess() {
    this.whole = this.question;
    const {masks, filled} = await ask("predict", {run: this.run.name, text: this.question});
    this.coming.textContent = filled;
    this.guesses.replaceChildren(...masks.map((mask) => answerBars(mask.map(({text, probability}) => ({class: text, probability})))));
    await this.show();
  }

  async show() {
    this.view = await look({run: this.run.name, text: this.whole});
    this.expectations.show(this.view.beliefs);
    this.seen.hidden = false;
    this.files.hidden = !this.view.maps.length;
    await this.display.show(this.view);
    if (this.writes) await this.askNext();
  }

  // The slider moves what may come next at once; what was written stays.
  moved() {
    this.showDegree();
    this.remember();
    clearTimeout(this.waiting);
    if (this.view) this.waiting = setTimeout(() => this.askNext().catch(this.failed), WAIT);
  }

  showDegree() { this.degree.textContent = digits(Number(this.temperature.value)); }

  remember() {
    Object.assign(this.state, {temperature: Number(this.temperature.value), tokens: Math.min(2000, Math.max(1, Number(this.tokens.value) || 100))});
    this.changed();
  }

  async askNext() {
    const cut = this.heads.map(([map, head]) => ({map, head}));
    const {choices, bits} = await ask("next", {run: this.run.name, text: this.whole, temperature: this.state.temperature, cut});
    const without = cut.length ? `, without ${cut.map(({map, head}) => `head ${head} of ${map}`).join(", ")}` : "";
    this.bits.textContent = `What comes next at temperature ${digits(this.state.temperature)}${without}: ${digits(bits)} bits`;
    this.next.replaceChildren(answerBars(choices));
    this.following.hidden = false;
  }

  drawn() {
    const {headNumber: head, current: map} = this.display;
    this.cut.hidden = !this.writes || head === null;
    this.cut.textContent = this.isCut(map.name, head) ? "Put this head back" : "Cut this head";
  }

  isCut(map, head) { return this.heads.some(([name, number]) => name === map && number === head); }

  cutHead() {
    const {headNumber: head, current: {name}} = this.display;
    this.heads = this.isCut(name, head) ? this.heads.filter(([map, number]) => map !== name || number !== head) : [...this.heads, [name, head]];
    this.drawn();
    return this.askNext().catch(this.failed);
  }
}
