// A conversation is a tree: an edited question or another answer is added as a version next to the old one. all holds
// every message, with its id and the id of its parent; messages is the visible branch.

const newID = () => crypto.randomUUID?.() ?? String(Math.random()).slice(2);

// adopt creates the tree of a conversation that was stored without one, by an older version of the page.
export function adopt(conversation) {
  if (conversation.all) return conversation;
  let parent = "";
  for (const m of conversation.messages) {
    m.id = newID();
    m.parent = parent;
    parent = m.id;
  }
  conversation.all = [...conversation.messages];
  return conversation;
}

// add adds a message after another one, by default after the last message of the visible branch.
export function add(conversation, message, behind = conversation.messages.at(-1)) {
  message.id = newID();
  message.parent = behind?.id ?? "";
  conversation.all.push(message);
  if (behind === conversation.messages.at(-1)) conversation.messages.push(message);
}

// unfinished returns a copy of a conversation with the received part of a running answer.
export function unfinished(conversation, answer, behind) {
  const copy = structuredClone(conversation);
  add(copy, { ...structuredClone(answer), stopped: true }, copy.all.find((m) => m.id === behind.id));
  return copy;
}

// versions returns the versions of a message, oldest first.
export function versions(conversation, message) {
  return conversation.all.filter((m) => m.parent === message.parent && m.role === message.role);
}

// choose shows the branch that contains a message, and after it the latest messages.
export function choose(conversation, message) {
  const path = [message];
  for (let m = message; m.parent; path.unshift(m)) {
    m = conversation.all.find((x) => x.id === m.parent);
    if (!m) break;
  }
  for (let m = message; m;) {
    m = conversation.all.findLast((x) => x.parent === m.id);
    if (m) path.push(m);
  }
  conversation.messages = path;
}

// branch returns a new conversation with the first length messages of this one.
export function branch(conversation, length, fresh) {
  const copy = structuredClone(conversation.messages.slice(0, length));
  return adopt({
    ...fresh,
    title: conversation.title,
    system: conversation.system,
    parameters: structuredClone(conversation.parameters),
    messages: copy,
    all: undefined,
  });
}

// titleOf returns a title for a text: its first line, cut between words.
export function titleOf(text) {
  const line = text.trim().split("\n")[0].trim();
  if (line.length <= 60) return line;
  const cut = line.slice(0, 60);
  return (cut.includes(" ") ? cut.slice(0, cut.lastIndexOf(" ")) : cut) + "\u2026";
}
