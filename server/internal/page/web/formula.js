import { visible } from "./text.js";

// Formulas: a subset of TeX is converted to MathML, which browsers render. Supported are numbers, letters, operators, ^
// and _, groups, \frac, \sqrt, \binom, Greek letters, the symbols below, \left and \right, \text and similar commands,
// accents, sums and integrals with limits, names of functions, and matrix, pmatrix, bmatrix, vmatrix, cases and
// aligned. An unknown command is shown as its name.

const space = "http://www.w3.org/1998/Math/MathML";

function mk(tag, children = [], attributes = {}) {
  const node = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const greek =
  "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι " +
  "kappa κ lambda λ " +
  "mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ " +
  "Lambda Λ Xi Ξ " +
  "Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ hbar ℏ ell ℓ emptyset ∅ varnothing ∅ Re ℜ Im ℑ";
const operators =
  "cdot ⋅ times × div ÷ pm ± mp ∓ leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ simeq " +
  "≃ cong ≅ propto ∝ " +
  "ll ≪ gg ≫ to → rightarrow → Rightarrow ⇒ implies ⇒ leftarrow ← Leftarrow ⇐ leftrightarrow ↔ Leftrightarrow ⇔ " +
  "iff ⇔ mapsto ↦ " +
  "in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ cup ∪ cap ∩ setminus ∖ forall ∀ exists ∃ neg ¬ land " +
  "∧ wedge ∧ lor ∨ " +
  "vee ∨ oplus ⊕ otimes ⊗ circ ∘ bullet ∙ star ⋆ ast ∗ dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ mid ∣ parallel ∥ " +
  "perp ⊥ angle ∠ " +
  "langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ prime ′ degree ° uparrow ↑ downarrow ↓ top ⊤ vdash ⊢ " +
  "models ⊨ therefore ∴ " +
  "lbrace { rbrace } lbrack [ rbrack ] vert | Vert ‖ backslash \\";
const large = "sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ bigoplus ⨁";
const functions =
  "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim max min sup inf " +
  "det dim ker deg " +
  "gcd arg argmax argmin Pr softmax";
const accents = {
  hat: "^",
  widehat: "^",
  bar: "‾",
  overline: "‾",
  vec: "→",
  tilde: "~",
  widetilde: "~",
  dot: "˙",
  ddot: "¨",
};
const styles = { mathbb: "double-struck", mathcal: "script", mathfrak: "fraktur", mathbf: "bold", boldsymbol: "bold" };
const spaces = { ",": "0.17em", ":": "0.22em", ";": "0.28em", "!": "0em", " ": "0.25em", quad: "1em", qquad: "2em" };
const environments = {
  matrix: ["", ""],
  pmatrix: ["(", ")"],
  bmatrix: ["[", "]"],
  vmatrix: ["|", "|"],
  cases: ["{", ""],
  aligned: ["", ""],
  align: ["", ""],
  "align*": ["", ""],
  array: ["", ""],
  gathered: ["", ""],
};

function pairs(text) {
  const list = text.split(" ");
  return new Map(list.flatMap((name, i) => (i % 2 ? [] : [[name, list[i + 1]]])));
}
const letters = pairs(greek);
const symbols = pairs(operators);
const bigs = pairs(large);
const names = new Set(functions.split(" "));
const deepest = 40;
// Texts are single tokens, so that their spaces are kept.
const pieces =
  /\\(?:text|textbf|textit|mathrm|operatorname\*?)\s*\{[^{}]*\}|\\(?:[A-Za-z]+\*?|[^])|\d+(?:[.,]\d+)*|\S/gu;

// formula returns a TeX formula as MathML. The TeX source is included as text, for screen readers.
export function formula(tex, block = false) {
  const math = mk("math", [new Parser(tex).all()], block ? { display: "block" } : {});
  math.setAttribute("aria-label", visible(tex.trim()).slice(0, 400));
  return math;
}

class Parser {
  constructor(tex) {
    this.tokens = visible(tex).match(pieces) ?? [];
    this.at = 0;
    this.depth = 0;
  }

  all() {
    const row = mk("mrow");
    while (this.at < this.tokens.length) {
      row.append(this.row(() => false));
      if (this.at < this.tokens.length) row.append(this.operator(this.tokens[this.at++])); // an extra closing brace
    }
    return row;
  }

  // row parses atoms up to one of the tokens ends.
  row(ends) {
    const out = mk("mrow");
    while (this.at < this.tokens.length) {
      const t = this.tokens[this.at];
      if (ends(t) || t === "}" || t === "&" || t === "\\\\" || t === "\\end" || t === "\\right") break;
      out.append(this.scripted());
    }
    return out;
  }

  // scripted parses an atom with its superscript and subscript.
  scripted() {
    const limits =
      bigs.has(this.tokens[this.at]?.slice(1)) || /^\\(lim|max|min|sup|inf|argmax|argmin)$/.test(this.tokens[this.at]);
    const base = this.atom();
    let under = null;
    let over = null;
    for (;;) {
      const t = this.tokens[this.at];
      if (t === "_" && !under) under = this.argument(1);
      else if (t === "^" && !over) over = this.argument(1);
      else if (t === "'" && !over) over = this.primes();
      else break;
    }
    const [u, o, both] = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (under && over) return mk(both, [base, under, over]);
    if (under) return mk(u, [base, under]);
    return over ? mk(o, [base, over]) : base;
  }

  primes() {
    let n = 0;
    for (; this.tokens[this.at] === "'"; this.at++) n++;
    return mk("mo", ["′".repeat(n)]);
  }

  // argument parses one argument, after skipping the given number of tokens.
  argument(skip = 0) {
    this.at += skip;
    if (this.at >= this.tokens.length) return mk("mrow");
    return this.atom();
  }

  operator(text) {
    return mk("mo", [text]);
  }

  atom() {
    if (this.depth >= deepest) return mk("mtext", [this.tokens[this.at++]]);
    this.depth++;
    const node = this.read();
    this.depth--;
    return node;
  }

  read() {
    const t = this.tokens[this.at++];
    if (t === "{") {
      const out = this.row(() => false);
      if (this.tokens[this.at] === "}") this.at++;
      return out;
    }
    if (/^\d/.test(t)) return mk("mn", [t]);
    if (/^\p{L}$/u.test(t)) return mk("mi", [t]);
    if (t.length > 2 && t.endsWith("}"))
      return mk("mtext", [t.slice(t.indexOf("{") + 1, -1).replaceAll(" ", "\u00a0")]);
    if (!t.startsWith("\\") || t.length < 2) return this.operator(t === "-" ? "−" : t);
    return this.command(t.slice(1));
  }

  command(name) {
    if (letters.has(name)) return mk("mi", [letters.get(name)]);
    if (bigs.has(name)) return mk("mo", [bigs.get(name)], { largeop: "true" });
    if (symbols.has(name)) return this.operator(symbols.get(name));
    if (names.has(name)) return mk("mi", [name.replace(/^arg(m..)$/, "arg\u2009$1")]);
    if (spaces[name]) return mk("mspace", [], { width: spaces[name] });
    if (accents[name]) return mk("mover", [this.argument(), this.operator(accents[name])], { accent: "true" });
    if (styles[name]) return mk("mstyle", [this.argument()], { class: styles[name] });
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
        return mk("mfrac", [this.argument(), this.argument()]);
      case "binom":
        return mk("mrow", [
          this.operator("("),
          mk("mfrac", [this.argument(), this.argument()], { linethickness: "0" }),
          this.operator(")"),
        ]);
      case "sqrt":
        return this.root();
      case "underline":
        return mk("munder", [this.argument(), this.operator("_")]);
      case "left":
        return this.fenced();
      case "begin":
        return this.environment();
      case "displaystyle":
      case "limits":
      case "nolimits":
      case "boxed":
      case "big":
      case "Big":
      case "bigl":
      case "bigr":
        return mk("mrow");
    }
    return name.length === 1 ? this.operator(name) : mk("mtext", ["\\" + name]);
  }

  root() {
    if (this.tokens[this.at] !== "[") return mk("msqrt", [this.argument()]);
    this.at++;
    const index = this.row((t) => t === "]");
    return mk("mroot", [this.argument(1), index]);
  }

  // plain returns the text of a group, without its spaces.
  plain() {
    if (this.tokens[this.at] !== "{") return this.tokens[this.at++] ?? "";
    let out = "";
    for (this.at++; this.at < this.tokens.length && this.tokens[this.at] !== "}"; this.at++) {
      out += this.tokens[this.at];
    }
    this.at++;
    return out;
  }

  fenced() {
    const side = () => {
      const t = this.tokens[this.at++] ?? ".";
      return t === "." ? "" : t.startsWith("\\") ? (symbols.get(t.slice(1)) ?? t.slice(1)) : t;
    };
    const open = side();
    const inside = this.row(() => false);
    let close = "";
    if (this.tokens[this.at] === "\\right") {
      this.at++;
      close = side();
    }
    return mk("mrow", [this.operator(open), inside, this.operator(close)]);
  }

  environment() {
    const name = this.plain();
    const [open, close] = environments[name] ?? ["", ""];
    if (name === "array" && this.tokens[this.at] === "{") this.plain();
    const rows = [[]];
    while (this.at < this.tokens.length && this.tokens[this.at] !== "\\end") {
      rows.at(-1).push(mk("mtd", [this.row(() => false)]));
      const t = this.tokens[this.at];
      if (t === "\\\\") rows.push([]);
      else if (t !== "&") break;
      this.at++;
    }
    if (this.tokens[this.at] === "\\end") {
      this.at++;
      this.plain();
    }
    const table = mk(
      "mtable",
      rows.filter((r) => r.length).map((r) => mk("mtr", r)),
    );
    return mk("mrow", [this.operator(open), table, this.operator(close)]);
  }
}
