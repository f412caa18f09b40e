import { el } from "./dom.js";

// colour returns a colour of the page's style sheet as [r, g, b], for drawing pixels.
function colour(name) {
  const probe = el("span", { class: "probe " + name });
  document.body.append(probe);
  const parts = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .map(Number);
  probe.remove();
  return parts;
}

// Grid draws rows of cells with values in [0, 1] on a canvas. A cell covers several pixels, or several cells share a
// pixel, which then shows the share of them that is set.
export class Grid {
  constructor(label, height) {
    this.canvas = el("canvas", { class: "grid-canvas", role: "img", "aria-label": label });
    this.canvas.style.height = `${height}px`;
    this.height = height;
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.canvas);
    addEventListener("themechange", () => {
      this.palette = null;
      this.draw();
    });
    this.paint = null;
  }

  describe(text) {
    this.canvas.setAttribute("aria-label", text);
  }

  setHeight(height) {
    if (height === this.height) return;
    this.height = height;
    this.canvas.style.height = `${height}px`;
  }

  // show draws the content: it calls paint with a Pixels of the canvas' size.
  show(paint) {
    this.paint = paint;
    this.draw();
  }

  draw() {
    const scale = devicePixelRatio || 1;
    const w = Math.round(this.canvas.clientWidth * scale),
      h = Math.round(this.height * scale);
    if (!w || !h || !this.paint) return;
    if (this.canvas.width !== w || this.canvas.height !== h) Object.assign(this.canvas, { width: w, height: h });
    this.palette ??= {
      ground: colour("ground"),
      warm: colour("warm"),
      first: colour("first"),
      second: colour("second"),
      both: colour("both"),
      line: colour("line-colour"),
      rest: colour("rest"),
    };
    const context = this.canvas.getContext("2d");
    if (this.image?.width !== w || this.image?.height !== h) this.image = context.createImageData(w, h);
    const pixels = new Pixels(this.image, this.palette, scale);
    pixels.clear();
    this.paint(pixels);
    context.putImageData(this.image, 0, 0);
  }
}

// Pixels is an image as an array of bytes, which is fast: 61 layers and 100,000 positions take a few milliseconds.
export class Pixels {
  constructor(image, palette, scale) {
    Object.assign(this, { image, palette, scale, width: image.width, height: image.height });
    this.words = new Uint32Array(image.data.buffer);
  }

  pack([r, g, b]) {
    return (255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r);
  }

  clear() {
    this.words.fill(this.pack(this.palette.ground));
  }

  mix(name, share) {
    const from = this.palette.ground,
      to = this.palette[name];
    return this.pack(from.map((v, i) => v + (to[i] - v) * share));
  }

  // ramp returns 256 colours from the background to a colour.
  ramp(name) {
    return Uint32Array.from({ length: 256 }, (_, i) => this.mix(name, i / 255));
  }

  // bar fills the rectangle [x0, x1) x [y0, y1) with a colour.
  bar(x0, x1, y0, y1, word) {
    x0 = Math.max(0, x0);
    x1 = Math.min(this.width, x1);
    if (x1 <= x0) return;
    for (let y = Math.max(0, y0); y < Math.min(this.height, y1); y++) {
      this.words.fill(word, y * this.width + x0, y * this.width + x1);
    }
  }
}

// shade returns the index in a ramp for a share. Small shares remain visible, such as one token of a hundred in a
// pixel.
export function shade(share) {
  return share <= 0 ? 0 : Math.min(255, Math.round(255 * (0.3 + 0.7 * Math.sqrt(share))));
}

// Brightness of a selected position by its strength: from faint to the maximum at full standard deviations.
const faint = 70;
const full = 6;

// cell returns the range of pixels of cell i when size pixels are divided among n cells, with gaps if there is space.
export function cell(i, n, size, gap) {
  const from = Math.round((i * size) / n);
  return [from, Math.max(from + 1, Math.round(((i + 1) * size) / n) - (size / n >= 6 ? gap : 0))];
}

// band draws the attended positions in [from, to) between y0 and y1. With scores, a pixel shows the strength of its
// strongest position, otherwise the share of its positions that was selected.
export function band(pixels, look, [from, to], [y0, y1], ramp) {
  const width = pixels.width;
  const scale = width / (to - from);
  if (look.all) {
    pixels.bar(0, Math.round((Math.min(look.keys, to) - from) * scale), y0, y1, ramp[110]);
    return;
  }
  const tones = new Uint16Array(width);
  const z = look.strengths;
  const list = look.selected;
  for (let i = 0; i < list.length; i++) {
    const p = list[i];
    if (p < from || p >= to) continue;
    const x = Math.floor((p - from) * scale);
    const end = Math.max(x + 1, Math.floor((p + 1 - from) * scale) - (scale >= 4 ? 1 : 0));
    const tone = z ? faint + Math.round((255 - faint) * Math.min(1, z[i] / full)) : 0;
    for (let at = x; at < end && at < width; at++) tones[at] = z ? Math.max(tones[at], tone) : tones[at] + 1;
  }
  const line = pixels.words.subarray(y0 * width, (y0 + 1) * width);
  for (let x = 0; x < width; x++) if (tones[x]) line[x] = ramp[z ? tones[x] : shade(tones[x] * Math.min(1, scale))];
  for (let y = y0 + 1; y < y1; y++) pixels.words.set(line, y * width);
}

// flag marks a column at the upper and lower edge of a picture.
export function flag(pixels, x, word) {
  const size = Math.max(3, Math.round(5 * pixels.scale));
  const half = Math.max(1, Math.round(pixels.scale));
  pixels.bar(x - half, x + half, 0, size, word);
  pixels.bar(x - half, x + half, pixels.height - size, pixels.height, word);
}
