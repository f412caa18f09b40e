import { button, choice, el, field } from "./dom.js";

// exampleTool is a tool that the built-in model calls to answer exampleQuestion.
const exampleQuestion = "Who is user 5381?";
const exampleTool = {
  type: "function",
  function: {
    name: "get_user",
    description: "Look up a user by id.",
    parameters: { type: "object", properties: { user_id: { type: "integer" } }, required: ["user_id"] },
  },
};

const efforts = ["", "none", "low", "medium", "high", "max"].map((v) => [v, v || "default"]);

const shortNames = {
  temperature: "temperature",
  top_p: "top p",
  max_tokens: "most tokens",
  seed: "seed",
  thinking: "reasoning",
  effort: "effort",
};

// Options is the form for request fields, which are stored in the conversation.
export class Options {
  // suggest is called with a question for the example tool.
  constructor(suggest) {
    this.suggest = suggest;
    this.given = el("span", { class: "given" });
    const name = el("summary", {}, "System prompt and parameters", this.given);
    this.node = el("details", { class: "options" }, name);
    this.node.addEventListener("input", () => this.tell());
  }

  // open shows the options of a conversation.
  open(conversation) {
    const p = conversation.parameters;
    this.conversation = conversation;
    const number = (name, label, step, hint) => {
      const set = (e) => (p[name] = e.target.value);
      const props = { type: "number", step, value: p[name] ?? "", placeholder: "default", oninput: set };
      return field(label, el("input", props), hint);
    };
    const system = (e) => (conversation.system = e.target.value);
    const reasoning = ["", "on", "off"].map((v) => [v, v || "default"]);
    this.tools = el("textarea", { rows: 4, class: "mono", spellcheck: false, value: p.tools ?? "" });
    this.tools.addEventListener("input", () => {
      p.tools = this.tools.value;
      this.check();
    });
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    const example = () => {
      p.tools = this.tools.value = JSON.stringify([exampleTool], null, 2);
      this.check();
      this.tell();
      this.suggest(exampleQuestion);
    };
    this.node.replaceChildren(
      this.node.firstChild,
      field("System prompt", el("textarea", { rows: 2, value: conversation.system, oninput: system })),
      el(
        "div",
        { class: "grid" },
        number("temperature", "Temperature", "0.1", "0 always takes the most likely token"),
        number("top_p", "Top p", "0.05"),
        number("max_tokens", "Most tokens", "1"),
        number("seed", "Seed", "1"),
        field(
          "Reasoning",
          choice(reasoning, p.thinking ?? "", (v) => {
            p.thinking = v;
            this.tell();
          }),
        ),
        field(
          "Effort",
          choice(efforts, p.effort ?? "", (v) => {
            p.effort = v;
            this.tell();
          }),
        ),
      ),
      field("Tools (JSON, as in OpenAI's interface)", this.tools),
      this.fault,
      el("p", {}, button("Insert an example tool", example, { class: "plain" })),
    );
    this.tell();
  }

  // tell shows a summary of the options that are set, for a closed form.
  tell() {
    const { system, parameters: p } = this.conversation;
    const set = system ? ["a system prompt"] : [];
    for (const [name, label] of Object.entries(shortNames)) if (p[name]) set.push(`${label} ${p[name]}`);
    if (p.tools?.trim()) set.push("tools");
    this.given.textContent = set.length ? `: ${set.join(", ")}` : "";
  }

  // check returns whether the tools are valid JSON, and shows the reason if not.
  check() {
    let why = "";
    try {
      const given = this.tools.value.trim();
      if (given && !Array.isArray(JSON.parse(given))) why = "want a list of tools";
    } catch (err) {
      why = err.message;
    }
    this.fault.hidden = !why;
    this.fault.textContent = `The tools cannot be read: ${why}`;
    if (why) this.node.open = true;
    return !why;
  }
}
