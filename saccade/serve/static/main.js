// The page: which runs, which input, and a link that holds all of it.

import {rememberToken, runs as askRuns} from "./api.js";
import {CaptionPanel} from "./captions.js";
import {byId, element, option} from "./dom.js";
import {PicturePanel} from "./pictures.js";
import {cycleTheme, startTheme} from "./theme.js";
import {TranslationPanel} from "./translation.js";

const NAMES = ["run", "with", "text", "example", "map", "head", "unit", "prefix"];
const PANELS = {translation: TranslationPanel, image_classes: PicturePanel, captions: CaptionPanel};
let runs = [], panels = [], state = {}, latest = 0;

function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("token")) rememberToken(given.get("token"));
  state = Object.fromEntries(NAMES.filter((name) => given.has(name)).map((name) => [name, given.get(name)]));
}

function writeLink() {
  const kept = NAMES.filter((name) => state[name]).map((name) => [name, state[name]]);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

function fail(error) {
  if (error?.name === "AbortError") return;
  const problem = byId("problem");
  problem.textContent = error?.message ?? "";
  problem.hidden = !error;
}

const named = (name) => runs.find((run) => run.name === name);

function chooseRuns() {
  const run = named(state.run) ?? runs[0];
  state.run = run.name;
  const others = runs.filter((each) => each.reads === run.reads && each !== run);
  if (!others.some((each) => each.name === state.with)) delete state.with;
  byId("run").replaceChildren(...runs.map((each) => option(each.name, each.name, each === run)));
  byId("with").replaceChildren(option("", "nothing"), ...others.map((each) => option(each.name, each.name, each.name === state.with)));
  byId("with-label").hidden = !others.length;
  const shown = [run, ...(state.with ? [named(state.with)] : [])];
  // Two runs have layers of their own: each panel keeps its own choice, and the link holds the first one's.
  panels = shown.map((each, place) => new PANELS[each.task](each, place ? {unit: state.unit} : state, place ? () => {} : writeLink, fail));
  byId("panels").className = shown.length > 1 ? "two" : "";
  byId("panels").replaceChildren(...panels.map((panel) => panel.root));
  byId("text-form").hidden = run.reads !== "text";
  byId("image-form").hidden = run.reads !== "image";
  showExamples(run);
  writeLink();
}

function showExamples(run) {
  const buttons = run.examples.map((example, place) => run.reads === "text"
    ? element("button", {type: "button", textContent: example, dir: "auto", onclick: () => { byId("text").value = example; translate(); }})
    : element("button", {type: "button", className: "picture", onclick: () => look(example, place)}, element("img", {src: example, alt: `Example ${place + 1}`})));
  byId("examples").replaceChildren(...buttons);
}

// Asks every panel. One that got no answer still shows the one before, which is not an answer to what stands above it: it fades.
// Whatever comes after a later question was asked is nobody's any more.
function answers(question) {
  const number = ++latest;
  return Promise.all(panels.map(async (panel) => {
    const problem = await question(panel).then(() => null, (error) => error);
    if (number !== latest || problem?.name === "AbortError") return;
    panel.root.classList.toggle("old", Boolean(problem));
    if (problem) fail(problem);
  }));
}

async function translate(prefix = "") {
  const text = byId("text").value.trim();
  if (!text) return fail(new Error("Type a sentence first."));
  fail(null);
  Object.assign(state, {text, prefix});
  writeLink();
  await answers((panel) => panel.translate(text, prefix));
}

// `example`: which of the run's pictures it is; a link can name that, and no other picture.
async function look(image, example) {
  fail(null);
  state.example = example === undefined ? "" : String(example);
  writeLink();
  byId("image-form").dataset.image = image;
  await answers((panel) => panel.look(image));
}

function readFile(file) {
  if (!file) return;
  const reader = new FileReader();
  reader.onload = () => look(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => fail(new Error("This file cannot be read: choose another one."));
  reader.readAsDataURL(file);
}

function again() {
  chooseRuns();
  if (named(state.run).reads === "text") { if (byId("text").value.trim()) translate(); }
  else if (byId("image-form").dataset.image) look(byId("image-form").dataset.image);
}

function listen() {
  byId("run").onchange = (event) => { state = {run: event.target.value, with: state.with, text: byId("text").value.trim()}; again(); };
  byId("with").onchange = (event) => { state.with = event.target.value; again(); };
  byId("text-form").onsubmit = (event) => { event.preventDefault(); translate(); };
  byId("text").onkeydown = (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); translate(); } };
  byId("file").onchange = (event) => { readFile(event.target.files[0]); event.target.value = ""; };
  byId("drop").onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") byId("file").click(); };
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      byId("drop").classList.toggle("over", kind === "dragover");
      if (kind === "drop" && !byId("image-form").hidden) readFile(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((each) => each.type.startsWith("image/"));
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

function start() {
  byId("text").value = state.text ?? "";
  chooseRuns();
  const run = named(state.run);
  if (byId("text").value && run.reads === "text") translate(state.prefix);
  if (run.reads === "image" && run.examples[state.example]) look(run.examples[state.example], state.example);
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
