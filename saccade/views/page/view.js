// A whole View on the page: a choice of layers and heads, the legend, and the map. What comes around it (a title, an answer) stands in
// heading.js; tasks with more to say add their controls to it.

import {readMap} from "./axes.js";
import {element, labelled, option} from "./dom.js";
import {HeadGrid} from "./heads.js";
import {Legend} from "./legend.js";
import {MapView} from "./map.js";
import {loadPhoto} from "./photo.js";
import {ofHead} from "./weights.js";

export class ViewDisplay {
  // `state` {map, head} remembers what was chosen; `changed()` is called when it changes, `drawn()` after another map or head was drawn.
  constructor({state = {}, changed = () => {}, drawn = () => {}, ...actions} = {}) {
    Object.assign(this, {state, changed, drawn, view: null});
    this.mapView = new MapView(actions);
    this.mapView.onUpdate = () => { const {kind, limit} = this.mapView.scale; this.legend.show(kind, limit); };
    this.map = element("select", {onchange: () => this.choose({map: this.map.value})});
    this.head = element("select", {onchange: () => this.choose({head: this.head.value})});
    this.strength = element("input", {type: "range", min: 0, max: 100, value: 100, oninput: () => this.setStrength()});
    this.legend = new Legend();
    this.heads = new HeadGrid((map, head) => this.choose({map: map.name, head: String(head)}));
    this.strengthLabel = labelled("Overlay", this.strength);
    this.controls = element("div", {className: "controls"}, labelled("Attention", this.map), labelled("Head", this.head), this.strengthLabel, this.legend.root);
    this.root = element("div", {className: "view", hidden: true}, this.controls, this.heads.root, this.mapView.root);
  }

  // `first`: the name of the map to open on, unless one was chosen before.
  async show(view, first = null) {
    this.photo = view.picture ? await loadPhoto(view.picture) : null;
    this.view = {...view, maps: view.maps.map(readMap)};
    const {maps} = this.view;
    this.root.hidden = !maps.length;
    if (!maps.length) return this.mapView.clear();
    const wanted = maps.find((map) => map.name === this.state.map) ?? maps.find((map) => map.name === first) ?? maps[view.first ?? 0] ?? maps[0];
    this.map.replaceChildren(...maps.map((map) => option(map.name, map.label, map === wanted)));
    this.map.parentElement.hidden = maps.length < 2;
    this.heads.show(maps);
    this.draw();
  }

  get current() { return this.view.maps.find((map) => map.name === this.map.value); }
  get headNumber() { return this.head.value === "average" ? null : Number(this.head.value); }

  choose(change) {
    Object.assign(this.state, change);
    if (change.map) this.map.value = change.map;
    this.changed();
    this.draw();
  }

  draw() {
    const map = this.current;
    this.fillHeads(map.weights.length);
    const isFilm = Boolean(this.photo && map.queries.windows?.length);
    this.legend.root.hidden = isFilm;
    this.strengthLabel.hidden = !this.photo || isFilm || (map.keys.kind !== "grid" && map.queries.kind !== "grid");
    this.heads.mark(map, this.head.value);
    this.mapView.step = null;
    this.drawn(map);
    this.mapView.draw(map, ofHead(map.weights, this.head.value), {photo: this.photo, probabilities: this.probabilitiesOf(map)});
  }

  // A choice of one head or the average of all; hidden where there is only one.
  fillHeads(count) {
    const numbers = Array.from({length: count}, (_, head) => option(String(head), String(head)));
    this.head.replaceChildren(...(count > 1 ? [option("average", `average of ${count}`)] : []), ...numbers);
    this.head.value = count === 1 ? "0" : this.state.head && Number(this.state.head) < count ? this.state.head : "average";
    this.head.parentElement.hidden = count === 1;
  }

  // Of the words of the answer, where those are what looks.
  probabilitiesOf({queries}) {
    const words = this.view.words ?? [], isSame = words.length === queries.labels.length;
    return isSame && words.every((word, index) => word.text.trim() === queries.labels[index].trim()) ? words.map(({probability}) => probability) : null;
  }

  setStrength() {
    this.mapView.strength = this.strength.value / 100;
    this.mapView.update();
  }
}
