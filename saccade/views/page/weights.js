// Numbers of a map: heads averaged, what a choice shows, and the weight at which colours end. Weights are [head][query][key].

const EVEN = 6;           // even attention has a sixth of the strongest colour
const SLIGHT = .005;      // rounds to 0.00: a blank

export const isSlight = (weight) => weight < SLIGHT;

// Of one head, or averaged, as [query][key]. `head` is a number or "average".
export function ofHead(weights, head) {
  if (head !== "average") return weights[Number(head)];
  return weights[0].map((row, query) => row.map((_, key) => weights.reduce((sum, other) => sum + other[query][key], 0) / weights.length));
}

const largest = (numbers) => numbers.reduce((most, number) => Math.max(most, number), 0);
const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / (numbers.length || 1);
export const column = (weights, key) => weights.map((row) => row[key]);
export const averageRow = (weights) => weights[0].map((_, key) => mean(column(weights, key)));

// Where the colours of these rows end, as in figures: at the largest weight, but never below six times the mean, so that nearly even
// attention looks nearly even, and at 1 where the largest is close to it.
export function limitOf(rows) {
  const peak = largest(rows.map(largest)), even = mean(rows.map(mean));
  const limit = Math.min(1, Math.max(peak, EVEN * even));
  return limit === 0 || limit > .7 ? 1 : limit;
}

// All heads of a map at one scale.
export const limitOfMap = (weights) => limitOf(weights.flat());

// The weight to write beside one position, or null. `chosen` is {query}, {key}, both or neither.
export function weightBeside(kind, index, weights, chosen) {
  const {query, key} = chosen;
  if (query !== undefined && key !== undefined) return chosen[kind] === index ? weights[query][key] : null;
  if (kind === "key" && query !== undefined) return weights[query][index];
  if (kind === "query" && key !== undefined) return weights[index][key];
  return null;
}

// The arcs worth drawing: all of a chosen word; else, of every query, the few that stand out from even attention.
export function standingOut(weights, chosen, limit) {
  const arcs = [];
  weights.forEach((row, query) => {
    const touched = chosen.query !== undefined || chosen.key !== undefined;
    const peak = largest(row), least = Math.max(.3 * peak, 1.5 * mean(row), .02 * limit);
    const third = [...row].sort((a, b) => b - a)[2] ?? 0;
    row.forEach((weight, key) => {
      const isTouched = (chosen.query === undefined || chosen.query === query) && (chosen.key === undefined || chosen.key === key);
      if (touched ? isTouched && weight >= .02 * limit : weight >= least && weight >= third) arcs.push({query, key, weight});
    });
  });
  return arcs;
}
