// A run that names classes of pictures: the general panel, and a click on the picture shows where that place looks.

import {Panel as ViewPanel} from "/static/panel.js";
import {cellAt} from "/static/views/axes.js";

export class Panel {
  constructor(run, state, changed, failed) {
    this.failed = failed;
    this.pixel = null;
    this.general = new ViewPanel(run, state, changed, failed, {onPlace: (place) => this.clicked(place), drawn: (map) => this.mark(map)});
    this.root = this.general.root;
  }

  async answer({image}, pixel = null) {
    await this.general.answer({image, ...(pixel ? {pixel} : {})});
    Object.assign(this, {image, pixel});
    this.mark(this.general.display.current);
    this.general.display.mapView.update();
  }

  // The same cell clicked again is a click on none.
  clicked([x, y]) {
    const {view, display} = this.general, {rows, columns} = view.picture, {keys} = display.current;
    const isAgain = this.pixel && cellAt(keys, view.picture, [x, y]) === this.cellOfPixel(keys);
    this.answer({image: this.image}, isAgain ? null : [Math.floor(y * rows), Math.floor(x * columns)]).catch(this.failed);
  }

  cellOfPixel(keys) {
    const {picture} = this.general.view, [row, column] = this.pixel;
    return cellAt(keys, picture, [(column + .5) / picture.columns, (row + .5) / picture.rows]);
  }

  // Frames the place that looks, and says what a click does.
  mark(map) {
    const {mapView} = this.general.display;
    mapView.placeHint = this.pixel ? "Click another place, or this one again for the whole picture." : "Click the picture to see where that place looks.";
    mapView.marked = this.pixel && map?.keys.kind === "grid" ? map.keys.extra + this.cellOfPixel(map.keys) : undefined;
  }
}
