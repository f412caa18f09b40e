import { announce, button, el, plural, sends } from "./dom.js";
import * as drafts from "./drafts.js";
import * as store from "./store.js";
import { visible } from "./text.js";
import { allToJSON, fileName, read, save, toJSON, toMarkdown } from "./transfer.js";

// Shelf lists the conversations that are stored in this browser: to open, search, rename, export, import and delete. A
// deletion can be undone until the next one. The Tab key stops once in the list; arrow keys move between conversations
// and their buttons.
export class Shelf {
  // chat has {current, running, live(kept), open(conversation), leave(conversation), find(words), home()}.
  constructor(chat) {
    this.chat = chat;
    this.all = [];
    this.list = el("ul", { class: "conversations", onkeydown: (e) => this.move(e) });
    this.list.addEventListener("focusin", (e) => this.stopAt(e.target));
    this.search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations" });
    this.search.addEventListener("input", () => this.draw());
    this.none = el("p", { class: "muted small", hidden: true }, "No conversation contains these words.");
    this.note = el("p", { class: "note small", role: "status", hidden: true });
    this.exporter = button("Export all", () => this.exportAll(), { class: "plain" });
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    this.picker = el("input", { type: "file", multiple: true, accept: ".json,.md,.markdown,.txt", class: "unseen" });
    Object.assign(this.picker, { tabIndex: -1, ariaLabel: "Read conversations from files" });
    this.picker.addEventListener("change", () => this.take(this.picker.files));
    this.node = el(
      "div",
      {},
      this.search,
      this.note,
      this.list,
      el("p", { class: "muted small keys", id: "list-keys" }, "Arrow keys: other conversations, and actions of one."),
      this.none,
      this.fault,
      el(
        "p",
        { class: "muted small" },
        "Stored only in this browser. ",
        button("Import", () => this.picker.click(), { class: "plain" }),
        this.exporter,
        this.picker,
      ),
    );
  }

  // refresh reads the stored conversations and draws the list.
  async refresh() {
    this.all = await store.list();
    this.draw();
    return this.all;
  }

  words() {
    return this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  }

  // draw lists the conversations that contain all words of the search in their title or in a message.
  draw() {
    if (this.list.querySelector("input")) return; // a title is being edited
    const words = this.words();
    const has = (c) => {
      if (!words.length) return true;
      const text = [c.title, ...(c.all ?? c.messages).map((m) => m.content)].join("\n").toLowerCase();
      return words.every((w) => text.includes(w));
    };
    const found = this.all.filter(has);
    this.search.hidden = this.all.length < 2 && !words.length;
    this.none.hidden = !words.length || found.length > 0;
    this.exporter.hidden = !this.all.length;
    const [id, nth] = this.place(document.activeElement);
    this.list.replaceChildren(...found.map((kept) => this.item(kept)));
    this.mark();
    if (id) this.find(id)?.querySelectorAll("button")[nth].focus({ preventScroll: true });
  }

  // place returns the place of an element in the list: the conversation's id, and the index of the button.
  place(element) {
    const item = this.list.contains(element) ? element.closest("li") : null;
    return item ? [item.dataset.id, Math.max(0, [...item.querySelectorAll("button")].indexOf(element))] : ["", 0];
  }

  find(id) {
    return this.list.querySelector(`[data-id="${CSS.escape(id)}"]`);
  }

  // stopAt makes a button the element of the list at which the Tab key stops.
  stopAt(chosen) {
    for (const b of this.list.querySelectorAll("button")) b.tabIndex = b === chosen ? 0 : -1;
  }

  // move handles the arrow keys.
  move(e) {
    if (e.target.tagName !== "BUTTON" || e.ctrlKey || e.altKey || e.metaKey) return;
    const item = e.target.closest("li");
    const buttons = [...item.querySelectorAll("button")];
    const c = this.chat.live(this.all.find((x) => x.id === item.dataset.id));
    const at = buttons.indexOf(e.target);
    const to = {
      ArrowDown: () => item.nextSibling?.firstChild,
      ArrowUp: () => item.previousSibling?.firstChild,
      Home: () => this.list.firstChild.firstChild,
      End: () => this.list.lastChild.firstChild,
      ArrowRight: () => buttons[at + 1],
      ArrowLeft: () => buttons[at - 1],
    }[e.key];
    const act = { F2: () => this.rename(item, c), Delete: () => this.remove(c, true) }[e.key];
    if (!to && !act) return;
    e.preventDefault();
    if (act) act();
    else to()?.focus();
  }

  item(kept) {
    const c = this.chat.live(kept);
    const open = () => {
      this.chat.open(c);
      this.chat.find(this.words());
    };
    const title = visible(c.title || "Untitled");
    const act = (text, what, props) =>
      button(text, what, { class: "plain", "aria-label": `${text} ${title}`, ...props });
    const item = el(
      "li",
      { data: { id: c.id } },
      button(title, open, {
        class: "plain open",
        title: `${title}\n${new Date(c.updated).toLocaleString()}`,
        "aria-describedby": "list-keys",
      }),
      el(
        "div",
        { class: "acts" },
        act("Rename", () => this.rename(item, c)),
        act("Markdown", () => save(fileName(c.title, "md"), toMarkdown(c), "text/markdown"), {
          ariaLabel: `Export ${title} as Markdown`,
        }),
        act("JSON", () => save(fileName(c.title, "json"), toJSON(c), "application/json"), {
          ariaLabel: `Export ${title} as JSON`,
        }),
        act("Delete", (e) => this.remove(c, e.detail === 0), { class: "plain delete" }),
      ),
      this.chat.running.has(c.id) ? el("small", { class: "muted answering" }, "answering\u2026") : null,
    );
    return item;
  }

  mark() {
    for (const item of this.list.children) {
      item.firstChild.setAttribute("aria-current", String(item.dataset.id === this.chat.current.id));
    }
    this.stopAt(this.list.querySelector('[aria-current="true"]') ?? this.list.querySelector("button"));
  }

  rename(item, c) {
    const input = el("input", { type: "text", value: c.title, "aria-label": "Title", maxLength: 200 });
    let closed = false;
    const close = async (keep) => {
      if (closed) return;
      closed = true;
      const title = input.value.trim();
      input.remove();
      if (keep && title && title !== c.title) {
        c.title = title;
        await store.put(c, false);
      }
      await this.refresh();
      this.find(c.id)?.firstChild.focus();
    };
    sends(input, () => close(true));
    input.addEventListener("keydown", (e) => {
      if (e.key !== "Escape") return;
      e.stopPropagation();
      close(false);
    });
    input.addEventListener("blur", () => close(true));
    item.firstChild.replaceWith(input);
    input.select();
    input.focus();
  }

  // remove deletes a conversation, and keeps it in memory for undo. After a deletion by key, the next conversation is
  // focused.
  async remove(c, byKey) {
    c.removed = true; // a running answer must not store it again
    const item = this.find(c.id);
    const next = (item?.nextSibling ?? item?.previousSibling)?.dataset.id;
    this.chat.leave(c);
    const draft = drafts.of(c);
    drafts.keep(c, { text: "", files: [] });
    await store.remove(c.id);
    await this.refresh();
    const neighbour = byKey && next ? this.find(next) : null;
    if (neighbour) neighbour.firstChild.focus();
    else this.chat.home();
    const title = visible(c.title || "Untitled");
    const back = async () => {
      delete c.removed;
      this.note.hidden = true;
      drafts.keep(c, draft);
      await store.put(c, false);
      await this.refresh();
      this.chat.open(c);
      announce(`${title} is back`);
    };
    this.tell(`\u201c${title}\u201d is deleted. `, button("Undo", back, { class: "plain" }));
  }

  tell(...parts) {
    this.note.hidden = false;
    this.note.replaceChildren(...parts);
  }

  // exportAll saves all conversations as one file.
  async exportAll() {
    const all = await this.refresh();
    save(fileName(`sparrow-${new Date().toISOString().slice(0, 10)}`, "json"), allToJSON(all), "application/json");
    this.tell(`${plural(all.length, "conversation")} written to a file.`);
  }

  // take imports files. Conversations of an export of all conversations are skipped if an unchanged copy is stored.
  async take(files) {
    this.fault.hidden = true;
    const fresh = [];
    const faults = [];
    let here = 0;
    for (const f of files) {
      try {
        for (const { conversation, origin } of read(await f.text())) {
          if (this.all.some((c) => c.id === origin && c.updated === conversation.updated)) here++;
          else fresh.push(conversation);
        }
      } catch (err) {
        faults.push(visible(`${f.name} cannot be read: ${err.message}`));
      }
    }
    this.picker.value = "";
    for (const c of fresh) await store.put(c, false);
    await this.refresh();
    fresh.sort((a, b) => b.updated - a.updated);
    if (fresh.length) this.chat.open(fresh[0]);
    this.fault.hidden = !faults.length;
    this.fault.textContent = faults.join(" ");
    if (fresh.length + here === 0) return;
    const known = here ? ` ${plural(here, "was", "were")} here already.` : "";
    this.tell(`${plural(fresh.length, "conversation")} read.${known}`);
  }
}
