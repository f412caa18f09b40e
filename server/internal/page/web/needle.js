import { el, field } from "./dom.js";
import { Grid, cell, shade } from "./picture.js";
import { quoted, visible } from "./text.js";

const hint =
  "Select a part of the text, or search for it: this shows which layers looked at it for which token of the answer.";

// NeedlePath draws which tokens of the answer attended to a range of the prompt, as tokens by layers.
export class NeedlePath {
  // find is called with the range of a text that was searched for, go with the index of a clicked token of the answer.
  constructor(find, go) {
    this.find = find;
    this.input = el("input", { type: "search", placeholder: "part of the text", onchange: () => this.search() });
    this.grid = new Grid("Selections of the chosen text", 60);
    this.told = el("p", { class: "muted" }, hint);
    this.box = el(
      "div",
      { class: "path", hidden: true },
      this.grid.canvas,
      el("div", { class: "axis muted small" }, el("span", {}, "first token of the answer"), el("span", {}, "last")),
      (this.legend = el("p", { class: "muted small" })),
    );
    this.node = el(
      "section",
      { class: "card" },
      el("h2", {}, "When did it look at this?"),
      field("Find a sentence", this.input),
      this.box,
      this.told,
    );
    this.grid.canvas.addEventListener("click", (e) =>
      go(Math.floor((e.offsetX / this.grid.canvas.clientWidth) * this.outputs.length)),
    );
  }

  open(recording) {
    this.recording = recording;
    this.outputs = recording.outputs;
    this.grid.setHeight(Math.max(40, Math.min(240, recording.layers.length * 12)));
    this.box.hidden = true;
    this.told.textContent = hint;
    const { layers } = recording;
    this.legend.textContent =
      `Rows are layers, ${layers[0]} at the top to ${layers.at(-1)}; columns are tokens of the answer. ` +
      "The stronger the colour, the larger the share of its tokens that was chosen.";
  }

  search() {
    const wanted = this.input.value;
    if (!wanted) return;
    const r = this.recording;
    const text = r.text(0, r.prompt);
    let at = text.indexOf(wanted);
    if (at < 0) at = text.toLowerCase().indexOf(wanted.toLowerCase());
    if (at < 0) {
      this.told.textContent = "The prompt does not contain this text.";
      return;
    }
    let from = -1,
      length = 0;
    for (let p = 0; p < r.prompt; p++) {
      length += r.tokens[p].length;
      if (from < 0 && length > at) from = p;
      if (length >= at + wanted.length) {
        this.find(from, p + 1);
        return;
      }
    }
  }

  // show draws which tokens attended to [from, to); index is the selected token of the answer.
  show([from, to], index) {
    const r = this.recording;
    const share = (p, layer) => (r.rowOf(p).looks.get(layer)?.within(from, to) ?? 0) / (to - from);
    const cells = this.outputs.map((p) => r.layers.map((l) => share(p, l)));
    this.box.hidden = false;
    this.grid.show((pixels) => {
      const ramp = pixels.ramp("warm");
      cells.forEach((column, i) => {
        const [x0, x1] = cell(i, cells.length, pixels.width, 1);
        column.forEach((v, j) => pixels.bar(x0, x1, ...cell(j, column.length, pixels.height, 1), ramp[shade(v)]));
        if (i === index) pixels.bar(x0, x1, pixels.height - 3, pixels.height, pixels.pack(pixels.palette.line));
      });
    });
    this.told.textContent = this.describe(cells, visible(r.text(from, to)).trim());
    this.grid.describe(this.told.textContent);
  }

  describe(cells, text) {
    const r = this.recording;
    const part = `\u201c${text.length > 80 ? text.slice(0, 80) + "\u2026" : text}\u201d`;
    const totals = cells.map((c) => c.reduce((a, b) => a + b, 0));
    const first = totals.findIndex((t) => t > 0);
    if (first < 0) return `${part} was never looked at.`;
    const best = totals.indexOf(Math.max(...totals));
    const token = (i) => `${quoted(r.tokens[this.outputs[i]])} (token ${i + 1})`;
    const layer = cells[best].indexOf(Math.max(...cells[best]));
    const share = Math.round(100 * cells[best][layer]);
    return (
      `${part} was first looked at for ${token(first)} and most for ${token(best)}, ` +
      `when layer ${r.layers[layer]} chose ${share} % of its tokens.`
    );
  }
}
