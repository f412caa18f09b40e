// Conversations as they are stored, and their requests. A message is {role, content, files, reasoning, calls, ...}.
// Files are {name, text} and precede the typed text.

export function fresh() {
  return {
    id: crypto.randomUUID?.() ?? String(Math.random()),
    title: "",
    updated: 0,
    system: "",
    messages: [], // messages of the visible branch, see tree.js
    all: [],
    parameters: {},
  };
}

// withFiles returns the text of a message preceded by its files, in the format of `sparrow run --file`.
export function withFiles(message) {
  if (!message.files?.length) return message.content;
  const texts = message.files.map((f) => f.text.trim()).join("\n\n");
  return `Text:\n${texts}\n\nQuestion: ${message.content}`;
}

export function wireMessages(conversation, upTo = conversation.messages.length) {
  const list = conversation.system ? [{ role: "system", content: conversation.system }] : [];
  for (const m of conversation.messages.slice(0, upTo)) {
    if (m.role === "user") list.push({ role: "user", content: withFiles(m) });
    if (m.role === "tool") list.push({ role: "tool", tool_call_id: m.call, content: m.content });
    if (m.role === "assistant" && (m.content || m.calls?.length)) {
      // omit messages that failed before they had content
      const out = { role: "assistant", content: m.content };
      if (m.calls?.length) {
        out.tool_calls = m.calls.map((c) => ({
          id: c.id,
          type: "function",
          function: { name: c.name, arguments: c.arguments },
        }));
      }
      list.push(out);
    }
  }
  return list;
}

const numbers = ["temperature", "top_p", "max_tokens", "seed"];

// requestOf returns the request body for a conversation. Empty fields are omitted, so that the server uses its
// defaults.
export function requestOf(conversation, model, upTo) {
  const p = conversation.parameters;
  const body = { model, messages: wireMessages(conversation, upTo) };
  for (const name of numbers) if (p[name] !== undefined && p[name] !== "") body[name] = Number(p[name]);
  if (p.thinking) body.chat_template_kwargs = { thinking: p.thinking === "on" };
  if (p.effort) body.reasoning_effort = p.effort;
  if (p.tools?.trim()) body.tools = JSON.parse(p.tools);
  return body;
}

// Reply joins the chunks of one answer.
export class Reply {
  constructor() {
    this.begun = performance.now();
    this.message = { role: "assistant", content: "", reasoning: "", calls: [] };
    this.tokens = []; // texts of the tokens, if log probabilities were requested
    this.finish = "";
    this.usage = null;
    this.trace = null;
    this.progress = null; // progress of the prompt, until the answer begins
  }

  add(chunk) {
    const m = this.message;
    for (const c of chunk.choices ?? []) {
      const d = c.delta ?? {};
      m.content += d.content ?? "";
      m.reasoning += d.reasoning_content ?? "";
      for (const piece of d.tool_calls ?? []) {
        const call = (m.calls[piece.index] ??= { id: "", name: "", arguments: "" });
        call.id ||= piece.id ?? "";
        call.name += piece.function?.name ?? "";
        call.arguments += piece.function?.arguments ?? "";
      }
      for (const t of c.logprobs?.content ?? []) this.tokens.push(t.token);
      this.finish = c.finish_reason ?? this.finish;
    }
    this.progress = chunk.prompt_progress ?? (chunk.choices?.length ? null : this.progress);
    this.usage = chunk.usage ?? this.usage;
    this.trace = chunk.sparrow?.traces?.[0] ?? this.trace;
  }

  // stats returns the numbers below an answer. Rates are computed from the server's times, because several chunks may
  // arrive together.
  stats() {
    const out = { total: performance.now() - this.begun };
    if (this.usage) {
      out.prompt = this.usage.prompt_tokens;
      out.cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      out.completion = this.usage.completion_tokens;
    }
    if (this.trace) {
      const { times, prefix, steps } = this.trace;
      Object.assign(out, { times, prefix, steps, first: times.queued_ms + times.prefill_ms });
      if (out.completion > 1 && times.decode_ms > 0) out.rate = (out.completion - 1) / (times.decode_ms / 1000);
    }
    return out;
  }
}
