import { address } from "./api.js";

// Conversations are stored in the browser, in one database per server. If the browser has no storage (in some private
// windows), they are kept in memory.

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

// list returns all conversations, newest first.
export async function list() {
  const all = (await open()) ? await run("readonly", (t) => t.getAll()) : [...memory.values()];
  return all.sort((a, b) => b.updated - a.updated);
}

// put stores a conversation; changed moves it to the top of the list.
export async function put(conversation, changed = true) {
  if (changed) conversation.updated = Date.now();
  if (await open()) await run("readwrite", (t) => t.put(structuredClone(conversation)));
  else memory.set(conversation.id, structuredClone(conversation));
}

export async function remove(id) {
  if (await open()) await run("readwrite", (t) => t.delete(id));
  else memory.delete(id);
}
