// A run that names classes of series: the general panel, and dates that can be taken out to see the answer change.

import {ask} from "/static/api.js";
import {Panel as ViewPanel} from "/static/panel.js";
import {element, share} from "/static/views/dom.js";

const SHOWN = 5;      // dates that are worth the most

export class Panel {
  constructor(run, state, changed, failed) {
    Object.assign(this, {run, failed, removed: [], first: null});
    this.general = new ViewPanel(run, state, changed, failed);
    this.root = this.general.root;
    this.choice = element("div", {className: "controls"});
    this.change = element("p", {className: "status", role: "status"});
    this.worth = element("p", {className: "quiet"});
    this.general.files.before(this.choice, this.change, this.worth);
    this.root.addEventListener("click", () => this.offer());
    this.root.addEventListener("keyup", () => this.offer());
  }

  // Another series forgets what was taken out of the last one.
  async answer({series}, removed = []) {
    const without = removed.join(",");
    await this.general.answer({series, ...(without ? {without} : {})});
    const answer = this.general.view.answer.classes;
    if (!removed.length) this.first = answer;
    Object.assign(this, {series, removed, now: answer});
    this.say();
    this.offer();
    const {dates, worth, class: named} = await ask("worth", {run: this.run.name, series, without});
    if (this.series !== series || this.removed !== removed) return;
    const most = worth.map((fall, place) => [fall, dates[place]]).sort((a, b) => b[0] - a[0]).slice(0, SHOWN).filter(([fall]) => fall >= .005);
    this.worth.textContent = most.length
      ? `Without one date, ${named} would lose most: ${most.map(([fall, date]) => `${date} (−${fall.toFixed(2)})`).join(", ")}.`
      : `No single date decides: without any one of them ${named} loses less than 0.01.`;
  }

  get date() {
    const map = this.general.display.view?.maps.length ? this.general.display.current : null, place = this.general.display.mapView.pinned;
    if (!map || !place) return null;
    const axis = map.keys.kind === "dates" ? "key" : "query";
    return place[axis] === undefined ? null : (axis === "key" ? map.keys : map.queries).labels[place[axis]];
  }

  // Buttons for the date that is chosen, and for those that were taken out.
  offer() {
    const {date} = this;
    const take = date ? [element("button", {type: "button", textContent: `Take out ${date}`, onclick: () => this.again([...this.removed, date])})] : [];
    const back = this.removed.map((other) => element("button", {type: "button", textContent: `Put ${other} back`, onclick: () => this.again(this.removed.filter((kept) => kept !== other))}));
    const hint = take.length ? [] : [element("span", {className: "quiet", textContent: "Click a date in the chart to take it out."})];
    this.choice.replaceChildren(...hint, ...take, ...back);
  }

  again(removed) { this.answer({series: this.series}, removed).catch(this.failed); }

  say() {
    const [best] = this.first, now = this.now.find((named) => named.class === best.class);
    this.change.textContent = this.removed.length
      ? `Without ${this.removed.length === 1 ? this.removed[0] : `${this.removed.length} dates`}: ${best.class} ${share(best.probability)} → ${share(now?.probability ?? 0)}${this.now[0].class === best.class ? "" : `, and the answer is ${this.now[0].class}`}.`
      : "";
  }
}
