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

export const bold = (text) => element("b", {}, element("bdi", {textContent: text}));

export const labelled = (text, ...inside) => element("label", {}, text, ...inside);

export const titled = (run, ...inside) => element("article", {className: "panel", "aria-label": run.name},
  element("div", {className: "title"}, element("h2", {textContent: run.name}), element("span", {className: "quiet", textContent: run.description || run.model})),
  ...inside);

// Buttons for files of what is shown: `download(kind)` gives one.
export const downloads = (download) => element("div", {className: "downloads"}, element("span", {className: "quiet", textContent: "Download"}),
  ...["png", "svg", "json"].map((kind) => element("button", {type: "button", textContent: kind.toUpperCase(), onclick: () => download(kind)})));

// A choice of one head or the average of all; hidden where there is only one.
export function fillHeads(select, heads, wanted) {
  const choices = Array.from({length: heads}, (_, head) => option(String(head), String(head)));
  select.replaceChildren(...(heads > 1 ? [option("average", `average of ${heads}`)] : []), ...choices);
  select.value = heads === 1 ? "0" : Number(wanted) < heads ? wanted : "average";
  select.parentElement.hidden = heads === 1;
}

// Weights [head][query][key] of the chosen head, or averaged, as [query][key].
export function ofHead(weights, chosen) {
  if (chosen !== "average") return weights[Number(chosen)];
  return weights[0].map((row, query) => row.map((_, key) => weights.reduce((sum, head) => sum + head[query][key], 0) / weights.length));
}

// Never "-0.00": what rounds to nothing has no sign.
export const digits = (number, places = 2) => number.toFixed(places).replace(/^-(?=[0.]*$)/, "");

export function share(number) {
  if (number >= 0.0995) return `${Math.round(100 * number)} %`;
  return number >= 0.0005 ? `${(100 * number).toFixed(1)}\u00a0%` : "<\u00a00.1\u00a0%";
}

export function save(blob, name) {
  const link = element("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
