// read parses Prometheus' text format into a list of {name, labels, value}.
export function read(text) {
  const out = [];
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found || Number.isNaN(Number(found[3]))) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    out.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return out;
}

// value returns the first sample with the given name and labels, or 0.
export function value(samples, name, labels = {}) {
  return (
    samples.find((s) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v))?.value ?? 0
  );
}

export function all(samples, name) {
  return samples.filter((s) => s.name === name);
}
