import { count, percent, plural } from "./dom.js";
import { quoted } from "./text.js";

// summary describes as text which tokens a row attended to in the given layers or, with pair, which tokens two layers
// have in common. The row is the one that produced the token at position. never is the number of tokens to which no row
// of the answer attended in these layers.
export function summary(recording, position, layers, pair, never) {
  const row = recording.rowOf(position);
  const word = quoted(recording.tokens[position]);
  const looks = layers.map((l) => row.looks.get(l)).filter(Boolean);
  if (!looks.length) return `Nothing was recorded for ${word} in this layer.`;
  const parts = pair ? [common(row, word, pair)] : [extent(looks, layers, word, position)];
  if (!pair) parts.push(pooled(looks), blocks(row, layers));
  if (!pair && looks.length > 1) parts.push(agreement(looks));
  const end = recording.outputs.at(-1);
  const by = pair ? ` by layers ${pair[0]} and ${pair[1]}` : layers.length === 1 ? ` by layer ${layers[0]}` : "";
  parts.push(`${count(never)} of ${count(end)} were never looked at${by} during this answer.`);
  const cached = recording.notComputed.reduce((n, [from, to]) => n + to - from, 0);
  if (cached) parts.push(`${plural(cached, "row")} came from the prefix cache and chose nothing this time.`);
  if (!pair && layers.length === recording.layers.length && recording.linear.length) {
    parts.push(`${plural(recording.linear.length, "layer has", "layers have")} linear attention and choose nothing.`);
  }
  return parts.filter(Boolean).join(" ");
}

// pooled describes compressed keys, and which other tokens are attended to.
function pooled(looks) {
  const own = [...new Set(looks)].filter((l) => l.group > 1 && l.chosen.length);
  if (!own.length) return "";
  const sizes = [...new Set(own.map((l) => l.group))];
  if (looks.length > 1) {
    return `Indexers of ${plural(own.length, "layer")} chose pools of ${sizes.join(" or ")} tokens.`;
  }
  const [{ chosen, keys, group, window }] = own;
  const rest = window ? window : keys % group;
  return (
    `Its indexer chose ${count(chosen.length)} of ${count(Math.floor(keys / group))} pools of ${group} tokens` +
    (rest ? `; the last ${plural(rest, "token is", "tokens are")} read as well.` : ".")
  );
}

// blocks describes which blocks a layer kept, and how many keys of later layers are in them.
function blocks(row, layers) {
  const b = row.blocks;
  const within = b?.within.filter((l) => layers.includes(l)) ?? [];
  if (!b || !(within.length || layers.includes(b.layer))) return "";
  const first = new Set(b.first);
  const inside = (l) => row.looks.get(l).chosen.filter((p) => first.has(p - (p % b.tokens))).length;
  const told = within.map((l) => {
    return `layer ${l} chose ${count(inside(l))} of its ${plural(row.looks.get(l).chosen.length, "key")}`;
  });
  return (
    `Layer ${b.layer} kept ${count(b.first.length)} of ${count(b.of)} blocks of ${b.tokens} tokens` +
    (told.length ? `; ${told.join(", ")} inside them.` : " for later layers.")
  );
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
  return `All layers selected ${count(all)}; at least one layer selected ${count(any)}.`;
}
