// Light, dark, or as the system says; remembered in this browser.

const KEPT = "saccade-theme", ORDER = ["auto", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");
const kept = () => ORDER.includes(localStorage.getItem(KEPT)) ? localStorage.getItem(KEPT) : "auto";

function apply(button) {
  document.documentElement.classList.toggle("dark", kept() === "dark" || (kept() === "auto" && system.matches));
  if (button) button.textContent = `Theme: ${kept()}`;
}

export function startTheme(button) {
  apply(button);
  system.addEventListener("change", () => apply(button));
}

export function cycleTheme(button) {
  localStorage.setItem(KEPT, ORDER[(ORDER.indexOf(kept()) + 1) % ORDER.length]);
  apply(button);
}
