// What the colours mean: from weight 0 to the limit, in ink blue for matrices or plasma over a picture.

import {brief, element} from "./dom.js";
import {gradient} from "./palette.js";

export class Legend {
  constructor() {
    this.bar = element("i");
    this.limit = element("span", {className: "limit"});
    this.root = element("span", {className: "legend", role: "img"}, "0", this.bar, this.limit);
  }

  show(kind, limit) {
    this.bar.style.background = gradient(kind);
    this.limit.textContent = brief(limit);
    this.root.setAttribute("aria-label", `Colours: pale is weight 0, strong is weight ${brief(limit)}`);
  }
}
