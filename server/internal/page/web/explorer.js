import { withFiles } from "./conversation.js";
import { announce, button, choice, count, el, field, plural } from "./dom.js";
import { ExpertPicture } from "./experts.js";
import { LayerPicture } from "./layers.js";
import { NeedlePath } from "./needle.js";
import { poster, png, svg } from "./poster.js";
import { compare, heat, kept, pools, rank, strongest } from "./recording.js";
import { record } from "./record.js";
import { json, text as fetchText } from "./api.js";
import { question } from "./start.js";
import { summary } from "./summary.js";
import { quoted, visible } from "./text.js";
import { TokenText } from "./tokens.js";
import { fileName, save } from "./transfer.js";
import { told } from "./turn.js";

// Time in milliseconds for which a token is shown while the answer is played.
const stay = 500;

// CSS classes of tokens: none, six levels of attention, never attended to, attended to in the first of two layers, in
// the second, in both.
const classes = ["", "h1", "h2", "h3", "h4", "h5", "h6", "never", "a", "b", "ab"];
const [hottest, never, first, second, both] = [6, 7, 8, 9, 10];

// Explorer shows which tokens the model attended to for each token of an answer.
export class Explorer {
  constructor(app) {
    this.app = app;
    this.name = "explorer";
    this.title = "Explorer";
    this.recording = null;
    this.playing = null;
    this.form = this.buildForm();
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    this.progress = el("p", { class: "muted", role: "status" });
    this.tools = this.buildTools();
    this.nothing = this.buildNothing();
    this.node = el(
      "div",
      { class: "explorer page" },
      el("h1", {}, "What did it look at?"),
      el(
        "p",
        { class: "lead" },
        "For every token, the indexer of each layer chooses the tokens that attention may read. ",
        "Record an answer and choose one of its tokens to see the selected tokens.",
      ),
      this.form,
      this.fault,
      this.progress,
      this.nothing,
      this.tools,
    );
  }

  // buildNothing creates the content that is shown if there is no recording.
  buildNothing() {
    const latest = async () => this.ask(await this.app.latest());
    this.fromChat = button("Record the latest answer of the chat", () => latest().catch(() => {}), { hidden: true });
    const show = async () => {
      await this.example();
      this.form.requestSubmit();
    };
    return el(
      "section",
      { class: "card" },
      el("h2", {}, "Nothing is recorded yet"),
      el(
        "p",
        {},
        "Write a prompt above and press Record, or press \u201cWhat did it look at?\u201d below an answer of the chat.",
      ),
      el(
        "p",
        { class: "row" },
        button("Send the example", () => show().catch((err) => this.fail(err.message)), { class: "primary" }),
        this.fromChat,
      ),
      el("p", { class: "muted small" }, "The example is a question about the log of a server, of about 4,000 tokens."),
    );
  }

  // example sets a question about the example log as the prompt.
  async example() {
    this.prompt.value = withFiles({ files: [{ text: await fetchText("page/station.txt") }], content: question });
  }

  buildForm() {
    this.prompt = el("textarea", { rows: 3, spellcheck: false });
    this.most = el("input", { type: "number", min: 1, value: 64 });
    this.wanted = el("input", { type: "text", value: "all" });
    this.scores = el("input", { type: "checkbox", checked: true });
    this.experts = el("input", { type: "checkbox", checked: true });
    this.submit = el("button", { class: "primary" }, "Record");
    this.stopper = button("Stop", () => this.stop?.abort(), { hidden: true });
    const ask = (e) => {
      e.preventDefault();
      this.ask({ messages: [{ role: "user", content: this.prompt.value }], temperature: 0 });
    };
    return el(
      "form",
      { class: "ask", onsubmit: ask },
      field("Prompt", this.prompt),
      el(
        "div",
        { class: "row" },
        this.submit,
        this.stopper,
        button("Use the log of the example", () => this.example().catch((err) => this.fail(err.message)), {
          class: "plain",
        }),
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
    );
  }

  buildTools() {
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
    this.rival = el("select", { onchange: () => this.update() });
    const scopes = [
      ["token", "this token"],
      ["answer", "the whole answer"],
    ];
    const marks = [
      ["looked", "what it looked at"],
      ["agree", "what all layers chose"],
      ["never", "what it never looked at"],
    ];
    this.scope = choice(scopes, "token", () => this.update());
    this.mark = choice(marks, "looked", () => this.update());
    this.byScore = el("input", { type: "checkbox", onchange: () => this.update() });
    this.scoreless = el("small", { class: "muted" });
    this.summary = el("p", { class: "summary" });
    this.answer = new TokenText({ label: "Answer", pick: (p) => this.pick(p) });
    this.answer.node.classList.add("short");
    this.text = new TokenText({
      label: "Prompt and answer",
      pick: (p) => this.pick(p),
      select: (from, to) => this.follow(from, to),
    });
    this.legend = el("p", { class: "legend muted small" });
    this.best = el("ol", { class: "best" });
    this.bestBy = el("p", { class: "muted small" });
    this.picture = new LayerPicture((p) => this.text.reveal(p));
    this.path = new NeedlePath(
      (from, to) => {
        this.text.reveal(from);
        this.follow(from, to);
      },
      (index) => this.choose(index),
    );
    this.expertPicture = new ExpertPicture();
    return el(
      "div",
      { class: "explore", hidden: true },
      el("div", { class: "controls" }, this.buildPlayer()),
      el(
        "div",
        { class: "row between" },
        this.summary,
        el(
          "span",
          { class: "small muted" },
          "Save as ",
          button("SVG", () => this.share("svg"), { class: "plain", "aria-label": "Save a picture as SVG" }),
          button("PNG", () => this.share("png"), { class: "plain", "aria-label": "Save a picture as PNG" }),
        ),
      ),
      this.picture.node,
      el(
        "div",
        { class: "columns" },
        el(
          "section",
          { class: "card" },
          el("div", { class: "row between" }, el("h2", {}, "Text"), this.legend),
          this.text.node,
        ),
        el(
          "div",
          {},
          el("section", { class: "card" }, el("h2", {}, "Looked at most"), this.bestBy, this.best),
          this.path.node,
          this.expertPicture.node,
        ),
      ),
    );
  }

  // buildPlayer creates the parts that do not scroll: the answer, and the picture of one of its tokens.
  buildPlayer() {
    const player = el(
      "div",
      { class: "player" },
      button("Back", () => this.choose(this.index - 1), { "aria-label": "One token back" }),
      this.player,
      button("Next", () => this.choose(this.index + 1), { "aria-label": "Next token" }),
      field("Token", this.slider),
      this.which,
    );
    return [
      el("section", { class: "now" }, el("h2", {}, "The answer"), this.answer.node, player),
      el(
        "div",
        { class: "grid choices" },
        field("Show", this.mark),
        field("For", this.scope),
        field("Layer", this.layer),
        field("Compare with", this.other),
        field("Another answer", this.rival),
        el("div", {}, el("label", { class: "check" }, this.byScore, "Weigh by score"), this.scoreless),
      ),
    ];
  }

  // share saves the picture of a token as a file.
  async share(kind) {
    const position = this.outputs[this.index];
    const r = this.recording;
    const list = this.found.filter((f) => f.from > 0).map((f) => r.text(f.from, f.to));
    const page = poster(r, position, { told: this.summary.textContent, passages: list, model: await this.app.model() });
    const name = fileName(`looked-at-${r.tokens[position]}`, kind);
    if (kind === "svg") save(name, svg(page), "image/svg+xml");
    else save(name, await png(page), "image/png");
    announce(`${name} is saved`);
  }

  show() {
    this.app.answered().then((is) => (this.fromChat.hidden = !is));
    if (!this.waiting) return;
    const { request, found, at } = this.waiting;
    this.waiting = null;
    if (!found) {
      this.ask(request, at);
      return;
    }
    this.stop?.abort();
    this.open(found.recording, found);
  }

  hide() {
    this.pause();
  }

  // take sets the request that is recorded when the view is shown. found is {recording, position, passage} if there
  // already is a recording. at is an offset in the answer's text, whose token is shown first, or -1.
  take(request, found, at = -1) {
    this.waiting = { request, found, at };
    const last = request.messages.at(-1);
    if (last?.role === "user") this.prompt.value = last.content;
  }

  // ask requests and records an answer. at is an offset in its text, whose token is shown first, or -1.
  async ask(request, at = -1) {
    this.stop?.abort();
    const stop = (this.stop = new AbortController());
    const layers = this.wanted.value.trim();
    const options = {
      scores: this.scores.checked,
      experts: this.experts.checked,
      layers: layers === "all" || !layers ? "all" : layers.split(",").map(Number),
    };
    const most = Math.min(request.max_tokens ?? Infinity, Number(this.most.value) || 64);
    this.fault.hidden = true;
    const held = [this.form, this.nothing].some((part) => part.contains(document.activeElement));
    this.tools.hidden = true;
    this.nothing.hidden = true;
    this.submit.hidden = true;
    this.stopper.hidden = false;
    if (held) this.stopper.focus();
    this.progress.textContent = "Reading the prompt\u2026";
    try {
      const body = { ...request, model: await this.app.model(), max_tokens: most };
      const { recording, reply } = await record(body, options, stop.signal, (r, reply) => {
        const written = r.tokens.length - r.prompt;
        if (written) this.progress.textContent = `${plural(written, "token")} of the answer\u2026`;
        else if (reply.progress) this.progress.textContent = told(reply.progress);
      });
      this.open(recording, foundAt(recording, at, reply.message.content));
    } catch (err) {
      if (!stop.signal.aborted) this.fail(err.message);
    }
    this.progress.textContent = "";
    if (this.stop !== stop) return; // another recording has begun
    const failed = this.tools.hidden;
    this.tools.hidden = !this.recording; // the previous recording, if there is one, is still shown
    this.nothing.hidden = Boolean(this.recording);
    const waited = document.activeElement === this.stopper;
    this.submit.hidden = false;
    this.stopper.hidden = true;
    if (waited) (failed ? this.submit : this.slider).focus();
  }

  fail(message) {
    this.fault.hidden = false;
    this.fault.textContent = message;
  }

  // open shows a recording, first at the given passage or at the token with the strongest attention.
  open(recording, found) {
    this.pause();
    this.fault.hidden = true;
    this.outputs = recording.outputs;
    if (!this.outputs.length) {
      this.fail("The server sent no selections with this answer.");
      return;
    }
    this.remember(recording);
    this.recording = recording;
    this.kept = new Map();
    this.wholeReason = "";
    const names = recording.layers.map((l) => [String(l), `layer ${l}`]);
    fill(this.layer, [["all", "all layers"], ...names]);
    fill(this.other, [["", "no other layer"], ...names]);
    this.slider.max = String(this.outputs.length - 1);
    const looks = this.outputs.flatMap((p) => [...recording.rowOf(p).looks.values()]);
    const scored = looks.some((l) => l.scores);
    const whole = looks.every((l) => l.count === l.keys);
    this.byScore.disabled = !scored;
    this.byScore.checked = scored;
    const chose = looks.some((l) => l.chosen.length);
    this.scoreless.textContent = scored
      ? ""
      : chose
        ? "Scores were not recorded."
        : "There are no scores: every token was read.";
    if (looks.every((l) => l.all)) this.explainWhole();
    else if (whole) this.wholeReason = " A text this short is read completely.";
    this.tools.hidden = false;
    this.nothing.hidden = true;
    for (const part of [this.picture, this.path, this.expertPicture]) part.open(recording);
    this.answer.show(recording, recording.prompt);
    this.text.show(recording);
    if (!found?.position) found = strongestOf(recording, this.outputs);
    this.needle = found?.passage ?? null;
    this.choose(found ? this.outputs.indexOf(found.position) : 0);
    this.tools.scrollIntoView();
    if (this.needle) this.text.reveal(this.needle[0]);
    announce(`Recorded ${plural(this.outputs.length, "token")}`);
  }

  // remember lists earlier recordings that begin with the same text, to compare with this one.
  remember(recording) {
    this.before = (this.before ?? []).filter((r) => r !== recording).slice(-4);
    const same = (r) => {
      const n = Math.min(r.prompt, recording.prompt);
      const shared = r.tokens.slice(0, n).findIndex((t, p) => t !== recording.tokens[p]);
      return shared < 0 || shared > n / 2;
    };
    const name = (r) => visible(r.text(r.prompt, r.tokens.length)).trim().slice(0, 40) || "(empty)";
    const list = this.before.map((r, i) => [String(i), name(r), same(r)]).filter(([, , fits]) => fits);
    this.rivals = [...this.before];
    fill(this.rival, [["", list.length ? "no other answer" : "record one more"], ...list.reverse()]);
    this.rival.disabled = !list.length;
    this.before.push(recording);
  }

  // explainWhole shows why every token of a short text is attended to. The server returns the model's top-k.
  async explainWhole() {
    const { recording } = this;
    try {
      const { index_topk } = await json("debug/explain");
      if (this.recording !== recording) return;
      this.wholeReason = index_topk
        ? ` Each layer chooses ${plural(index_topk, "token")}, so that texts of up to ` +
          `${plural(index_topk, "token")} are read whole.`
        : " This model has no indexer: every layer reads every token.";
      this.update();
    } catch {
      // the summary is complete without the number
    }
  }

  // choose selects a token of the answer by index.
  choose(index) {
    this.index = Math.max(0, Math.min(this.outputs.length - 1, index));
    this.slider.value = String(this.index);
    this.update();
    // After all other changes, because reading the position of a token makes the browser compute the layout.
    const position = this.outputs[this.index];
    if (!this.answer.shows(position)) this.answer.reveal(position);
  }

  pick(position) {
    const at = this.outputs.indexOf(position);
    if (at >= 0) this.choose(at);
  }

  // follow selects a range of the text, and shows which tokens of the answer attended to it.
  follow(from, to) {
    this.needle = [from, to];
    this.update();
  }

  play() {
    if (this.playing) return this.pause();
    if (this.index === this.outputs.length - 1) this.choose(0);
    this.player.textContent = "Pause";
    this.player.setAttribute("aria-pressed", "true");
    this.playing = setInterval(() => {
      if (this.index === this.outputs.length - 1) this.pause();
      else {
        this.choose(this.index + 1);
        this.showBest();
      }
    }, stay);
    this.showBest();
  }

  // showBest scrolls to the passage with the most attention, except at the beginning and end of the prompt, to which
  // nearly every token attends.
  showBest() {
    const inside = this.found.find((f) => f.from > 0 && f.to < this.recording.prompt) ?? this.found[0];
    if (inside && !this.text.shows(inside.from)) this.text.reveal(inside.from);
  }

  pause() {
    clearInterval(this.playing);
    this.playing = null;
    this.player.textContent = "Play";
    this.player.setAttribute("aria-pressed", "false");
  }

  // once computes a value for the whole answer, and caches it by its arguments.
  once(name, layers, byScore, compute) {
    const key = `${name} ${layers} ${byScore}`;
    if (!this.kept.has(key)) this.kept.set(key, compute());
    return this.kept.get(key);
  }

  // rowHeat returns how much one token attended to each position.
  rowHeat(position, layers, byScore) {
    const sums = new Float32Array(this.recording.tokens.length);
    return { sums, most: heat(this.recording.rowOf(position), layers, sums, byScore) };
  }

  // wholeHeat returns how much all tokens of the answer attended to each position, and the number of positions without
  // attention.
  wholeHeat(layers, byScore) {
    return this.once("heat", layers, byScore, () => {
      const out = { sums: new Float32Array(this.recording.tokens.length), most: 0, never: 0 };
      for (const p of this.outputs) out.most += heat(this.recording.rowOf(p), layers, out.sums, byScore);
      for (let p = 0; p < this.outputs.at(-1); p++) if (!out.sums[p]) out.never++;
      return out;
    });
  }

  wholeRank(layers, byScore) {
    return this.once("rank", layers, byScore, () =>
      rank(
        this.recording,
        this.outputs.map((p) => this.rowHeat(p, layers, byScore).sums),
        byScore,
      ),
    );
  }

  // update draws the view for the current selection.
  update() {
    const r = this.recording;
    const position = this.outputs[this.index];
    const row = r.rowOf(position);
    const single = this.layer.value !== "all";
    const pair = single && this.other.value !== "" ? [Number(this.layer.value), Number(this.other.value)] : null;
    const layers = pair ?? (single ? [Number(this.layer.value)] : r.layers);
    const answer = this.scope.value === "answer";
    const byScore = this.byScore.checked;
    this.other.disabled = !single;
    this.which.textContent = `${this.index + 1} of ${this.outputs.length}: ${quoted(r.tokens[position])}`;
    this.slider.setAttribute("aria-valuetext", this.which.textContent);
    const rival = this.rival.value === "" ? null : compare(r, this.rivals[Number(this.rival.value)], byScore);
    const heatBy = (weighed) => (answer ? this.wholeHeat(layers, weighed) : this.rowHeat(position, layers, weighed));
    const now = heatBy(byScore);
    this.setMarks(row, position, layers, pair, rival, this.mark.value === "looked" ? now : heatBy(false));
    const never = this.wholeHeat(layers, false).never;
    const [, mine, others, shared] = rival?.counts ?? [];
    const verb = byScore ? "stood out" : "were looked at";
    this.summary.textContent = rival
      ? `Of the text that both answers begin with, ${plural(shared, "token")} ${verb} for both, ${count(mine)} for ` +
        `this answer alone, ${count(others)} for the other one alone.`
      : summary(r, position, layers, pair, never) + this.wholeReason;
    this.picture.show(row, position, pair, this.needle, this.summary.textContent);
    this.setBest(answer ? this.wholeRank(layers, byScore) : rank(r, [now.sums], byScore));
    const who = single ? `layer${pair ? "s" : ""} ${layers.join(" and ")}` : "all layers";
    const what = answer ? "the whole answer" : quoted(r.tokens[position]);
    this.bestBy.textContent = `By ${who} for ${what}, ${byScore ? "by score" : "by the share of tokens chosen"}.`;
    if (this.needle) this.path.show(this.needle, this.index);
    this.expertPicture.show(
      answer ? this.outputs.map((p) => r.rowOf(p)) : [row],
      answer ? "this answer" : "this token",
    );
  }

  // setMarks sets the colours of the tokens.
  setMarks(row, position, layers, pair, rival, now) {
    const n = this.recording.tokens.length;
    if (this.kinds?.length !== n) this.kinds = new Uint8Array(n);
    const kinds = this.kinds.fill(0);
    if (rival) rival.kinds.forEach((k, p) => (kinds[p] = [0, first, second, both][k]));
    else if (pair) {
      row.looks.get(pair[0])?.each((p) => (kinds[p] = first));
      row.looks.get(pair[1])?.each((p) => (kinds[p] = kinds[p] === first ? both : second));
    } else if (this.mark.value === "never") {
      const { sums } = this.wholeHeat(layers, false);
      for (let p = 0; p < this.outputs.at(-1); p++) if (!sums[p]) kinds[p] = never;
    } else {
      const agree = this.mark.value === "agree";
      let most = 0;
      for (let p = 0; p < n; p++) if (now.sums[p] > most) most = now.sums[p];
      for (let p = 0; p < n; p++) {
        if (agree) kinds[p] = now.sums[p] === now.most ? hottest : 0;
        else if (now.sums[p]) kinds[p] = Math.ceil(hottest * Math.sqrt(now.sums[p] / most));
      }
    }
    const [from, to] = this.needle ?? [-1, -1];
    // Pools and blocks are shown only if selections are not compared.
    const rows = this.scope.value === "answer" ? this.outputs.map((p) => this.recording.rowOf(p)) : [row];
    const plain = !rival && !pair && this.mark.value === "looked";
    const pool = plain ? pools(rows, layers, n) : null;
    const block = plain ? kept(rows, layers, n) : null;
    const pooled = (p) => {
      if (!pool?.in[p]) return "";
      const at = p % pool.group;
      return " pool" + (at === 0 ? " pool-first" : at === pool.group - 1 ? " pool-last" : "");
    };
    const name = (p) => {
      const needle = p >= from && p < to ? " needle" : "";
      return (
        classes[kinds[p]] + pooled(p) + (block?.[p] ? " kept" : "") + needle + (p === position ? " chosen" : "")
      ).trim();
    };
    this.text.mark(name);
    this.answer.mark(name);
    const followed = [
      pool && ["pool pool-first pool-last", `a pool of ${pool.group} tokens`],
      block && ["kept", `kept by layer ${row.blocks?.layer ?? ""}`],
      this.needle && ["followed", "what you follow"],
    ].filter(Boolean);
    const samples = followed.flatMap(([style, text]) => [" ", el("span", { class: style }, text)]);
    this.legend.replaceChildren(...this.meaning(pair, layers, rival), ...samples);
  }

  // meaning returns the legend of the colours.
  meaning(pair, layers, rival) {
    const sample = (name, text) => el("span", { class: name }, text);
    if (rival) return [sample("a", "this answer"), " ", sample("b", "the other one"), " ", sample("ab", "both")];
    if (pair) {
      const [a, b] = pair;
      return [sample("a", `layer ${a}`), " ", sample("b", `layer ${b}`), " ", sample("ab", "both")];
    }
    if (this.mark.value === "never") {
      const who = layers.length === 1 ? `layer ${layers[0]}` : "any layer";
      return [sample("never", "never looked at"), ` by ${who} during this answer`];
    }
    if (this.mark.value === "agree") return [sample("h6", "chosen by all layers")];
    const scale = [1, 2, 3, 4, 5, 6].map((i) => sample(`h${i}`, "\u2003"));
    return [
      ...scale,
      this.byScore.checked ? " further above the other chosen ones by score" : " chosen in more layers",
    ];
  }

  setBest(found) {
    const r = this.recording;
    this.found = found;
    const most = found[0]?.share || 1;
    const items = found.slice(0, 6).map((f) => {
      const text = visible(r.text(f.from, f.to)).trim().replace(/\s+/g, " ");
      const meter = el("span", { class: "meter", "aria-hidden": "true" });
      meter.style.width = `${Math.round((100 * f.share) / most)}%`;
      const open = () => {
        this.text.reveal(f.from);
        this.follow(f.from, f.to);
      };
      const shown = text.length > 110 ? text.slice(0, 110) + "\u2026" : text || "(empty line)";
      return el("li", {}, button(shown, open, { class: "plain passage" }), meter);
    });
    this.best.replaceChildren(...items);
  }
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  select.value = options[0][0];
}

// foundAt returns the position of the token at an offset in the answer's text, which may follow reasoning, or
// undefined.
function foundAt(recording, offset, text) {
  if (offset < 0) return undefined;
  let length = -Math.max(0, recording.text(recording.outputs[0], recording.tokens.length).lastIndexOf(text));
  for (const position of recording.outputs) {
    length += recording.tokens[position].length;
    if (length > offset) return { ...strongestOf(recording, [position]), position };
  }
  return undefined;
}

// strongestOf returns the strongest attention of the given tokens and its passage, or undefined without scores.
function strongestOf(recording, outputs) {
  const peak = strongest(recording, outputs);
  if (!peak) return undefined;
  const passage = recording.passages.find(([from, to]) => peak.at >= from && peak.at < to);
  return { position: peak.position, passage };
}
