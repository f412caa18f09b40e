import { address, events, text as fetchText } from "./api.js";
import { Attachments } from "./attachments.js";
import { Reply, fresh, requestOf } from "./conversation.js";
import { announce, button, copy, el, sends } from "./dom.js";
import * as drafts from "./drafts.js";
import { Options } from "./options.js";
import { Shelf } from "./shelf.js";
import * as store from "./store.js";
import { add, adopt, branch, choose, titleOf, unfinished, versions } from "./tree.js";
import { Answer, asCode, facts, pointed, results, said, sideBySide } from "./turn.js";

// The built-in model, what it can do, and example questions, some of them about the example log.
const builtin = {
  name: "sparrow-tiny",
  skills:
    "This model has 10 million parameters and is meant for trying the server. It finds facts in long texts, solves " +
    "short word problems, calls tools and makes small talk. It has no knowledge of the world.",
  suggestions: [
    { question: "What is the locker number of Nora?", log: true },
    { question: "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?" },
    { question: "Return JSON with name, age and city. Text: Sofia, aged 89, comes from Havana." },
    { question: "What are you called?" },
  ],
};

// openName is the key under which the id of the open conversation is stored, to restore it after a reload.
const openName = "sparrow-open " + new URL(address("")).pathname;

const hint = "Select a word of the answer to begin there";

// Maximum number of requests that the view of plans lists.
const remembered = 20;

const copyOf = (m) =>
  button("Copy", (e) => copy(m.content, e.target.closest("article").querySelector(".body")), { class: "plain" });

// Chat is the view of conversations.
export class Chat {
  constructor(app) {
    this.app = app;
    this.name = "chat";
    this.title = "Chat";
    // Running answers by conversation id: {conversation, answer, behind: the message before the answer, stop}.
    this.running = new Map();
    this.options = new Options((question) => {
      this.entry.value ||= question;
      this.grow();
    });
    this.options.node.addEventListener("input", () => this.keepSoon());
    this.attachments = new Attachments(() => this.home());
    this.shelf = new Shelf(this);
    this.node = this.build();
    this.open(fresh(), false);
    this.ready = this.shelf.refresh().then((all) => this.reopen(all));
  }

  // reopen shows the conversation that was open before a reload, unless another one was begun.
  reopen(all) {
    const last = all.find((c) => c.id === sessionStorage.getItem(openName));
    if (last && !this.current.messages.length && last.id !== this.current.id) this.open(last);
  }

  build() {
    const log = { class: "thread", role: "log", tabIndex: -1, "aria-live": "off", "aria-label": "Conversation" };
    this.thread = el("div", log);
    this.top = 0;
    this.following = true;
    const end = () => {
      this.toEnd();
      this.home();
    };
    this.endButton = button("Go to the end", end, { class: "to-end", hidden: true });
    this.thread.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => this.follow()).observe(this.thread);
    this.entry = el("textarea", { rows: 2, placeholder: "Ask something", "aria-label": "Message" });
    sends(this.entry, () => this.submit());
    this.entry.addEventListener("input", () => this.grow());
    this.sendButton = button("Send", () => this.submit(), { class: "primary" });
    this.stopButton = button("Stop", () => this.stop(), { class: "primary", hidden: true });
    this.side = el(
      "details",
      { class: "side", open: innerWidth > 800 },
      el("summary", {}, "Conversations"),
      button("New conversation", () => this.open(fresh()), { class: "wide" }),
      this.shelf.node,
    );
    const { picker } = this.attachments;
    const buttons = el(
      "div",
      { class: "row" },
      button("Add files", () => picker.click(), { class: "plain" }),
      picker,
      el("span", { class: "muted small hint" }, "Enter sends, Shift+Enter starts a new line, Esc stops the answer"),
      this.sendButton,
      this.stopButton,
    );
    const entry = el("div", { class: "entry" }, this.entry, buttons);
    const composer = el("div", { class: "composer" }, this.options.node, this.attachments.node, entry);
    this.attachments.accept(composer);
    const talk = el("div", { class: "talk" }, this.thread, this.endButton, composer);
    const node = el("div", { class: "chat" }, el("h1", { class: "unseen" }, "Chat"), this.side, talk);
    node.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.stop();
    });
    return node;
  }

  show() {
    if (innerWidth > 800) this.home();
    this.grow(); // the text box has no height before it is visible
  }

  hide() {}

  // home focuses the message box or, on narrow screens, where a keyboard would cover the thread, the thread.
  home() {
    (innerWidth > 800 ? this.entry : this.thread).focus({ preventScroll: true });
  }

  // open shows a conversation. With again, it is shown after a reload too. Running answers of other conversations
  // continue.
  open(conversation, again = true) {
    if (this.current) drafts.keep(this.current, { text: this.entry.value, files: this.attachments.drain() });
    this.current = adopt(conversation);
    const draft = drafts.of(this.current);
    this.entry.value = draft.text;
    draft.files.forEach((f) => this.attachments.add(f));
    this.grow();
    if (again) sessionStorage.setItem(openName, conversation.id);
    this.options.open(conversation);
    this.render();
    this.busy(this.running.has(conversation.id));
    this.shelf.mark();
    if (innerWidth <= 800) this.side.open = false; // the list would cover the thread
    this.home();
  }

  // leave stops the answer of a deleted conversation. If the conversation is open, it opens another one.
  leave(conversation) {
    this.stop(conversation);
    if (conversation.id === this.current.id) this.open(fresh());
  }

  // keepSoon stores the settings of a conversation after a pause in typing.
  keepSoon() {
    const conversation = this.current;
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      if (conversation.messages.length && !conversation.removed) store.put(conversation, false);
    }, 300);
  }

  // render shows all messages of the conversation.
  render() {
    const { messages } = this.current;
    this.thread.replaceChildren(...messages.map((m, i) => this.message(m, i)));
    if (!messages.length) this.thread.append(this.welcome());
    const run = this.running.get(this.current.id);
    if (run && run.behind === messages.at(-1)) this.thread.append(run.answer.node);
    CSS.highlights?.clear();
    this.toEnd();
  }

  // find highlights the words of a search in the conversation, and scrolls to the first one.
  find(words) {
    const ranges = [];
    const walk = document.createTreeWalker(this.thread, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const text = node.data.toLowerCase();
      if (!node.parentElement.closest(".body")) continue;
      for (const w of words) {
        for (let at = text.indexOf(w); at >= 0; at = text.indexOf(w, at + w.length)) {
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, Math.min(node.length, at + w.length));
          ranges.push(range);
        }
      }
    }
    if (!ranges.length) return;
    CSS.highlights?.set("found", new Highlight(...ranges));
    this.bring(ranges[0]);
  }

  // redraw renders the conversation again, with message m at the same position on the screen, and returns its new box.
  redraw(old, m) {
    const { top } = old.getBoundingClientRect();
    this.render();
    const box = this.thread.querySelector(`[data-id="${CSS.escape(m.id)}"]`);
    this.following = false;
    this.thread.scrollTop += box.getBoundingClientRect().top - top;
    return box;
  }

  // welcome returns the content of an empty conversation: suggested questions.
  welcome() {
    const box = el(
      "div",
      { class: "empty" },
      el("p", { class: "muted" }, "Write a message below. Text files can be added to it."),
    );
    this.app.model().then(
      (name) => {
        if (name === builtin.name) box.replaceChildren(...this.introduction());
      },
      () => {}, // the bar at the top shows the error
    );
    return box;
  }

  introduction() {
    const ask = async ({ question, log }) => {
      if (this.current.messages.length) return;
      try {
        if (log) this.attachments.add({ name: "station.log", text: await fetchText("page/station.txt") });
      } catch (err) {
        this.attachments.refuse(`The example cannot be loaded: ${err.message}`);
        return;
      }
      this.entry.value = question;
      this.submit();
    };
    const item = (s) => {
      const text = s.log ? `${s.question} (with a server's log of 160 lines)` : s.question;
      return el(
        "li",
        {},
        button(text, () => ask(s), { class: "plain question" }),
      );
    };
    return [el("p", {}, builtin.skills), el("ul", { ariaLabel: "Try" }, builtin.suggestions.map(item))];
  }

  // message returns the box of a message, with buttons for its actions.
  message(m, at) {
    const box = this.turn(m, at);
    box.dataset.id = m.id;
    return box;
  }

  turn(m, at) {
    if (m.role === "assistant") {
      const answer = new Answer();
      answer.show(m, true);
      answer.node.append(this.foot(m, at, answer.node));
      return answer.node;
    }
    const box = said(m);
    if (m.role === "user") {
      const edit = button("Edit", () => this.edit(box, m, at), { class: "plain" });
      box.append(el("div", { class: "foot" }, this.versions(m), edit, m.content ? copyOf(m) : null));
    }
    return box;
  }

  // answered returns the index of the last answer, or -1.
  answered() {
    return this.current.messages.findLastIndex((m) => m.role === "assistant" && !m.fault);
  }

  // requestAt returns the request whose answer is the message at an index.
  async requestAt(at) {
    return requestOf(this.current, await this.app.model(), at);
  }

  // foot returns the buttons below an answer.
  foot(m, at, box) {
    const last = at === this.current.messages.length - 1;
    const request = () => this.requestAt(at);
    const look = async () => {
      const word = pointed(box, m.content);
      this.app.explore(await request(), undefined, word);
    };
    const part = () => this.open(branch(this.current, at + 1, fresh()));
    const answered = (texts) => {
      m.calls.forEach((c, i) => add(this.current, { role: "tool", call: c.id, content: texts[i] }));
      this.render();
      this.ask();
    };
    return el(
      "div",
      { class: "foot" },
      facts(m),
      this.versions(m),
      last && m.calls?.length ? results(m.calls, answered) : null,
      m.content ? copyOf(m) : null,
      button("Retry", () => this.again(at), { class: "plain only-last", hidden: !last }),
      m.fault ? null : button("What did it look at?", () => look().catch(() => {}), { class: "plain", title: hint }),
      button("Branch", part, { class: "plain", title: "Continue from here in another conversation" }),
      asCode(request),
    );
  }

  // versions returns the buttons that select another version of a message.
  versions(m) {
    const list = versions(this.current, m);
    if (list.length < 2) return null;
    const at = list.indexOf(m);
    const go = (step, e) => {
      this.stop();
      const other = list[at + step];
      choose(this.current, other);
      store.put(this.current, false);
      const buttons = [...this.redraw(e.target.closest("article"), other).querySelectorAll(".versions button")];
      const [back, next] = buttons;
      (step < 0 ? [back, next] : [next, back]).find((b) => !b.disabled).focus({ preventScroll: true });
      announce(`Version ${at + step + 1} of ${list.length}`);
    };
    const compare = (e) => {
      const article = e.target.closest("article");
      const open = article.querySelector(".beside");
      if (open) open.remove();
      else article.querySelector(".body").append(sideBySide(list, at));
      e.target.setAttribute("aria-expanded", String(!open));
      this.bring(article);
    };
    return el(
      "span",
      { class: "versions small" },
      button("\u2039", (e) => go(-1, e), { class: "plain", "aria-label": "The previous version", disabled: at === 0 }),
      `${at + 1} / ${list.length}`,
      button("\u203a", (e) => go(1, e), {
        class: "plain",
        "aria-label": "The next version",
        disabled: at === list.length - 1,
      }),
      button("Side by side", compare, { class: "plain", "aria-expanded": "false" }),
    );
  }

  edit(box, m, at) {
    const rows = Math.min(12, m.content.split("\n").length + 1);
    const text = el("textarea", { rows, value: m.content, "aria-label": "Edit the message" });
    const send = () => {
      this.stop();
      this.current.messages.length = at;
      add(this.current, { role: "user", content: text.value, files: m.files });
      this.again(at + 1);
    };
    const cancel = () => {
      const buttons = [...this.redraw(box, m).querySelectorAll(".foot button")];
      buttons.find((b) => b.textContent === "Edit").focus({ preventScroll: true });
    };
    box.querySelector(".body").replaceChildren(text);
    box.querySelector(".foot").replaceChildren(
      button("Send again", send, { class: "primary" }),
      button("Cancel", cancel, { class: "plain" }),
    );
    sends(text, send);
    text.addEventListener("keydown", (e) => {
      if (e.key !== "Escape") return;
      e.stopPropagation(); // so that a running answer is not stopped
      cancel();
    });
    text.focus();
  }

  // again requests another answer after the first length messages; later messages are kept as another version.
  again(length) {
    this.stop();
    this.current.messages.length = length;
    this.render();
    this.ask();
  }

  // grow adapts the height of the text box to its text, and stores the draft.
  grow() {
    drafts.keep(this.current, { text: this.entry.value, files: this.attachments.files });
    this.entry.style.height = "auto";
    this.entry.style.height = `${Math.min(this.entry.scrollHeight + 2, 240)}px`;
  }

  submit() {
    const content = this.entry.value.trim();
    if (this.running.has(this.current.id) || !(content || this.attachments.files.length)) return;
    if (!this.options.check()) return;
    const c = this.current;
    const files = this.attachments.drain();
    this.entry.value = "";
    this.grow();
    add(c, { role: "user", content, files });
    c.title ||= titleOf(content || files[0].name);
    this.options.node.open = false;
    this.render();
    this.ask();
  }

  stop(conversation = this.current) {
    this.running.get(conversation.id)?.stop.abort();
  }

  // live returns the object in memory of a conversation that is open or has a running answer, otherwise the stored one.
  live(kept) {
    return kept.id === this.current.id ? this.current : (this.running.get(kept.id)?.conversation ?? kept);
  }

  // ask requests the next answer of the conversation.
  async ask() {
    const conversation = this.current;
    sessionStorage.setItem(openName, conversation.id);
    const answer = new Answer();
    const behind = conversation.messages.at(-1);
    const run = { conversation, answer, behind, stop: new AbortController() };
    const replaced = () => this.running.get(conversation.id) !== run;
    const end = () => {
      if (replaced()) return;
      this.running.delete(conversation.id);
      if (this.current === conversation) this.busy(false);
    };
    this.running.set(conversation.id, run);
    this.busy(true);
    store.put(conversation).then(() => this.shelf.refresh()); // store the question, in case the answer fails
    this.thread.append(answer.node);
    this.toEnd();
    let kept = Date.now();
    const reply = await this.receive(conversation, run.stop.signal, (message, progress) => {
      answer.show(message);
      answer.reading.show(progress);
      if (this.current === conversation) this.follow();
      // Store the received text once a second, for the case that the page is reloaded.
      if (message.content && Date.now() - kept > 1000 && !replaced() && !conversation.removed) {
        kept = Date.now();
        store.put(unfinished(conversation, message, behind), false);
      }
    });
    if (replaced() || conversation.removed) {
      answer.node.remove();
      end();
      return;
    }
    const m = reply.message;
    add(conversation, m, behind);
    await store.put(conversation); // store before the answer looks complete, because the page may then be closed
    end();
    const question = conversation.messages.findLast((x) => x.role === "user")?.content ?? "";
    this.app.requests.unshift({ title: question, stats: m.stats });
    this.app.requests.length = Math.min(this.app.requests.length, remembered);
    if (conversation.messages.at(-1) !== m) answer.node.remove(); // another version is shown now
    else if (answer.node.isConnected) {
      // Keep the nodes, so that text does not move while it is read.
      answer.show(m, true);
      for (const old of this.thread.querySelectorAll(".foot .only-last")) old.hidden = true;
      answer.node.dataset.id = m.id;
      answer.node.append(this.foot(m, conversation.messages.indexOf(m), answer.node));
      this.follow();
    }
    const how = m.fault ? `The request failed: ${m.fault}` : m.stopped ? "Stopped" : "Answer complete";
    announce(m.fault ? how : `${how}: ${m.content.slice(0, 300)}`);
    this.shelf.refresh();
  }

  // receive reads an answer to its end or to an error. changed is called at most once per frame.
  async receive(conversation, signal, changed) {
    const reply = new Reply();
    const m = reply.message;
    let waiting = false;
    const draw = () => {
      waiting = false;
      changed(m, reply.progress);
    };
    try {
      const body = {
        ...requestOf(conversation, await this.app.model()),
        stream: true,
        stream_options: { include_usage: true },
        return_progress: true,
        sparrow: { trace: true },
      };
      for await (const chunk of events("v1/chat/completions", { body, signal })) {
        reply.add(chunk);
        if (!waiting) requestAnimationFrame(draw);
        waiting = true;
      }
    } catch (err) {
      if (signal.aborted) m.stopped = true;
      else m.fault = err.message;
    }
    m.calls = m.calls.filter(Boolean);
    m.finish = reply.finish;
    m.stats = reply.stats();
    return reply;
  }

  // busy shows either the button for stopping the answer or the one for sending. A focused button that is hidden passes
  // the focus on.
  busy(is) {
    const at = document.activeElement;
    this.sendButton.hidden = is;
    this.stopButton.hidden = !is;
    if (is && (at === this.sendButton || at === document.body)) this.stopButton.focus({ preventScroll: true });
    if (!is && at === this.stopButton) this.home();
  }

  // bring scrolls the thread, but not the page, until an element or range, or at least its beginning, is visible.
  bring(part) {
    const [box, at] = [this.thread, part].map((x) => x.getBoundingClientRect());
    this.following = false;
    if (at.top < box.top || at.bottom > box.bottom) {
      this.thread.scrollTop += Math.min(at.top - box.top - 16, Math.max(0, at.bottom - box.bottom + 16));
    }
    this.scrolled();
  }

  // toEnd scrolls to the end, also when text is added later.
  toEnd() {
    this.following = true;
    this.follow();
  }

  // follow scrolls to the end unless the user has scrolled away from it; then it shows a button for scrolling to the
  // end.
  follow() {
    if (this.following) this.thread.scrollTop = this.thread.scrollHeight;
    this.endButton.hidden = this.following;
  }

  // scrolled detects whether the user has scrolled away from the end or back to it. Adding content at the end is not
  // scrolling.
  scrolled() {
    const t = this.thread;
    const left = t.scrollHeight - t.scrollTop - t.clientHeight;
    if (left < 24) this.following = true;
    else if (t.scrollTop < this.top) this.following = false;
    this.top = t.scrollTop;
    this.endButton.hidden = this.following;
  }
}
