// The colours of every map, the same as in the figures: ink blue, on pale grey pictures too, and one colour per step of a path.
// A share is a weight divided by the limit of its legend: 0 to 1.

// From paper white to ink blue in equal steps of the OKLab colour space, and from the dark card to pale blue.
const INK = ["#f7fbfc", "#c4e6f3", "#93cfed", "#65b5e5", "#409adc", "#287acd", "#225cb8", "#243d9c", "#23217c"].map(channels);
const INK_ON_DARK = ["#1d2530", "#1f3d59", "#215684", "#2b74ae", "#4f95cc", "#7cb3df", "#a5d0f0", "#d3eeff"].map(channels);
const PATH = ["#ffe07a", "#ffb347", "#ff7f50", "#f2557e", "#c45cd6", "#8f7bff"].map(channels);

function channels(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

function between(colours, share) {
  const place = Math.min(Math.max(share, 0), 1) * (colours.length - 1), low = Math.min(Math.floor(place), colours.length - 2);
  return colours[low].map((channel, index) => channel + (colours[low + 1][index] - channel) * (place - low));
}

const css = (colour, alpha = 1) => `rgb(${colour.map(Math.round).join(" ")} / ${alpha})`;

export const isDark = () => document.documentElement.classList.contains("dark");
export const ink = (share) => css(between(isDark() ? INK_ON_DARK : INK, share));
// Ink that is multiplied with a pale picture, in light and dark alike; `strength` below 1 is thinner.
export const inkOnPicture = (share, strength = 1) => css(between(INK, share), strength);
export const stepColour = (step, count) => css(between(PATH, count > 1 ? step / (count - 1) : 0));
// Whether letters on this share of the ink need the other colour.
export const isStrong = (share) => share > .55;

export function gradient(kind) {
  const shares = Array.from({length: 17}, (_, place) => place / 16);
  return `linear-gradient(to right, ${shares.map((share) => kind === "ink" ? ink(share) : inkOnPicture(share)).join(", ")})`;
}

// Calls back whenever the page turns light or dark.
export function onTheme(callback) {
  new MutationObserver(callback).observe(document.documentElement, {attributeFilter: ["class"]});
}

export function followSystemTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => document.documentElement.classList.toggle("dark", system.matches);
  system.addEventListener("change", apply);
  apply();
}
