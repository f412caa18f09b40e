import { el } from "./dom.js";
import { visible } from "./text.js";

// Syntax highlighting of comments, strings, numbers and keywords, by a regular expression per line, without parsing.
// For unknown languages, keywords are not highlighted.

const words = (text) => new Set(text.split(" "));
const cLike =
  "break case catch class const continue default do else enum extends false final finally for if " +
  "import in " +
  "instanceof interface new null private protected public return static super switch this throw throws true try " +
  "void while";
const keywords = {
  c: words(
    cLike +
      " auto bool char double extern float int long short signed sizeof struct typedef union " +
      "unsigned inline " +
      "namespace template typename using virtual override nullptr constexpr delete operator include define ifdef endif",
  ),
  js: words(
    cLike +
      " async await delete export from function let of typeof undefined var yield type implements " +
      "readonly as",
  ),
  java: words(
    cLike +
      " abstract boolean byte char double float int long package short implements record var string " +
      "namespace using override fun val when object",
  ),
  go: words(
    "break case chan const continue default defer else fallthrough false for func go goto if import " +
      "interface map " +
      "nil package range return select struct switch true type var any bool byte error float64 int int64 string",
  ),
  rust: words(
    "as async await break const continue crate else enum extern false fn for if impl in let loop match " +
      "mod move " +
      "mut pub ref return self Self static struct super trait true type unsafe use where while bool i32 i64 u8 " +
      "usize str String",
  ),
  python: words(
    "and as assert async await break class continue def del elif else except False finally for from " +
      "global if " +
      "import in is lambda None nonlocal not or pass raise return True try while with yield match case self",
  ),
  shell: words(
    "if then else elif fi for in do done while until case esac function return exit export local set " +
      "unset cd echo " +
      "sudo source",
  ),
  sql: words(
    "select from where and or not insert into values update set delete create table drop alter join " +
      "left right inner " +
      "outer on group by order having limit as distinct union all null is in like between case when then else end " +
      "primary key",
  ),
  json: words("true false null"),
};
const families = {
  c: "c h cpp cc cxx hpp cuda cu csharp " + "cs",
  js: "js javascript ts typescript jsx tsx mjs",
  go: "go golang",
  java: "java kotlin kt scala swift dart " + "php",
  rust: "rust rs",
  python: "python py ruby rb julia",
  shell: "sh bash shell zsh console",
  sql: "sql",
  json: "json yaml yml toml",
};
const byName = new Map(Object.entries(families).flatMap(([f, all]) => all.split(" ").map((n) => [n, f])));

// Beginning of comments up to the end of a line, by family of languages.
const lineComment = { python: "#", shell: "#", json: "#", sql: "--" };

export class Highlighter {
  constructor(language) {
    const name = language.trim().toLowerCase().split(/[\s{]/)[0];
    this.family = byName.get(name) ?? "";
    this.plain = ["text", "txt", "plain", "plaintext", "output", "log", "diff", "markdown", "md"].includes(name);
    this.until = ""; // end of the current comment or string of several lines
    const comment = lineComment[this.family] ?? (this.family ? "//" : "//|#");
    const block = this.family === "python" ? "\"\"\"|'''" : "/\\*|<!--";
    this.pattern = new RegExp(
      `(?<comment>(?:^|(?<=\\s))(?:${comment}).*)|(?<block>${block})|` +
        `(?<string>"(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*'|\`[^\`\\n]*\`)|` +
        `(?<number>\\b(?:0x[\\da-f]+|\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\b)|(?<word>[A-Za-z_]\\w*)`,
      "gi",
    );
  }

  // line returns the node of a complete line.
  line(text) {
    const node = el("span");
    this.until = this.fill(node, text, this.until);
    return node;
  }

  // guess returns the node of an incomplete line.
  guess(text) {
    const node = el("span");
    this.fill(node, text, this.until);
    return node;
  }

  fill(node, text, until) {
    if (this.plain || text.length > 2000) {
      node.append(visible(text));
      return "";
    }
    const add = (kind, piece) => node.append(kind ? el("span", { class: kind }, visible(piece)) : visible(piece));
    let from = 0;
    if (until) {
      const end = text.indexOf(until);
      if (end < 0) {
        add("comment", text);
        return until;
      }
      from = end + until.length;
      add("comment", text.slice(0, from));
    }
    this.pattern.lastIndex = from;
    for (let found; (found = this.pattern.exec(text));) {
      const g = found.groups;
      let kind =
        g.comment !== undefined
          ? "comment"
          : g.string !== undefined
            ? "string"
            : g.number !== undefined
              ? "number"
              : "";
      let to = this.pattern.lastIndex;
      let open = "";
      if (g.block !== undefined) {
        kind = "comment";
        const close = { "/*": "*/", "<!--": "-->" }[g.block] ?? g.block;
        const end = text.indexOf(close, to);
        if (end < 0) [open, to] = [close, text.length];
        else to = end + close.length;
      }
      if (g.word !== undefined) {
        const word = this.family === "sql" ? g.word.toLowerCase() : g.word;
        if (!keywords[this.family]?.has(word)) continue;
        kind = "keyword";
      }
      if (found.index > from) add("", text.slice(from, found.index));
      add(kind, text.slice(found.index, to));
      from = this.pattern.lastIndex = to;
      if (open) return open;
    }
    if (from < text.length) add("", text.slice(from));
    return "";
  }
}
