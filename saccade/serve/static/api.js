// Questions to the server that this page came from. A failure is an Error whose message is the server's sentence.

const KEPT = "saccade-token";

export function rememberToken(token) { sessionStorage.setItem(KEPT, token); }

async function request(path, options = {}) {
  const token = sessionStorage.getItem(KEPT);
  const headers = {...options.headers, ...(token ? {Authorization: `Bearer ${token}`} : {})};
  let answer;
  try {
    answer = await fetch(path, {...options, headers});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: is it still running?");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  const failure = new Error(told.error ?? `The server answered ${answer.status}.`);
  failure.status = answer.status;
  throw failure;
}

const post = (path, question, signal) => request(`/api/${path}`,
  {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(question), signal});

export const runs = async () => (await request("/api/runs")).json();
export const ask = async (path, question, signal) => (await post(path, question, signal)).json();
export const look = (question, signal) => ask("look", question, signal);
export const figure = async (question) => (await post("figure", question)).blob();

// What the server tells while it writes, a message each.
export async function* stream(question, signal) {
  const reader = (await post("stream", question, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    yield* lines.map((line) => JSON.parse(line));
  }
}
