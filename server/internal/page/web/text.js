import { el } from "./dom.js";

// Invisible characters and those that affect other text: control characters except tab and line feed, direction marks,
// and line separators.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

function picture(c) {
  const code = c.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// visible replaces these characters by visible symbols.
export function visible(text) {
  return text.replace(/\r\n/g, "\n").replace(hidden, picture);
}

// quoted returns a token for use in a sentence: without a leading space, and with other spaces as symbols.
export function quoted(token) {
  const text = visible(token);
  return `\u201c${text.trim() || text.replaceAll(" ", "\u2423").replaceAll("\n", "\u23ce")}\u201d`;
}

// Maximum length of a paragraph. Longer texts are divided, because the layout of a very long line for every new token
// would block the page.
const paragraph = 4096;

// Prose shows growing text without formatting, except that fenced code is shown in a box.
export class Prose {
  constructor(node) {
    this.node = node;
    this.text = "";
    this.done = 0; // length of the text in completed paragraphs
    this.code = false;
    this.box = node;
    this.tail = null;
  }

  // set shows a text, which usually begins with the previous text.
  set(text) {
    if (!text.startsWith(this.text)) {
      this.node.replaceChildren();
      Object.assign(this, { done: 0, code: false, box: this.node, tail: null });
    }
    this.text = text;
    for (;;) {
      const end = this.lineEnd();
      if (end < 0) break;
      this.close(end);
    }
    this.show(text.slice(this.done));
  }

  // lineEnd returns the end of the next complete paragraph: a fence, or the maximum length.
  lineEnd() {
    if (this.text.startsWith("```", this.done)) return this.text.indexOf("\n", this.done) + 1 || -1;
    const near = this.text.slice(this.done, this.done + paragraph);
    const fence = near.indexOf("\n```");
    if (fence >= 0) return this.done + fence + 1;
    if (this.text.length - this.done <= paragraph) return -1;
    const line = near.lastIndexOf("\n");
    if (line >= 0) return this.done + line + 1;
    return this.done + paragraph - (/[\ud800-\udbff]$/.test(near) ? 1 : 0);
  }

  close(end) {
    const piece = this.text.slice(this.done, end);
    if (piece.startsWith("```")) {
      this.tail?.remove();
      this.code = !this.code;
      this.box = this.node;
      if (this.code) {
        this.box = el("code");
        const name = piece.slice(3).trim();
        this.node.append(
          el("pre", { class: "code", tabIndex: 0, "aria-label": name ? `Code: ${name}` : "Code" }, this.box),
        );
      }
    } else {
      this.show(piece.endsWith("\n") && piece.length > 1 ? piece.slice(0, -1) : piece);
    }
    this.tail = null;
    this.done = end;
  }

  show(piece) {
    if (/^```\w*$/.test(piece)) piece = ""; // a fence whose line is not complete
    if (piece === "" && !this.tail) return;
    if (!this.tail) {
      this.tail = el("span", { class: "paragraph" });
      this.box.append(this.tail);
    }
    this.tail.textContent = visible(piece);
  }
}

// whole joins tokens with parts of a character, which the server writes as \xe2\x80. The first of them gets the
// character, the others get empty texts.
export function whole(tokens) {
  const out = tokens.slice();
  for (let i = 0; i < out.length; i++) {
    let end = i + 1;
    for (let bytes = bytesOf(out[i]); bytes && end <= i + 8; bytes.push(...(bytesOf(out[end++]) ?? [256]))) {
      const text = decoded(bytes);
      if (text === null) continue;
      out[i] = text;
      out.fill("", i + 1, end);
      break;
    }
  }
  return out;
}

// bytesOf decodes the \x spelling of a token with parts of characters; it returns null for other tokens.
function bytesOf(token) {
  if (!/^(?:\\x[0-9a-f]{2})+$/.test(token ?? "")) return null;
  const bytes = token
    .slice(2)
    .split("\\x")
    .map((hex) => parseInt(hex, 16));
  return bytes.some((b) => b >= 128) ? bytes : null;
}

// decoded returns the text of bytes, or null if they are not whole characters.
function decoded(bytes) {
  try {
    return bytes.includes(256) ? null : new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return null;
  }
}
