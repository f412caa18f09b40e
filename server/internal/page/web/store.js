import { address } from "./api.js";

// Conversations are stored in this browser, in a database for each server. If the browser stores none (as in some
// private windows), they are kept until the page is closed.

const table = "conversations";
const memory = new Map();

function request(r) {
  return new Promise((done, failed) => {
    r.onsuccess = () => done(r.result);
    r.onerror = () => failed(r.error);
  });
}

let opened = null;

function open() {
  opened ??= (async () => {
    try {
      const r = indexedDB.open("sparrow " + new URL(address("")).pathname, 1);
      r.onupgradeneeded = () => r.result.createObjectStore(table, { keyPath: "id" });
      return await request(r);
    } catch {
      return null;
    }
  })();
  return opened;
}

async function run(mode, act) {
  const db = await open();
  return request(act(db.transaction(table, mode).objectStore(table)));
}

// list returns all conversations, the latest first.
export async function list() {
  const all = (await open()) ? await run("readonly", (t) => t.getAll()) : [...memory.values()];
  return all.sort((a, b) => b.updated - a.updated);
}

// put stores a conversation; changed means that it moves to the top of the list.
export async function put(conversation, changed = true) {
  if (changed) conversation.updated = Date.now();
  if (await open()) await run("readwrite", (t) => t.put(structuredClone(conversation)));
  else memory.set(conversation.id, structuredClone(conversation));
}

export async function remove(id) {
  if (await open()) await run("readwrite", (t) => t.delete(id));
  else memory.delete(id);
}
