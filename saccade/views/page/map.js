// One attention map: the renderers that its axes ask for, what is chosen, and a sentence about it. Hovering, tapping or tabbing to a
// position of either axis shows its partners on the other; a click keeps it chosen.

import {Arcs} from "./arcs.js";
import {boxOf, isGrid, nounOf, placeOn} from "./axes.js";
import {DatesChart} from "./dates.js";
import {bold, brief, element, moveFocus} from "./dom.js";
import {LARGEST_TABLE, Matrix} from "./matrix.js";
import {Boxes} from "./objects.js";
import {Multiples, Overlay} from "./overlay.js";
import {onTheme} from "./palette.js";
import {Running, isRunning} from "./running.js";
import {Player} from "./steps.js";
import {isSlight, limitOfMap} from "./weights.js";

const PARTNERS = 5;
const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

const isSame = (a, b) => Boolean(a && b) && a.query === b.query && a.key === b.key;

export class MapView {
  // `onCell(query, key)`: a cell of the matrix was clicked. `onTurn(query, key)`: a query was dragged onto another key, where `turns` allows
  // it. `onPlace([x, y])`: a place of a picture was clicked that is no query of this map, in shares of its width and height.
  constructor({onCell = null, onTurn = null, onPlace = null} = {}) {
    Object.assign(this, {onCell, onTurn, onPlace, turns: false, target: null, map: null});
    this.pinned = this.hovered = null;
    this.step = null;      // queries after this one are not written yet; null: all are
    this.strength = 1;      // of the colours over a picture
    this.marked = undefined;      // a key to frame while none is chosen
    this.placeHint = "";      // what a click on a picture does
    this.renderers = [];
    this.status = element("p", {className: "status", role: "status", "aria-live": "polite"});
    this.place = element("div");
    this.root = element("div", {className: "map"}, this.status, this.place);
    this.listen();
    let width = 0;
    new ResizeObserver(() => {
      if (!this.map || this.place.clientWidth === width) return;
      width = this.place.clientWidth;
      this.arrange();
    }).observe(this.place);
    onTheme(() => { this.renderers.forEach((renderer) => { renderer.filled = null; }); this.update(); });
  }

  // Nothing is shown until the next map.
  clear() {
    this.map = null;
    this.renderers = [];
    this.place.replaceChildren();
    this.status.replaceChildren();
  }

  // `weights` [query][key] of the chosen head. A new map forgets what was chosen on the last one.
  draw(map, weights, {photo = null, probabilities = null} = {}) {
    const isNew = this.map !== map;
    Object.assign(this, {map, weights, limit: limitOfMap(map.weights)});
    if (isNew) {
      this.pinned = Number.isInteger(map.from) ? {query: map.from} : null;
      this.hovered = null;
      this.renderers.forEach((renderer) => renderer.stop?.());
      this.renderers = this.renderersFor(map, photo, probabilities);
      this.place.replaceChildren(...this.renderers.map((renderer) => renderer.root));
      this.matrix = this.renderers.find((renderer) => renderer instanceof Matrix);
      this.describe();
    }
    this.arrange();
  }

  renderersFor(map, photo, probabilities) {
    const {queries, keys} = map;
    if (queries.kind === "steps" && isGrid(keys) && photo) return [new Player(map, photo, (query) => { this.hovered = null; this.pinned = {query}; this.update(); })];
    if (queries.kind === "dates" || keys.kind === "dates") return [new DatesChart(map)];
    if (queries.kind === "objects" && isGrid(keys)) return [new Boxes(map, photo)];
    if (isGrid(keys)) return [new Overlay(map, photo, probabilities)];
    if (isGrid(queries)) return [new Multiples(map, photo)];
    if (isRunning(map)) return [new Running(map)];
    const isSmall = queries.labels.length * keys.labels.length <= LARGEST_TABLE;
    return [new Arcs(map), ...(isSmall ? [new Matrix(map, Boolean(this.onCell))] : [])];
  }

  describe() {
    const click = this.onCell ? " Click a cell to see how its weight came about" : "";
    this.matrix?.describe(click && `${click}${this.turns ? "; drag one along its row to make the word look elsewhere" : ""}.`);
  }

  arrange() {
    this.renderers.forEach((renderer) => renderer.arrange?.());
    this.update();
  }

  get chosen() { return this.hovered || this.pinned || (this.step === null ? {} : {query: this.step}); }

  // Where the colours end and what they are: matrices in ink, pictures in plasma.
  get scale() {
    const [renderer] = this.renderers, isPicture = renderer?.photo?.colour;
    return {kind: isPicture ? "plasma" : "ink", limit: renderer?.limit?.(this.state) ?? this.limit};
  }

  get state() {
    const {weights, limit, chosen, pinned, step, target, strength, marked} = this;
    return {weights, limit, chosen, pinned, step, target, strength, marked};
  }

  update() {
    if (!this.map) return;
    this.renderers.forEach((renderer) => renderer.update(this.state));
    this.say();
    this.onUpdate?.();
  }

  // What is chosen, in a sentence

  say() {
    const {chosen, target} = this, name = (kind, index) => (kind === "key" ? this.map.keys : this.map.queries).labels[index];
    if (target) return this.status.replaceChildren("Let go, and ", bold(name("query", target.query)), " looks at ", bold(name("key", target.key)), " alone.");
    if (chosen.query === undefined && chosen.key === undefined) return this.status.replaceChildren(this.hint());
    if (chosen.query !== undefined && chosen.key !== undefined) {
      return this.status.replaceChildren(bold(name("query", chosen.query)), " looks at ", bold(name("key", chosen.key)),
        ` with weight ${brief(this.weights[chosen.query][chosen.key])}.${this.onCell ? " Click to see how it came about." : ""}`);
    }
    const kind = chosen.query === undefined ? "key" : "query";
    const verb = kind === "query" ? " looks at: " : " is looked at by: ";
    this.status.replaceChildren(bold(name(kind, chosen[kind])), verb, ...this.partners(kind, chosen[kind]));
  }

  partners(kind, index) {
    const row = kind === "query" ? this.weights[index] : this.weights.map((weights) => weights[index]);
    const others = kind === "query" ? this.map.keys : this.map.queries, peak = Math.max(...row);
    const isBlank = (weight) => isGrid(others) ? weight < peak / 10 || weight === 0 : isSlight(weight);
    const list = row.map((weight, other) => [weight, other]).filter(([weight]) => !isBlank(weight)).sort((a, b) => b[0] - a[0]).slice(0, PARTNERS)
      .flatMap(([weight, other], place) => [place ? ", " : "", element("bdi", {textContent: others.labels[other]}), ` ${brief(weight)}`]);
    const even = isGrid(others) && kind === "query" ? [`; even would be ${brief(1 / row.length)}`] : [];
    return list.length ? [...list, ...even] : ["nothing in particular"];
  }

  hint() {
    const {queries, keys} = this.map;
    if (isRunning(this.map)) return "The darker a word, the more of the weight it has.";
    if (queries.labels.length === 1) return `Where ${queries.labels[0]} looks.${this.placeHint ? ` ${this.placeHint}` : ""}`;
    if (queries.kind === "steps" && isGrid(keys)) return "Play the steps, or choose one by its number.";
    if (isGrid(queries) && isGrid(keys)) return "Seen from all cells on average. Hover over, tap or move to a cell to see where it looks.";
    const nouns = [...new Set([nounOf(queries), nounOf(keys)])];
    return `Hover over, tap or tab to a ${nouns.join(" or ")} to see its partners.`;
  }

  // Pointer and keyboard

  listen() {
    const hover = (event) => {
      const place = this.locate(event);
      if (isSame(place, this.hovered) || (!place && !this.hovered)) return;
      this.hovered = place;
      this.update();
    };
    this.root.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") hover(event); });
    this.root.addEventListener("pointerleave", () => { this.hovered = null; this.update(); });
    this.root.addEventListener("pointerdown", (event) => this.grab(event));
    this.root.addEventListener("focusin", (event) => this.focused(event));
    this.root.addEventListener("click", (event) => this.click(event));
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  // {query}, {key} or both under an event, or null.
  locate(event) {
    const item = event.target.closest?.("[data-kind]"), cell = event.target.closest?.("td.cell");
    if (item) return {[item.dataset.kind]: Number(item.dataset.index)};
    if (cell) return {query: Number(cell.dataset.query), key: Number(cell.dataset.key)};
    const drawing = event.target.closest?.("canvas, svg.series");
    return event.clientX !== undefined && drawing?.locate ? drawing.locate(event) : null;
  }

  // The keyboard chooses what it comes to; the pointer has chosen before the focus follows.
  focused(event) {
    const place = this.locate(event);
    if (!place || !event.target.matches(":focus-visible")) return;
    this.hovered = null;
    if (place.query === undefined || place.key === undefined) this.pinned = place;
    else this.hovered = place;
    this.update();
  }

  // Whether a click on the picture asks for another row: where its cells are no queries of this map.
  get takesPlaces() { return this.onPlace && this.renderers[0] instanceof Overlay && !isGrid(this.map.queries); }

  click(event) {
    const place = this.locate(event);
    if (this.takesPlaces && event.target.matches("canvas")) return this.onPlace(placeOn(event.target, event));
    if (!place) return;
    if (place.query !== undefined && place.key !== undefined && this.onCell) return this.onCell(place.query, place.key);
    const isAgain = isSame(this.pinned, place);
    this.pinned = isAgain && event.detail ? null : place;
    if (isAgain) this.hovered = null;
    this.update();
  }

  // Dragging a cell along its row; a finger scrolls instead.
  grab(event) {
    const start = this.locate(event);
    if (!this.turns || event.pointerType === "touch" || event.button || start?.query === undefined || start.key === undefined) return;
    const leaving = new AbortController(), options = {signal: leaving.signal};
    const aim = (place) => {
      this.target = place?.query === start.query && place.key !== undefined && place.key !== start.key ? place : null;
      this.root.classList.toggle("dragging", Boolean(this.target));
      this.update();
    };
    const finish = (isDropped) => {
      const {target} = this;
      leaving.abort();
      aim(null);
      if (isDropped && target) this.onTurn(target.query, target.key);
    };
    document.addEventListener("pointermove", (move) => aim(this.locate(move)), options);
    document.addEventListener("pointerup", () => finish(true), options);
    document.addEventListener("pointercancel", () => finish(false), options);
    document.addEventListener("keydown", (key) => { if (key.key === "Escape") finish(false); }, options);
  }

  key(event) {
    if (event.key === "Escape") { this.pinned = this.hovered = null; return this.update(); }
    const item = event.target.closest("[data-kind]"), cell = event.target.closest("td.cell"), stage = event.target.closest("[data-stage]");
    const arrow = ARROWS[event.key];
    const isEnd = item && (event.key === "Home" || event.key === "End"), isEnter = stage && event.key === "Enter" && this.takesPlaces;
    if (!(arrow && (item || cell || stage)) && !isEnd && !isEnter) return;
    event.preventDefault();
    if (cell) return this.focusCell(Number(cell.dataset.query) + arrow[1], Number(cell.dataset.key) + arrow[0]);
    if (stage) return this.moveOnStage(stage, arrow);
    this.moveAlong(item, event.key, arrow);
  }

  // The arrow keys move over the cells of a picture; Enter is a click on the one they came to.
  moveOnStage(canvas, arrow) {
    const kind = canvas.dataset.stage, stage = this.renderers.flatMap((renderer) => Object.values(renderer).flat()).find((part) => part?.canvas === canvas);
    const now = this.chosen[kind];
    if (!arrow) {
      const [left, top, width, height] = boxOf(stage.grid, stage.photo, (now ?? stage.grid.extra) - stage.grid.extra);
      return this.takesPlaces && this.onPlace([left + width / 2, top + height / 2]);
    }
    const next = stage ? {[kind]: stage.neighbour(now, arrow)} : this.renderers[0].neighbour(this.chosen, arrow);
    if (next[kind] === null) return;
    this.hovered = null;
    this.pinned = next;
    this.update();
  }

  moveAlong(item, key, arrow) {
    const {kind, index} = item.dataset, group = [...item.parentElement.querySelectorAll("[data-kind]")];
    if (key === "Home") return moveFocus(group[0], group);
    if (key === "End") return moveFocus(group.at(-1), group);
    const isInRows = !item.closest(".columns"), [right, down] = arrow, along = isInRows ? right : down, across = isInRows ? down : right;
    if (along) return moveFocus(group[group.indexOf(item) + along], group);
    const other = [...this.root.querySelectorAll(`button[data-kind=${across > 0 ? "query" : "key"}]`)];
    if (other[0]?.dataset.kind !== kind) moveFocus(other[Math.min(Number(index), other.length - 1)], other);
  }

  focusCell(query, key) {
    const cell = this.matrix?.cells[query]?.[key]?.firstChild;
    if (cell instanceof HTMLElement) moveFocus(cell, this.matrix.cells.flat().map((other) => other.firstChild));
  }
}
