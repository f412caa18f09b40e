import { events, text as fetchText } from "./api.js";
import { Reply, withFiles } from "./conversation.js";
import { announce, button, count, el, field, milliseconds, percent } from "./dom.js";
import { Grid, band, cell, flag } from "./picture.js";
import { heat, rank, standout } from "./recording.js";
import { record } from "./record.js";
import { quoted, visible } from "./text.js";
import { TokenText } from "./tokens.js";
import { Reading } from "./turn.js";

// question is a question that the log answers; others lists more.
export const question = "What is the access code of Wanda?";
const others = [
  "What is the locker number of Nora?",
  "What is the favorite fruit of Omar?",
  "What is the home city of Liam?",
];

// Start is the view that demonstrates sparse attention.
export class Start {
  constructor(app) {
    this.app = app;
    this.name = "start";
    this.title = "Start";
    this.log = null; // promise of the log's text
    this.build();
  }

  build() {
    this.text = new TokenText({ label: "The log" });
    this.size = el("p", { class: "muted small" }, "The log of a server, with ten facts about people hidden in it.");
    this.question = el("input", { type: "text", value: question, required: true, autocomplete: "off" });
    this.button = el("button", { class: "primary large" }, "Ask");
    this.stopButton = button("Stop", () => this.abort?.abort(), { hidden: true });
    this.reading = new Reading();
    this.reading.node.hidden = true;
    this.answer = el("p", { class: "answer-line", hidden: true });
    this.told = el("p", { class: "told", hidden: true });
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    this.picture = new Grid("Layers by positions", 76);
    this.pictureBox = el(
      "figure",
      { class: "mini", hidden: true },
      this.picture.canvas,
      el("div", { class: "axis muted small" }, el("span", {}, "start of the log"), el("span", {}, "end")),
      el(
        "figcaption",
        { class: "muted small" },
        "Each row is a layer, each column a place in the text; coloured places ",
        "were read to write one token of the answer.",
      ),
    );
    this.more = el(
      "p",
      { class: "row", hidden: true },
      button("Show it token by token", () => this.app.explore(this.body, this.found), { class: "primary" }),
      el("a", { href: "#chat", class: "button" }, "Chat"),
      el("a", { href: "#plans", class: "button" }, "See what ran"),
    );
    this.node = el(
      "div",
      { class: "start page" },
      el("h1", {}, "See what the model looks at"),
      el(
        "p",
        { class: "lead" },
        "A model with sparse attention does not read everything again for every token it writes. ",
        "Each layer chooses a few tokens by their scores. Ask this model, and see how it finds one line among 160.",
      ),
      el(
        "div",
        { class: "columns wide-left" },
        el("section", { class: "card log" }, el("h2", {}, "The log"), this.size, this.text.node),
        el(
          "section",
          { class: "card ask-card" },
          el("h2", {}, "The question"),
          this.buildForm(),
          this.reading.node,
          this.answer,
          this.told,
          this.pictureBox,
          this.fault,
          this.more,
        ),
      ),
    );
  }

  buildForm() {
    const submit = (e) => {
      e.preventDefault();
      this.ask();
    };
    const other = (text) =>
      button(
        text,
        () => {
          if (this.busy) return;
          this.question.value = text;
          this.ask();
        },
        { class: "plain" },
      );
    return el(
      "form",
      { onsubmit: submit },
      field("Ask about a fact of the log", this.question),
      el("p", { class: "row" }, this.button, this.stopButton),
      el("p", { class: "others small muted" }, "Or: ", others.map(other)),
    );
  }

  async show() {
    try {
      const log = await this.load();
      if (!this.recording) this.preview(log);
    } catch (err) {
      this.log = null; // the next visit of the view tries again
      this.fail(err);
    }
  }

  // load loads the log once.
  load() {
    this.log ??= fetchText("page/station.txt");
    return this.log;
  }

  hide() {}

  // preview shows the log before the first question.
  preview(log) {
    const tokens = log.match(/[^\n]*\n|[^\n]+$/g) ?? [];
    this.text.show({
      tokens,
      prompt: tokens.length + 1,
      passages: tokens.map((_, i) => [i, i + 1]),
      text: (from, to) => tokens.slice(from, to).join(""),
    });
  }

  fail(err) {
    this.fault.hidden = false;
    this.fault.textContent = err.message;
  }

  async ask() {
    if (this.busy) return; // the button stays enabled, because a disabled one would lose the focus
    this.busy = true;
    this.button.setAttribute("aria-disabled", "true");
    this.fault.hidden = true;
    this.button.textContent = "Reading the log\u2026";
    this.answer.hidden = false;
    this.answer.textContent = "";
    this.told.hidden = true;
    this.lit = null;
    this.found = null;
    this.text.mark(() => "");
    this.abort = new AbortController();
    this.stopButton.hidden = false;
    this.progress(null);
    try {
      const content = withFiles({ files: [{ text: await this.load() }], content: this.question.value });
      const messages = [{ role: "user", content }];
      this.body = { model: await this.app.model(), temperature: 0, max_tokens: 32, messages };
      await this.askRecorded();
    } catch (err) {
      if (this.abort.signal.aborted) announce("Stopped");
      else this.fail(err);
    }
    this.busy = false;
    if (document.activeElement === this.stopButton) this.button.focus();
    this.stopButton.hidden = true;
    this.reading.node.hidden = true;
    this.button.removeAttribute("aria-disabled");
    this.button.textContent = "Ask again";
  }

  progress(p) {
    this.reading.show(p);
    this.reading.node.hidden = !p;
  }

  // askRecorded shows the answer and the lines that it attended to. If the server does not record, only the answer is
  // shown.
  async askRecorded() {
    let opened = false;
    try {
      const { recording, reply } = await record(this.body, { experts: true }, this.abort.signal, (r, reply) => {
        this.progress(reply.progress);
        if (!opened) {
          opened = true;
          this.recording = r;
          this.size.textContent = `${count(r.prompt)} tokens with the question.`;
          this.text.show(r, 0, r.prompt);
        }
        this.answer.textContent = visible(reply.message.content);
        this.watch(r);
      });
      this.finish(recording, reply);
    } catch (err) {
      if (!err.param?.startsWith("sparrow")) throw err;
      await this.askPlain();
      this.told.hidden = false;
      const why = `the server did not record the selections: ${err.message}`;
      this.told.textContent = `No line is highlighted, because ${why}`;
    }
  }

  async askPlain() {
    const reply = new Reply();
    for await (const chunk of events("v1/chat/completions", {
      body: { ...this.body, stream: true, return_progress: true },
      signal: this.abort.signal,
    })) {
      reply.add(chunk);
      this.progress(reply.progress);
      this.answer.textContent = visible(reply.message.content);
    }
  }

  // watch shows the attention of the token at a position.
  watch(r, position = r.outputs.at(-1)) {
    if (position === undefined) return;
    this.pictureBox.hidden = false;
    const row = r.rowOf(position);
    this.picture.show((pixels) => this.draw(pixels, r, row));
  }

  draw(pixels, r, row) {
    const ramp = pixels.ramp("warm");
    r.layers.forEach((layer, i) => {
      const look = row.looks.get(layer);
      const rows = cell(i, r.layers.length, pixels.height, Math.round(pixels.scale));
      if (look) band(pixels, look, [0, r.prompt], rows, ramp);
    });
    const x = this.lit && Math.round((this.lit[0] / r.prompt) * pixels.width);
    if (this.lit) flag(pixels, x, pixels.pack(pixels.palette.both));
  }

  // finish highlights the line with the strongest attention during the answer.
  finish(r, reply) {
    const outputs = r.outputs;
    this.found = { recording: r };
    if (outputs.length) this.app.recorded(this.body, this.found);
    this.more.hidden = false;
    this.told.hidden = false;
    if (!outputs.length) {
      this.told.textContent = "The server sent no selections with this answer.";
      return;
    }
    const ends = r.text(0, r.prompt).lastIndexOf("\n\nQuestion: ");
    const inLog = ({ from, to }) => from > 0 && r.text(0, to).length <= ends + 2;
    const rows = outputs.map((p) => {
      const sums = new Float32Array(r.tokens.length);
      heat(r.rowOf(p), r.layers, sums, true);
      return sums;
    });
    const best = rank(r, rows, true).find(inLog);
    if (!best) {
      this.told.textContent = "There are no scores: for a prompt this short, the layers read every token.";
      return;
    }
    this.lit = [best.from, best.to];
    const sums = rows[0].map((_, p) => rows.reduce((total, row) => total + row[p], 0));
    const most = sums.subarray(0, r.prompt).reduce((a, b) => Math.max(a, b), 0);
    this.text.mark((p) => {
      if (p >= best.from && p < best.to) return "lit";
      const share = Math.sqrt(sums[p] / most);
      return share > 0.25 ? `h${Math.ceil(4 * share)}` : "";
    });
    this.text.reveal(best.from);
    const peak = standout(r, outputs, best.from, best.to);
    Object.assign(this.found, { position: peak.position, passage: this.lit });
    this.tell(r, outputs, peak);
    this.picture.describe(this.told.textContent);
    this.watch(r, peak.position);
    announce(`${reply.message.content} ${this.told.textContent} It took ${milliseconds(reply.stats().total)}.`);
  }

  tell(r, outputs, peak) {
    const looks = r.layers.map((l) => r.rowOf(outputs[0]).looks.get(l)).filter(Boolean);
    const chosen = Math.max(...looks.map((l) => l.count));
    const quote = (p) => el("b", {}, quoted(r.tokens[p]));
    this.told.replaceChildren(
      `To write each token, each of ${r.layers.length} layers chose ${count(chosen)} of ${count(looks[0].keys)} `,
      `tokens (${percent(chosen, looks[0].keys)}) and read no others. `,
      "The highlighted line has the largest sum of scores: to write ",
      quote(peak.position),
      `, layer ${peak.layer} gave ${peak.first ? "its highest score" : "one of its highest scores"} to the `,
      quote(peak.at),
      " in it.",
    );
  }
}
