import { key } from "./api.js";
import { button, choice, copy, count, el, field, milliseconds, sends } from "./dom.js";
import { sizeOf } from "./attachments.js";
import { Rich } from "./markdown.js";
import * as snippets from "./snippets.js";
import { Prose, visible } from "./text.js";

// Elements that show a message of a conversation.

const names = { user: "You", assistant: "Model", tool: "Tool result" };

// turn returns the box of a message. The caller adds its buttons.
export function turn(role, ...content) {
  const body = el("div", { class: "body" }, content);
  return el("article", { class: `message ${role}` }, el("h2", {}, names[role]), body);
}

// said shows the text and the file names of a message of the user or a tool.
export function said(message) {
  const file = (f) => el("li", {}, visible(f.name), el("span", { class: "muted" }, ` ${sizeOf(f)}`));
  const text = el("div", { class: "prose" });
  new Prose(text).set(message.content);
  return turn(message.role, message.files?.length ? el("ul", { class: "files" }, message.files.map(file)) : null, text);
}

// Answer is the box of an answer, which may still grow.
export class Answer {
  constructor() {
    const thought = el("div", { class: "prose rich" });
    const text = el("div", { class: "prose rich" });
    this.reading = new Reading();
    this.waiting = el("div", { class: "muted waiting" }, this.reading.node);
    this.fold = el("details", { class: "reasoning", hidden: true }, el("summary", {}, "Reasoning"), thought);
    this.calls = el("div", { class: "calls" });
    this.fault = el("p", { class: "fault", hidden: true });
    this.prose = { thought: new Rich(thought), text: new Rich(text) };
    this.node = turn("assistant", this.waiting, this.fold, text, this.calls, this.fault);
  }

  // show shows a message; ended is true if it is complete.
  show(message, ended = false) {
    const { content, reasoning, calls, fault, stats } = message;
    this.waiting.hidden = Boolean(content || reasoning || calls?.length || fault || stats);
    this.fold.hidden = !reasoning;
    this.prose.thought.set(reasoning ?? "", ended);
    this.prose.text.set(content ?? "", ended);
    this.calls.replaceChildren(...(calls ?? []).filter(Boolean).map(called));
    this.fault.hidden = !fault;
    this.fault.textContent = fault ?? "";
  }
}

// Reading shows the progress of a prompt and the remaining time.
export class Reading {
  constructor() {
    this.bar = el("progress", { max: 1, "aria-label": "Reading the prompt", hidden: true });
    this.text = el("span", { class: "small" }, "\u2026");
    this.node = el("div", { class: "reading" }, this.bar, this.text);
  }

  show(progress) {
    this.bar.hidden = !progress;
    this.text.textContent = progress ? told(progress) : "\u2026";
    if (progress) this.bar.value = progress.total ? progress.processed / progress.total : 0;
  }
}

// told returns the progress of a prompt as text, with the remaining time at the current rate.
export function told({ total, cache, processed, time_ms }) {
  const read = processed - cache;
  const text = `Reading the prompt: ${count(processed)} of ${count(total)} tokens`;
  if (read <= 0 || processed >= total) return text;
  const left = ((total - processed) * time_ms) / read / 1000;
  const time = left < 90 ? `${Math.max(1, Math.round(left))} s` : `${Math.round(left / 60)} min`;
  return `${text}, about ${time} left`;
}

// called shows a tool call.
function called(call) {
  let text = call.arguments;
  try {
    text = JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    // not complete yet
  }
  return el(
    "section",
    { class: "call", "aria-label": `Call of ${call.name}` },
    el("h3", {}, "Calls ", el("code", {}, visible(call.name))),
    el("pre", { class: "code", tabIndex: 0 }, visible(text)),
  );
}

// sideBySide shows versions of a message in columns.
export function sideBySide(list, at) {
  const column = (m, i) => {
    const text = el("div", { class: "prose rich" });
    if (m.role === "assistant") new Rich(text).set(m.content ?? "", true);
    else new Prose(text).set(m.content ?? "");
    return el("section", { class: i === at ? "shown" : "" }, el("h3", {}, `Version ${i + 1}`), text);
  };
  return el(
    "div",
    { class: "beside", tabIndex: 0, role: "region", "aria-label": "Versions side by side" },
    list.map(column),
  );
}

// pointed returns the offset in an answer's text of the selection on the page, or -1. The page does not show Markdown's
// markup, so the n-th occurrence of the selected text on the page is mapped to the n-th occurrence in the answer's
// text.
export function pointed(box, content) {
  const selection = getSelection();
  const word = selection.toString().trim().split(/\s+/)[0];
  const shown = box.querySelector(".body > .prose");
  if (!word || !selection.rangeCount || !shown.contains(selection.anchorNode)) return -1;
  const range = document.createRange();
  range.selectNodeContents(shown);
  const chosen = selection.getRangeAt(0);
  range.setEnd(chosen.startContainer, chosen.startOffset);
  let at = content.indexOf(word);
  for (let n = range.toString().split(word).length - 1; n > 0 && at >= 0; n--) at = content.indexOf(word, at + 1);
  return at;
}

// facts returns the line below an answer: rate, number of tokens, and finish reason.
export function facts({ stats, finish, stopped }) {
  const out = [];
  const { rate, first, prompt, cached, completion } = stats ?? {};
  if (rate) out.push(`${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`);
  if (first) out.push(`first token after ${milliseconds(first)}`);
  if (completion) {
    out.push(`${count(prompt)} tokens in${cached ? ` (${count(cached)} cached)` : ""}, ${count(completion)} out`);
  }
  if (finish === "length") out.push("cut at the limit of tokens");
  if (stopped) out.push("stopped");
  return el("span", { class: "muted small stats" }, out.join(" \u00b7 "));
}

// asCode shows a request as a program. request returns a promise of the request, when it is needed.
export function asCode(request) {
  const languages = { curl: snippets.curl, Python: snippets.python, Go: snippets.go };
  const code = el("code");
  const show = async (name) => {
    try {
      code.textContent = languages[name](await request(), key() !== "");
    } catch (err) {
      code.textContent = err.message;
    }
  };
  const tabs = choice(
    Object.keys(languages).map((n) => [n, n]),
    "curl",
    show,
  );
  tabs.setAttribute("aria-label", "Language");
  return el(
    "details",
    { class: "as", ontoggle: () => show(tabs.value) },
    el("summary", {}, "Copy as code"),
    el(
      "div",
      { class: "row" },
      tabs,
      button("Copy", () => copy(code.textContent, code)),
    ),
    el("pre", { class: "code", tabIndex: 0, "aria-label": "The request as a program" }, code),
  );
}

// exampleResult is a tool result like those in the built-in model's training data; with others it makes mistakes.
const exampleResult = '{"result": "Nora"}';

// results is a form for the results of tool calls; done is called with the texts in the order of the calls.
export function results(calls, done) {
  const inputs = calls.map(() => el("textarea", { rows: 2, class: "mono", placeholder: exampleResult }));
  const submit = (e) => {
    e.preventDefault();
    done(inputs.map((i) => i.value || exampleResult));
  };
  const form = el(
    "form",
    { class: "results", onsubmit: submit },
    calls.map((c, i) => field(`Result of ${c.name}`, inputs[i], "left empty, the example is sent")),
    el("button", { class: "primary" }, "Send the result"),
  );
  for (const i of inputs) sends(i, () => form.requestSubmit());
  return form;
}
