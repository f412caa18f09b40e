import { whole } from "./text.js";

// Decoder of selections and experts in the format of docs/format/selections.md.

function bytes(base64) {
  return Uint8Array.from(atob(base64 ?? ""), (c) => c.charCodeAt(0));
}

function floats(base64) {
  if (!base64) return null;
  const b = bytes(base64);
  const view = new DataView(b.buffer);
  return Float32Array.from({ length: b.length >> 2 }, (_, i) => view.getFloat32(4 * i, true));
}

function shorts(base64) {
  const b = bytes(base64);
  return Uint16Array.from({ length: b.length >> 1 }, (_, i) => b[2 * i] | (b[2 * i + 1] << 8));
}

// positions decodes an ascending list of numbers, stored as differences in LEB128.
export function positions(base64) {
  const b = bytes(base64);
  const out = new Uint32Array(b.length);
  let n = 0,
    at = 0,
    value = 0,
    shift = 0;
  for (const byte of b) {
    value |= (byte & 127) << shift;
    shift += 7;
    if (byte < 128) {
      out[n++] = at += value;
      value = shift = 0;
    }
  }
  return out.slice(0, n);
}

// Look is the set of positions that one row attended to in one layer, with compressed keys (group tokens each) and
// windows expanded to positions. scores has a score per element of selected, or is null. chosen has the first token of
// each key that the indexer selected.
class Look {
  constructor(layer) {
    this.keys = layer.keys;
    this.group = layer.group ?? 1; // tokens per key
    this.window = layer.window ?? 0;
    this.all = layer.all === true && this.group === 1;
    this.scores = floats(layer.scores);
    this.selected = this.chosen = this.all ? new Uint32Array(0) : positions(layer.selected);
    if (layer.group || layer.window) this.widen(layer);
  }

  // widen expands compressed keys and the window to positions. The tokens of a key have its score. Other tokens have
  // NaN: those only in the window, and those after the last key in layers without a window.
  widen(layer) {
    const { group, keys } = this;
    const scores = new Map();
    const closed = Math.floor(keys / group) * group;
    for (let p = Math.max(0, this.window ? keys - this.window : closed); p < keys; p++) scores.set(p, NaN);
    for (let p = 0; p < closed && layer.all; p++) scores.set(p, NaN);
    this.selected.forEach((first, at) => {
      for (let p = first; p < first + group; p++) scores.set(p, this.scores?.[at] ?? NaN);
    });
    this.selected = Uint32Array.from(scores.keys()).sort();
    this.scores &&= Float32Array.from(this.selected, (p) => scores.get(p));
  }

  // strengths returns the strength of each selected position: its score minus the mean, in standard deviations, at
  // least 0. It is null without scores.
  get strengths() {
    if (this.z || !this.scores?.length) return this.z ?? null;
    const known = this.scores.filter((s) => !Number.isNaN(s));
    const mean = known.reduce((a, b) => a + b, 0) / known.length;
    const deviation = Math.sqrt(known.reduce((a, b) => a + (b - mean) ** 2, 0) / known.length) || 1;
    return (this.z = this.scores.map((s) => (s > mean ? (s - mean) / deviation : 0)));
  }

  get count() {
    return this.all ? this.keys : this.selected.length;
  }

  // each calls f with every attended position below keys.
  each(f) {
    if (this.all) for (let p = 0; p < this.keys; p++) f(p);
    else for (let i = 0; i < this.selected.length; i++) f(this.selected[i]);
  }

  // within returns the number of attended positions in [from, to).
  within(from, to) {
    if (this.all) return Math.max(0, Math.min(to, this.keys) - from);
    return lower(this.selected, to) - lower(this.selected, from);
  }
}

// linear returns whether a layer has linear attention, which reads a state instead of tokens (GLM-5.3-Flash).
function linear(layer) {
  return !layer.all && !layer.window && !layer.group && layer.selected === undefined && layer.as === undefined;
}

// blocksOf returns the blocks of keys that one layer of a row keeps for later layers (DeepSeek-V4.1), or null if there
// are none: {layer, first: first token of each block, tokens: tokens per block, end: end of the positions before the
// row, of: number of all blocks, within: layers that select inside the blocks}.
function blocksOf(layers) {
  const source = layers.find((l) => l.candidates);
  if (!source) return null;
  const { layer, keys, block, group = 1 } = source;
  const within = layers.filter((l) => l.layer > layer && l.selected && (l.group ?? 1) === group).map((l) => l.layer);
  const of = Math.ceil(Math.floor(keys / group) / block);
  return { layer, first: positions(source.candidates), tokens: block * group, end: keys, of, within };
}

// lower returns the first index whose value is at least v.
function lower(list, v) {
  let lo = 0,
    hi = list.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (list[mid] < v) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

// plain replaces the wide bar and the low block in DeepSeek's special tokens by ASCII characters, which every font has.
function plain(token) {
  return /^<\uff5c.*\uff5c>$/.test(token) ? token.replaceAll("\uff5c", "|").replaceAll("\u2581", "_") : token;
}

// Recording is a prompt, an answer, and the positions that rows attended to. The row at position p produced token p+1.
export class Recording {
  constructor(promptTokens) {
    this.spelled = promptTokens.map(plain);
    this.tokens = whole(this.spelled);
    this.prompt = promptTokens.length;
    this.rows = new Map(); // [position] {position, looks: Map by layer, blocks, experts: Map by layer}
    this.layers = [];
    this.linear = []; // layers with linear attention
    this.expertLayers = [];
    this.experts = 0; // largest expert id so far, plus one
    this.notComputed = [];
    this.cuts = null;
  }

  addTokens(list) {
    this.spelled.push(...list.map(plain));
    let from = Math.max(this.prompt, this.tokens.length - 8); // start of the longest incomplete character
    while (from > this.prompt && this.tokens[from] === "") from--;
    const fresh = whole(this.spelled.slice(from));
    this.tokens.length = from;
    for (const t of fresh) this.tokens.push(t);
    this.cuts = null;
  }

  // add adds the rows in the member sparrow of a choice.
  add(object) {
    this.notComputed.push(...(object?.not_computed ?? []));
    for (const r of object?.rows ?? []) {
      const looks = new Map();
      const layers = (r.layers ?? []).filter((l) => !linear(l));
      for (const l of layers) if (l.as === undefined) looks.set(l.layer, new Look(l));
      for (const l of layers) if (l.as !== undefined) looks.set(l.layer, looks.get(l.as));
      this.linear = (r.layers ?? []).filter(linear).map((l) => l.layer);
      const experts = new Map();
      for (const x of r.experts ?? []) {
        const ids = shorts(x.ids);
        experts.set(x.layer, { ids, weights: floats(x.weights) });
        for (const id of ids) this.experts = Math.max(this.experts, id + 1);
      }
      this.rows.set(r.position, { position: r.position, looks, blocks: blocksOf(layers), experts });
      if (looks.size > this.layers.length) this.layers = [...looks.keys()].sort((a, b) => a - b);
      if (experts.size > this.expertLayers.length) this.expertLayers = [...experts.keys()].sort((a, b) => a - b);
    }
  }

  // outputs returns the positions of the answer's tokens whose rows were recorded.
  get outputs() {
    const out = [];
    for (let p = this.prompt; p < this.tokens.length; p++) if (this.rows.has(p - 1)) out.push(p);
    return out;
  }

  // rowOf returns the row that produced the token at a position.
  rowOf(position) {
    return this.rows.get(position - 1);
  }

  // passages divides the sequence into passages [from, to): lines, and sentences of long lines.
  get passages() {
    if (this.cuts) return this.cuts;
    const out = [];
    let from = 0;
    for (let p = 0; p < this.tokens.length; p++) {
      const long = p + 1 - from;
      const ends =
        this.tokens[p].includes("\n") ||
        p + 1 === this.prompt ||
        long >= 120 ||
        (long >= 40 && /[.!?;]$/.test(this.tokens[p].trimEnd()));
      if (ends || p + 1 === this.tokens.length) {
        out.push([from, p + 1]);
        from = p + 1;
      }
    }
    return (this.cuts = out);
  }

  text(from, to) {
    return this.tokens.slice(from, to).join("");
  }
}

// heat adds to sums how much a row attended to each position. Without byScore this is the number of layers that
// selected it. With byScore it is the square of its strength in the layer where it is strongest. It returns the maximum
// without byScore.
export function heat(row, layers, sums, byScore) {
  const looks = layers.map((l) => row.looks.get(l)).filter(Boolean);
  if (!byScore) {
    for (const look of looks) look.each((p) => sums[p]++);
    return looks.length;
  }
  const best = new Float32Array(sums.length);
  for (const look of looks) {
    const z = look.strengths ?? [];
    for (let i = 0; i < z.length; i++) {
      const p = look.selected[i];
      if (z[i] > best[p]) best[p] = z[i];
    }
  }
  for (let p = 0; p < best.length; p++) sums[p] += best[p] * best[p];
  return looks.length;
}

// pools marks the tokens of the compressed keys that the given rows selected in the given layers: {group, in:
// by position}. It returns null if every token has a key, or if keys have different sizes.
export function pools(rows, layers, length) {
  const looks = rows.flatMap((row) => layers.map((l) => row.looks.get(l))).filter((l) => l?.chosen.length);
  const group = looks[0]?.group ?? 1;
  if (group === 1 || looks.some((l) => l.group !== group)) return null;
  const marks = new Uint8Array(length);
  for (const l of looks) l.chosen.forEach((p) => marks.fill(1, p, p + group));
  return { group, in: marks };
}

// kept marks the tokens of the blocks that a layer kept for the given rows, if the given layers include it or a layer
// that selects inside the blocks. It returns null if there are none.
export function kept(rows, layers, length) {
  const list = rows.map((r) => r.blocks).filter((b) => b && layers.some((l) => l === b.layer || b.within.includes(l)));
  if (!list.length) return null;
  const marks = new Uint8Array(length);
  for (const b of list) b.first.forEach((p) => marks.fill(1, p, Math.min(b.end, p + b.tokens)));
  return marks;
}

// rank sorts the passages of the prompt by attention. rows holds the sums of heat per row. With byScore, the value of a
// passage is that of its strongest token in each row, otherwise the share of its tokens that was selected.
export function rank(recording, rows, byScore) {
  const found = [];
  for (const [from, to] of recording.passages) {
    if (to > recording.prompt) break;
    let share = 0;
    for (const sums of rows) {
      let most = 0,
        total = 0;
      for (let p = from; p < to; p++) {
        total += sums[p];
        if (sums[p] > most) most = sums[p];
      }
      share += byScore ? most : total / (to - from + 2);
    }
    if (share > 0) found.push({ from, to, share });
  }
  return found.sort((a, b) => b.share - a.share);
}

// standout returns the strongest attention to [from, to): the generated token, the layer, the position, and whether the
// position had the highest score in this layer. It returns null without scores.
export function standout(recording, outputs, from, to) {
  let best = null;
  for (const position of outputs) {
    for (const [layer, look] of recording.rowOf(position).looks) {
      const z = look.strengths;
      if (!z) continue;
      look.selected.forEach((p, i) => {
        if (p >= from && p < to && z[i] > (best?.strength ?? 0))
          best = { position, layer, at: p, strength: z[i], look, i };
      });
    }
  }
  if (best) best.first = best.look.strengths.every((z) => z <= best.strength);
  return best;
}

// strongest returns the strongest attention, except to the beginning and the end of the prompt, to which nearly every
// token attends. If there is none, it returns the strongest of all; null without scores.
export function strongest(recording, outputs) {
  const inside = recording.passages.filter(([, to]) => to <= recording.prompt);
  const from = inside[0]?.[1] ?? 0;
  const to = inside.at(-1)?.[0] ?? 0;
  return standout(recording, outputs, from, to) ?? standout(recording, outputs, 0, recording.prompt);
}

// compare compares the positions that two answers attended to, in their common prefix. It returns per position 1 for
// the first answer only, 2 for the second only, 3 for both, 0 for neither. With byScore, a position counts if its heat
// exceeds a tenth of the maximum, otherwise if it was selected.
export function compare(a, b, byScore) {
  let length = 0;
  while (length < Math.min(a.prompt, b.prompt) && a.tokens[length] === b.tokens[length]) length++;
  const kinds = new Uint8Array(length);
  const counts = [0, 0, 0, 0];
  [a, b].forEach((r, at) => {
    const sums = new Float32Array(r.tokens.length);
    for (const p of r.outputs) heat(r.rowOf(p), r.layers, sums, byScore);
    const most = sums.subarray(0, length).reduce((x, y) => Math.max(x, y), 0);
    for (let p = 0; p < length; p++) if (sums[p] > (byScore ? most / 10 : 0)) kinds[p] |= at + 1;
  });
  for (const k of kinds) counts[k]++;
  return { kinds, counts };
}
