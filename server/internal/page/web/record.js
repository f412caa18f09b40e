import { events, json } from "./api.js";
import { Reply } from "./conversation.js";
import { Recording } from "./recording.js";

// record requests an answer with the selections of its rows. changed is called as the answer grows.
export async function record(body, options, signal, changed) {
  const { messages, tools, chat_template_kwargs } = body;
  const asked = { messages, return_token_strs: true };
  if (tools) asked.tools = tools;
  if (chat_template_kwargs) asked.chat_template_kwargs = chat_template_kwargs;
  const prompt = await json("tokenize", { body: asked, signal });
  const recording = new Recording(prompt.token_strs);
  const reply = new Reply();
  const want = {
    ...body,
    stream: true,
    logprobs: true,
    return_progress: true,
    stream_options: { include_usage: true },
    sparrow: {
      trace: true,
      selections: { layers: options.layers ?? "all", tokens: "output", scores: options.scores ?? true },
      experts: options.experts ?? true,
    },
  };
  for await (const chunk of events("v1/chat/completions", { body: want, signal })) {
    const before = reply.tokens.length;
    reply.add(chunk);
    if (reply.tokens.length > before) recording.addTokens(reply.tokens.slice(before));
    for (const c of chunk.choices ?? []) recording.add(c.sparrow);
    changed?.(recording, reply);
  }
  if (reply.usage && reply.usage.prompt_tokens !== recording.prompt) {
    throw new Error(
      `the server counts ${reply.usage.prompt_tokens} tokens of the prompt and /tokenize ${
        recording.prompt
      }, so that texts and positions do not match`,
    );
  }
  return { recording, reply };
}
