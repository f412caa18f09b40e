import { el } from "./dom.js";

// colour reads one of the page's colours as [r, g, b]; drawing is done in bytes.
function colour(name) {
  const probe = el("span", { class: "probe " + name });
  document.body.append(probe);
  const parts = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .map(Number);
  probe.remove();
  return parts;
}

// Grid draws cells in [0, 1] as rows of a canvas, to scale: a cell covers as many pixels as its width and height allow,
// and where several cells share a pixel the pixel shows the share of them that is set.
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

  // show sets what is drawn: paint(pixels) is called with a Pixels of the canvas' size.
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
    };
    const context = this.canvas.getContext("2d");
    if (this.image?.width !== w || this.image?.height !== h) this.image = context.createImageData(w, h);
    const pixels = new Pixels(this.image, this.palette, scale);
    pixels.clear();
    this.paint(pixels);
    context.putImageData(this.image, 0, 0);
  }
}

// Pixels is an image that is drawn in bytes: a picture of 61 layers and 100,000 positions is a few milliseconds.
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

  // ramp is 256 colours from the ground to a colour.
  ramp(name) {
    return Uint32Array.from({ length: 256 }, (_, i) => this.mix(name, i / 255));
  }

  // bar fills [x0, x1) x [y0, y1).
  bar(x0, x1, y0, y1, word) {
    x0 = Math.max(0, x0);
    x1 = Math.min(this.width, x1);
    for (let y = Math.max(0, y0); y < Math.min(this.height, y1); y++) {
      this.words.fill(word, y * this.width + x0, y * this.width + x1);
    }
  }
}

// share makes small numbers visible: one token of a hundred under a pixel must not disappear.
export function shade(share) {
  return share <= 0 ? 0 : Math.min(255, Math.round(255 * (0.3 + 0.7 * Math.sqrt(share))));
}

// band draws the positions of a look that lie in [from, to) as one row of pixels between y0 and y1.
export function band(pixels, look, from, to, y0, y1, ramp, bins) {
  const width = pixels.width;
  const perPixel = (to - from) / width;
  if (look.all) {
    pixels.bar(0, Math.round((Math.min(look.keys, to) - from) / perPixel), y0, y1, ramp[110]);
    return;
  }
  if (perPixel <= 1) {
    // tokens are wider than pixels
    const each = 1 / perPixel;
    look.each((p) => {
      if (p < from || p >= to) return;
      const x = Math.floor((p - from) * each);
      pixels.bar(x, Math.max(x + 1, Math.floor((p + 1 - from) * each) - (each >= 4 ? 1 : 0)), y0, y1, ramp[255]);
    });
    return;
  }
  bins.fill(0, 0, width);
  const scale = 1 / perPixel;
  const list = look.selected;
  for (let i = 0; i < list.length; i++) {
    const p = list[i];
    if (p >= from && p < to) bins[((p - from) * scale) | 0]++;
  }
  const line = pixels.words.subarray(y0 * width, (y0 + 1) * width);
  for (let x = 0; x < width; x++) if (bins[x]) line[x] = ramp[shade(bins[x] * scale)];
  for (let y = y0 + 1; y < y1; y++) pixels.words.set(line, y * width);
}
