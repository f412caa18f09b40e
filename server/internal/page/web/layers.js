import { button, count, el } from "./dom.js";
import { Grid, band, cell, flag } from "./picture.js";
import { visible } from "./text.js";

// LayerPicture draws the positions that a row attended to, with one line per layer and positions from left to right.
export class LayerPicture {
  // go is called with a position when it is clicked.
  constructor(go) {
    this.go = go;
    this.grid = new Grid("Layers by positions", 120);
    this.names = el("div", { class: "layer-names muted small", "aria-hidden": "true" });
    this.legend = el("p", { class: "legend muted small" });
    this.axis = el("div", { class: "axis muted small" });
    this.told = el("p", { class: "muted small pointed" }, "Point at the chart, or drag over a part to enlarge it.");
    this.node = el(
      "section",
      { class: "card" },
      el("div", { class: "row between" }, el("h2", {}, "Layers by positions"), this.legend),
      el("div", { class: "layered" }, this.names, this.grid.canvas),
      this.axis,
      el(
        "div",
        { class: "row" },
        this.told,
        button("Zoom in", () => this.zoom(0.5), { class: "plain" }),
        button("Zoom out", () => this.zoom(2), { class: "plain" }),
        button("Left", () => this.pan(-0.5), { class: "plain" }),
        button("Right", () => this.pan(0.5), { class: "plain" }),
        button("Whole", () => this.range(0, this.recording.tokens.length), { class: "plain" }),
      ),
    );
    const c = this.grid.canvas;
    c.addEventListener("pointermove", (e) => this.point(e));
    c.addEventListener("pointerdown", (e) => {
      this.drag = this.positionAt(e);
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointerup", (e) => this.drop(e));
  }

  open(recording) {
    this.recording = recording;
    this.view = [0, recording.tokens.length];
    this.grid.setHeight(Math.max(48, Math.min(360, recording.layers.length * 18)));
    const { layers } = recording;
    this.names.replaceChildren(
      el("span", {}, `layer ${layers[0]} (top)`),
      el("span", {}, `layer ${layers.at(-1)} (bottom)`),
    );
  }

  // show draws a row. pair holds two layers to compare, needle a range to highlight; both may be null.
  show(row, position, pair, needle, described) {
    Object.assign(this, { row, position, pair, needle });
    this.grid.show((pixels) => this.draw(pixels));
    this.grid.describe(described);
    const key = (name, text) => el("span", { class: "key " + name }, text);
    this.legend.replaceChildren(
      ...(pair
        ? [key("first", `layer ${pair[0]}`), key("second", `layer ${pair[1]}`), key("rest", "other layers")]
        : [key("warm", "looked at; stronger colours have higher scores")]),
      ...(row.blocks ? [key("rest", `blocks that layer ${row.blocks.layer} kept`)] : []),
      ...(needle ? [key("both", "ends of what you follow")] : []),
    );
  }

  draw(pixels) {
    const [from, to] = this.view;
    const { layers } = this.recording;
    const { blocks } = this.row;
    const x = (p) => Math.round(((p - from) / (to - from)) * pixels.width);
    const names = this.pair ? ["first", "second", "rest"] : ["warm", "rest"];
    const ramps = Object.fromEntries(names.map((name) => [name, pixels.ramp(name)]));
    layers.forEach((layer, i) => {
      const look = this.row.looks.get(layer);
      const name = this.pair ? (["first", "second"][this.pair.indexOf(layer)] ?? "rest") : "warm";
      const rows = cell(i, layers.length, pixels.height, Math.round(pixels.scale));
      if (blocks && (layer === blocks.layer || blocks.within.includes(layer))) {
        blocks.first.forEach((p) => {
          pixels.bar(x(p), Math.max(x(p) + 1, x(Math.min(blocks.end, p + blocks.tokens))), ...rows, ramps.rest[60]);
        });
      }
      if (look) band(pixels, look, this.view, rows, ramps[name]);
    });
    if (this.position >= from && this.position <= to) flag(pixels, x(this.position), pixels.pack(pixels.palette.line));
    for (const p of this.needle ?? []) {
      if (p >= from && p <= to) flag(pixels, x(p), pixels.pack(pixels.palette.both));
    }
    this.axis.replaceChildren(
      ...[0, 0.25, 0.5, 0.75, 1].map((f) => el("span", {}, count(Math.round(from + f * (to - from))))),
    );
  }

  positionAt(e) {
    const [from, to] = this.view;
    const share = Math.max(0, Math.min(1, e.offsetX / this.grid.canvas.clientWidth));
    return Math.min(to - 1, Math.floor(from + share * (to - from)));
  }

  point(e) {
    const p = this.positionAt(e);
    const chosen = this.recording.layers.filter((l) => this.row.looks.get(l)?.within(p, p + 1));
    const near = visible(this.recording.text(Math.max(0, p - 6), p + 7)).replaceAll("\n", " ");
    const by = chosen.length ? `layer${chosen.length > 1 ? "s" : ""} ${chosen.join(", ")}` : "no layer";
    this.told.textContent = `Position ${count(p)}, \u201c${near}\u201d: chosen by ${by}`;
  }

  drop(e) {
    const end = this.positionAt(e);
    const from = Math.min(this.drag ?? end, end);
    const to = Math.max(this.drag ?? end, end);
    this.drag = null;
    if ((to - from) / (this.view[1] - this.view[0]) > 0.02) this.range(from, to + 1);
    else this.go(end);
  }

  range(from, to) {
    const n = this.recording.tokens.length;
    const size = Math.max(16, Math.min(n, Math.round(to - from)));
    from = Math.max(0, Math.min(n - size, Math.round(from)));
    this.view = [from, from + size];
    this.grid.draw();
  }

  zoom(by) {
    const [from, to] = this.view;
    const middle = this.needle ? (this.needle[0] + this.needle[1]) / 2 : (from + to) / 2;
    this.range(middle - ((to - from) * by) / 2, middle + ((to - from) * by) / 2);
  }

  pan(by) {
    const [from, to] = this.view;
    this.range(from + (to - from) * by, to + (to - from) * by);
  }
}
