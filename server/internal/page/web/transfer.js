import { fresh } from "./conversation.js";
import { el } from "./dom.js";
import { add, adopt, choose } from "./tree.js";

// Export and import of conversations. A JSON file contains one or all conversations with all versions. A Markdown file
// contains the visible branch of one conversation. Exports of Open WebUI and ChatGPT can be imported too.

const kind = "sparrow-conversation";
const kindOfAll = "sparrow-conversations";
const largest = 256 << 20;

const plain = ({ title, system, parameters, all, messages }) => ({
  kind,
  version: 1,
  title,
  system,
  parameters,
  all,
  shown: messages.map((m) => m.id),
});

// toJSON returns a conversation as JSON text.
export function toJSON(conversation) {
  return JSON.stringify(plain(conversation), null, 1);
}

// allToJSON returns several conversations as JSON text, with their ids and times, by which duplicates are detected on
// import.
export function allToJSON(list) {
  const conversations = list.map((c) => ({ id: c.id, updated: c.updated, ...plain(adopt(c)) }));
  return JSON.stringify({ kind: kindOfAll, version: 1, conversations }, null, 1);
}

const names = {
  system: "System",
  user: "You",
  assistant: "Model",
  tool: "Tool result",
  file: "File",
  reasoning: "Reasoning",
};

// In Markdown, each message begins with a comment. Lines of texts that look like such a comment are escaped by a
// backslash.
const comment = (role, about) =>
  `<!-- sparrow ${role}${about === undefined ? "" : " " + JSON.stringify(about).replaceAll(">", "\\u003e")} -->`;
const guard = (text) => text.replace(/^(\\*)<!-- sparrow /gm, "\\$1<!-- sparrow ");
const unguard = (text) => text.replace(/^\\(\\*)<!-- sparrow /gm, "$1<!-- sparrow ");

// toMarkdown returns the visible branch as Markdown.
export function toMarkdown(conversation) {
  const out = [`# ${conversation.title || "Untitled"}`];
  const part = (role, text, about) =>
    out.push(`${comment(role, about)}\n## ${names[role]}${about?.name ? ": " + about.name : ""}\n\n${guard(text)}`);
  if (conversation.system) part("system", conversation.system);
  for (const m of conversation.messages) {
    for (const f of m.files ?? []) part("file", f.text, { name: f.name });
    if (m.reasoning) part("reasoning", m.reasoning);
    const about = m.calls?.length ? { calls: m.calls } : m.call ? { call: m.call } : undefined;
    part(m.role, m.content ?? "", about);
  }
  return out.join("\n\n") + "\n";
}

// read returns the conversations in a file's text as a list of {conversation, origin}; origin is the id in the file, or
// empty. It throws an error if the text is invalid.
export function read(text) {
  if (text.length > largest) throw new Error(`the file has ${text.length} characters; at most ${largest} are read`);
  if (!/^\s*[[{]/.test(text)) return [{ conversation: readMarkdown(text), origin: "" }];
  const file = JSON.parse(text);
  const list = file?.kind === kindOfAll ? file.conversations : Array.isArray(file) ? file : [file];
  if (!Array.isArray(list) || !list.length) throw new Error("it has no conversations");
  const found = list.map(readJSON).filter(({ conversation }) => conversation.all.length);
  if (!found.length) throw new Error("its conversations have no messages");
  // If the file contains no times, its first conversation is the newest.
  found.forEach(({ conversation: c }, i) => (c.updated ||= Date.now() - i));
  return found;
}

const text = (x) => (typeof x === "string" ? x : "");

// message returns only the known fields of a message with values of the right type, because files are not trusted.
function message(m) {
  const out = { role: ["user", "assistant", "tool"].includes(m?.role) ? m.role : "user", content: text(m?.content) };
  if (Array.isArray(m?.files)) out.files = m.files.map((f) => ({ name: text(f?.name) || "file", text: text(f?.text) }));
  if (text(m?.reasoning)) out.reasoning = m.reasoning;
  if (text(m?.call)) out.call = m.call;
  if (Array.isArray(m?.calls)) {
    out.calls = m.calls.map((c) => ({ id: text(c?.id), name: text(c?.name), arguments: text(c?.arguments) }));
  }
  if (text(m?.finish)) out.finish = m.finish;
  return out;
}

// readJSON reads one conversation of this page, of Open WebUI or of ChatGPT.
function readJSON(file) {
  if (file?.chat?.history?.messages) return readOpenWebUI(file);
  if (file?.mapping) return readChatGPT(file);
  if (file?.kind !== kind || !Array.isArray(file.all) || !Array.isArray(file.shown)) {
    const names = Object.keys(file ?? {}).slice(0, 5).join(", ");
    throw new Error(
      `want a file of this page ("kind": "${kind}"), or the JSON export of Open WebUI or ChatGPT; this one has ` +
        (names ? `the members ${names}` : "no members"),
    );
  }
  const c = begin(file.title, file.updated);
  c.system = text(file.system);
  for (const [name, value] of Object.entries(file.parameters ?? {})) {
    if (typeof value === "string") c.parameters[name] = value;
  }
  const known = new Map([["", ""]]);
  for (const old of file.all) {
    const id = text(old?.id);
    if (!id || known.has(id) || !known.has(text(old.parent)))
      throw new Error("a message has no id, a repeated id or an unknown parent");
    known.set(id, id);
    c.all.push({ ...message(old), id, parent: old.parent });
  }
  c.messages = file.shown.map((id) => c.all.find((m) => m.id === id)).filter(Boolean);
  return { conversation: c, origin: text(file.id) };
}

// begin returns an empty conversation. Times are in milliseconds and not in the future.
function begin(title, time) {
  const c = adopt(fresh());
  c.title = text(title);
  c.updated = time > 0 ? Math.min(time, Date.now()) : 0;
  return c;
}

function readOpenWebUI(file) {
  const { history, title, system, params } = file.chat;
  const c = begin(file.title ?? title, 1000 * file.updated_at);
  c.system = text(system ?? params?.system);
  const nodes = Object.entries(history.messages).map(([id, m]) => {
    return { id, parent: m?.parentId, role: m?.role, content: text(m?.content) };
  });
  plant(c, nodes, history.currentId);
  return { conversation: c, origin: "" };
}

function readChatGPT(file) {
  const c = begin(file.title, 1000 * (file.update_time ?? file.create_time));
  const nodes = Object.entries(file.mapping).map(([id, node]) => {
    const { author, content } = node?.message ?? {};
    const spoken = ["text", "multimodal_text"].includes(content?.content_type) && Array.isArray(content.parts);
    const part = (p) => (typeof p === "string" ? p : text(p?.text) || `[${text(p?.content_type) || "attachment"}]`);
    return { id, parent: node?.parent, role: author?.role, content: spoken ? content.parts.map(part).join("\n") : "" };
  });
  plant(c, nodes, file.current_node);
  return { conversation: c, origin: "" };
}

// plant adds nodes {id, parent, role, content}, given in any order, to a conversation, and shows the branch that ends
// at node last. Nodes without content and nodes of tools are omitted; their children move to the parent. Cycles are
// omitted, because they have no root.
function plant(c, nodes, last) {
  const byID = new Map(nodes.map((n) => [n.id, n]));
  const spoken = (n) => n.content.trim() !== "" && ["user", "assistant"].includes(n.role);
  const before = (n) => {
    const seen = new Set();
    for (n = byID.get(n.parent); n && !spoken(n) && !seen.has(n); n = byID.get(n.parent)) seen.add(n);
    return n && spoken(n) ? n : undefined;
  };
  c.system ||= nodes.find((n) => n.role === "system" && n.content.trim())?.content ?? "";
  const after = new Map([["", []]]);
  for (const n of nodes.filter(spoken)) {
    const parent = before(n)?.id ?? "";
    if (!after.has(parent)) after.set(parent, []);
    after.get(parent).push({ ...message(n), id: n.id, parent });
  }
  c.all.push(...after.get(""));
  for (const m of c.all) c.all.push(...(after.get(m.id) ?? [])); // the list grows during the loop
  const end = byID.get(last);
  const shown = end && (spoken(end) ? end : before(end));
  const found = c.all.find((m) => m.id === shown?.id) ?? c.all.at(-1);
  if (found) choose(c, found);
}

function readMarkdown(file) {
  const lines = file.replaceAll("\r\n", "\n");
  const parts = [...lines.matchAll(/^<!-- sparrow (\w+)(?: (.*))? -->\n## [^\n]*\n\n?/gm)];
  if (!parts.length) throw new Error("want a Markdown file that this page has written");
  const c = adopt(fresh());
  c.title = /^# (.*)/.exec(lines)?.[1].trim() ?? "";
  let pending = {};
  parts.forEach((p, i) => {
    const end = parts[i + 1]?.index ?? lines.length;
    const content = unguard(lines.slice(p.index + p[0].length, end).replace(/\n{1,2}$/, ""));
    const about = p[2] ? JSON.parse(p[2]) : {};
    if (p[1] === "system") c.system = content;
    else if (p[1] === "file") (pending.files ??= []).push({ name: about.name, text: content });
    else if (p[1] === "reasoning") pending.reasoning = content;
    else {
      add(c, message({ role: p[1], content, ...about, ...pending }));
      pending = {};
    }
  });
  return c;
}

// save downloads content as a file.
export function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// fileName converts a title to a file name.
export function fileName(title, ending) {
  const plain = (title || "conversation")
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60);
  return `${plain || "conversation"}.${ending}`;
}
