import { events, key } from "./api.js";
import { Reply, fresh, requestOf } from "./conversation.js";
import { announce, button, choice, copy, count, el, field, milliseconds } from "./dom.js";
import * as snippets from "./snippets.js";
import * as store from "./store.js";
import { Prose, visible } from "./text.js";

// The largest file that is taken into a prompt; the server reads bodies of 8 MiB.
const largestFile = 4 << 20;

const exampleTools = JSON.stringify(
  [
    {
      type: "function",
      function: {
        name: "get_user",
        description: "Look up a user by id.",
        parameters: { type: "object", properties: { user_id: { type: "integer" } }, required: ["user_id"] },
      },
    },
  ],
  null,
  2,
);

// Chat is the view of conversations.
export class Chat {
  constructor(app) {
    this.app = app;
    this.name = "chat";
    this.title = "Chat";
    this.current = fresh();
    this.files = []; // for the next message
    this.running = null; // {stop, reply} while an answer comes
    this.build();
  }

  build() {
    this.list = el("ul", { class: "conversations" });
    this.thread = el("div", { class: "thread", role: "log", "aria-live": "off", "aria-label": "Conversation" });
    this.attached = el("div", { class: "attached" });
    this.entry = el("textarea", {
      rows: 2,
      placeholder: "Ask something",
      "aria-label": "Message",
      onkeydown: (e) => this.typed(e),
      oninput: () => this.grow(),
    });
    this.picker = el("input", {
      type: "file",
      multiple: true,
      class: "unseen",
      tabIndex: -1,
      "aria-label": "Files",
      onchange: () => {
        this.take(this.picker.files);
        this.picker.value = "";
      },
    });
    this.sendButton = button("Send", () => this.submit(), { class: "primary" });
    this.stopButton = button("Stop", () => this.stop(), { class: "primary", hidden: true });
    this.options = el("details", { class: "options" }, el("summary", {}, "System prompt and parameters"));
    this.side = el(
      "details",
      { class: "side", open: innerWidth > 800 },
      el("summary", {}, "Conversations"),
      button("New conversation", () => this.open(fresh()), { class: "wide" }),
      this.list,
      el("p", { class: "muted small" }, "Kept in this browser only."),
    );
    this.node = el(
      "div",
      { class: "chat" },
      el("h1", { class: "unseen" }, "Chat"),
      this.side,
      el(
        "div",
        { class: "talk" },
        this.thread,
        el(
          "div",
          {
            class: "composer",
            ondragover: (e) => {
              e.preventDefault();
              this.node.classList.add("dropping");
            },
            ondragleave: () => this.node.classList.remove("dropping"),
            ondrop: (e) => this.dropped(e),
          },
          this.options,
          this.attached,
          el(
            "div",
            { class: "entry" },
            this.entry,
            el(
              "div",
              { class: "row" },
              button("Add files", () => this.picker.click(), { class: "plain" }),
              this.picker,
              el("span", { class: "muted small hint" }, "Enter sends, Shift+Enter breaks the line, Esc stops"),
              this.sendButton,
              this.stopButton,
            ),
          ),
        ),
      ),
    );
    this.node.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.stop();
    });
    this.open(this.current);
    this.refresh();
  }

  show() {
    if (innerWidth > 800) this.entry.focus({ preventScroll: true });
  }
  hide() {}

  // open shows a conversation.
  open(conversation) {
    this.stop();
    this.current = conversation;
    this.buildOptions();
    this.render();
    this.mark();
    this.entry.focus({ preventScroll: true });
  }

  async refresh() {
    const all = await store.list();
    this.list.replaceChildren(
      ...all.map((c) =>
        el(
          "li",
          { data: { id: c.id } },
          button(visible(c.title || "Untitled"), () => this.open(c), { class: "plain open" }),
          button(
            "Delete",
            async () => {
              await store.remove(c.id);
              if (c.id === this.current.id) this.open(fresh());
              this.refresh();
            },
            { class: "plain delete", "aria-label": `Delete ${c.title || "Untitled"}` },
          ),
        ),
      ),
    );
    this.mark();
  }

  mark() {
    for (const item of this.list.children) {
      item.firstChild.setAttribute("aria-current", String(item.dataset.id === this.current.id));
    }
  }

  buildOptions() {
    const c = this.current;
    const p = c.parameters;
    const number = (name, label, hint, step) =>
      field(
        label,
        el("input", {
          type: "number",
          step,
          value: p[name] ?? "",
          placeholder: "default",
          oninput: (e) => {
            p[name] = e.target.value;
          },
        }),
        hint,
      );
    this.tools = el("textarea", {
      rows: 4,
      class: "mono",
      spellcheck: false,
      value: p.tools ?? "",
      oninput: (e) => {
        p.tools = e.target.value;
        this.checkTools();
      },
    });
    this.toolsFault = el("p", { class: "fault", role: "alert", hidden: true });
    this.options.replaceChildren(
      this.options.firstChild,
      field(
        "System prompt",
        el("textarea", {
          rows: 2,
          value: c.system,
          oninput: (e) => {
            c.system = e.target.value;
          },
        }),
      ),
      el(
        "div",
        { class: "grid" },
        number("temperature", "Temperature", "0 always takes the most likely token", "0.1"),
        number("top_p", "Top p", "", "0.05"),
        number("max_tokens", "Most tokens", "", "1"),
        number("seed", "Seed", "", "1"),
        field(
          "Reasoning",
          choice(
            [
              ["", "as the model does"],
              ["on", "on"],
              ["off", "off"],
            ],
            p.thinking ?? "",
            (v) => {
              p.thinking = v;
            },
          ),
        ),
      ),
      field("Tools (JSON, as in OpenAI's interface)", this.tools),
      this.toolsFault,
      el(
        "p",
        {},
        button(
          "Insert an example tool",
          () => {
            p.tools = this.tools.value = exampleTools;
            this.checkTools();
          },
          { class: "plain" },
        ),
      ),
    );
  }

  checkTools() {
    try {
      if (this.tools.value.trim() && !Array.isArray(JSON.parse(this.tools.value)))
        throw new Error("want a list of tools");
      this.toolsFault.hidden = true;
      return true;
    } catch (err) {
      this.toolsFault.hidden = false;
      this.toolsFault.textContent = `The tools cannot be read: ${err.message}`;
      return false;
    }
  }

  render() {
    const messages = this.current.messages;
    this.thread.replaceChildren(...messages.map((m, i) => this.message(m, i)));
    if (!messages.length) {
      this.thread.append(
        el(
          "div",
          { class: "empty" },
          el("p", {}, "Nothing has been said yet."),
          el("p", { class: "muted" }, "Drop text files anywhere on the message field, or begin with one of these:"),
          el(
            "ul",
            {},
            [
              "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?",
              "What are you called?",
            ].map((q) =>
              el(
                "li",
                {},
                button(
                  q,
                  () => {
                    this.entry.value = q;
                    this.submit();
                  },
                  { class: "plain question" },
                ),
              ),
            ),
          ),
        ),
      );
    }
    this.scrollDown(true);
  }

  // message is one turn with what can be done about it.
  message(m, at) {
    const body = el("div", { class: "body" });
    const box = el(
      "article",
      { class: "message " + m.role },
      el("h2", {}, { user: "You", assistant: "Model", tool: "Tool result" }[m.role]),
      body,
    );
    if (m.role === "assistant") {
      const parts = this.answerParts(m);
      body.append(...parts.nodes);
      parts.update(m);
      box.append(this.footer(m, at));
      return box;
    }
    if (m.files?.length) {
      body.append(
        el(
          "ul",
          { class: "files" },
          m.files.map((f) =>
            el("li", {}, visible(f.name), el("span", { class: "muted" }, ` ${count(f.text.length)} characters`)),
          ),
        ),
      );
    }
    const text = el("div", { class: "prose" });
    new Prose(text).set(m.content);
    body.append(text);
    if (m.role === "user") {
      box.append(
        el(
          "div",
          { class: "foot" },
          button("Edit", () => this.edit(box, m, at), { class: "plain" }),
        ),
      );
    }
    return box;
  }

  // answerParts makes the nodes of an answer, and a function that shows what it is so far.
  answerParts(m) {
    const thought = el("div", { class: "prose" });
    const fold = el("details", { class: "reasoning", hidden: true }, el("summary", {}, "Reasoning"), thought);
    const text = el("div", { class: "prose" });
    const calls = el("div", { class: "calls" });
    const fault = el("p", { class: "fault", hidden: true });
    const prose = [new Prose(thought), new Prose(text)];
    return {
      nodes: [fold, text, calls, fault],
      update: (now) => {
        fold.hidden = !now.reasoning;
        prose[0].set(now.reasoning ?? "");
        prose[1].set(now.content ?? "");
        calls.replaceChildren(...(now.calls ?? []).filter(Boolean).map((c) => this.call(c)));
        fault.hidden = !now.fault;
        fault.textContent = now.fault ?? "";
      },
    };
  }

  call(c) {
    let text = c.arguments;
    try {
      text = JSON.stringify(JSON.parse(c.arguments), null, 2);
    } catch {
      /* not whole yet */
    }
    return el(
      "section",
      { class: "call", "aria-label": `Call of ${c.name}` },
      el("h3", {}, "Calls ", el("code", {}, visible(c.name))),
      el("pre", { class: "code", tabIndex: 0 }, visible(text)),
    );
  }

  footer(m, at) {
    const last = at === this.current.messages.length - 1;
    const foot = el("div", { class: "foot" });
    const s = m.stats;
    if (s) {
      const facts = [];
      if (s.rate) facts.push(`${s.rate.toFixed(s.rate < 10 ? 1 : 0)} tokens/s`);
      if (s.first) facts.push(`first token after ${milliseconds(s.first)}`);
      if (s.completion)
        facts.push(
          `${count(s.prompt)} tokens in${s.cached ? ` (${count(s.cached)} cached)` : ""}, ${count(s.completion)} out`,
        );
      if (m.finish === "length") facts.push("cut at the limit of tokens");
      if (m.stopped) facts.push("stopped");
      foot.append(el("span", { class: "muted small stats" }, facts.join(" \u00b7 ")));
    }
    if (m.calls?.length && last) foot.append(this.resultForm(m));
    foot.append(
      button("Copy", (e) => copy(m.content, e.target.closest("article").querySelector(".body")), { class: "plain" }),
      button("Retry", () => this.retry(at), { class: "plain", hidden: !last }),
      button("What did it look at?", () => this.app.explore(requestOf(this.current, this.app.model, at)), {
        class: "plain",
      }),
      this.copyAs(at),
    );
    return foot;
  }

  // resultForm lets the person answer the calls of the model.
  resultForm(m) {
    const inputs = m.calls.map((c) => el("textarea", { rows: 2, class: "mono" }));
    return el(
      "form",
      {
        class: "results",
        onsubmit: (e) => {
          e.preventDefault();
          m.calls.forEach((c, i) => this.current.messages.push({ role: "tool", call: c.id, content: inputs[i].value }));
          this.render();
          this.ask();
        },
      },
      m.calls.map((c, i) => field(`Result of ${c.name}`, inputs[i])),
      el("button", { class: "primary" }, "Send the result"),
    );
  }

  copyAs(at) {
    const code = el("code");
    const shown = el("pre", { class: "code", tabIndex: 0, "aria-label": "The request as a program" }, code);
    const languages = { curl: snippets.curl, Python: snippets.python, Go: snippets.go };
    const show = (name) => {
      code.textContent = languages[name](requestOf(this.current, this.app.model, at), key() !== "");
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
      shown,
    );
  }

  edit(box, m, at) {
    const text = el("textarea", {
      rows: Math.min(12, m.content.split("\n").length + 1),
      value: m.content,
      "aria-label": "Edit the message",
    });
    const again = () => {
      m.content = text.value;
      this.current.messages.length = at + 1;
      this.render();
      this.ask();
    };
    box.querySelector(".body").replaceChildren(text);
    box.querySelector(".foot").replaceChildren(
      button("Send again", again, { class: "primary" }),
      button("Cancel", () => this.render(), { class: "plain" }),
    );
    text.focus();
  }

  retry(at) {
    this.stop();
    this.current.messages.length = at;
    this.render();
    this.ask();
  }

  typed(e) {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      this.submit();
    }
  }

  grow() {
    this.entry.style.height = "auto";
    this.entry.style.height = `${Math.min(this.entry.scrollHeight + 2, 240)}px`;
  }

  dropped(e) {
    e.preventDefault();
    this.node.classList.remove("dropping");
    this.take(e.dataTransfer.files);
  }

  // take reads files that were dropped or chosen.
  async take(files) {
    for (const f of files) {
      let fault = "";
      let text = "";
      if (f.size > largestFile) fault = `${f.name} has ${count(f.size)} bytes; at most ${count(largestFile)} are sent`;
      else {
        text = await f.text();
        if (text.includes("\u0000") || text.includes("\ufffd")) fault = `${f.name} is not a text in UTF-8`;
      }
      if (fault) {
        this.attached.append(el("p", { class: "fault", role: "alert" }, visible(fault)));
        continue;
      }
      const file = { name: f.name, text };
      this.files.push(file);
      const chip = el(
        "span",
        { class: "chip" },
        visible(f.name),
        button(
          "Remove",
          () => {
            this.files = this.files.filter((x) => x !== file);
            chip.remove();
          },
          { class: "plain", "aria-label": `Remove ${f.name}` },
        ),
      );
      this.attached.append(chip);
      announce(`${f.name} is attached`);
    }
  }

  submit() {
    const content = this.entry.value.trim();
    if (this.running || (!content && !this.files.length)) return;
    if (!this.checkTools()) {
      this.options.open = true;
      return;
    }
    const c = this.current;
    c.messages.push({ role: "user", content, files: this.files });
    c.title ||= (content || this.files[0].name).slice(0, 80);
    this.files = [];
    this.attached.replaceChildren();
    this.entry.value = "";
    this.grow();
    this.render();
    this.ask();
  }

  stop() {
    this.running?.stop.abort();
  }

  // ask gets the next answer of the conversation.
  async ask() {
    const conversation = this.current;
    const reply = new Reply();
    const stop = new AbortController();
    this.running = { stop, reply };
    this.busy(true);
    const parts = this.answerParts(reply.message);
    const box = el(
      "article",
      { class: "message assistant streaming" },
      el("h2", {}, "Model"),
      el("div", { class: "body" }, el("p", { class: "muted waiting" }, "\u2026"), parts.nodes),
    );
    this.thread.append(box);
    this.scrollDown(true);
    let drawn = false;
    const draw = () => {
      drawn = false;
      if (reply.first) box.querySelector(".waiting")?.remove();
      parts.update(reply.message);
      this.scrollDown(false);
    };
    const m = reply.message;
    try {
      const body = {
        ...requestOf(conversation, this.app.model),
        stream: true,
        stream_options: { include_usage: true },
        sparrow: { trace: true },
      };
      for await (const chunk of events("v1/chat/completions", { body, signal: stop.signal })) {
        reply.add(chunk);
        if (!drawn) {
          drawn = true;
          requestAnimationFrame(draw);
        }
      }
    } catch (err) {
      if (stop.signal.aborted) m.stopped = true;
      else m.fault = err.message;
    }
    if (this.running?.reply === reply) {
      this.running = null;
      this.busy(false);
    }
    m.stats = reply.stats();
    m.finish = reply.finish;
    m.calls = m.calls.filter(Boolean);
    conversation.messages.push(m);
    this.app.requests.unshift({
      at: new Date(),
      title: this.lastQuestion(conversation),
      stats: m.stats,
      trace: reply.trace,
    });
    this.app.requests.length = Math.min(this.app.requests.length, 20);
    if (this.current === conversation) {
      box.replaceWith(this.message(m, conversation.messages.length - 1));
      this.scrollDown(false);
    }
    announce(m.fault ? `The request failed: ${m.fault}` : `Answer complete: ${m.content.slice(0, 300)}`);
    await store.put(conversation);
    this.refresh();
  }

  lastQuestion(conversation) {
    return conversation.messages.findLast((m) => m.role === "user")?.content ?? "";
  }

  busy(is) {
    this.sendButton.hidden = is;
    this.stopButton.hidden = !is;
  }

  // scrollDown keeps the end in view unless the person has scrolled away from it.
  scrollDown(always) {
    const t = this.thread;
    if (always || t.scrollHeight - t.scrollTop - t.clientHeight < 120) t.scrollTop = t.scrollHeight;
  }
}
