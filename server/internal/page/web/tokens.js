import { el } from "./dom.js";
import { visible } from "./text.js";

// Minimum number of tokens of a block. Blocks are plain text; only tokens of visible blocks are elements, so that a
// prompt of 100,000 tokens is not slow.
const blockTokens = 160;

// TokenText shows the tokens of a recording with colours.
export class TokenText {
  // pick is called with the position of a clicked token, select with the range of a selection.
  constructor({ label, pick, select }) {
    this.node = el("div", {
      class: "tokens",
      tabIndex: 0,
      role: "group",
      "aria-label": label,
      onclick: (e) => {
        const at = place(e.target);
        if (at !== null && getSelection().isCollapsed) pick?.(at);
      },
      onmouseup: () => this.selected(select),
      onkeyup: (e) => {
        if (e.shiftKey) this.selected(select);
      },
    });
    this.watch = new IntersectionObserver(
      (list) => {
        for (const e of list)
          if (e.isIntersecting) this.mount(e.target.block);
          else if (e.target.block !== this.revealed) this.unmount(e.target.block);
      },
      { root: this.node, rootMargin: "400px 0px" },
    );
    this.blocks = [];
    this.revealed = null; // block that reveal has scrolled to; it keeps its elements until it is visible
    this.marks = () => "";
  }

  // show shows the tokens [first, end) of a recording, or of another object with tokens, passages and text.
  show(recording, first = 0, end = recording.tokens.length) {
    this.watch.disconnect();
    this.recording = recording;
    this.blocks = [];
    this.revealed = null;
    let from = first;
    for (const [, to] of recording.passages) {
      if (to <= first || to > end) continue;
      const ends = recording.tokens[to - 1].includes("\n");
      if (to !== end && to !== recording.prompt && (to - from < blockTokens || (!ends && to - from < 8 * blockTokens)))
        continue;
      const node = el(
        "div",
        { class: "block" + (from >= recording.prompt ? " answer" : "") },
        shown(recording.text(from, to), ends),
      );
      this.blocks.push((node.block = { node, from, to, ends, spans: null }));
      from = to;
    }
    this.node.replaceChildren(...this.blocks.map((b) => b.node));
    for (const b of this.blocks) this.watch.observe(b.node);
  }

  mount(b) {
    if (b.spans) return;
    b.spans = [];
    for (let p = b.from; p < b.to; p++) {
      const span = document.createElement("span");
      span.dataset.p = p;
      span.textContent = shown(this.recording.tokens[p], b.ends && p === b.to - 1);
      b.spans.push(span);
    }
    b.node.classList.add("mounted");
    b.node.replaceChildren(...b.spans);
    this.paint(b);
  }

  unmount(b) {
    if (!b.spans) return;
    b.spans = null;
    b.node.classList.remove("mounted");
    b.node.textContent = shown(this.recording.text(b.from, b.to), b.ends);
  }

  paint(b) {
    for (let i = 0; i < b.spans.length; i++) {
      const mark = this.marks(b.from + i);
      if (b.spans[i].className !== mark) b.spans[i].className = mark;
    }
  }

  // mark sets the class of every token; f returns the class for a position.
  mark(f) {
    this.marks = f;
    for (const b of this.blocks) if (b.spans) this.paint(b);
  }

  // reveal scrolls this text, but not the page, until a token is visible.
  reveal(position) {
    const b = this.blocks.find((x) => position < x.to);
    if (!b) return;
    this.mount(b);
    this.revealed = b;
    const at = b.spans[position - b.from];
    const scroll = () => {
      const box = this.node.getBoundingClientRect();
      this.node.scrollTop += at.getBoundingClientRect().top - box.top - box.height / 3;
    };
    scroll();
    // Scroll again, because the heights of other blocks were only estimated.
    requestAnimationFrame(() => requestAnimationFrame(() => at.isConnected && scroll()));
  }

  // shows returns whether a token is visible.
  shows(position) {
    const b = this.blocks.find((x) => position < x.to);
    if (!b?.spans) return false;
    const box = this.node.getBoundingClientRect();
    const at = b.spans[position - b.from].getBoundingClientRect();
    return at.top >= box.top && at.bottom <= box.bottom;
  }

  selected(select) {
    const s = getSelection();
    if (!select || s.isCollapsed || !this.node.contains(s.anchorNode) || !this.node.contains(s.focusNode)) return;
    const ends = [place(s.anchorNode), place(s.focusNode)];
    if (ends[0] === null || ends[1] === null) return;
    select(Math.min(...ends), Math.max(...ends) + 1);
  }
}

function place(node) {
  const span = (node instanceof Element ? node : node.parentElement)?.closest("[data-p]");
  return span ? Number(span.dataset.p) : null;
}

// shown returns the text of tokens. With ends, the line end at the end of a block is omitted, because blocks begin on a
// new line.
function shown(text, ends) {
  const out = visible(text);
  return ends && out.endsWith("\n") ? out.slice(0, -1) + (out.length === 1 ? "\u200b" : "") : out;
}
