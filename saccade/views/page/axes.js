// What stands along the two sides of a map, one kind of axis each: labels, edges, and the geometry of grids.

const EXTRA_PRINTABLE = "\u200c\u200d";

// No label is empty, and spaces at the ends of a word can be seen.
export function visible(text) {
  const shown = text.replace(/\r\n|\n|\r/g, "⏎").replace(/\t/g, "⇥")
    .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => EXTRA_PRINTABLE.includes(character) ? character : "�");
  const core = shown.trim(), start = shown.length - shown.trimStart().length;
  return "␣".repeat(start) + core + "␣".repeat(shown.length - start - core.length) || "∅";
}

function gridLabels({rows, columns}, extra) {
  const cells = Array.from({length: rows * columns}, (_, cell) => `row ${Math.floor(cell / columns)} column ${cell % columns}`);
  return [...extra, ...cells];
}

// An axis as JSON, completed: every kind has labels, and `extra` of a grid counts the positions before its cells.
export function readAxis(axis) {
  const kind = axis.kind ?? (axis.rows === undefined ? "tokens" : "grid");
  const names = Array.isArray(axis.extra) ? axis.extra : (axis.labels ?? []).slice(0, axis.extra ?? 0);
  const labels = (axis.labels ?? axis.words ?? gridLabels(axis, names)).map(visible);
  return {...axis, kind, labels, extra: names.length};
}

export const readMap = (map) => ({...map, queries: readAxis(map.queries), keys: readAxis(map.keys),
  label: map.label ?? map.name, query_title: map.query_title ?? "looks from", key_title: map.key_title ?? "looks at"});

export const isGrid = (axis) => axis.kind === "grid";
export const nounOf = (axis) => ({tokens: "word", grid: "cell", steps: "step", dates: "date", variables: "variable", objects: "object", scales: "scale"})[axis.kind];

// The rows and columns of pixels under all cells: more than the picture has, where the last cells reach over its edge.
function covered({rows, columns, cell}, picture) {
  return cell ? [rows * cell, columns * cell] : [picture.rows, picture.columns];
}

// Where a cell lies on the picture: left, top, width and height as shares of it.
export function boxOf(grid, picture, cell) {
  const [down, across] = covered(grid, picture), row = Math.floor(cell / grid.columns), column = cell % grid.columns;
  const width = across / grid.columns / picture.columns, height = down / grid.rows / picture.rows;
  return [column * width, row * height, width, height];
}

// The cell under a point of the picture, which is given as shares of its width and height.
export function cellAt(grid, picture, [x, y]) {
  const [down, across] = covered(grid, picture);
  const column = Math.floor(x * picture.columns * grid.columns / across), row = Math.floor(y * picture.rows * grid.rows / down);
  return Math.min(row, grid.rows - 1) * grid.columns + Math.min(column, grid.columns - 1);
}

// A pointer's place on an element as shares of its width and height, never beyond its edges.
export function placeOn(target, event) {
  const box = target.getBoundingClientRect(), within = (part) => Math.min(Math.max(part, 0), 1 - 1e-9);
  return [within((event.clientX - box.left) / box.width), within((event.clientY - box.top) / box.height)];
}
