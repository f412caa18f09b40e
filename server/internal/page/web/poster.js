import { shade } from "./picture.js";
import { quoted, visible } from "./text.js";

// A poster is a picture of one token of a recording: the answer, the positions that each layer selected, and the
// passages with the strongest attention. It consists of boxes and texts, and can be saved as SVG or PNG.

const width = 1200;
const margin = 40;
const columns = 560; // columns of the strip of a layer
const faint = 0.28;
const full = 6; // standard deviations at full strength

// colours returns the colours of the page's current style.
function colours() {
  const style = getComputedStyle(document.body);
  const probe = (name) => {
    const span = document.createElement("span");
    span.className = `probe ${name}`;
    document.body.append(span);
    const { color } = getComputedStyle(span);
    span.remove();
    return color;
  };
  return { ground: style.backgroundColor, ink: style.color, muted: probe("muted"), warm: probe("warm") };
}

// wrap divides a text into lines of at most most characters.
function wrap(text, most) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word.slice(0, most);
  }
  return lines;
}

// poster returns the boxes and texts for a token. passages holds the passages with the strongest attention, strongest
// first.
export function poster(recording, position, { told, passages, model }) {
  const c = colours();
  const items = [];
  let y = margin + 28;
  const text = (content, size, fill, weight = 400) => items.push({ x: margin, y, content, size, fill, weight });
  text(`What the model looked at to write ${quoted(recording.tokens[position])}`, 28, c.ink, 650);
  y += 16;
  for (const line of wrap(visible(told), 118).slice(0, 3)) {
    y += 24;
    text(line, 17, c.muted);
  }
  y += 28;
  const { layers } = recording;
  const row = recording.rowOf(position);
  const names = 90;
  const step = (width - 2 * margin - names) / columns;
  const high = Math.max(4, Math.min(26, Math.floor(420 / layers.length)));
  for (const layer of layers) {
    const tones = strip(row.looks.get(layer), recording.tokens.length);
    if (high >= 12) items.push({ x: margin, y: y + high - 6, content: `layer ${layer}`, size: 13, fill: c.muted });
    items.push({ x: margin + names, y, w: columns * step, h: high - 2, fill: c.muted, opacity: 0.08 });
    for (let i = 0, from = 0; i <= columns; i++) {
      if (i < columns && tones[i] === tones[from]) continue;
      if (tones[from]) {
        items.push({
          x: margin + names + from * step,
          y,
          w: (i - from) * step,
          h: high - 2,
          fill: c.warm,
          opacity: tones[from],
        });
      }
      from = i;
    }
    y += high;
  }
  y += 18;
  items.push({ x: margin + names, y, content: "start of the text", size: 13, fill: c.muted });
  items.push({ x: width - margin, y, content: "end", size: 13, fill: c.muted, anchor: "end" });
  y += 34;
  text("Stood out most", 17, c.ink, 650);
  for (const passage of passages.slice(0, 3)) {
    y += 26;
    const line = visible(passage).trim().replace(/\s+/g, " ");
    text(line.length > 120 ? line.slice(0, 119) + "\u2026" : line, 16, c.ink);
  }
  y += 40;
  text(`${model} \u00b7 Sparrow`, 14, c.muted);
  return { width, height: y + margin - 12, ground: c.ground, items };
}

// strip returns the strength of each column of a layer, 0 to 1, rounded to few values so that adjacent columns can be
// joined.
function strip(look, length) {
  const tones = new Float32Array(columns);
  if (!look) return tones;
  const z = look.strengths;
  const step = (v) => Math.ceil(10 * v) / 10;
  if (look.all) return tones.fill(0.4, 0, Math.round((look.keys / length) * columns));
  look.selected.forEach((p, i) => {
    const x = Math.min(columns - 1, Math.floor((p / length) * columns));
    const tone = z ? faint + (1 - faint) * Math.min(1, z[i] / full) : shade(columns / length) / 255;
    tones[x] = Math.max(tones[x], step(tone));
  });
  return tones;
}

const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const font = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif";
const number = (v) => String(Math.round(v * 100) / 100);

// svg returns a poster as SVG text.
export function svg({ width, height, ground, items }) {
  const part = (i) =>
    i.content === undefined
      ? `<rect x="${number(i.x)}" y="${number(i.y)}" width="${number(i.w)}" height="${number(i.h)}" fill="${i.fill}" ` +
        `opacity="${number(i.opacity)}"/>`
      : `<text x="${number(i.x)}" y="${number(i.y)}" font-size="${i.size}" fill="${i.fill}" ` +
        `font-weight="${i.weight ?? 400}" text-anchor="${i.anchor ?? "start"}">${escape(i.content)}</text>`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `font-family="${font}">\n<rect width="100%" height="100%" fill="${ground}"/>\n` +
    `${items.map(part).join("\n")}\n</svg>\n`
  );
}

// png returns a poster as PNG, at twice its size.
export function png({ width, height, ground, items }) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: 2 * width, height: 2 * height });
  const to = canvas.getContext("2d");
  to.scale(2, 2);
  to.fillStyle = ground;
  to.fillRect(0, 0, width, height);
  for (const i of items) {
    to.fillStyle = i.fill;
    to.globalAlpha = i.opacity ?? 1;
    if (i.content === undefined) to.fillRect(i.x, i.y, i.w, i.h);
    else {
      to.font = `${i.weight ?? 400} ${i.size}px ${font}`;
      to.textAlign = i.anchor ?? "start";
      to.fillText(i.content, i.x, i.y);
    }
  }
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
