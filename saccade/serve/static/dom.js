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

export const option = (value, text, selected = false) => element("option", {value, textContent: text, selected});

export const digits = (number, places = 2) => number.toFixed(places);

export function share(number) {
  if (number >= 0.0995) return `${Math.round(100 * number)} %`;
  return number >= 0.0005 ? `${(100 * number).toFixed(1)} %` : "< 0.1 %";
}

export function save(blob, name) {
  const link = element("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
