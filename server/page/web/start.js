import { text as fetchText } from "./api.js";
import { withFiles } from "./conversation.js";
import { announce, button, count, el, milliseconds } from "./dom.js";
import { Grid, band } from "./picture.js";
import { heat } from "./recording.js";
import { record } from "./record.js";
import { visible } from "./text.js";
import { TokenText } from "./tokens.js";

// question is one that the log answers.
export const question = "What is the access code of Wanda?";

// Start shows a first visitor what sparse attention does.
export class Start {
  constructor(app) {
    this.app = app;
    this.name = "start";
    this.title = "Start";
    this.log = "";
    this.build();
  }

  build() {
    this.text = new TokenText({ label: "The log" });
    this.size = el("p", { class: "muted small" }, "A log of a weather station, with a few facts hidden in it.");
    this.button = button("Ask", () => this.ask(), { class: "primary large" });
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
      button("Look at it token by token", () => this.app.explore(this.body), { class: "primary" }),
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
        "Each layer chooses the few tokens that matter. Ask this one, and watch it find one line among 160.",
      ),
      el(
        "div",
        { class: "columns wide-left" },
        el("section", { class: "card log" }, el("h2", {}, "The log"), this.size, this.text.node),
        el(
          "section",
          { class: "card ask-card" },
          el("h2", {}, "The question"),
          el("p", { class: "question" }, question),
          this.button,
          this.answer,
          this.told,
          this.pictureBox,
          this.fault,
          this.more,
        ),
      ),
    );
  }

  async show() {
    if (this.log) return;
    try {
      this.log = await fetchText("page/station.txt");
      if (!this.recording) this.preview();
    } catch (err) {
      this.fail(err);
    }
  }

  hide() {}

  // preview shows the log before anything was asked.
  preview() {
    const tokens = this.log.match(/[^\n]*\n|[^\n]+$/g) ?? [];
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
    this.fault.hidden = true;
    this.button.disabled = true;
    this.button.textContent = "Reading the log\u2026";
    this.answer.hidden = false;
    this.answer.textContent = "";
    this.body = {
      model: this.app.model,
      temperature: 0,
      max_tokens: 64,
      messages: [{ role: "user", content: withFiles({ files: [{ text: this.log }], content: question }) }],
    };
    try {
      let opened = false;
      const { recording, reply } = await record(this.body, { experts: true }, undefined, (r, reply) => {
        if (!opened) {
          opened = true;
          this.recording = r;
          this.size.textContent = `${count(r.prompt)} tokens.`;
          this.text.show(r, 0, r.prompt);
        }
        this.answer.textContent = visible(reply.message.content);
        this.watch(r);
      });
      this.finish(recording, reply);
    } catch (err) {
      this.fail(err);
    }
    this.button.disabled = false;
    this.button.textContent = "Ask again";
  }

  // watch draws what was read for the token at a position.
  watch(r, position = r.outputs.at(-1)) {
    if (position === undefined) return;
    this.pictureBox.hidden = false;
    const row = r.rowOf(position);
    this.picture.show((pixels) => this.draw(pixels, r, row));
  }

  draw(pixels, r, row) {
    const ramp = pixels.ramp("warm");
    const bins = new Uint16Array(pixels.width);
    r.layers.forEach((layer, i) => {
      const y0 = Math.round((i * pixels.height) / r.layers.length);
      const y1 = Math.round(((i + 1) * pixels.height) / r.layers.length) - Math.round(pixels.scale);
      const look = row.looks.get(layer);
      if (look) band(pixels, look, 0, r.prompt, y0, Math.max(y0 + 1, y1), ramp, bins);
    });
    if (this.lit) {
      const x = Math.round((this.lit[0] / r.prompt) * pixels.width);
      pixels.bar(x, x + Math.max(2, Math.round(2 * pixels.scale)), 0, pixels.height, pixels.pack(pixels.palette.both));
    }
  }

  // finish lights the line that was looked at most while the answer was written.
  finish(r, reply) {
    const outputs = r.outputs;
    this.more.hidden = false;
    this.told.hidden = false;
    if (!outputs.length) {
      this.told.textContent = "The server sent no selections with this answer.";
      return;
    }
    const sums = new Float32Array(r.tokens.length);
    for (const p of outputs) heat(r.rowOf(p), r.layers, sums, true);
    const answerAt = r.text(0, r.prompt).lastIndexOf("\n\nQuestion: ");
    let best = null,
      end = 0;
    for (const [from, to] of r.passages) {
      end += r.text(from, to).length;
      if (end > answerAt) break;
      let sum = 0;
      for (let p = from; p < to; p++) sum += sums[p];
      const share = sum / (to - from);
      if (to - from > 3 && (!best || share > best.share)) best = { from, to, share };
    }
    let most = 0;
    for (let p = 0; p < r.prompt; p++) most = Math.max(most, sums[p]);
    this.lit = [best.from, best.to];
    this.text.mark((p) =>
      p >= best.from && p < best.to
        ? "lit"
        : sums[p] > most / 6
          ? "h" + Math.min(4, Math.ceil((4 * sums[p]) / most))
          : "",
    );
    this.text.reveal(best.from);
    const looks = r.layers.map((l) => r.rowOf(outputs[0]).looks.get(l)).filter(Boolean);
    const chosen = Math.max(...looks.map((l) => l.count));
    this.told.textContent =
      `For each token of this answer, each of ${r.layers.length} layers read ${count(chosen)} of ` +
      `${count(looks[0].keys)} tokens. The line that is lit was read most: ` +
      visible(r.text(best.from, best.to)).trim();
    this.picture.describe(this.told.textContent);
    const reads = outputs.map((p) =>
      r.layers.reduce(
        (n, l) =>
          n +
          (r
            .rowOf(p)
            .looks.get(l)
            ?.within(...this.lit) ?? 0),
        0,
      ),
    );
    this.watch(r, outputs[reads.indexOf(Math.max(...reads))]);
    announce(`${reply.message.content} ${this.told.textContent} It took ${milliseconds(reply.stats().total)}.`);
  }
}
