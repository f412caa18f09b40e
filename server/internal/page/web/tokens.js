import { el } from "./dom.js";
import { visible } from "./text.js";

// The minimum number of tokens of a block. A block is plain text; its tokens become elements only while the block is
// visible, so that the cost of a prompt of 100,000 tokens depends only on the visible part.
const blockTokens = 160;

// TokenText shows the tokens of a recording and colours them.
export class TokenText {
  // pick is called with the position of the token that was clicked, select with the range of a selection.
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
    this.revealed = null; // block to which the text was scrolled; it keeps its elements until it is visible
    this.marks = () => "";
  }

  // show replaces the text by the tokens [first, end) of a recording, or of any object with tokens, passages and text.
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

  // mark sets the class of every token; f returns it for a position.
  mark(f) {
    this.marks = f;
    for (const b of this.blocks) if (b.spans) this.paint(b);
  }

  // reveal scrolls only this text, until a token is visible.
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
    // The heights of the blocks around it were only estimated until now.
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

// shown returns the text of tokens without the line end at the end of a block, which the block itself represents.
function shown(text, ends) {
  const out = visible(text);
  return ends && out.endsWith("\n") ? out.slice(0, -1) + (out.length === 1 ? "\u200b" : "") : out;
}
