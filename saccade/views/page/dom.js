// Small helpers for making elements. Text is always set as text: what a model or a person wrote is never read as HTML.

export const byId = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role" || name === "for" || name === "scope") made.setAttribute(name, value);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

// An SVG element. The attribute `style` is not for it: the page's policy forbids inline styles.
export function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const option = (value, text, selected = false) => element("option", {value, textContent: text, selected});
export const bold = (text) => element("b", {}, element("bdi", {textContent: text}));
export const labelled = (text, ...inside) => element("label", {}, text, ...inside);

// Never "-0.00": what rounds to nothing has no sign.
export const digits = (number, places = 2) => number.toFixed(places).replace(/^-(?=[0.]*$)/, "");

// A weight with two significant digits, so that .0042 is not written as 0.00.
export function brief(weight) {
  if (weight >= .1 || weight === 0) return digits(weight);
  return weight >= .01 ? digits(weight, 3) : weight.toPrecision(1);
}

export function share(probability) {
  if (probability >= .0995) return `${Math.round(100 * probability)}\u00a0%`;
  return probability >= .0005 ? `${(100 * probability).toFixed(1)}\u00a0%` : "<\u00a00.1\u00a0%";
}

// Moves the one tab stop of a group of elements to `target`, and the focus with it.
export function moveFocus(target, group) {
  if (!target) return;
  group.forEach((member) => { member.tabIndex = member === target ? 0 : -1; });
  target.focus();
}
