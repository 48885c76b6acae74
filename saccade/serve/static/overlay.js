// Attention over a picture: where little was looked it is dark; where much was, it is as it is and tinted warm.

const DARK = [8, 12, 30, .85], WARM = [255, 170, 40, .5];

// The rows and columns of pixels under all cells: more than the picture has, where the last cells hang over its edge.
function covered({rows, columns, cell}, picture) {
  return cell ? [rows * cell, columns * cell] : [picture.rows, picture.columns];
}

// Weights of the cells of a grid, drawn over a whole canvas, each cell as it is. Colours reach up to twice the mean at least, so that a
// map without a shape does not look like one big find.
export function paintOverlay(canvas, weights, grid, picture, strength) {
  const {rows, columns} = grid, [down, across] = covered(grid, picture);
  const mean = weights.reduce((sum, weight) => sum + weight, 0) / weights.length, peak = Math.max(...weights, 2 * mean, 1e-9);
  const small = new OffscreenCanvas(columns, rows), pixels = new ImageData(columns, rows);
  weights.forEach((weight, cell) => {
    const part = weight / peak, warm = strength * part * WARM[3], dark = strength * (1 - part) * DARK[3] * (1 - warm), all = warm + dark;
    for (let channel = 0; channel < 3; channel++) pixels.data[4 * cell + channel] = all ? (WARM[channel] * warm + DARK[channel] * dark) / all : 0;
    pixels.data[4 * cell + 3] = 255 * all;
  });
  small.getContext("2d").putImageData(pixels, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width * across / picture.columns, canvas.height * down / picture.rows);
}

// The number of the cell of a grid that a pixel of the picture lies in.
export function cellOf([row, column], grid, picture) {
  const [down, across] = covered(grid, picture);
  return Math.floor(row * grid.rows / down) * grid.columns + Math.floor(column * grid.columns / across);
}

// Row and column of the pixel of a picture under a pointer.
export function pixelAt(canvas, event, {rows, columns}) {
  const box = canvas.getBoundingClientRect(), within = (part, count) => Math.min(count - 1, Math.max(0, Math.floor(part * count)));
  return [within((event.clientY - box.top) / box.height, rows), within((event.clientX - box.left) / box.width, columns)];
}

export function paintPicture(canvas, image, {rows, columns}) {
  const context = canvas.getContext("2d");
  canvas.height = Math.round(canvas.width * rows / columns);
  context.imageSmoothingEnabled = columns > 100;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
}

export async function loaded(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return image;
}
