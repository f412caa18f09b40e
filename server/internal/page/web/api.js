import { byID } from "./dom.js";

// base is the address of the server. This file is in the folder page of the server, to whose path a proxy may add a
// prefix.
const base = new URL("../", import.meta.url);

const keyName = "sparrow-key " + base.pathname;

export function key() {
  return sessionStorage.getItem(keyName) ?? localStorage.getItem(keyName) ?? "";
}

function keep(value, forLong) {
  sessionStorage.setItem(keyName, value);
  if (forLong) localStorage.setItem(keyName, value);
  else localStorage.removeItem(keyName);
  dispatchEvent(new Event("keychange"));
}

export function forgetKey() {
  sessionStorage.removeItem(keyName);
  localStorage.removeItem(keyName);
  dispatchEvent(new Event("keychange"));
}

export const address = (path) => new URL(path, base).href;

// Fault is an error response. param is the request field that has caused it, if the response names one.
export class Fault extends Error {
  constructor(status, message, param) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

let asking = null;
let declined = 0; // how often the user has closed the dialog without a key

// askKey shows a dialog for a key, once for all waiting requests.
function askKey(why) {
  asking ??= new Promise((answer) => {
    const box = byID("key");
    byID("key-why").textContent = why;
    box.addEventListener(
      "close",
      () => {
        asking = null;
        const value = byID("key-value").value.trim();
        const given = box.returnValue === "ok" && value !== "";
        if (given) keep(value, byID("key-keep").checked);
        else declined++;
        answer(given);
      },
      { once: true },
    );
    box.returnValue = "";
    box.showModal();
    byID("key-value").select();
  });
  return asking;
}

// send sends a request, and asks for a key if the server requires one. The caller reads the body.
export async function send(path, { body, signal } = {}) {
  for (;;) {
    const used = key();
    const before = declined;
    const headers = {};
    if (used) headers.Authorization = "Bearer " + used;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const answer = await fetch(address(path), {
      method: body === undefined ? "GET" : "POST",
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    }).catch((err) => {
      // Browsers report neither the reason nor the address.
      throw signal?.aborted ? err : new Fault(0, "the server does not answer; is it still running?");
    });
    if (answer.ok) return answer;
    const fault = await faultOf(answer);
    if (answer.status !== 401) throw fault;
    if (key() !== used) continue; // another request has got a new key
    if (declined !== before) throw fault; // the user has closed the dialog without a key
    const why = used ? "The server does not accept this key." : "Ask the operator of the server for a key.";
    if (!(await askKey(why))) throw fault;
  }
}

async function faultOf(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return new Fault(answer.status, error.message, error.param);
  } catch {
    return new Fault(answer.status, text.slice(0, 400) || `the server answered ${answer.status}`);
  }
}

export async function json(path, options) {
  return (await send(path, options)).json();
}

export async function text(path, options) {
  return (await send(path, options)).text();
}

// events yields the objects of a stream of server-sent events. An error in the stream is thrown.
export async function* events(path, options) {
  const answer = await send(path, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces = []; // pieces of the incomplete line
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((err) => {
        throw options?.signal?.aborted ? err : new Fault(0, "the connection broke before the answer ended");
      });
      if (done) break;
      let from = 0;
      for (let end = value.indexOf("\n"); end >= 0; end = value.indexOf("\n", from)) {
        pieces.push(value.slice(from, end));
        from = end + 1;
        const line = pieces.join("");
        pieces = [];
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new Fault(0, event.error.message, event.error.param);
        yield event;
      }
      if (from < value.length) pieces.push(value.slice(from));
    }
    throw new Fault(0, "the connection ended before the answer did");
  } finally {
    reader.cancel().catch(() => {});
  }
}
