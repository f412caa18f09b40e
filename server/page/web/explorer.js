import { withFiles } from "./conversation.js";
import { announce, button, choice, count, el, field, percent, plural } from "./dom.js";
import { Grid, band, shade } from "./picture.js";
import { heat } from "./recording.js";
import { record } from "./record.js";
import { text as fetchText } from "./api.js";
import { question } from "./start.js";
import { visible } from "./text.js";
import { TokenText } from "./tokens.js";

// How long a token stays while the answer is played.
const stay = 500;

// Classes of tokens by what a mark says: heat in six steps, one or both of two layers, never looked at.
const levels = ["", "h1", "h2", "h3", "h4", "h5", "h6"];

// Explorer shows what the model looked at for each token of an answer.
export class Explorer {
  constructor(app) {
    this.app = app;
    this.name = "explorer";
    this.title = "Explorer";
    this.recording = null;
    this.playing = null;
    this.build();
  }

  build() {
    this.buildForm();
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    this.progress = el("p", { class: "muted", role: "status" });
    this.tools = el("div", { class: "explore", hidden: true });
    this.node = el(
      "div",
      { class: "explorer page" },
      el("h1", {}, "What did it look at?"),
      el(
        "p",
        { class: "lead" },
        "For every token, the indexer of each layer chooses the tokens that attention may read. ",
        "Record an answer, choose a token of it, and see them.",
      ),
      this.form,
      this.fault,
      this.progress,
      this.tools,
    );
    this.buildControls();
    this.buildPictures();
  }

  buildForm() {
    this.prompt = el("textarea", { rows: 4, spellcheck: false });
    this.most = el("input", { type: "number", min: 1, value: 64 });
    this.wanted = el("input", { type: "text", value: "all" });
    this.scores = el("input", { type: "checkbox", checked: true });
    this.experts = el("input", { type: "checkbox", checked: true });
    this.submit = el("button", { class: "primary" }, "Record");
    this.stopper = button("Stop", () => this.stop?.abort(), { hidden: true });
    this.form = el(
      "form",
      {
        class: "ask",
        onsubmit: (e) => {
          e.preventDefault();
          this.ask({ messages: [{ role: "user", content: this.prompt.value }], temperature: 0 });
        },
      },
      field("Prompt", this.prompt),
      el(
        "div",
        { class: "row" },
        this.submit,
        this.stopper,
        button(
          "Use the log of the example",
          async () => {
            this.prompt.value = withFiles({
              files: [{ text: await fetchText("page/station.txt") }],
              content: question,
            });
          },
          { class: "plain" },
        ),
        el(
          "details",
          { class: "options" },
          el("summary", {}, "What is recorded"),
          el(
            "div",
            { class: "grid" },
            field("Most tokens", this.most),
            field("Layers", this.wanted, "all, or 0, 3, 7"),
            el("label", { class: "check" }, this.scores, "Scores"),
            el("label", { class: "check" }, this.experts, "Experts"),
          ),
        ),
      ),
    );
  }

  buildControls() {
    this.slider = el("input", {
      type: "range",
      min: 0,
      value: 0,
      oninput: () => this.choose(Number(this.slider.value)),
    });
    this.which = el("output", { class: "which" });
    this.player = button("Play", () => this.play(), { "aria-pressed": "false" });
    this.layer = el("select", { onchange: () => this.update() });
    this.other = el("select", { onchange: () => this.update() });
    this.scope = choice(
      [
        ["token", "this token"],
        ["answer", "the whole answer"],
      ],
      "token",
      () => this.update(),
    );
    this.mark = choice(
      [
        ["looked", "tokens it looked at"],
        ["agree", "tokens that all layers chose"],
        ["never", "tokens it never looked at"],
      ],
      "looked",
      () => this.update(),
    );
    this.byScore = el("input", { type: "checkbox", onchange: () => this.update() });
    this.summary = el("p", { class: "summary" });
    this.answer = new TokenText({ label: "Answer", pick: (p) => this.pick(p) });
    this.answer.node.classList.add("short");
    this.tools.append(
      el(
        "section",
        { class: "card" },
        el("h2", {}, "The answer"),
        this.answer.node,
        el(
          "div",
          { class: "player" },
          button("Back", () => this.choose(this.index - 1), { "aria-label": "One token back" }),
          this.player,
          button("Next", () => this.choose(this.index + 1), { "aria-label": "One token forward" }),
          field("Token", this.slider),
          this.which,
        ),
        el(
          "div",
          { class: "grid" },
          field("Show", this.mark),
          field("For", this.scope),
          field("Layer", this.layer),
          field("Compare with", this.other),
          el("label", { class: "check" }, this.byScore, "Weigh by score"),
        ),
      ),
      this.summary,
    );
  }

  buildPictures() {
    this.picture = new Grid("Layers by positions", 120);
    this.pointed = el(
      "p",
      { class: "muted small pointed" },
      "Point at the picture, or drag over a part of it to enlarge.",
    );
    this.axis = el("div", { class: "axis muted small" });
    this.layerNames = el("div", { class: "layer-names muted small", "aria-hidden": "true" });
    this.text = new TokenText({
      label: "Prompt and answer",
      pick: (p) => this.pick(p),
      select: (from, to) => this.follow(from, to),
    });
    this.best = el("ol", { class: "best" });
    this.find = el("input", { type: "search", placeholder: "part of the text", onchange: () => this.search() });
    this.path = new Grid("Path of the needle", 120);
    this.pathText = el(
      "p",
      { class: "muted" },
      "Select a part of the text, or search for it: this shows which layers " +
        "looked at it for which token of the answer.",
    );
    this.expertGrid = new Grid("Layers by experts", 60);
    this.expertText = el("p", { class: "muted" });
    this.expertCard = el(
      "section",
      { class: "card" },
      el("h2", {}, "Experts"),
      this.expertGrid.canvas,
      this.expertText,
    );
    this.pathBox = el(
      "div",
      { class: "path", hidden: true },
      this.path.canvas,
      el("div", { class: "axis muted small" }, el("span", {}, "first token of the answer"), el("span", {}, "last")),
    );
    const picture = el(
      "section",
      { class: "card" },
      el("h2", {}, "Layers by positions"),
      el("div", { class: "layered" }, this.layerNames, this.picture.canvas),
      this.axis,
      el(
        "div",
        { class: "row" },
        this.pointed,
        button("Zoom in", () => this.zoom(0.5), { class: "plain" }),
        button("Zoom out", () => this.zoom(2), { class: "plain" }),
        button("Left", () => this.pan(-0.5), { class: "plain" }),
        button("Right", () => this.pan(0.5), { class: "plain" }),
        button("Whole", () => this.range(0, this.recording.tokens.length), { class: "plain" }),
      ),
    );
    this.tools.append(
      picture,
      el(
        "div",
        { class: "columns" },
        el("section", { class: "card" }, el("h2", {}, "Text"), this.text.node),
        el(
          "div",
          {},
          el("section", { class: "card" }, el("h2", {}, "Looked at most"), this.best),
          el(
            "section",
            { class: "card" },
            el("h2", {}, "When did it look at this?"),
            field("Find a sentence", this.find),
            this.pathBox,
            this.pathText,
          ),
          this.expertCard,
        ),
      ),
    );
    const c = this.picture.canvas;
    c.addEventListener("pointermove", (e) => this.point(e));
    c.addEventListener("pointerdown", (e) => {
      this.drag = this.positionAt(e);
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointerup", (e) => this.drop(e));
    this.path.canvas.addEventListener("click", (e) => {
      const outputs = this.recording.outputs;
      this.choose(Math.floor((e.offsetX / this.path.canvas.clientWidth) * outputs.length));
    });
  }

  show() {
    if (this.waiting) {
      const next = this.waiting;
      this.waiting = null;
      this.ask(next);
    }
  }

  hide() {
    this.pause();
  }

  // take prepares a request to be recorded when the view is shown.
  take(request) {
    this.waiting = request;
    const last = request.messages.at(-1);
    if (last?.role === "user") this.prompt.value = last.content;
  }

  // ask records an answer.
  async ask(request) {
    this.stop?.abort();
    const stop = (this.stop = new AbortController());
    const layers = this.wanted.value.trim();
    const options = {
      scores: this.scores.checked,
      experts: this.experts.checked,
      layers: layers === "all" || !layers ? "all" : layers.split(",").map(Number),
    };
    const body = { ...request, model: this.app.model };
    body.max_tokens = Math.min(body.max_tokens ?? Infinity, Number(this.most.value) || 64);
    this.fault.hidden = true;
    this.tools.hidden = true;
    this.submit.hidden = true;
    this.stopper.hidden = false;
    this.progress.textContent = "Reading the prompt\u2026";
    try {
      const { recording } = await record(body, options, stop.signal, (r) => {
        this.progress.textContent = `${plural(r.tokens.length - r.prompt, "token")} of the answer\u2026`;
      });
      this.open(recording);
    } catch (err) {
      if (!stop.signal.aborted) {
        this.fault.hidden = false;
        this.fault.textContent = err.message;
      }
      this.progress.textContent = "";
    }
    if (this.stop === stop) {
      this.submit.hidden = false;
      this.stopper.hidden = true;
    }
  }

  // open shows a recording.
  open(recording) {
    this.pause();
    this.recording = recording;
    this.outputs = recording.outputs;
    this.progress.textContent = "";
    if (!this.outputs.length) {
      this.fault.hidden = false;
      this.fault.textContent = "The server sent no selections with this answer.";
      return;
    }
    this.sums = new Float32Array(recording.tokens.length);
    this.wholeKey = "";
    this.needle = null;
    this.pathBox.hidden = true;
    this.bins = new Uint16Array(8192);
    const names = recording.layers.map((l) => [String(l), `layer ${l}`]);
    this.fill(this.layer, [["all", "all layers"], ...names]);
    this.fill(this.other, [["", "no other layer"], ...names]);
    this.slider.max = String(this.outputs.length - 1);
    const scored = [...recording.rows.values()].some((r) => [...r.looks.values()].some((l) => l.scores));
    this.byScore.disabled = !scored;
    this.byScore.checked = scored;
    this.tools.hidden = false;
    this.picture.setHeight(Math.max(48, Math.min(360, recording.layers.length * 18)));
    this.path.setHeight(Math.max(40, Math.min(240, recording.layers.length * 12)));
    this.expertCard.hidden = !recording.experts;
    this.expertGrid.setHeight(Math.max(24, Math.min(360, recording.expertLayers.length * 14)));
    this.answer.show(recording, recording.prompt);
    this.text.show(recording);
    this.view = [0, recording.tokens.length];
    this.layerNames.replaceChildren(
      el("span", {}, `layer ${recording.layers[0]}`),
      el("span", {}, `layer ${recording.layers.at(-1)}`),
    );
    this.choose(0);
    announce(`Recorded ${plural(this.outputs.length, "token")}`);
  }

  fill(select, options) {
    select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
    select.value = options[0][0];
  }

  // choose goes to one token of the answer.
  choose(index) {
    this.index = Math.max(0, Math.min(this.outputs.length - 1, index));
    this.slider.value = String(this.index);
    this.update();
  }

  pick(position) {
    const at = this.outputs.indexOf(position);
    if (at >= 0) this.choose(at);
  }

  play() {
    if (this.playing) return this.pause();
    if (this.index === this.outputs.length - 1) this.choose(0);
    this.player.textContent = "Pause";
    this.player.setAttribute("aria-pressed", "true");
    this.playing = setInterval(() => {
      if (this.index === this.outputs.length - 1) this.pause();
      else this.choose(this.index + 1);
    }, stay);
  }

  pause() {
    clearInterval(this.playing);
    this.playing = null;
    this.player.textContent = "Play";
    this.player.setAttribute("aria-pressed", "false");
  }

  // whole is how often each position was looked at during the whole answer.
  whole(layers, byScore) {
    const key = layers.join() + byScore;
    if (key !== this.wholeKey) {
      this.wholeKey = key;
      this.wholeSums = new Float32Array(this.recording.tokens.length);
      this.wholeMost = 0;
      for (const p of this.outputs) {
        this.wholeMost += heat(this.recording.rowOf(p), layers, this.wholeSums, byScore);
      }
    }
    return { sums: this.wholeSums, most: this.wholeMost };
  }

  // update draws everything again for what is chosen.
  update() {
    const r = this.recording;
    const position = this.outputs[this.index];
    const row = r.rowOf(position);
    const layers = this.layer.value === "all" ? r.layers : [Number(this.layer.value)];
    const pair =
      this.other.value === "" || this.layer.value === "all"
        ? null
        : [Number(this.layer.value), Number(this.other.value)];
    const byScore = this.byScore.checked && this.mark.value === "looked";
    let now;
    if (this.mark.value === "never") now = this.whole(layers, false);
    else if (this.scope.value === "answer") now = this.whole(layers, byScore);
    else {
      this.sums.fill(0);
      now = { sums: this.sums, most: heat(row, layers, this.sums, byScore) };
    }
    this.other.disabled = this.layer.value === "all";
    this.which.textContent = `${this.index + 1} of ${this.outputs.length}: \u201c${visible(r.tokens[position])}\u201d`;
    this.slider.setAttribute("aria-valuetext", this.which.textContent);
    this.marks(now, row, pair, position);
    this.summarise(row, layers, pair, position);
    this.picture.show((pixels) => this.drawLayers(pixels, row, pair, position));
    this.picture.describe(this.summary.textContent);
    this.rank(now);
    this.drawPath();
    this.drawExperts(row);
  }

  marks(now, row, pair, position) {
    const n = this.recording.tokens.length;
    const names = [...levels, "never", "a", "b", "ab"];
    if (this.classes?.length !== n) this.classes = new Uint8Array(n);
    const out = this.classes.fill(0);
    if (pair) {
      row.looks.get(pair[0])?.each((p) => {
        out[p] = 8;
      });
      row.looks.get(pair[1])?.each((p) => {
        out[p] = out[p] === 8 ? 10 : 9;
      });
    } else if (this.mark.value === "never") {
      for (let p = 0; p < n; p++) if (!now.sums[p] && p < this.outputs.at(-1)) out[p] = 7;
    } else if (this.mark.value === "agree") {
      for (let p = 0; p < n; p++) if (now.most && now.sums[p] === now.most) out[p] = 6;
    } else {
      let most = 0;
      for (let p = 0; p < n; p++) most = Math.max(most, now.sums[p]);
      for (let p = 0; p < n; p++) if (now.sums[p]) out[p] = Math.max(1, Math.ceil((6 * now.sums[p]) / most));
    }
    const needle = this.needle ?? [-1, -1];
    const name = (p) => {
      let s = names[out[p]];
      if (p >= needle[0] && p < needle[1]) s += " needle";
      if (p === position) s += " chosen";
      return s;
    };
    this.text.mark(name);
    this.answer.mark(name);
    this.tools.dataset.pair = pair ? "yes" : "";
  }

  summarise(row, layers, pair, position) {
    const r = this.recording;
    const word = `\u201c${visible(r.tokens[position])}\u201d`;
    const looks = layers.map((l) => row.looks.get(l)).filter(Boolean);
    if (!looks.length) {
      this.summary.textContent = `Nothing was recorded for ${word} in this layer.`;
      return;
    }
    const keys = looks[0].keys;
    const parts = [];
    if (pair) {
      const [a, b] = pair.map((l) => row.looks.get(l));
      let both = 0;
      const seen = new Set();
      a.each((p) => seen.add(p));
      b.each((p) => {
        if (seen.has(p)) both++;
      });
      parts.push(
        `To write ${word}, layers ${pair[0]} and ${pair[1]} both looked at ${plural(both, "token")}; only layer ${
          pair[0]
        } at ${count(a.count - both)}, only layer ${pair[1]} at ${count(b.count - both)}.`,
      );
    } else {
      const least = Math.min(...looks.map((l) => l.count)),
        most = Math.max(...looks.map((l) => l.count));
      const range = least === most ? count(most) : `${count(least)} to ${count(most)}`;
      parts.push(
        `To write ${word} (position ${count(position)}), ${
          looks.length === 1 ? `layer ${layers[0]}` : `each of ${looks.length} layers`
        } looked at ${range} of ${count(keys)} tokens: ${percent(most, keys)}.`,
      );
      if (looks.length > 1) {
        const times = new Uint16Array(keys);
        for (const l of looks)
          l.each((p) => {
            times[p]++;
          });
        let any = 0,
          all = 0;
        for (const t of times) {
          if (t) any++;
          if (t === looks.length) all++;
        }
        parts.push(`All layers agreed on ${count(all)}; ${count(any)} were looked at by at least one.`);
      }
    }
    const { sums } = this.whole(layers, false);
    let never = 0;
    const end = this.outputs.at(-1);
    for (let p = 0; p < end; p++) if (!sums[p]) never++;
    parts.push(`${count(never)} of ${count(end)} were never looked at during this answer.`);
    if (r.notComputed.length) {
      const cached = r.notComputed.reduce((n, [a, b]) => n + b - a, 0);
      parts.push(`${plural(cached, "row")} came from the prefix cache and chose nothing this time.`);
    }
    this.summary.textContent = parts.join(" ");
  }

  drawLayers(pixels, row, pair, position) {
    const r = this.recording;
    const [from, to] = this.view;
    const n = r.layers.length;
    const ramps = { warm: pixels.ramp("warm"), first: pixels.ramp("first"), second: pixels.ramp("second") };
    r.layers.forEach((layer, i) => {
      const look = row.looks.get(layer);
      const y0 = Math.round((i * pixels.height) / n),
        gap = pixels.height / n >= 6 ? Math.round(pixels.scale) : 0;
      const y1 = Math.max(y0 + 1, Math.round(((i + 1) * pixels.height) / n) - gap);
      const name = pair?.[0] === layer ? "first" : pair?.[1] === layer ? "second" : "warm";
      if (look && pixels.width <= this.bins.length) band(pixels, look, from, to, y0, y1, ramps[name], this.bins);
    });
    const x = (p) => Math.round(((p - from) / (to - from)) * pixels.width);
    const line = pixels.pack(pixels.palette.line);
    const edge = Math.max(1, Math.round(pixels.scale));
    if (position >= from && position <= to) pixels.bar(x(position), x(position) + edge, 0, pixels.height, line);
    if (this.needle) {
      for (const p of this.needle) pixels.bar(x(p), x(p) + edge, 0, pixels.height, pixels.pack(pixels.palette.both));
    }
    this.axis.replaceChildren(
      ...[0, 0.25, 0.5, 0.75, 1].map((f) => el("span", {}, count(Math.round(from + f * (to - from))))),
    );
  }

  positionAt(e) {
    const [from, to] = this.view;
    const share = Math.max(0, Math.min(1, e.offsetX / this.picture.canvas.clientWidth));
    return Math.min(to - 1, Math.floor(from + share * (to - from)));
  }

  point(e) {
    const p = this.positionAt(e);
    const row = this.recording.rowOf(this.outputs[this.index]);
    const chosen = this.recording.layers.filter((l) => row.looks.get(l)?.within(p, p + 1));
    const near = visible(this.recording.text(Math.max(0, p - 6), p + 7)).replaceAll("\n", " ");
    this.pointed.textContent = `Position ${count(p)}, \u201c${near}\u201d: ${
      chosen.length ? `chosen by layer${chosen.length > 1 ? "s" : ""} ${chosen.join(", ")}` : "chosen by no layer"
    }`;
  }

  drop(e) {
    const end = this.positionAt(e);
    const [from, to] = [Math.min(this.drag ?? end, end), Math.max(this.drag ?? end, end)];
    const far = (to - from) / (this.view[1] - this.view[0]) > 0.02;
    this.drag = null;
    if (far) this.range(from, to + 1);
    else this.text.reveal(end);
  }

  range(from, to) {
    const n = this.recording.tokens.length;
    const size = Math.max(16, Math.min(n, Math.round(to - from)));
    from = Math.max(0, Math.min(n - size, Math.round(from)));
    this.view = [from, from + size];
    this.update();
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

  // rank lists the passages with the most looks for their length.
  rank(now) {
    const r = this.recording;
    const found = [];
    for (const [from, to] of r.passages) {
      if (from >= r.prompt) break;
      let sum = 0;
      for (let p = from; p < to; p++) sum += now.sums[p];
      found.push({ from, to, share: sum / ((to - from + 2) * (now.most || 1)) });
    }
    found.sort((a, b) => b.share - a.share);
    const most = found[0]?.share || 1;
    this.best.replaceChildren(
      ...found
        .slice(0, 6)
        .filter((f) => f.share > 0)
        .map((f) => {
          const text = visible(r.text(f.from, f.to)).trim().replace(/\s+/g, " ");
          const meter = el("span", { class: "meter", "aria-hidden": "true" });
          meter.style.width = `${Math.round((100 * f.share) / most)}%`;
          return el(
            "li",
            {},
            button(
              text.length > 110 ? text.slice(0, 110) + "\u2026" : text || "(empty line)",
              () => {
                this.text.reveal(f.from);
                this.follow(f.from, f.to);
              },
              { class: "plain passage" },
            ),
            meter,
          );
        }),
    );
  }

  search() {
    const wanted = this.find.value;
    if (!wanted) return;
    const r = this.recording;
    const text = r.text(0, r.prompt);
    let at = text.indexOf(wanted);
    if (at < 0) at = text.toLowerCase().indexOf(wanted.toLowerCase());
    if (at < 0) {
      this.pathText.textContent = "The prompt does not contain this text.";
      return;
    }
    let from = -1,
      length = 0;
    for (let p = 0; p < r.prompt; p++) {
      length += r.tokens[p].length;
      if (from < 0 && length > at) from = p;
      if (length >= at + wanted.length) {
        this.text.reveal(from);
        this.follow(from, p + 1);
        return;
      }
    }
  }

  // follow makes a part of the text the needle.
  follow(from, to) {
    this.needle = [from, to];
    this.update();
  }

  drawPath() {
    this.pathBox.hidden = !this.needle;
    if (!this.needle) return;
    const r = this.recording;
    const [from, to] = this.needle;
    const cells = this.outputs.map((p) =>
      r.layers.map((l) => (r.rowOf(p).looks.get(l)?.within(from, to) ?? 0) / (to - from)),
    );
    this.path.show((pixels) => {
      const ramp = pixels.ramp("warm");
      cells.forEach((column, i) => {
        const x0 = Math.round((i * pixels.width) / cells.length),
          x1 = Math.round(((i + 1) * pixels.width) / cells.length);
        column.forEach((share, j) => {
          const y0 = Math.round((j * pixels.height) / column.length);
          const y1 = Math.round(((j + 1) * pixels.height) / column.length);
          pixels.bar(x0, Math.max(x0 + 1, x1 - 1), y0, Math.max(y0 + 1, y1 - 1), ramp[shade(share)]);
        });
        if (i === this.index) pixels.bar(x0, x1, pixels.height - 3, pixels.height, pixels.pack(pixels.palette.line));
      });
    });
    const totals = cells.map((c) => c.reduce((a, b) => a + b, 0));
    const best = totals.indexOf(Math.max(...totals));
    const first = totals.findIndex((t) => t > 0);
    const say = (i) => `\u201c${visible(r.tokens[this.outputs[i]])}\u201d (token ${i + 1})`;
    const whole = cells[best].filter((s) => s === 1).length;
    const quoted = visible(r.text(from, to)).trim();
    const short = quoted.length > 80 ? quoted.slice(0, 80) + "\u2026" : quoted;
    this.pathText.textContent =
      first < 0
        ? `\u201c${short}\u201d was never looked at.`
        : `\u201c${short}\u201d: first looked at for ${say(first)}, most for ${say(best)}, when ` +
          `${whole} of ${r.layers.length} layers looked at all of it.`;
    this.path.describe(this.pathText.textContent);
  }

  drawExperts(row) {
    const r = this.recording;
    if (!r.experts || !r.expertLayers.length) return;
    const rows = this.scope.value === "answer" ? this.outputs.map((p) => r.rowOf(p)) : [row];
    const cells = r.expertLayers.map((layer) => {
      const line = new Float32Array(r.experts);
      for (const one of rows) {
        const x = one.experts.get(layer);
        x?.ids.forEach((id, i) => {
          line[id] += x.weights ? x.weights[i] : 1;
        });
      }
      return line;
    });
    const most = Math.max(1e-9, ...cells.map((line) => Math.max(...line)));
    this.expertGrid.show((pixels) => {
      const ramp = pixels.ramp("first");
      cells.forEach((line, j) => {
        const y0 = Math.round((j * pixels.height) / cells.length),
          y1 = Math.round(((j + 1) * pixels.height) / cells.length);
        line.forEach((v, i) => {
          const x0 = Math.round((i * pixels.width) / line.length),
            x1 = Math.round(((i + 1) * pixels.width) / line.length);
          if (v) pixels.bar(x0, Math.max(x0 + 1, x1 - 1), y0, Math.max(y0 + 1, y1 - 1), ramp[shade(v / most)]);
        });
      });
    });
    const used = cells.reduce((n, line) => n + line.filter((v) => v > 0).length, 0);
    this.expertText.textContent = `${count(used)} of ${count(cells.length * r.experts)} experts computed ${
      this.scope.value === "answer" ? "this answer" : "this token"
    }; rows are layers ${r.expertLayers[0]} to ${r.expertLayers.at(-1)}, columns experts 0 to ${r.experts - 1}.`;
    this.expertGrid.describe(this.expertText.textContent);
  }
}
