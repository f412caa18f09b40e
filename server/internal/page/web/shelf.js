import { announce, button, el, sends } from "./dom.js";
import * as store from "./store.js";
import { visible } from "./text.js";
import { fileName, read, save, toJSON, toMarkdown } from "./transfer.js";

// Shelf lists the conversations that are kept in this browser: to open, search, rename, write to files, read from them,
// and delete. A deletion can be undone until the next one.
export class Shelf {
  // chat opens conversations: {current, open(conversation), leave(conversation)}.
  constructor(chat) {
    this.chat = chat;
    this.all = [];
    this.list = el("ul", { class: "conversations" });
    this.search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations" });
    this.search.addEventListener("input", () => this.draw());
    this.none = el("p", { class: "muted small", hidden: true }, "None of them has these words.");
    this.undone = el("p", { class: "undo small", role: "status", hidden: true });
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    this.picker = el("input", { type: "file", multiple: true, accept: ".json,.md,.markdown,.txt", class: "unseen" });
    Object.assign(this.picker, { tabIndex: -1, ariaLabel: "Conversations to read" });
    this.picker.addEventListener("change", () => this.take(this.picker.files));
    this.node = el(
      "div",
      {},
      this.search,
      this.undone,
      this.list,
      this.none,
      this.fault,
      el(
        "p",
        { class: "muted small" },
        "Kept in this browser only. ",
        button("Import", () => this.picker.click(), { class: "plain" }),
        this.picker,
      ),
    );
  }

  // refresh reads what is kept.
  async refresh() {
    this.all = await store.list();
    this.draw();
    return this.all;
  }

  // draw lists those that have all words of the search in their title or in a message.
  draw() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (c) => {
      if (!words.length) return true;
      const text = [c.title, ...(c.all ?? c.messages).map((m) => m.content)].join("\n").toLowerCase();
      return words.every((w) => text.includes(w));
    };
    const found = this.all.filter(has);
    this.search.hidden = this.all.length < 2 && !words.length;
    this.none.hidden = !words.length || found.length > 0;
    this.list.replaceChildren(...found.map((kept) => this.item(kept)));
    this.mark();
  }

  item(kept) {
    const c = kept.id === this.chat.current.id ? this.chat.current : kept;
    const title = visible(c.title || "Untitled");
    const act = (text, what, props) =>
      button(text, what, { class: "plain", "aria-label": `${text} ${title}`, ...props });
    const item = el(
      "li",
      { data: { id: c.id } },
      button(title, () => this.chat.open(c), { class: "plain open", title }),
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
        act("Delete", () => this.remove(c), { class: "plain delete" }),
      ),
    );
    return item;
  }

  mark() {
    for (const item of this.list.children) {
      item.firstChild.setAttribute("aria-current", String(item.dataset.id === this.chat.current.id));
    }
  }

  rename(item, c) {
    const input = el("input", { type: "text", value: c.title, "aria-label": "Title", maxLength: 200 });
    let closed = false;
    const close = async (keep) => {
      if (closed) return;
      closed = true;
      const title = input.value.trim();
      if (keep && title && title !== c.title) {
        c.title = title;
        await store.put(c, false);
      }
      await this.refresh();
      this.list.querySelector(`[data-id="${CSS.escape(c.id)}"] .open`)?.focus();
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

  // remove takes a conversation away; what is kept of it here can bring it back.
  async remove(c) {
    c.removed = true; // an answer that still comes must not bring it back
    this.chat.leave(c);
    await store.remove(c.id);
    await this.refresh();
    const title = visible(c.title || "Untitled");
    const back = async () => {
      delete c.removed;
      this.undone.hidden = true;
      await store.put(c, false);
      await this.refresh();
      this.chat.open(c);
      announce(`${title} is back`);
    };
    this.undone.hidden = false;
    this.undone.replaceChildren(`\u201c${title}\u201d is deleted. `, button("Undo", back, { class: "plain" }));
  }

  // take reads files.
  async take(files) {
    this.fault.hidden = true;
    let last = null;
    for (const f of files) {
      try {
        last = read(await f.text());
        await store.put(last);
      } catch (err) {
        this.fault.hidden = false;
        this.fault.textContent = visible(`${f.name} cannot be read: ${err.message}`);
      }
    }
    this.picker.value = "";
    await this.refresh();
    if (last) this.chat.open(last);
  }
}
