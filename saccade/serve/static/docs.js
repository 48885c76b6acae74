// The API's own description, read from openapi.json and laid out: paths, the fields that each run takes, answers, and a command to try.

import {startTheme} from "/static/theme.js";
import {byId, element} from "/static/views/dom.js";

const described = await (await fetch("/openapi.json")).json();
const named = ($ref) => described.components.schemas[$ref.split("/").at(-1)];

function kindOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(kindOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return `list of ${schema.items ? kindOf(schema.items) : "values"}`;
  return schema.type ?? "anything";
}

function rangeOf(schema) {
  const inner = schema.anyOf?.[0] ?? schema;
  const least = inner.minimum ?? inner.exclusiveMinimum, most = inner.maximum ?? inner.exclusiveMaximum;
  return least === undefined && most === undefined ? "" : `${least ?? "…"} to ${most ?? "…"}`;
}

function table(schema) {
  const needed = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const standard = needed.has(name) ? "required" : field.default === undefined || field.default === null ? "" : JSON.stringify(field.default);
    const cells = [element("code", {textContent: name}), kindOf(field), rangeOf(field), standard, field.description ?? ""];
    return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  });
  const head = ["field", "kind", "range", "default", "meaning"].map((textContent) => element("th", {scope: "col", textContent}));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

// The messages that a message holds, each under its name.
function parts(schema) {
  const references = new Set(JSON.stringify(schema).match(/#\/components\/schemas\/\w+/g) ?? []);
  return [...references].map(($ref) => {
    const part = named($ref);
    return element("div", {}, element("h3", {textContent: `${kindOf({$ref})}: ${part.description ?? ""}`}), table(part));
  });
}

function body(path, schema, example) {
  const command = `curl ${location.origin}${path} -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'`;
  return [element("h3", {textContent: `The run ${schema.title}`}), table(schema), ...parts(schema), element("pre", {textContent: command})];
}

function operation(path, method, about) {
  const {schema: asked, examples} = about.requestBody?.content["application/json"] ?? {};
  const shown = [element("h2", {}, element("span", {className: "method", textContent: method.toUpperCase()}), " ", element("code", {textContent: path})),
    element("p", {textContent: about.summary ?? ""})];
  if (asked) shown.push(...(asked.oneOf ?? [asked]).flatMap((schema) => body(path, schema, examples[schema.title].value)));
  else shown.push(element("pre", {textContent: `curl ${location.origin}${path}`}));
  const answers = Object.entries(about.responses).map(([status, answer]) => `${status} ${answer.description}`).join(" · ");
  shown.push(element("p", {className: "quiet", textContent: answers}));
  return element("section", {}, ...shown);
}

startTheme(null);
const sections = Object.entries(described.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, about]) => operation(path, method, about)));
byId("docs").replaceChildren(element("p", {textContent: `${described.info.title} ${described.info.version}. ${described.info.description} Errors are JSON with one sentence under "error".`}), ...sections);
