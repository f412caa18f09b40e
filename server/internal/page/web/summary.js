import { count, percent, plural } from "./dom.js";
import { quoted } from "./text.js";

// summary says in words what the row that produced the token at a position looked at in some layers, or what two layers
// have in common. never is how many of the tokens before the end of the answer no row of it looked at in these layers.
export function summary(recording, position, layers, pair, never) {
  const row = recording.rowOf(position);
  const word = quoted(recording.tokens[position]);
  const looks = layers.map((l) => row.looks.get(l)).filter(Boolean);
  if (!looks.length) return `Nothing was recorded for ${word} in this layer.`;
  const parts = pair ? [common(row, word, pair)] : [extent(looks, layers, word, position)];
  if (!pair && looks.length > 1) parts.push(agreement(looks));
  const end = recording.outputs.at(-1);
  const by = pair ? ` by layers ${pair[0]} and ${pair[1]}` : layers.length === 1 ? ` by layer ${layers[0]}` : "";
  parts.push(`${count(never)} of ${count(end)} were never looked at${by} during this answer.`);
  const cached = recording.notComputed.reduce((n, [from, to]) => n + to - from, 0);
  if (cached) parts.push(`${plural(cached, "row")} came from the prefix cache and chose nothing this time.`);
  return parts.join(" ");
}

function common(row, word, pair) {
  const [a, b] = pair.map((l) => row.looks.get(l));
  const seen = new Set();
  a.each((p) => seen.add(p));
  let both = 0;
  b.each((p) => (both += seen.has(p) ? 1 : 0));
  return (
    `To write ${word}, layers ${pair[0]} and ${pair[1]} both looked at ${plural(both, "token")}; only layer ` +
    `${pair[0]} at ${count(a.count - both)}, only layer ${pair[1]} at ${count(b.count - both)}.`
  );
}

function extent(looks, layers, word, position) {
  const counts = looks.map((l) => l.count);
  const least = Math.min(...counts);
  const most = Math.max(...counts);
  const range = least === most ? count(most) : `${count(least)} to ${count(most)}`;
  const who = looks.length === 1 ? `layer ${layers[0]}` : `each of ${looks.length} layers`;
  return (
    `To write ${word} (position ${count(position)}), ${who} looked at ${range} of ${count(looks[0].keys)} tokens: ` +
    `${percent(most, looks[0].keys)}.`
  );
}

function agreement(looks) {
  const times = new Uint16Array(looks[0].keys);
  for (const l of looks) l.each((p) => times[p]++);
  let any = 0,
    all = 0;
  for (const t of times) {
    if (t) any++;
    if (t === looks.length) all++;
  }
  return `All layers agreed on ${count(all)}; ${count(any)} were looked at by at least one.`;
}
