import { address } from "./api.js";

// Drafts are messages that were not sent yet, one for each conversation. Conversations without messages share one.
// Texts are stored in the browser, files are kept until the page is closed.

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
    // the text is longer than the browser stores: a reloaded page shows the last stored text
  }
}

export function of(conversation) {
  const id = idOf(conversation);
  return { text: localStorage.getItem(name(id)) ?? "", files: files.get(id) ?? [] };
}
