import { fresh } from "./conversation.js";
import { el } from "./dom.js";
import { add, adopt } from "./tree.js";

// Conversations as files: JSON has all of one, versions included; Markdown has the branch that is shown, for people,
// and can be read back too.

const kind = "sparrow-conversation";
const largest = 64 << 20;

// toJSON is the file of a conversation.
export function toJSON(conversation) {
  const { title, system, parameters, all, messages } = conversation;
  return JSON.stringify(
    { kind, version: 1, title, system, parameters, all, shown: messages.map((m) => m.id) },
    null,
    1,
  );
}

const names = {
  system: "System",
  user: "You",
  assistant: "Model",
  tool: "Tool result",
  file: "File",
  reasoning: "Reasoning",
};

// A part of the file begins with a comment that says what it is; lines of texts that look like one get a backslash.
const comment = (role, about) =>
  `<!-- sparrow ${role}${about === undefined ? "" : " " + JSON.stringify(about).replaceAll(">", "\\u003e")} -->`;
const guard = (text) => text.replace(/^(\\*)<!-- sparrow /gm, "\\$1<!-- sparrow ");
const unguard = (text) => text.replace(/^\\(\\*)<!-- sparrow /gm, "$1<!-- sparrow ");

// toMarkdown is the branch that is shown, as text.
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

// read makes a conversation of the text of a file, or throws what is wrong with it.
export function read(text) {
  if (text.length > largest) throw new Error(`the file has ${text.length} characters; at most ${largest} are read`);
  return text.trimStart().startsWith("{") ? readJSON(JSON.parse(text)) : readMarkdown(text);
}

const text = (x) => (typeof x === "string" ? x : "");

// message keeps what a message may have, and only texts where texts belong: files come from anywhere.
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

function readJSON(file) {
  if (file.kind !== kind || !Array.isArray(file.all) || !Array.isArray(file.shown)) {
    throw new Error(`want a file of this page, with "kind": "${kind}"`);
  }
  const c = adopt(fresh());
  c.title = text(file.title);
  c.system = text(file.system);
  for (const [name, value] of Object.entries(file.parameters ?? {})) {
    if (typeof value === "string") c.parameters[name] = value;
  }
  const known = new Map([["", ""]]);
  for (const old of file.all) {
    const id = text(old?.id);
    if (!id || known.has(id) || !known.has(text(old.parent)))
      throw new Error("a message has no place in the conversation");
    known.set(id, id);
    c.all.push({ ...message(old), id, parent: old.parent });
  }
  c.messages = file.shown.map((id) => c.all.find((m) => m.id === id)).filter(Boolean);
  return c;
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

// save lets the browser write a file.
export function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// fileName is a title as the name of a file.
export function fileName(title, ending) {
  const plain = (title || "conversation")
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60);
  return `${plain || "conversation"}.${ending}`;
}
