// A run that answers questions: the context with the words where the answer may begin and end, what each word of the question looked at, and
// the answer without a sentence that somebody hides.

import {ask} from "/static/api.js";
import {busy, Panel as ViewPanel} from "/static/panel.js";
import {element, share} from "/static/views/dom.js";
import {ink, isDark, isStrong, onTheme} from "/static/views/palette.js";

export class Panel extends ViewPanel {
  // The form above all panels, in place of a sentence or a picture. `asked({question, context})` asks every panel.
  static form(run, state, asked) {
    const question = element("textarea", {rows: 1, value: state.question ?? "", placeholder: "Who…?", spellcheck: false, "aria-label": "Question"});
    const context = element("textarea", {rows: 5, value: state.context ?? "", placeholder: "The text that answers it…", spellcheck: false, "aria-label": "Context"});
    const submit = () => asked({question: question.value.trim(), context: context.value});
    const examples = run.examples.map((example) => JSON.parse(example)).map((example) => element("button",
      {type: "button", textContent: example.question, onclick: () => { question.value = example.question; context.value = example.context; submit(); }}));
    const form = element("form", {className: "question-form", onsubmit: (event) => { event.preventDefault(); submit(); }},
      element("div", {className: "entry"}, question, element("button", {type: "submit", className: "main", textContent: "Ask"})),
      context, element("div", {className: "examples", role: "group", "aria-label": "Examples"}, ...examples));
    question.onkeydown = (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); submit(); } };
    form.begin = () => { if (question.value.trim() && context.value.trim()) submit(); };
    return form;
  }

  constructor(run, state, changed, failed) {
    super(run, state, changed, failed);
    this.hidden = new Set();
    this.asking = element("p", {className: "words-asked", role: "group", "aria-label": "Question"});
    this.passage = element("div", {className: "passage"});
    this.changed = element("p", {className: "status", role: "status", "aria-live": "polite"});
    this.others = element("ol", {className: "nbest"});
    this.each = element("button", {type: "button", textContent: "Hide each sentence in turn", onclick: () => this.hideEach().catch(failed)});
    this.result.prepend(this.asking, this.passage, this.changed, this.each, this.others);
    onTheme(() => this.view && this.paint());
  }

  async show(view) {
    this.hidden.clear();
    this.turns = null;
    this.changed.textContent = "Click a sentence to hide it and ask again; hover over a word of the question to see where it looks.";
    this.build(view);
    this.list(view.answer.best);
    await super.show(view);
    this.text.hidden = false;
    this.text.textContent = view.text;
  }

  list(candidates) {
    this.others.replaceChildren(...candidates.map((candidate) => element("li", {},
      element("span", {className: "number", textContent: share(candidate.probability)}), " ", element("bdi", {textContent: candidate.answer || "(no answer)"}))));
  }

  // The context as it was written, each word of the window an element, the words of a sentence together.
  build(view) {
    const {context, places, sentences} = view;
    const looks = view.maps.filter((map) => map.query_title === "question" && map.key_title === "context" && map.queries.labels.length > 1).at(-1);
    this.looks = looks && looks.weights[0].map((row, query) => row.map((_, key) => looks.weights.reduce((sum, head) => sum + head[query][key], 0) / looks.weights.length));
    this.words = places.map(([start, end]) => element("span", {className: "tinted", textContent: context.slice(start, end)}));
    this.parts = [];
    let end = places[0]?.[0] ?? 0;
    this.words.forEach((word, place) => {
      const number = sentences[place];
      if (number === this.parts.length) {
        this.parts.push(element("span", {className: "sentence", tabIndex: 0, role: "button", "aria-pressed": "false", title: "Hide this sentence",
          onclick: () => this.toggle(number).catch(this.failed),
          onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.toggle(number).catch(this.failed); } }}));
      }
      this.parts.at(-1).append(context.slice(end, places[place][0]), word);
      end = places[place][1];
    });
    this.passage.replaceChildren(...this.parts);
    const labels = looks?.queries.labels ?? view.question.split(" ");
    this.asking.replaceChildren(...labels.flatMap((label, query) => [element("button", {type: "button", textContent: label,
      onpointerenter: () => this.paint(query), onpointerleave: () => this.paint(), onfocus: () => this.paint(query), onblur: () => this.paint()}), " "]));
    this.view = view;
    this.paint();
  }

  // The passage in the ink of where the answer begins and ends, or of where a word of the question looks.
  paint(query) {
    const weights = query === undefined || !this.looks ? this.view.begins.map((begin, place) => Math.max(begin, this.view.ends[place])) : this.looks[query];
    const peak = Math.max(...weights), limit = query === undefined ? 1 : Math.max(peak, 6 / weights.length);
    this.words.forEach((word, place) => {
      const part = weights[place] / limit;
      word.style.backgroundColor = part > .02 ? ink(part) : "";
      word.style.color = part > .02 && isStrong(part) !== isDark() ? "#fff" : "";
      word.title = query === undefined ? `begins ${share(this.view.begins[place])}, ends ${share(this.view.ends[place])}` : `weight ${share(weights[place])}`;
    });
  }

  toggle(number) {
    if (this.hidden.has(number)) this.hidden.delete(number); else this.hidden.add(number);
    this.parts.forEach((part, place) => { part.classList.toggle("hidden", this.hidden.has(place)); part.setAttribute("aria-pressed", String(this.hidden.has(place))); });
    return busy(this.root, async () => {
      if (!this.hidden.size) {
        this.changed.textContent = "Everything is shown again.";
        return this.list(this.view.answer.best);
      }
      const {answers: [found]} = await this.without([...this.hidden]);
      if (!found) { this.changed.textContent = "Nothing is left to read."; return this.list([]); }
      const same = found.answer === this.view.answer.answer;
      this.changed.textContent = `Without ${this.hidden.size === 1 ? "this sentence" : "these sentences"} the answer is ${same ? "the same" : `“${found.answer || "(no answer)"}”`}, probability ${share(found.probability)} (before: “${this.view.answer.answer || "(no answer)"}”, ${share(this.view.answer.probability)}).`;
      return this.list(found.best);
    });
  }

  // What is shown may be a window: its sentences are numbered from `first_sentence` in the context.
  without(hidden) {
    return ask("without", {run: this.run.name, question: this.view.question, context: this.view.context, hidden: hidden.map((number) => number + this.view.first_sentence)});
  }

  hideEach() {
    return busy(this.root, async () => {
      const {answers} = await this.without([]), before = this.view.answer.answer;
      let changes = 0;
      for (const found of answers) {
        const part = this.parts[found.hidden[0] - this.view.first_sentence];
        if (!part) continue;
        const isOther = found.answer !== before;
        changes += isOther;
        part.classList.toggle("needed", isOther);
        part.title = `Without it: ${found.answer || "(no answer)"} (${share(found.probability)})`;
      }
      this.changed.textContent = `${changes} of ${answers.length} sentences change the answer when they are hidden alone${changes ? ": they are underlined" : ""}.`;
    });
  }
}
