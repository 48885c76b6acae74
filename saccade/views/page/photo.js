// A picture and its pale grey twin, and how weights of cells are painted over them: each cell by itself, for smoothing would show weight
// where there is none.

import {boxOf} from "./axes.js";
import {element} from "./dom.js";
import {ink, inkOnPicture} from "./palette.js";

const DETAIL = 640;      // pixels on the longer side

// What grids lie over where there is no picture: rows and columns only.
export const blank = ({rows, columns}) => ({rows, columns, colour: null, pale: null});

export async function loadPhoto({rows, columns, address}) {
  const image = new Image();
  image.src = address;
  await image.decode();
  const scale = Math.max(1, Math.round(DETAIL / Math.max(rows, columns)));
  const colour = element("canvas", {width: columns * scale, height: rows * scale}), pen = colour.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, colour.width, colour.height);
  return {rows, columns, colour, pale: paleCopy(colour)};
}

function paleCopy(colour) {
  const pale = element("canvas", {width: colour.width, height: colour.height});
  const pixels = colour.getContext("2d").getImageData(0, 0, colour.width, colour.height), {data} = pixels;
  for (let place = 0; place < data.length; place += 4) {
    const grey = 255 * .78 + .22 * (.299 * data[place] + .587 * data[place + 1] + .114 * data[place + 2]);
    data[place] = data[place + 1] = data[place + 2] = grey;
  }
  pale.getContext("2d").putImageData(pixels, 0, 0);
  return pale;
}

// Gives a canvas the form of the picture.
export function fit(canvas, photo) {
  const scale = photo.colour ? photo.colour.width / photo.columns : Math.max(1, Math.round(DETAIL / 2 / Math.max(photo.rows, photo.columns)));
  canvas.width = Math.round(photo.columns * scale);
  canvas.height = Math.round(photo.rows * scale);
}

// The picture as it is; a plain ground where there is none.
export function paintPlain(canvas, photo) {
  const pen = canvas.getContext("2d");
  if (photo.colour) return pen.drawImage(photo.colour, 0, 0, canvas.width, canvas.height);
  pen.fillStyle = ink(0);
  pen.fillRect(0, 0, canvas.width, canvas.height);
}

// One cell with all the weight is what hard attention saw: the picture as it is there, and pale elsewhere.
export const onlyCell = (cells) => cells.filter((weight) => weight > 0).length === 1 ? cells.findIndex((weight) => weight > 0) : null;

export function paintWeights(canvas, photo, grid, cells, limit, strength = 1) {
  const pen = canvas.getContext("2d"), only = onlyCell(cells);
  if (photo.pale) pen.drawImage(photo.pale, 0, 0, canvas.width, canvas.height);
  if (photo.pale && only !== null) return uncover(canvas, photo, boxOf(grid, photo, only));
  pen.globalCompositeOperation = photo.pale ? "multiply" : "source-over";
  cells.forEach((weight, cell) => {
    const [left, top, width, height] = inPixels(canvas, boxOf(grid, photo, cell));
    pen.fillStyle = photo.pale ? inkOnPicture(weight / limit, strength) : ink(weight / limit);
    pen.fillRect(left, top, width, height);
  });
  pen.globalCompositeOperation = "source-over";
}

// Edges on whole pixels: no seams between cells.
function inPixels(canvas, [left, top, width, height]) {
  const [x, y] = [Math.round(left * canvas.width), Math.round(top * canvas.height)];
  return [x, y, Math.round((left + width) * canvas.width) - x, Math.round((top + height) * canvas.height) - y];
}

function uncover(canvas, photo, box) {
  const place = inPixels(canvas, box);
  canvas.getContext("2d").drawImage(photo.colour, ...place, ...place);
  frame(canvas, box);
}

// A frame that is seen on any picture: white around black.
export function frame(canvas, box) {
  const pen = canvas.getContext("2d"), unit = Math.max(canvas.width, canvas.height) / 320;
  for (const [colour, line] of [["#ffffff", 4 * unit], ["#000000", 1.6 * unit]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = line;
    pen.strokeRect(...inPixels(canvas, box));
  }
}
