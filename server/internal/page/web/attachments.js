import { json } from "./api.js";
import { announce, button, count, el, plural } from "./dom.js";
import { visible } from "./text.js";

// Maximum size of an attached file in bytes; the server accepts bodies of up to 8 MiB.
const largest = 4 << 20;

// sizeOf returns the size of a file as text: its tokens or, if unknown, its characters.
export function sizeOf(file) {
  return file.tokens ? plural(file.tokens, "token") : `${count(file.text.length)} characters`;
}

// Attachments holds the files that are attached to the next message.
export class Attachments {
  // removed is called when the last file is removed.
  constructor(removed) {
    this.removed = removed;
    this.files = []; // {name, text, tokens}
    this.total = el("span", { class: "muted small total" });
    this.node = el("div", { class: "attached" }, this.total);
    this.picker = el("input", { type: "file", multiple: true, class: "unseen", tabIndex: -1, "aria-label": "Files" });
    this.picker.addEventListener("change", () => {
      this.take([...this.picker.files]); // a copy, because the next line empties the list
      this.picker.value = "";
    });
  }

  // accept adds listeners to a node, for files that are dropped on it or pasted into it.
  accept(node) {
    const over = (is) => node.classList.toggle("dropping", is);
    node.addEventListener("dragover", (e) => {
      e.preventDefault();
      over(true);
    });
    node.addEventListener("dragleave", () => over(false));
    node.addEventListener("paste", (e) => {
      if (!e.clipboardData.files.length) return;
      e.preventDefault();
      this.take([...e.clipboardData.files]);
    });
    node.addEventListener("drop", (e) => {
      e.preventDefault();
      over(false);
      this.take(e.dataTransfer.files);
    });
  }

  async take(list) {
    for (const f of list) {
      if (f.size > largest) {
        this.refuse(`${f.name} has ${count(f.size)} bytes; at most ${count(largest)} are sent`);
        continue;
      }
      const text = await f.text();
      if (text.includes("\u0000") || text.includes("\ufffd")) this.refuse(`${f.name} is not a text in UTF-8`);
      else this.add({ name: f.name, text });
    }
  }

  refuse(why) {
    this.node.append(el("p", { class: "fault", role: "alert" }, visible(why)));
  }

  add(file) {
    const remove = () => {
      this.files = this.files.filter((x) => x !== file);
      chip.remove();
      this.sum();
      const rest = this.node.querySelector(".chip button");
      if (rest) rest.focus();
      else this.removed();
    };
    const cross = button("Remove", remove, { class: "plain", "aria-label": `Remove ${file.name}` });
    const size = el("span", { class: "muted small" }, sizeOf(file));
    const chip = el("span", { class: "chip" }, visible(file.name), size, cross);
    this.files.push(file);
    if (!file.tokens) this.measure(file, size);
    this.node.insertBefore(chip, this.total);
    this.sum();
    announce(`${file.name} is attached`);
  }

  // measure requests the number of tokens of a file from the server.
  measure(file, size) {
    json("tokenize", { body: { prompt: file.text, add_special_tokens: false } }).then(
      (counted) => {
        file.tokens = counted.count;
        size.textContent = sizeOf(file);
        this.sum();
      },
      () => {}, // the number of characters is shown instead
    );
  }

  // sum returns the total number of tokens of several files as text.
  sum() {
    const known = this.files.length > 1 && this.files.every((f) => f.tokens);
    this.total.textContent = known
      ? `${plural(
          this.files.reduce((n, f) => n + f.tokens, 0),
          "token",
        )} in all`
      : "";
  }

  // drain returns all files and removes them.
  drain() {
    const files = this.files;
    this.files = [];
    this.node.replaceChildren(this.total);
    this.sum();
    return files;
  }
}
