// One attention map between two lists of words: arcs between them, and a matrix. Hovering, tapping or tabbing to a word lights its partners.

import {bold, digits, element} from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LARGEST_TABLE = 12000;

export class MapView {
  // `onCell(query, key)`: a cell was chosen. `onTurn(query, key)`: a query was dragged onto another key, if `turns` allows it.
  constructor(onCell, onTurn) {
    Object.assign(this, {onCell, onTurn, turns: false, dragged: null});
    this.pinned = this.hovered = null;
    this.step = null;      // rows after this one are not written yet; null: all are
    this.status = element("p", {className: "status", role: "status"});
    this.looks = element("div", {className: "looks rows"});
    this.scroller = element("div", {className: "scroller", tabIndex: 0, role: "region", "aria-label": "Matrix of attention weights"});
    this.caption = element("p", {className: "quiet"});
    this.root = element("div", {}, this.status, this.looks, this.caption, this.scroller);
    this.listen();
    new ResizeObserver(() => this.map && this.arrange()).observe(this.looks);
  }

  listen() {
    const over = (event) => { this.hovered = this.target(event); this.show(); };
    this.root.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") over(event); });
    this.root.addEventListener("pointerleave", () => { this.hovered = null; this.show(); });
    this.root.addEventListener("focusin", over);
    this.root.addEventListener("focusout", () => { this.hovered = null; this.show(); });
    this.root.addEventListener("click", (event) => this.click(event));
    this.root.addEventListener("keydown", (event) => this.move(event));
    this.scroller.addEventListener("pointerdown", (event) => this.grab(event));
  }

  // Dragging a cell along its row; a finger scrolls instead, and finds the same in the dialog of a cell.
  grab(event) {
    const start = this.target(event);
    if (!this.turns || event.pointerType === "touch" || event.button || start?.query === undefined) return;
    const leaving = new AbortController(), options = {signal: leaving.signal};
    const aim = (to) => {
      this.dragged = to?.query === start.query && to.key !== start.key ? to : null;
      this.scroller.classList.toggle("dragging", Boolean(this.dragged));
      this.show();
    };
    const drop = () => {
      const to = this.dragged;
      leaving.abort();
      aim(null);
      if (to) this.onTurn(to.query, to.key);
    };
    document.addEventListener("pointermove", (move) => aim(this.target(move)), options);
    document.addEventListener("pointerup", drop, options);
    document.addEventListener("pointercancel", () => { leaving.abort(); aim(null); }, options);
    document.addEventListener("keydown", (key) => { if (key.key === "Escape") { leaving.abort(); aim(null); } }, options);
  }

  click(event) {
    const place = this.target(event);
    if (!place) return;
    if (place.query !== undefined && place.key !== undefined) return this.onCell(place.query, place.key);
    const same = this.pinned && this.pinned.query === place.query && this.pinned.key === place.key;
    this.pinned = same ? null : place;
    if (same) this.hovered = null;
    this.show();
  }

  target(event) {
    const item = event.target.closest?.("[data-kind]"), cell = event.target.closest?.("td.cell");
    if (item) return {[item.dataset.kind]: Number(item.dataset.index)};
    return cell ? {query: Number(cell.dataset.query), key: Number(cell.dataset.key)} : null;
  }

  // Show a map with weights [query][key].
  draw(map, weights) {
    const renewed = this.map !== map;
    this.map = map;
    this.weights = weights;
    const peak = weights.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0);
    this.limit = peak === 0 || (peak > .7 && peak < 1) ? 1 : peak;
    if (renewed) {
      this.pinned = this.hovered = null;
      this.build();
    }
    this.fill();
    this.arrange();
    this.show();
  }

  build() {
    const side = (kind, title, labels) => {
      const items = labels.map((label, index) => element("button",
        {type: "button", className: "item", tabIndex: index ? -1 : 0, data: {kind, index}},
        element("span", {className: "word", dir: "auto", textContent: label}), element("span", {className: "number"})));
      const place = element("div", {className: `side ${kind === "key" ? "keys" : "queries"}`, role: "group", "aria-label": title},
        element("h3", {textContent: title}), element("div", {className: "items"}, ...items));
      return {items, place};
    };
    const keys = side("key", this.map.key_title, this.map.keys.labels);
    const queries = side("query", this.map.query_title, this.map.queries.labels);
    this.items = {key: keys.items, query: queries.items};
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.looks.replaceChildren(this.svg, keys.place, queries.place);
    this.buildTable();
  }

  buildTable() {
    const {keys, queries} = this.map, size = keys.labels.length * queries.labels.length;
    this.cells = [];
    this.scroller.hidden = this.caption.hidden = size > LARGEST_TABLE;
    this.caption.textContent = `Rows: ${this.map.query_title}. Columns: ${this.map.key_title}. Click a cell to see how its weight came about${
      this.turns ? "; drag one along its row to make the word look elsewhere" : ""}.`;
    this.scroller.replaceChildren();
    if (this.scroller.hidden) return;
    const head = element("tr", {}, element("th", {scope: "col"}),
      ...keys.labels.map((label) => element("th", {scope: "col", title: label}, element("span", {textContent: label}))));
    const rows = queries.labels.map((label, query) => {
      const row = keys.labels.map((_, key) => element("td", {className: "cell", data: {query, key}},
        element("button", {type: "button", tabIndex: query || key ? -1 : 0})));
      this.cells.push(row);
      return element("tr", {}, element("th", {scope: "row", title: label, dir: "auto", textContent: label}), ...row);
    });
    this.scroller.append(element("table", {className: "matrix"}, element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  share(weight) { return (100 * Math.min(weight / this.limit, 1)).toFixed(1) + "%"; }

  fill() {
    this.cells.forEach((row, query) => row.forEach((cell, key) => {
      const weight = this.weights[query][key];
      cell.firstChild.textContent = digits(weight);
      cell.firstChild.setAttribute("aria-label",
        `${this.map.queries.labels[query]} looks at ${this.map.keys.labels[key]}: ${digits(weight)}`);
      cell.style.setProperty("--share", this.share(weight));
      cell.classList.toggle("strong", weight > .6 * this.limit);
      cell.classList.toggle("slight", weight < .005);
    }));
  }

  // Two rows where both sentences fit on a line, two columns where they do not.
  arrange() {
    this.looks.className = "looks rows";
    const length = (kind) => this.items[kind].reduce((sum, item) => sum + item.offsetWidth + 4, 0);
    if (Math.max(length("key"), length("query")) > this.looks.clientWidth) this.looks.className = "looks columns";
    const frame = this.looks.getBoundingClientRect(), inRows = this.looks.classList.contains("rows");
    const places = (kind) => this.items[kind].map((item) => {
      const box = item.firstChild.getBoundingClientRect(), isKey = kind === "key";
      return inRows ? [box.left + box.width / 2 - frame.left, (isKey ? box.bottom + 2 : box.top - 2) - frame.top]
        : [(isKey ? box.right + 2 : box.left - 2) - frame.left, box.top + box.height / 2 - frame.top];
    });
    const from = places("key"), to = places("query");
    this.paths = [];
    this.weights.forEach((row, query) => row.forEach((weight, key) => {
      if (weight / this.limit < .02) return;
      const [x, y] = from[key], [u, v] = to[query];
      const bend = inRows ? `${x} ${(y + v) / 2} ${u} ${(y + v) / 2}` : `${(x + u) / 2} ${y} ${(x + u) / 2} ${v}`;
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("d", `M${x} ${y} C${bend} ${u} ${v}`);
      this.paths.push({path, query, key, weight});
    }));
    this.svg.replaceChildren(...this.paths.map(({path}) => path));
    this.show();
  }

  show() {
    if (!this.map) return;
    const latest = this.step === null ? {} : {query: this.step};
    const chosen = this.hovered || this.pinned || latest;
    const nothing = chosen.query === undefined && chosen.key === undefined;
    const pair = chosen.query !== undefined && chosen.key !== undefined;
    for (const kind of ["query", "key"]) {
      const other = kind === "query" ? "key" : "query";
      this.items[kind].forEach((item, index) => {
        let weight = null;
        if (pair) weight = chosen[kind] === index ? this.weights[chosen.query][chosen.key] : null;
        else if (chosen[other] !== undefined) weight = kind === "key" ? this.weights[chosen.query][index] : this.weights[index][chosen.key];
        const unwritten = kind === "query" && this.step !== null && index > this.step;
        this.mark(item, unwritten ? null : weight, chosen[kind] === index,
          unwritten || (!nothing && chosen[kind] !== index && (weight === null || weight < .005)));
      });
    }
    for (const {path, query, key, weight} of this.paths ?? []) {
      const touched = (chosen.query === undefined || chosen.query === query) && (chosen.key === undefined || chosen.key === key);
      const written = this.step === null || query <= this.step;
      path.style.opacity = touched && written ? Math.min(weight / this.limit, 1) : written ? .03 : 0;
    }
    this.cells.forEach((row, query) => {
      row[0]?.parentElement.classList.toggle("unwritten", this.step !== null && query > this.step);
      row.forEach((cell, key) => {
        cell.classList.toggle("chosen", pair && chosen.query === query && chosen.key === key);
        cell.classList.toggle("aimed", this.dragged?.query === query && this.dragged.key === key);
      });
    });
    this.scroller.querySelectorAll("thead th").forEach((header, place) => header.classList.toggle("chosen", place - 1 === chosen.key));
    this.scroller.querySelectorAll("tbody th").forEach((header, place) => header.classList.toggle("chosen", place === chosen.query));
    this.say(chosen, nothing, pair);
  }

  mark(item, weight, isChosen, isFaded) {
    const seen = weight !== null && weight >= .005;
    item.classList.toggle("chosen", isChosen);
    item.classList.toggle("faded", isFaded);
    item.classList.toggle("shaded", seen && !isChosen);
    item.classList.toggle("strong", seen && !isChosen && weight > .6 * this.limit);
    item.style.setProperty("--share", this.share(weight || 0));
    item.setAttribute("aria-pressed", String(isChosen));
    item.lastChild.textContent = seen ? digits(weight) : "";
  }

  say(chosen, nothing, pair) {
    const name = (kind, index) => (kind === "key" ? this.map.keys : this.map.queries).labels[index];
    if (this.dragged) return this.status.replaceChildren("Let go, and ", bold(name("query", this.dragged.query)), " looks at ", bold(name("key", this.dragged.key)), " alone.");
    if (nothing) return this.status.replaceChildren("Hover over, tap or tab to a word on either side to see its partners.");
    if (pair) {
      return this.status.replaceChildren(bold(name("query", chosen.query)), " looks at ", bold(name("key", chosen.key)),
        ` with weight ${digits(this.weights[chosen.query][chosen.key])}. Click to see how it came about.`);
    }
    const kind = chosen.query === undefined ? "key" : "query", other = kind === "query" ? "key" : "query";
    const partners = this.items[other]
      .map((_, index) => [kind === "query" ? this.weights[chosen.query][index] : this.weights[index][chosen.key], index])
      .filter(([weight]) => weight >= .005).sort((a, b) => b[0] - a[0]).slice(0, 5);
    const list = partners.flatMap(([weight, index], place) =>
      [place ? ", " : "", element("bdi", {textContent: name(other, index)}), ` ${digits(weight)}`]);
    const verb = kind === "query" ? " looks at: " : " is looked at by: ";
    this.status.replaceChildren(bold(name(kind, chosen[kind])), verb, ...(list.length ? list : ["nothing in particular"]));
  }

  move(event) {
    if (event.key === "Escape") { this.pinned = this.hovered = null; return this.show(); }
    const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (!steps) return;
    const item = event.target.closest("[data-kind]"), cell = event.target.closest("td.cell");
    const [right, down] = steps;
    if (cell) {
      event.preventDefault();
      return this.focusCell(Number(cell.dataset.query) + down, Number(cell.dataset.key) + right);
    }
    if (!item) return;
    event.preventDefault();
    const inRows = this.looks.classList.contains("rows"), along = inRows ? right : down, across = inRows ? down : right;
    const kind = item.dataset.kind, index = Number(item.dataset.index);
    if (along) return this.focus(this.items[kind][index + along], this.items[kind]);
    const other = across > 0 ? "query" : "key";
    if (other !== kind) this.focus(this.items[other][Math.min(index, this.items[other].length - 1)], this.items[other]);
  }

  focusCell(query, key) {
    this.focus(this.cells[query]?.[key]?.firstChild, this.cells.flat().map((each) => each.firstChild));
  }

  focus(item, list) {
    if (!item) return;
    list.forEach((each) => { each.tabIndex = each === item ? 0 : -1; });
    item.focus();
  }
}
