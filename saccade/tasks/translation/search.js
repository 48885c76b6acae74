// The beam search behind a translation, as a tree: words that follow each other stand in a line, a line that parts goes on in several below
// each other, and what was given up can be unfolded and revived.

import {ask} from "/static/api.js";
import {digits, element, share} from "/static/views/dom.js";

const FATES = {best: "on the way to the best translation", result: "on the way to another translation", ended: "ended, and others were better",
  followed: "followed for a while", "given up": "given up at once"};

export class SearchView {
  constructor(revive, failed) {
    Object.assign(this, {revive, failed});
    this.tree = element("div", {className: "tree"});
    this.note = element("p", {className: "quiet"});
    this.root = element("details", {className: "search", hidden: true, ontoggle: () => { if (this.root.open) this.load(); }},
      element("summary", {textContent: "The search"}), this.note,
      element("div", {className: "scroller", tabIndex: 0, role: "region", "aria-label": "Tree of the search"}, this.tree));
  }

  // What to search for, when somebody opens the tree.
  about(question) {
    this.question = question;
    this.shown = null;
    this.root.hidden = false;
    if (this.root.open) this.load();
  }

  async load() {
    if (this.shown === this.question) return;
    const question = this.shown = this.question;
    try {
      const found = await ask("search", question);
      if (question === this.question) this.draw(found);
    } catch (error) {
      this.shown = null;
      this.failed(error);
    }
  }

  draw({nodes, beam}) {
    const first = [];
    nodes.forEach((node) => { node.children = []; (node.parent === null ? first : nodes[node.parent].children).push(node); });
    const lost = nodes.filter((node) => node.fate === "given up").length;
    this.note.textContent = `A beam of ${beam} tried ${nodes.length} continuations and gave up ${lost} at once. Under each word stands the `
      + "log-probability of all words so far. Unfold (+) what was given up in favour of others, and click it to revive it.";
    this.tree.replaceChildren(this.branches(first));
  }

  // Lines that begin with these nodes, which stand at the same place.
  branches(nodes) {
    const lost = givenUp(nodes);
    return element("ul", {className: "branches"}, ...living(nodes).map((node) => this.line(node)),
      ...(lost.length ? [element("li", {}, this.lost(lost))] : []));
  }

  // A word and, as long as only one word follows, those after it.
  line(node) {
    const row = element("div", {className: "line"}, this.word(node));
    let last = node;
    for (let [next, ...others] = living(last.children); next && !others.length; [next, ...others] = living(last.children)) {
      const lost = givenUp(last.children);
      row.append(element("span", {className: "place"}, this.word(next), ...(lost.length ? [this.lost(lost)] : [])));
      last = next;
    }
    if (!last.children.length) return element("li", {}, row);
    const below = this.branches(last.children), leads = last.fate === "best" || last.fate === "result";
    row.append(unfolding(below, countBelow(last), leads, "continuations"));
    return element("li", {}, row, below);
  }

  word(node) {
    const until = node.fate === "followed" ? `, until step ${node.until}` : "";
    const said = `${FATES[node.fate]}${until}; this word ${share(Math.exp(node.log_prob))}, score ${digits(node.score)}`;
    const joined = node.piece.startsWith("·"), number = node.rank === null ? digits(node.total) : `${node.rank + 1}. of the results, score ${digits(node.score)}`;
    const inside = [element("span", {className: "piece", dir: "auto", textContent: joined ? node.piece.slice(1) : node.piece}),
      element("span", {className: "number", textContent: number})];
    const kinds = ["token", node.fate.replace(" ", "-"), ...(joined ? ["joined"] : []), ...(node.piece === "<end>" ? ["end"] : [])];
    const properties = {className: kinds.join(" "), title: said};
    if (node.prefix === null || node.fate === "best" || node.fate === "result") return element("span", properties, ...inside);
    return element("button", {type: "button", ...properties, "aria-label": `Revive “${node.prefix}”: ${said}`, onclick: () => this.revive(node.prefix)}, ...inside);
  }

  // What was given up at one place.
  lost(nodes) {
    const list = element("span", {className: "words"}, ...nodes.map((node) => this.word(node)));
    return element("span", {className: "lost"}, unfolding(list, nodes.length, false, "given up here"), list);
  }
}

const givenUp = (nodes) => nodes.filter((node) => node.fate === "given up");
const living = (nodes) => nodes.filter((node) => node.fate !== "given up");
const countBelow = (node) => node.children.reduce((count, child) => count + 1 + countBelow(child), 0);

// A button that shows and hides `content`, which stands for `count` things.
function unfolding(content, count, open, what) {
  const button = element("button", {type: "button", className: "fold", "aria-label": `${count} ${what}`, title: `${count} ${what}`});
  const show = (shown) => {
    content.hidden = !shown;
    button.setAttribute("aria-expanded", String(shown));
    button.textContent = shown ? "−" : `+${count}`;
  };
  button.onclick = () => show(content.hidden);
  show(open);
  return button;
}
