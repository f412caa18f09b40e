// A conversation is a tree: editing a question or asking for another answer adds a version next to the old one, and
// nothing is lost. all has every message, with an id and the id of the message before it; messages is the branch that
// is shown.

const newID = () => crypto.randomUUID?.() ?? String(Math.random()).slice(2);

// adopt gives a conversation of an older page, which had one branch, its tree.
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

// add puts a message after another one: by default the last one of the branch that is shown.
export function add(conversation, message, behind = conversation.messages.at(-1)) {
  message.id = newID();
  message.parent = behind?.id ?? "";
  conversation.all.push(message);
  if (behind === conversation.messages.at(-1)) conversation.messages.push(message);
}

// unfinished is a copy of a conversation with what has come of an answer so far.
export function unfinished(conversation, answer, behind) {
  const copy = structuredClone(conversation);
  add(copy, { ...structuredClone(answer), stopped: true }, copy.all.find((m) => m.id === behind.id));
  return copy;
}

// versions are the messages that stand at the place of one, oldest first.
export function versions(conversation, message) {
  return conversation.all.filter((m) => m.parent === message.parent && m.role === message.role);
}

// choose shows the branch of a message, to the latest message after it.
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

// branch is another conversation with the messages up to a place of this one.
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

// titleOf makes a title of a text: its first line, cut between words.
export function titleOf(text) {
  const line = text.trim().split("\n")[0].trim();
  if (line.length <= 60) return line;
  const cut = line.slice(0, 60);
  return (cut.includes(" ") ? cut.slice(0, cut.lastIndexOf(" ")) : cut) + "\u2026";
}
