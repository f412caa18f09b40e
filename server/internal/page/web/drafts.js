import { address } from "./api.js";

// Drafts are messages that were not sent yet, one for each conversation; conversations that nothing was said in share
// one. Texts are kept in this browser, files as long as the page.

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
    // longer than what the browser keeps: a page that is loaded again shows what came before
  }
}

export function of(conversation) {
  const id = idOf(conversation);
  return { text: localStorage.getItem(name(id)) ?? "", files: files.get(id) ?? [] };
}
