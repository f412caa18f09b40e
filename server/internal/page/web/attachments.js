import { announce, button, count, el } from "./dom.js";
import { visible } from "./text.js";

// The largest file that is taken into a prompt; the server reads bodies of 8 MiB.
const largest = 4 << 20;

// Attachments are the files of the next message.
export class Attachments {
  constructor() {
    this.files = []; // {name, text}
    this.node = el("div", { class: "attached" });
    this.picker = el("input", { type: "file", multiple: true, class: "unseen", tabIndex: -1, "aria-label": "Files" });
    this.picker.addEventListener("change", () => {
      this.take(this.picker.files);
      this.picker.value = "";
    });
  }

  // accept takes files that are dropped on a node.
  accept(node) {
    const over = (is) => node.classList.toggle("dropping", is);
    node.addEventListener("dragover", (e) => {
      e.preventDefault();
      over(true);
    });
    node.addEventListener("dragleave", () => over(false));
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
    };
    const cross = button("Remove", remove, { class: "plain", "aria-label": `Remove ${file.name}` });
    const chip = el("span", { class: "chip" }, visible(file.name), cross);
    this.files.push(file);
    this.node.append(chip);
    announce(`${file.name} is attached`);
  }

  // drain gives the files to a message.
  drain() {
    const files = this.files;
    this.files = [];
    this.node.replaceChildren();
    return files;
  }
}
