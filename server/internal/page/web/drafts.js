import { address } from "./api.js";

// Drafts are unsent messages, one per conversation; conversations without messages share one. Texts are stored in the
// browser, files are in memory.

const files = new Map();
const name = (id) => `sparrow-draft ${new URL(address("")).pathname} ${id}`;
const idOf = (conversation) => (conversation.messages.length ? conversation.id : "");

export function keep(conversation, draft) {
  const id = idOf(conversation);
  files.set(id, [...draft.files]);
  try {
    if (draft.text) localStorage.setItem(name(id), draft.text);
    else localStorage.removeItem(name(id));
  } catch {
    // the text is too long for the browser's storage; after a reload, the last stored text is shown
  }
}

export function of(conversation) {
  const id = idOf(conversation);
  return { text: localStorage.getItem(name(id)) ?? "", files: files.get(id) ?? [] };
}
