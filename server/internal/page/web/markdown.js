import { button, copy, el } from "./dom.js";
import { formula } from "./formula.js";
import { Highlighter } from "./highlight.js";
import { visible } from "./text.js";

// Renders Markdown: headings, emphasis, lists with tasks, quotes, tables, links, code, rules and formulas. HTML is
// shown as text, because all nodes are created with el. Images become links. Only http, https and mailto links are
// allowed. Line breaks in paragraphs are kept. Underlined headings are not supported.

// Maximum length of a paragraph. Longer paragraphs are divided, because the layout of a very long line for every new
// token would block the page.
const longest = 4096;
const listLongest = 16384; // maximum length of a list that is rendered again for every new token
const deepest = 8; // maximum nesting of quotes and lists; deeper ones are shown as text

const patterns = {
  fence: /^ {0,3}(`{3,}|~{3,})([^\n`]*)$/,
  heading: /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/,
  rule: /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/,
  quote: /^ {0,3}> ?/,
  item: /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/,
  divider: /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/,
  display: /^ {0,3}(\$\$|\\\[)/,
};

// Rich renders growing Markdown. Only the last block is rendered again, so that the time per token does not depend on
// the length of the answer.
export class Rich {
  constructor(node) {
    this.node = node;
    this.reset();
  }

  reset() {
    this.node.replaceChildren();
    this.text = "";
    this.done = 0; // length of the text in completed blocks
    this.open = null; // node of the last block
    this.code = null; // the last block if it is code
    this.rest = 0; // time before which the last block is not rendered again
  }

  // set renders a text, which usually begins with the previous text. If the last block takes long to render, such as a
  // large table, it is rendered less often until the text has ended.
  set(text, ended = false) {
    if (!text.startsWith(this.text)) this.reset();
    const begun = performance.now();
    if (text === this.text || (!ended && begun < this.rest)) return;
    this.text = text;
    this.draw(text);
    const took = performance.now() - begun;
    this.rest = took > 8 ? begun + 5 * took : 0;
  }

  draw(text) {
    const list = blocks(text, this.done);
    list.forEach((b, i) => {
      const last = i === list.length - 1;
      if (b.kind === "code") this.grow(b);
      else {
        const node = render(b, 0);
        if (this.open) this.open.replaceWith(node);
        else this.node.append(node);
        this.open = node;
      }
      if (!last) {
        this.done = list[i + 1].from;
        this.open = this.code = null;
      }
    });
    if (list.length) return;
    this.open?.remove();
    this.open = null;
  }

  // grow renders code that may still grow, one line at a time.
  grow(b) {
    if (this.code?.language !== b.language) {
      // the name of the language may be incomplete
      this.code = new Code(b.language);
      if (this.open) this.open.replaceWith(this.code.node);
      else this.node.append(this.code.node);
      this.open = this.code.node;
    }
    this.code.set(b.text);
  }
}

// Code is a block of code with its language and a button that copies it.
class Code {
  constructor(language) {
    const name = visible(language).slice(0, 40);
    this.language = language;
    this.text = "";
    this.done = 0;
    this.code = el("code");
    this.tail = null;
    this.highlighter = new Highlighter(language);
    const box = el("pre", { class: "code", tabIndex: 0, "aria-label": name ? `Code: ${name}` : "Code" }, this.code);
    const take = button("Copy", () => copy(this.text, this.code), { class: "plain", "aria-label": "Copy the code" });
    this.node = el("div", { class: "listing" }, el("div", { class: "bar-of-code" }, el("span", {}, name), take), box);
  }

  set(text) {
    this.text = text;
    this.tail?.remove();
    this.tail = null;
    for (let end = text.indexOf("\n", this.done); end >= 0; end = text.indexOf("\n", this.done)) {
      this.code.append(this.highlighter.line(text.slice(this.done, end + 1)));
      this.done = end + 1;
    }
    if (this.done >= text.length) return;
    this.tail = this.highlighter.guess(text.slice(this.done));
    this.code.append(this.tail);
  }
}

// blocks divides text after an offset into blocks {kind, from, to, ...}. The last block may be incomplete.
export function blocks(text, from = 0, most = longest) {
  const out = [];
  for (let at = from; at < text.length;) {
    const near = text.slice(at, at + most + 1);
    if (near.length > most && !near.includes("\n") && !patterns.quote.test(near) && !patterns.item.test(near)) {
      const b = paragraphAt(near, 0, most); // search only a part of the line
      out.push({ ...b, from: at, to: at + b.to });
      at += b.to;
      continue;
    }
    const [line, next] = lineAt(text, at);
    if (/^[ \t]*$/.test(line)) {
      at = next;
      continue;
    }
    const b = blockAt(text, at, line, next, most);
    b.from = at;
    out.push(b);
    at = b.to;
  }
  return out;
}

function lineAt(text, at) {
  const end = text.indexOf("\n", at);
  return end < 0 ? [text.slice(at), text.length] : [text.slice(at, end).replace(/\r$/, ""), end + 1];
}

// blockAt parses the block whose first line begins at offset at.
function blockAt(text, at, line, next, most) {
  if (line.length <= 400) {
    let found;
    if ((found = patterns.fence.exec(line))) return fenced(text, next, found[1], found[2].trim());
    if ((found = patterns.heading.exec(line)))
      return { kind: "heading", level: found[1].length, text: found[2], to: next };
    if (patterns.rule.test(line)) return { kind: "rule", to: next };
    if ((found = patterns.display.exec(line))) return displayed(text, at, line.indexOf(found[1]) + at, found[1], next);
  }
  if (patterns.quote.test(line)) return quoteAt(text, at);
  const item = patterns.item.exec(line.slice(0, 80));
  if (item && item[1].length < 4) return listAt(text, at, item);
  if (line.includes("|") && next < text.length) {
    const [under] = lineAt(text, next);
    if (under.length <= 4096 && patterns.divider.test(under) && cells(under).length === cells(line).length) {
      return tableAt(text, line, under, next);
    }
  }
  return paragraphAt(text, at, most);
}

function fenced(text, at, fence, language) {
  const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
  const from = at;
  for (;;) {
    if (at >= text.length) return { kind: "code", language, text: text.slice(from), to: text.length };
    const [line, next] = lineAt(text, at);
    if (line.length < 80 && close.test(line)) {
      return { kind: "code", language, text: text.slice(from, Math.max(from, at - 1)), to: next };
    }
    at = next;
  }
}

// displayed parses a formula in a block of its own. Until it is complete, it is shown as text.
function displayed(text, from, open, mark, next) {
  const close = text.indexOf(mark === "$$" ? "$$" : "\\]", open + 2);
  if (close < 0 || close - open > 20000) return { kind: "paragraph", text: text.slice(from, next), to: next };
  const [rest, after] = lineAt(text, close + 2);
  const to = rest.trim() ? close + 2 : after;
  return { kind: "formula", text: text.slice(open + 2, close), to };
}

function quoteAt(text, at) {
  let inner = "";
  while (at < text.length) {
    const [line, next] = lineAt(text, at);
    if (!patterns.quote.test(line)) break;
    inner += line.replace(patterns.quote, "") + "\n";
    at = next;
  }
  return { kind: "quote", text: inner, to: at };
}

// listAt parses the items of a list. Lines that are indented more than an item belong to it.
function listAt(text, at, first) {
  const ordered = /\d/.test(first[2]);
  const b = { kind: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1, items: [] };
  const begun = at;
  let width = 0;
  let blank = false;
  while (at < text.length) {
    const [line, next] = lineAt(text, at);
    const item = patterns.item.exec(line.slice(0, 80));
    const indent = line.length - line.trimStart().length;
    if (!line.trim()) {
      blank = true;
      if (b.items.length) b.items[b.items.length - 1] += "\n";
    } else if (item && item[1].length < Math.max(width, 2) && !patterns.rule.test(line)) {
      if (/\d/.test(item[2]) !== ordered) break;
      if (at - begun > listLongest) break; // divide a long list
      width = item[0].length > item[1].length + 5 ? item[1].length + 2 : item[0].length;
      b.items.push(line.slice(item[0].length) + "\n");
      blank = false;
    } else if (indent >= Math.min(width, 2)) {
      b.items[b.items.length - 1] += line.slice(Math.min(indent, width)) + "\n";
      blank = false;
    } else if (!blank && !begins(line)) {
      b.items[b.items.length - 1] += line + "\n"; // a line that continues a paragraph without indentation
    } else break;
    at = next;
  }
  b.to = at;
  return b;
}

// begins returns whether a line is the beginning of a block other than a paragraph.
function begins(line) {
  if (line.length > 400) return false;
  return ["fence", "heading", "rule", "quote", "item", "display"].some((name) => patterns[name].test(line));
}

// cells divides a table row at its bars, except escaped bars and bars in code.
function cells(line) {
  const text = line.trim().replace(/^\|/, "");
  const out = [""];
  let code = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "\\" && text[i + 1] === "|") {
      out[out.length - 1] += "|";
      i++;
    } else if (c === "|" && !code) out.push("");
    else {
      if (c === "`") code = !code;
      out[out.length - 1] += c;
    }
  }
  if (out.length > 1 && !out.at(-1).trim()) out.pop();
  return out.map((c) => c.trim());
}

function tableAt(text, head, under, at) {
  const sides = cells(under).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : "left"));
  const b = { kind: "table", head: cells(head), sides, rows: [] };
  [, at] = lineAt(text, at);
  while (at < text.length) {
    const [line, next] = lineAt(text, at);
    if (!line.includes("|") || patterns.fence.test(line)) break;
    b.rows.push(cells(line));
    at = next;
  }
  b.to = at;
  return b;
}

function paragraphAt(text, at, most) {
  const from = at;
  while (at < text.length) {
    const [line, next] = lineAt(text, at);
    if (!line.trim() || (at > from && begins(line))) break;
    const [under] = lineAt(text, next);
    if (at > from && line.includes("|") && patterns.divider.test(under) && under.includes("-")) break;
    if (next - from > most) {
      if (at > from) break;
      const cut = from + most - (/[\ud800-\udbff]/.test(text[from + most - 1]) ? 1 : 0);
      return { kind: "paragraph", text: text.slice(from, cut), to: cut };
    }
    at = next;
  }
  return { kind: "paragraph", text: text.slice(from, at).replace(/\n$/, ""), to: at };
}

// render returns the node of a block.
function render(b, depth) {
  switch (b.kind) {
    case "heading": // the page itself uses the higher levels
      return el(`h${Math.min(6, b.level + 2)}`, { class: `level${b.level}` }, inline(b.text));
    case "rule":
      return el("hr");
    case "code": {
      const code = new Code(b.language);
      code.set(b.text);
      return code.node;
    }
    case "formula":
      return el("div", { class: "display", tabIndex: 0 }, formula(b.text, true));
    case "quote":
      return el("blockquote", {}, inner(b.text, depth));
    case "list":
      return el(
        b.ordered ? "ol" : "ul",
        b.ordered && b.start !== 1 ? { start: b.start } : {},
        b.items.map((i) => item(i, depth)),
      );
    case "table":
      return table(b);
  }
  // The browser lays out pieces of a very long line only when they become visible, and estimates their height until
  // then.
  return el("p", { class: b.text.length > longest - 2 ? "paragraph piece" : "paragraph" }, inline(b.text));
}

// inner renders the blocks inside a quote or a list item.
function inner(text, depth) {
  if (depth >= deepest) return [el("p", { class: "paragraph" }, visible(text))];
  return blocks(text, 0, longest).map((b) => render(b, depth + 1));
}

function item(text, depth) {
  const task = /^\[([ xX])\][ \t]+/.exec(text);
  const nodes = inner(task ? text.slice(task[0].length) : text, depth);
  if (nodes[0]?.className === "paragraph") nodes.splice(0, 1, ...nodes[0].childNodes); // no space around a single line
  if (task) nodes.unshift(task[1] === " " ? "\u2610 " : "\u2611 ");
  return el("li", {}, nodes);
}

function table(b) {
  const row = (tag, list) =>
    el(
      "tr",
      {},
      b.head.map((_, i) => el(tag, { class: b.sides[i] }, inline(list[i] ?? ""))),
    );
  return el(
    "div",
    { class: "scrolled", tabIndex: 0, role: "region", "aria-label": "Table" },
    el(
      "table",
      {},
      el("thead", {}, row("th", b.head)),
      el(
        "tbody",
        {},
        b.rows.map((r) => row("td", r)),
      ),
    ),
  );
}

// Characters that may begin inline markup. Emphasis begins before and ends after a character other than a space; inside
// a word, only a star is emphasis.
const special = /[\\`*_~[\]!<$]|https?:\/\//g;
const openers = 64; // maximum number of open marks; older ones become text

// inline parses the inline markup of a line or paragraph and returns nodes.
export function inline(text) {
  const out = []; // nodes and strings; marks are {mark, count, opens, closes, at}
  const waiting = []; // indices in out of marks that may open emphasis or a link
  const ticks = {}; // [length] offset after which there is no run of backticks of this length
  let from = 0;
  const flush = (to) => {
    if (to > from) out.push(visible(text.slice(from, to)));
  };
  special.lastIndex = 0;
  for (let found; (found = special.exec(text));) {
    const at = found.index;
    const step = mark(text, at, found[0], ticks);
    if (!step) continue;
    flush(at);
    from = special.lastIndex = at + step.length;
    if (step.node) out.push(step.node);
    else if (step.bracket) bracket(out, waiting, step, text);
    else run(out, waiting, step);
    if (step.skip) from = special.lastIndex = step.skip;
    if (waiting.length > openers) waiting.shift();
  }
  flush(text.length);
  return settle(out);
}

// mark parses the markup at an offset: it returns a node, a run of marks, or null.
function mark(text, at, c, ticks) {
  switch (c[0]) {
    case "\\": {
      const next = text[at + 1];
      if (next === "(" || next === "[") {
        const close = text.indexOf(next === "(" ? "\\)" : "\\]", at + 2);
        if (close > 0 && close - at < 2000) return { node: formula(text.slice(at + 2, close)), length: close + 2 - at };
      }
      return next && /[!-/:-@[-`{-~]/.test(next) ? { node: document.createTextNode(next), length: 2 } : null;
    }
    case "`": {
      const n = /^`+/.exec(text.slice(at, at + 64))[0].length;
      const close = ticks[n] <= at ? -1 : closing(text, at + n, n);
      if (close < 0) {
        ticks[n] = at;
        return { node: document.createTextNode("`".repeat(n)), length: n };
      }
      const inside = text.slice(at + n, close).replace(/^ (.*\S.*) $/s, "$1");
      return { node: el("code", {}, visible(inside)), length: close + n - at };
    }
    case "$": {
      const close = text.indexOf("$", at + 1);
      const inside = close < 0 || close - at > 400 ? "" : text.slice(at + 1, close);
      if (!/^\S(?:.*\S)?$/s.test(inside) || inside.includes("\n") || /[\d\w]/.test(text[close + 1] ?? "")) return null;
      if (!/[\\^_=+<>{}]|^[A-Za-z]$/.test(inside)) return null; // probably a price or a shell variable
      return { node: formula(inside), length: close + 1 - at };
    }
    case "<": {
      const found = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/.exec(text.slice(at, at + 2010));
      return found ? { node: link(found[1], [visible(found[1])]), length: found[0].length } : null;
    }
    case "h": {
      if (/[\w@]/.test(text[at - 1] ?? "")) return null;
      const found = /^https?:\/\/[^\s<>"'`\])}|*]{2,2000}/.exec(text.slice(at, at + 2010));
      const address = found?.[0].replace(/[.,;:!?]+$/, "");
      return address ? { node: link(address, [visible(address)]), length: address.length } : null;
    }
    case "!":
      return text[at + 1] === "[" ? { bracket: "[", picture: true, length: 2 } : null;
    case "[":
      return { bracket: "[", length: 1 };
    case "]":
      return { bracket: "]", length: 1, at };
  }
  const count = /^(?:\*+|_+|~+)/.exec(text.slice(at, at + 64))[0].length;
  const before = text[at - 1] ?? " ";
  const after = text[at + count] ?? " ";
  const word = (x) => /[\p{L}\p{N}]/u.test(x);
  let opens = !/\s/.test(after);
  let closes = !/\s/.test(before);
  if (c === "_") [opens, closes] = [opens && !word(before), closes && !word(after)];
  if (c === "~" && count !== 2) return null;
  return { mark: c, count, opens, closes, length: count };
}

// closing returns the offset of the next run of exactly n backticks.
function closing(text, at, n) {
  for (const run of text.slice(at).matchAll(/`+/g)) if (run[0].length === n) return at + run.index;
  return -1;
}

const tags = { 1: "em", 2: "strong", "~": "del" };

// run adds a run of marks. If it closes an earlier mark, the text between becomes a node.
function run(out, waiting, step) {
  while (step.closes && step.count > 0) {
    const w = waiting.findLastIndex((i) => out[i].mark === step.mark && out[i].count > 0);
    if (w < 0) break;
    const opener = out[waiting[w]];
    const n = step.mark === "~" ? 2 : Math.min(2, opener.count, step.count);
    const content = settle(out.splice(waiting[w] + 1));
    waiting.length = w + 1;
    opener.count -= n;
    step.count -= n;
    out.push(el(step.mark === "~" ? tags["~"] : tags[n], {}, content));
    if (!opener.count) {
      out.splice(waiting[w], 1);
      waiting.pop();
    }
  }
  if (!step.count) return;
  out.push(step);
  if (step.opens) waiting.push(out.length - 1);
}

// settle converts the remaining marks to text.
function settle(list) {
  return list.map((x) => (x instanceof Node || typeof x === "string" ? x : x.mark.repeat(x.count)));
}

// bracket handles a bracket: it begins the text of a link, or ends the text if an address follows.
function bracket(out, waiting, step, text) {
  if (step.bracket === "[") {
    out.push({ mark: step.picture ? "![" : "[", count: 1, picture: step.picture });
    waiting.push(out.length - 1);
    return;
  }
  const w = waiting.findLastIndex((i) => out[i].mark.endsWith("["));
  const found =
    w < 0
      ? null
      : /^\(\s*<?([^\s<>]{0,2000}?)>?(?:\s+["'][^"']{0,200}["'])?\s*\)/.exec(text.slice(step.at + 1, step.at + 2400));
  if (!found) {
    out.push("]");
    if (w >= 0) waiting.splice(w, 1);
    return;
  }
  const opener = out[waiting[w]];
  const content = settle(out.splice(waiting[w] + 1));
  out.pop();
  waiting.length = w;
  if (opener.picture) content.unshift("\u{1f5bc} ");
  out.push(link(found[1], content));
  step.skip = step.at + 1 + found[0].length;
}

// link returns a link for an http, https or mailto address. For other addresses it returns the text followed by the
// address.
function link(address, content) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // not an absolute URL
  }
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) {
    return el("span", {}, content, ` (${visible(address)})`);
  }
  const nested = (x) => (x instanceof Element && x.tagName === "A" ? [...x.childNodes] : [x]);
  const props = { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer nofollow" };
  return el("a", props, content.flatMap(nested));
}
