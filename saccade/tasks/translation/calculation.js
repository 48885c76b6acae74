// How one attention weight came about, with the model's own numbers: query and key, score, softmax over the row, weighted sum.

import {ask} from "/static/api.js";
import {bold, byId, digits, element} from "/static/views/dom.js";

// `question` is {run, text, target, map, query, key, words}; `weights` [head] are the cell's weights; `head` is a number, or null for the average.
// `turn`, if there is one, makes the query look at this key alone; `changed`: the weights on the page are not the model's own, and so are not shown.
export async function openCalculation(question, label, weights, head, turn, changed) {
  const dialog = byId("calculation");
  const strongest = weights.indexOf(Math.max(...weights)), labels = weights.map((weight, number) => changed ? String(number) : `${number}: ${digits(weight)}`);
  const show = async (change) => {
    question = {...question, ...change};
    try {
      const answer = await ask("calculation", question);
      const [title, ...steps] = view(answer, label, labels, head === null && !changed, show);
      dialog.replaceChildren(title, ...remarks(turn, changed), ...steps);
    } catch (error) {
      if (!dialog.open) throw error;
      dialog.prepend(element("p", {role: "alert", textContent: error.message}));
    }
    if (!dialog.open) dialog.showModal();
  };
  await show({head: head ?? strongest});
}

// What can be done about the weight, and whether it is the one on the page.
function remarks(turn, changed) {
  const dialog = byId("calculation"), parts = [];
  if (changed) parts.push(element("p", {className: "quiet", textContent: "Attention was changed by hand; this is what the model computes for the same words when left alone."}));
  if (turn) parts.push(element("button", {type: "button", className: "main", textContent: "Pay attention here", onclick: () => { dialog.close(); turn(); }}),
    element("p", {className: "quiet", textContent: "All attention of this word goes to this place, and the rest is translated anew."}));
  return parts.length ? [element("section", {className: "remarks"}, ...parts)] : [];
}

function view(answer, label, headLabels, averaged, show) {
  const query = answer.queries[answer.query], key = answer.keys[answer.key];
  const close = element("button", {type: "button", textContent: "Close", onclick: () => byId("calculation").close()});
  const title = element("h2", {id: "calculation-title"}, "How ", bold(query), " came to look at ", bold(key), ` with weight ${digits(answer.weight, 3)}`);
  const parts = [element("header", {}, element("div", {}, title, element("p", {className: "quiet", textContent: `${label}, head ${answer.head}`})), close)];
  if (headLabels.length > 1) parts.push(heads(answer, headLabels, averaged, show));
  return [...parts, scoring(answer, query, key), softmax(answer, show), summing(answer, key)];
}

function heads(answer, labels, averaged, show) {
  const buttons = labels.map((textContent, head) => element("button",
    {type: "button", "aria-pressed": String(head === answer.head), textContent, onclick: () => show({head})}));
  const note = averaged ? "The matrix shows the average of these heads: " : "This cell in every head: ";
  return element("div", {className: "heads"}, note, ...buttons);
}

function scoring(answer, query, key) {
  const {score} = answer;
  const section = element("section", {}, element("h3", {textContent: `1 · The score: ${score.equation}`}));
  if (score.kind === "product") {
    const products = score.left.map((value, place) => value * score.right[place]);
    const hidden = score.name === "additive" || score.name === "perceptron";
    section.append(
      strip(hidden ? "v" : `query of ${query}`, score.left), strip(hidden ? "hidden layer, tanh(…)" : `key of ${key}`, score.right),
      strip("their products", products));
    const root = Math.round(1 / score.scale ** 2);
    const scaled = score.scale === 1 ? "" : ` / √${root} = ${digits(score.sum)} / ${digits(1 / score.scale)}`;
    section.append(element("p", {className: "equation"}, `${score.left.length} products add up to ${digits(score.sum)}; `,
      `score = ${digits(score.sum)}${scaled}${score.scale === 1 ? "" : " = "}`, score.scale === 1 ? "" : element("b", {textContent: digits(score.value)})));
  } else {
    section.append(element("p", {className: "equation"}, "score = ", element("b", {textContent: digits(score.value)})));
  }
  if (Math.abs(score.bias) > 1e-6) section.append(element("p", {className: "equation", textContent: `plus a bias for their distance: ${digits(score.bias)}`}));
  return section;
}

function softmax(answer, show) {
  const largest = Math.max(...answer.scores.filter((_, place) => answer.visible[place]));
  const powers = answer.scores.map((score, place) => answer.visible[place] ? Math.exp(score - largest) : 0);
  const sum = powers.reduce((total, value) => total + value, 0);
  const rows = answer.keys.map((key, place) => {
    const choose = element("button", {type: "button", dir: "auto", textContent: key, onclick: () => show({key: place, query: answer.query, words: false})});
    const values = answer.visible[place] ? [digits(answer.scores[place]), digits(powers[place], 3)] : ["hidden", "0"];
    const bar = element("td", {className: "bar"}, element("i", {"--probability": answer.weights[place]}));
    return element("tr", {className: place === answer.key ? "chosen" : ""}, element("td", {}, choose),
      ...[...values, digits(answer.weights[place], 3)].map((textContent) => element("td", {textContent})), bar);
  });
  const head = ["key", "score", "e^(score − max)", "weight", ""].map((textContent) => element("th", {scope: "col", textContent}));
  const foot = ["sum", "", digits(sum, 3), digits(answer.weights.reduce((a, b) => a + b, 0), 3), ""].map((textContent) => element("td", {textContent}));
  const table = element("table", {className: "softmax"}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows),
    element("tfoot", {}, element("tr", {}, ...foot)));
  const section = element("section", {}, element("h3", {textContent: answer.normalised ? "2 · Softmax over the row" : `2 · Selection: ${answer.selection}`}));
  if (answer.normalised) {
    section.append(element("p", {className: "equation"}, `weight = e^(score − max) / sum = ${digits(powers[answer.key], 3)} / ${digits(sum, 3)} = `,
      element("b", {textContent: digits(answer.weight, 3)})));
  }
  section.append(table);
  return section;
}

function summing(answer, key) {
  const part = answer.value.map((value) => value * answer.weight);
  return element("section", {}, element("h3", {textContent: "3 · The weighted sum of the values"}),
    strip(`value of ${key}`, answer.value), strip(`× ${digits(answer.weight, 3)}`, part, scaleOf(answer.value)),
    strip("sum over all keys", answer.context, scaleOf(answer.value)),
    element("p", {className: "quiet", textContent: `The last row, ${answer.context.length} numbers, is what this head passes on.`}));
}

const scaleOf = (numbers) => Math.max(1e-9, ...numbers.map(Math.abs));

function strip(label, numbers, scale = scaleOf(numbers)) {
  const cells = numbers.map((number) => element("i", {title: digits(number, 4),
    "--share": `${Math.min(100, 100 * Math.abs(number) / scale)}%`, "--tone": number > 0 ? "var(--plus)" : "var(--minus)"}));
  const said = `${numbers.length} numbers from ${digits(Math.min(...numbers))} to ${digits(Math.max(...numbers))}`;
  return element("div", {className: "strip"}, element("span", {textContent: label}), element("div", {role: "img", "aria-label": said}, ...cells));
}
