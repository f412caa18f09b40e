// Anthropic's TypeScript client and the AI SDK, in front of a sparrow server. Prints one line of JSON for each case.
//
// usage: node clients.mjs URL MODEL

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, model] = process.argv.slice(2);
const key = "unused";
const question = "The price of a lamp is 2 dollars. Bella takes 3 lamps. How many dollars does Bella pay?";
const weather = "What is the weather in Paris?";
const result = '{"result": "42"}';
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

async function run(client, feature, body) {
  const line = { client, feature, error: null };
  const start = Date.now();
  try {
    await body();
  } catch (error) {
    line.error = String(error?.message ?? error);
    console.error(error);
  }
  line.seconds = (Date.now() - start) / 1000;
  console.log(JSON.stringify(line));
}

function want(condition, what) {
  if (!condition) throw new Error(`not as wanted: ${JSON.stringify(what)}`);
}

// --- Anthropic's client

const claude = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const ask = [{ role: "user", content: question }];
const greedy = { model, max_tokens: 200, temperature: 0 };
const text = (message) => message.content.filter((b) => b.type === "text").map((b) => b.text).join("");

await run("anthropic-typescript", "chat", async () => {
  const r = await claude.messages.create({ ...greedy, messages: ask, system: [{ type: "text", text: "" }].slice(1) });
  want(text(r).includes("6") && r.stop_reason === "end_turn", r);
});

await run("anthropic-typescript", "stream", async () => {
  const stream = claude.messages.stream({ ...greedy, messages: ask });
  let pieces = "";
  stream.on("text", (t) => (pieces += t));
  const final = await stream.finalMessage();
  want(pieces.includes("6") && text(final) === pieces && final.usage.output_tokens > 1, final);
});

await run("anthropic-typescript", "tools", async () => {
  const tools = [{ name: "get_weather", description: "Get the weather of a city.", input_schema: city }];
  const messages = [{ role: "user", content: weather }];
  const r = await claude.messages.stream({ ...greedy, messages, tools }).finalMessage();
  const call = r.content.find((b) => b.type === "tool_use");
  want(call?.input.city === "Paris" && r.stop_reason === "tool_use", r);
  messages.push({ role: "assistant", content: r.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: result }] });
  const last = await claude.messages.create({ ...greedy, messages, tools });
  want(text(last).includes("42"), last);
});

await run("anthropic-typescript", "thinking", async () => {
  const r = await claude.messages.stream({ ...greedy, messages: ask, thinking: { type: "enabled", budget_tokens: 1024 },
    max_tokens: 2000 }).finalMessage();
  want(r.content[0].type === "thinking" && r.content[0].thinking !== "", r);
});

await run("anthropic-typescript", "structured output", async () => {
  const schema = { type: "object", properties: { count: { type: "integer" } }, required: ["count"],
    additionalProperties: false };
  const r = await claude.messages.create({ ...greedy, messages: ask,
    output_config: { format: { type: "json_schema", schema } } });
  want(Number.isInteger(JSON.parse(text(r)).count), r);
});

await run("anthropic-typescript", "count_tokens, models, errors", async () => {
  const n = (await claude.messages.countTokens({ model, messages: ask })).input_tokens;
  const r = await claude.messages.create({ ...greedy, messages: ask });
  want(n === r.usage.input_tokens + r.usage.cache_read_input_tokens, [n, r.usage]);
  for await (const m of claude.models.list()) want(m.id === model, m);
  try {
    await claude.messages.create({ ...greedy, model: "other", messages: ask });
    want(false, "another model was accepted");
  } catch (error) {
    want(error instanceof Anthropic.NotFoundError && error.requestID, String(error));
  }
});

// --- the AI SDK

const providers = {
  default: createOpenAI({ baseURL: url + "/v1", apiKey: key })(model),
  "openai chat": createOpenAI({ baseURL: url + "/v1", apiKey: key }).chat(model),
  compatible: createOpenAICompatible({ name: "sparrow", baseURL: url + "/v1", apiKey: key,
    supportsStructuredOutputs: true })(model),
  anthropic: createAnthropic({ baseURL: url + "/v1", apiKey: key })(model),
};
const settings = { temperature: 0, maxOutputTokens: 200, maxRetries: 0 };

for (const [name, languageModel] of Object.entries(providers)) {
  const client = "ai-sdk " + name;
  const base = { ...settings, model: languageModel };
  await run(client, "chat", async () => {
    const r = await generateText({ ...base, prompt: question });
    want(r.text.includes("6") && r.usage.outputTokens > 1, [r.text, r.usage]);
  });
  await run(client, "stream", async () => {
    let pieces = "";
    const failed = [];
    const r = streamText({ ...base, prompt: question, onError: ({ error }) => failed.push(String(error)) });
    for await (const piece of r.textStream) pieces += piece;
    want(pieces.includes("6") && failed.length === 0, [pieces, failed]);
  });
  await run(client, "tools", async () => {
    const asked = [];
    const get_weather = tool({
      description: "Get the weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => {
        asked.push(input.city);
        return JSON.parse(result);
      },
    });
    const r = await generateText({ ...base, prompt: weather, tools: { get_weather }, stopWhen: stepCountIs(4) });
    want(asked.length === 1 && asked[0] === "Paris" && r.text.includes("42"), [asked, r.text]);
  });
  await run(client, "structured output", async () => {
    const schema = z.object({ name: z.string(), count: z.number().int() });
    const r = await generateText({ ...base, prompt: question, output: Output.object({ schema }) });
    want(Number.isInteger(r.output.count), r.output);
  });
}
