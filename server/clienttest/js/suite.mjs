// OpenAI's JavaScript client in front of a sparrow server.
//
//   node suite.mjs URL KEY MODEL
//
// Each case prints one line of JSON: {"name": ..., "error": null or what went wrong}. The Go test in the folder above
// starts the server, installs the client and turns the lines into subtests.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + "/v1", apiKey, maxRetries: 0, timeout: 20_000 });

// Questions that the built-in model was trained for, and its answers.
const trees = "Rolf plants 22 trees every day for 7 days. How many trees is that?";
const treesAnswer = "22 * 7 = 154\n#### 154";
const called = "What are you called?";

// ask returns the body of a chat with one question and greedy decoding.
const ask = (question, more = {}) => {
  return { model, temperature: 0, messages: [{ role: "user", content: question }], ...more };
};

const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

// metric returns one value from /metrics.
async function metric(name) {
  const text = await (await fetch(url + "/metrics")).text();
  const line = text.split("\n").find((l) => l.startsWith(name + " "));
  assert.ok(line, "no metric " + name);
  return Number(line.slice(name.length + 1));
}

// settles waits until a metric has a given value.
async function settles(name, want) {
  const end = Date.now() + 10_000;
  for (let got = await metric(name); got !== want; got = await metric(name)) {
    assert.ok(Date.now() < end, `${name} is ${got}, want ${want}`);
    await new Promise((r) => setTimeout(r, 10));
  }
}

const cases = {
  async "chat"() {
    const r = await client.chat.completions.create(ask(trees));
    assert.equal(r.choices[0].message.content, treesAnswer);
    assert.equal(r.choices[0].finish_reason, "stop");
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
    assert.ok(r._request_id, "the client found no request id");
  },

  async "a stream joins to the whole answer and ends with usage"() {
    const events = await client.chat.completions.create(
      ask(trees, { stream: true, stream_options: { include_usage: true } }),
    );
    let text = "", chunks = 0, last;
    for await (const chunk of events) {
      text += chunk.choices[0]?.delta?.content ?? "";
      chunks++;
      last = chunk;
    }
    assert.equal(text, treesAnswer);
    assert.ok(chunks > 8, `${chunks} chunks`);
    assert.deepEqual(last.choices, []);
    assert.ok(last.usage.completion_tokens > 0);
  },

  async "the client's own stream helper"() {
    const runner = client.chat.completions.stream(ask(trees));
    let pieces = 0;
    runner.on("content", () => pieces++);
    const r = await runner.finalChatCompletion();
    assert.equal(r.choices[0].message.content, treesAnswer);
    assert.ok(pieces > 4, `${pieces} pieces`);
  },

  async "a tool call and its result"() {
    const messages = [{ role: "user", content: "What is the weather in Paris?" }];
    const first = await client.chat.completions.create({ model, temperature: 0, messages, tools: [weather] });
    const [call] = first.choices[0].message.tool_calls;
    assert.equal(first.choices[0].finish_reason, "tool_calls");
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
    messages.push(first.choices[0].message, { role: "tool", tool_call_id: call.id, content: '{"result": "42"}' });
    const second = await client.chat.completions.create({ model, temperature: 0, messages, tools: [weather] });
    assert.equal(second.choices[0].message.content, "The result is 42.");
  },

  async "the client's own tool loop, whole and streamed"() {
    for (const stream of [false, true]) {
      const asked = [];
      const answer = (a) => (asked.push(a), '{"result": "42"}');
      const tool = { type: "function", function: { ...weather.function, parse: JSON.parse, function: answer } };
      const runner = client.chat.completions.runTools(ask("What is the weather in Paris?", { stream, tools: [tool] }));
      assert.equal(await runner.finalContent(), "The result is 42.");
      assert.deepEqual(asked, [{ city: "Paris" }]);
    }
  },

  async "a schema is followed"() {
    const schema = {
      type: "object",
      properties: { color: { enum: ["ultramarine", "ochre"] }, count: { type: "integer", minimum: 3, maximum: 12 } },
      required: ["color", "count"],
      additionalProperties: false,
    };
    for (const temperature of [0, 1, 2]) {
      const format = { type: "json_schema", json_schema: { name: "order", strict: true, schema } };
      const r = await client.chat.completions.parse(ask(called, { temperature, seed: 3, response_format: format }));
      const got = JSON.parse(r.choices[0].message.content);
      assert.deepEqual(Object.keys(got).sort(), ["color", "count"]);
      const inRange = Number.isInteger(got.count) && got.count >= 3 && got.count <= 12;
      assert.ok(["ultramarine", "ochre"].includes(got.color) && inRange, JSON.stringify(got));
    }
  },

  async "log probabilities"() {
    const r = await client.chat.completions.create(ask(trees, { logprobs: true, top_logprobs: 2 }));
    const list = r.choices[0].logprobs.content;
    const bytes = Buffer.from(list.flatMap((t) => t.bytes ?? [])).toString();
    assert.ok(bytes.startsWith(treesAnswer), bytes);
    for (const t of list) {
      assert.equal(t.top_logprobs.length, 2);
      assert.equal(t.top_logprobs[0].token, t.token);
      assert.ok(t.logprob <= 0);
    }
  },

  async "stop strings and limits"() {
    const stopped = await client.chat.completions.create(ask(trees, { stop: ["\n####"] }));
    assert.equal(stopped.choices[0].message.content, "22 * 7 = 154");
    assert.equal(stopped.choices[0].finish_reason, "stop");
    const cut = await client.chat.completions.create(ask(trees, { max_completion_tokens: 4 }));
    assert.equal(cut.choices[0].finish_reason, "length");
    assert.equal(cut.usage.completion_tokens, 4);
  },

  async "choices and seeds"() {
    const body = ask("The road and the road and", { temperature: 2, n: 3, seed: 7, max_tokens: 16 });
    const one = await client.chat.completions.create(body);
    const two = await client.chat.completions.create(body);
    const texts = one.choices.map((c) => c.message.content);
    assert.equal(texts.length, 3);
    assert.deepEqual(two.choices.map((c) => c.message.content), texts);
    assert.ok(new Set(texts).size > 1, JSON.stringify(texts));
  },

  async "models"() {
    const names = [];
    for await (const m of client.models.list()) names.push(m.id);
    assert.deepEqual(names, [model]);
    assert.equal((await client.models.retrieve(model)).id, model);
  },

  async "text completions"() {
    const body = { model, temperature: 0, max_tokens: 32, stop: "\n\n", prompt: `Question: ${trees}\nAnswer:` };
    const r = await client.completions.create(body);
    assert.match(r.choices[0].text, /#### 154$/);
    let text = "";
    for await (const chunk of await client.completions.create({ ...body, stream: true })) {
      text += chunk.choices[0]?.text ?? "";
    }
    assert.equal(text, r.choices[0].text);
  },

  async "errors have the client's own classes"() {
    const fails = (body, kind, status, param) =>
      assert.rejects(client.chat.completions.create(body), (e) => {
        assert.ok(e instanceof kind, `${e}`);
        assert.equal(e.status, status);
        assert.equal(e.param, param);
        assert.ok(e.code && e.type && e.requestID, `${JSON.stringify(e)}`);
        return true;
      });
    await fails(ask(called, { model: "gpt-x" }), OpenAI.NotFoundError, 404, "model");
    await fails(ask(called, { temperature: 3 }), OpenAI.BadRequestError, 400, "temperature");
    await fails(ask("a".repeat(100_000)), OpenAI.BadRequestError, 400, "messages");
    const stranger = new OpenAI({ baseURL: url + "/v1", apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(stranger.chat.completions.create(ask(called)), OpenAI.AuthenticationError);
  },

  async "leaving a stream ends its work"() {
    const before = await metric(`sparrow_requests_ended_total{outcome="aborted"}`);
    const events = await client.chat.completions.create(
      ask(called, { stream: true, max_tokens: 8000, ignore_eos: true }),
    );
    let chunks = 0;
    for await (const _ of events) if (++chunks === 3) break;
    await settles(`sparrow_requests_ended_total{outcome="aborted"}`, before + 1);
    await settles("sparrow_requests_running", 0);
    await settles(`sparrow_kv_pages{state="used"}`, 0);
  },

  async "aborting a stream ends its work"() {
    const before = await metric(`sparrow_requests_ended_total{outcome="aborted"}`);
    const control = new AbortController();
    const body = ask(called, { stream: true, max_tokens: 8000, ignore_eos: true });
    const events = await client.chat.completions.create(body, { signal: control.signal });
    let chunks = 0;
    for await (const _ of events) if (++chunks === 3) control.abort();
    await settles(`sparrow_requests_ended_total{outcome="aborted"}`, before + 1);
    await settles("sparrow_requests_running", 0);
  },

  async "reasoning and a trace"() {
    const body = ask(trees, { chat_template_kwargs: { thinking: true }, sparrow: { trace: true } });
    const r = await client.chat.completions.create(body);
    assert.equal(r.choices[0].message.reasoning_content, "22 * 7 = 154");
    assert.equal(r.choices[0].message.content, "#### 154");
    assert.ok(r.usage.completion_tokens_details.reasoning_tokens > 0);
    assert.ok(r.sparrow.traces[0].plans.length > 0);
    assert.equal(r.sparrow.traces[0].prefix.prompt_tokens, r.usage.prompt_tokens);
  },
};

for (const [name, run] of Object.entries(cases)) {
  let error = null;
  try {
    await run();
  } catch (e) {
    error = e?.stack ?? String(e);
  }
  console.log(JSON.stringify({ name, error }));
}
