// The page: which runs, which input, and a link that holds all of it.

import {rememberToken, runs as askRuns} from "/static/api.js";
import {Panel as ViewPanel} from "/static/panel.js";
import {cycleTheme, startTheme} from "/static/theme.js";
import {byId, element, option, shape} from "/static/views/dom.js";

// A task whose input is neither a sentence nor a picture brings a form of its own: Panel.form(run, state, asked).
let ownForm = null;
// `state` is what the link holds: the runs, the input, and whatever the panels add to it.
let runs = [], panels = [], state = {}, latest = 0, latestChoice = 0;

function readLink() {
  const {token, ...values} = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (token) rememberToken(token);
  state = values;
}

function writeLink() {
  const kept = Object.entries(state).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

function fail(error) {
  if (error?.name === "AbortError") return;
  const problem = byId("problem");
  problem.textContent = error?.message ?? "";
  problem.hidden = !error;
}

const named = (name) => runs.find((run) => run.name === name);

// The panel of the run's task, or the general one. It is loaded when it is first needed.
async function panelOf(run) {
  return run.page === false ? ViewPanel : (await import(`/static/tasks/${run.task}.js`)).Panel;
}

// Answers whether the panels are there; another choice made meanwhile takes their place.
async function chooseRuns() {
  const number = ++latestChoice, run = named(state.run) ?? runs[0];
  state.run = run.name;
  const others = runs.filter((other) => other.reads === run.reads && other !== run);
  if (!others.some((other) => other.name === state.with)) delete state.with;
  byId("run").replaceChildren(...runs.map((other) => option(other.name, other.name, other === run)));
  byId("with").replaceChildren(option("", "nothing"), ...others.map((other) => option(other.name, other.name, other.name === state.with)));
  byId("with-label").hidden = !others.length;
  const shown = [run, ...(state.with ? [named(state.with)] : [])], kinds = await Promise.all(shown.map(panelOf));
  if (number !== latestChoice) return false;
  // Two runs have layers of their own: each panel keeps its own choice, and the link holds the first one's.
  panels = shown.map((shownRun, place) => new kinds[place](shownRun, place ? {...state, map: "", head: ""} : state, place ? () => {} : writeLink, fail));
  byId("panels").className = shown.length > 1 ? "two" : "";
  byId("panels").replaceChildren(...panels.map((panel) => panel.root));
  byId("text-form").hidden = run.reads !== "text";
  byId("image-form").hidden = run.reads !== "image";
  ownForm = kinds[0].form?.(run, state, askOwn) ?? null;
  byId("own-form").replaceChildren(...(ownForm ? [ownForm] : []));
  byId("series-form").hidden = run.reads !== "series";
  byId("go").textContent = kinds[0].action ?? "Look";
  showExamples(run);
  writeLink();
  return true;
}

function showExamples(run) {
  if (ownForm) return byId("examples").replaceChildren();
  const buttons = run.examples.map((example, place) => run.reads === "series"
    ? element("button", {type: "button", className: "picture", title: `Example ${place + 1}`, "aria-label": `Example ${place + 1}`,
      onclick: () => askSeries(example, place)}, sparkline(example))
    : run.reads === "text"
    ? element("button", {type: "button", textContent: example, dir: "auto", onclick: () => { byId("text").value = example; askText(); }})
    : element("button", {type: "button", className: "picture", onclick: () => askImage(example, place)}, element("img", {src: example, alt: `Example ${place + 1}`})));
  byId("examples").replaceChildren(...buttons);
}

// Asks every panel. One that got no answer still shows the one before, which is not an answer to what stands above it: it fades.
// Answers that arrive after a later question was asked are dropped.
function answers(question, isFromLink) {
  const number = ++latest;
  return Promise.all(panels.map(async (panel) => {
    const problem = await panel.answer(question, isFromLink).then(() => null, (error) => error);
    if (number !== latest || problem?.name === "AbortError") return;
    panel.root.classList.toggle("old", Boolean(problem));
    if (problem) fail(problem);
  }));
}

async function askText(isFromLink = false) {
  const text = byId("text").value.trim();
  if (!text) return fail(new Error("Type a sentence first."));
  fail(null);
  state.text = text;
  const asked = answers({text}, isFromLink);
  writeLink();
  await asked;
}

// `example`: which of the run's pictures it is; a link can name that, and no other picture.
async function askImage(image, example) {
  fail(null);
  state.example = example === undefined ? "" : String(example);
  writeLink();
  byId("image-form").dataset.image = image;
  await answers({image});
}

// What the form of a task asks, its fields by their names; those that are text are kept in the link.
async function askOwn(question) {
  fail(null);
  for (const [name, value] of Object.entries(question)) if (typeof value === "string") state[name] = value;
  writeLink();
  await answers(question);
}

// The table of one series, as text.
async function askSeries(series, example) {
  fail(null);
  state.example = example === undefined ? "" : String(example);
  writeLink();
  byId("series-form").dataset.series = series;
  await answers({series});
}

// The last column that is not about clouds, as a line.
function sparkline(table) {
  const [names, ...rows] = table.trim().split("\n").map((line) => line.split(","));
  const column = names.reduce((last, name, place) => name === "cloud" ? last : place, 0);
  const values = rows.map((row) => row[column] === "" ? NaN : Number(row[column])), known = values.filter(Number.isFinite);
  const low = Math.min(...known), span = Math.max(...known) - low || 1;
  const points = values.flatMap((value, place) => Number.isFinite(value) ? [`${(place / values.length * 100).toFixed(1)} ${(28 - (value - low) / span * 26).toFixed(1)}`] : []);
  return shape("svg", {viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true"}, shape("path", {d: `M${points.join("L")}`}));
}

function readSeries(file) {
  file?.text().then((text) => askSeries(text), () => fail(new Error("This file cannot be read: choose another one.")));
}

function readFile(file) {
  if (!file) return;
  const reader = new FileReader();
  reader.onload = () => askImage(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => fail(new Error("This file cannot be read: choose another one."));
  reader.readAsDataURL(file);
}

async function again() {
  if (!await chooseRuns()) return;
  if (ownForm) return ownForm.begin?.();
  if (named(state.run).reads === "text") { if (byId("text").value.trim()) askText(); }
  else if (named(state.run).reads === "series") { if (byId("series-form").dataset.series) askSeries(byId("series-form").dataset.series); }
  else if (byId("image-form").dataset.image) askImage(byId("image-form").dataset.image);
}

function listen() {
  byId("run").onchange = (event) => { state = {run: event.target.value, with: state.with, text: byId("text").value.trim()}; again(); };
  byId("with").onchange = (event) => { state.with = event.target.value; again(); };
  byId("text-form").onsubmit = (event) => { event.preventDefault(); askText(); };
  byId("text").onkeydown = (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); askText(); } };
  byId("file").onchange = (event) => { readFile(event.target.files[0]); event.target.value = ""; };
  byId("drop").onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") byId("file").click(); };
  byId("series-file").onchange = (event) => { readSeries(event.target.files[0]); event.target.value = ""; };
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      for (const place of ["drop", "drop-series"]) byId(place).classList.toggle("over", kind === "dragover");
      if (kind === "drop" && !byId("series-form").hidden) readSeries(event.dataTransfer.files[0]);
      if (kind === "drop" && !byId("image-form").hidden) readFile(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text");
    if (!byId("series-form").hidden && text.includes("\n")) return askSeries(text);
    const file = [...event.clipboardData.files].find((pasted) => pasted.type.startsWith("image/"));
    if (file && !byId("image-form").hidden) readFile(file);
  });
  byId("link").onclick = async () => {
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    byId("link").textContent = copied ? "Copied" : "Copy it from the address bar";
    setTimeout(() => { byId("link").textContent = "Copy link"; }, 1500);
  };
  byId("theme").onclick = () => cycleTheme(byId("theme"));
  byId("calculation").addEventListener("click", (event) => { if (event.target === byId("calculation")) byId("calculation").close(); });
  addEventListener("hashchange", () => { readLink(); if (runs.length) start(); else load(); });
}

async function start() {
  byId("text").value = state.text ?? "";
  if (!await chooseRuns()) return;
  const run = named(state.run);
  if (ownForm) return ownForm.begin?.();
  if (byId("text").value && run.reads === "text") askText(true);
  if (run.reads === "series" && run.examples[state.example]) askSeries(run.examples[state.example], state.example);
  if (run.reads === "image" && run.examples[state.example]) askImage(run.examples[state.example], state.example);
}

async function load() {
  try {
    ({runs} = await askRuns());
  } catch (error) {
    if (error.status !== 401) return fail(error);
    const token = prompt("This server asks for its token:");
    if (!token) return fail(error);
    rememberToken(token);
    return load();
  }
  start();
}

startTheme(byId("theme"));
readLink();
listen();
load();
