"""Clients that need the latest version of the package openai."""

import json

import ollama
import openai
import messages  # noqa: F401 (registers its cases)

from harness import (ANSWER, CITY, KEY, MODEL, QUESTION, RESULT, SCHEMA, SPOKEN, URL, V1, WEATHER, Item, case,
                     check_json, run, want)


# --- openai

gpt = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)
ASK = [{"role": "user", "content": QUESTION}]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
                                         "parameters": CITY}}


@case("openai-python", "chat")
def _():
    r = gpt.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_tokens=100)
    want(ANSWER in r.choices[0].message.content and r.choices[0].finish_reason == "stop", r)


@case("openai-python", "stream")
def _():
    whole = ""
    for chunk in gpt.chat.completions.create(model=MODEL, messages=ASK, temperature=0, stream=True,
                                             stream_options={"include_usage": True}):
        usage = chunk.usage
        whole += "".join(c.delta.content or "" for c in chunk.choices)
    want(ANSWER in whole and usage.completion_tokens > 1, whole, usage)


@case("openai-python", "tools")
def _():
    messages = [{"role": "user", "content": WEATHER}]
    r = gpt.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL], temperature=0)
    call = r.choices[0].message.tool_calls[0]
    want(json.loads(call.function.arguments) == {"city": "Paris"}, r)
    messages += [r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    r = gpt.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL], temperature=0)
    want(SPOKEN in r.choices[0].message.content, r)


@case("openai-python", "structured output")
def _():
    r = gpt.chat.completions.parse(model=MODEL, messages=ASK, response_format=Item, temperature=0, max_tokens=200)
    want(isinstance(r.choices[0].message.parsed, Item), r)


@case("openai-python", "responses")
def _():
    r = gpt.responses.create(model=MODEL, input=QUESTION, temperature=0)
    want(ANSWER in r.output_text and r.status == "completed", r)
    r = gpt.responses.create(model=MODEL, input="And 2 lamps?", previous_response_id=r.id, temperature=0,
                             max_output_tokens=20)
    want(r.usage.input_tokens > 20, r)


@case("openai-python", "responses stream")
def _():
    with gpt.responses.stream(model=MODEL, input=QUESTION, temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        want(ANSWER in text and stream.get_final_response().output_text == text, text)


@case("openai-python", "responses tools")
def _():
    tool = {"type": "function", "name": "get_weather", "description": "Get the weather of a city.", "parameters": CITY}
    r = gpt.responses.create(model=MODEL, input=WEATHER, tools=[tool], temperature=0)
    call = next(i for i in r.output if i.type == "function_call")
    r = gpt.responses.create(model=MODEL, previous_response_id=r.id, tools=[tool], temperature=0,
                             input=[{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}])
    want(SPOKEN in r.output_text, r)


@case("openai-python", "responses structured output")
def _():
    r = gpt.responses.parse(model=MODEL, input=QUESTION, text_format=Item, temperature=0, max_output_tokens=200)
    want(isinstance(r.output_parsed, Item), r)


# --- openai-agents, with the model class it takes by default


def agent_parts():
    import agents

    agents.set_default_openai_client(openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0))
    agents.set_tracing_disabled(True)
    return agents


@case("openai-agents", "chat")
async def _():
    agents = agent_parts()
    agent = agents.Agent(name="a", model=MODEL, model_settings=agents.ModelSettings(temperature=0))
    r = await agents.Runner.run(agent, QUESTION)
    want(ANSWER in r.final_output, r.final_output)


@case("openai-agents", "stream")
async def _():
    agents = agent_parts()
    agent = agents.Agent(name="a", model=MODEL, model_settings=agents.ModelSettings(temperature=0))
    r = agents.Runner.run_streamed(agent, QUESTION)
    kinds = [e.type async for e in r.stream_events()]
    want(ANSWER in r.final_output and "raw_response_event" in kinds, r.final_output, kinds)


@case("openai-agents", "tools")
async def _():
    agents = agent_parts()
    asked = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        asked.append(city)
        return RESULT

    agent = agents.Agent(name="a", model=MODEL, tools=[get_weather],
                         model_settings=agents.ModelSettings(temperature=0, max_tokens=200))
    r = await agents.Runner.run(agent, WEATHER, max_turns=4)
    want(asked == ["Paris"] and SPOKEN in r.final_output, asked, r.final_output)


@case("openai-agents", "structured output")
async def _():
    agents = agent_parts()
    agent = agents.Agent(name="a", model=MODEL, output_type=Item,
                         model_settings=agents.ModelSettings(temperature=0, max_tokens=200))
    r = await agents.Runner.run(agent, QUESTION)
    want(isinstance(r.final_output, Item), r.final_output)


# --- langchain-openai


def lang(**more):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=V1, api_key=KEY, temperature=0, max_retries=0, **more)


@case("langchain-openai", "chat")
def _():
    want(ANSWER in lang().invoke(QUESTION).content)


@case("langchain-openai", "stream")
def _():
    want(ANSWER in "".join(c.content for c in lang(stream_usage=True).stream(QUESTION)))


@case("langchain-openai", "tools")
def _():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return RESULT

    model = lang().bind_tools([get_weather])
    messages = [HumanMessage(WEATHER)]
    messages.append(model.invoke(messages))
    call = messages[-1].tool_calls[0]
    want(call["args"] == {"city": "Paris"}, call)
    messages.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
    want(SPOKEN in model.invoke(messages).content)


@case("langchain-openai", "structured output")
def _():
    for method in ("json_schema", "function_calling"):
        got = lang(max_tokens=200).with_structured_output(Item, method=method).invoke(QUESTION)
        want(isinstance(got, Item), got)


@case("langchain-openai", "responses")
def _():
    got = lang(use_responses_api=True).invoke(QUESTION)
    want(ANSWER in got.text if isinstance(got.text, str) else ANSWER in got.text(), got)


# --- ollama

llama = ollama.Client(host=URL)
ZERO = {"temperature": 0, "num_predict": 200}


@case("ollama-python", "chat")
def _():
    r = llama.chat(model=MODEL, messages=ASK, options=ZERO, keep_alive="5m")
    want(ANSWER in r.message.content and r.done_reason == "stop" and r.eval_count > 1 and r.total_duration > 0, r)
    r = llama.generate(model=MODEL, prompt=QUESTION, options=ZERO)
    want(ANSWER in r.response, r)
    r = llama.generate(model=MODEL, prompt="The number after 1 is", raw=True, options={"num_predict": 4})
    want(r.eval_count == 4 and r.done_reason == "length", r)


@case("ollama-python", "stream")
def _():
    parts = list(llama.chat(model=MODEL, messages=ASK, options=ZERO, stream=True))
    want(ANSWER in "".join(p.message.content for p in parts) and parts[-1].done and len(parts) > 2, parts)
    parts = list(llama.generate(model=MODEL, prompt=QUESTION, options=ZERO, stream=True))
    want(ANSWER in "".join(p.response for p in parts) and parts[-1].done, parts)


@case("ollama-python", "tools")
def _():
    def get_weather(city: str) -> str:
        """Get the weather of a city.

        Args:
          city: the city
        """
        return RESULT

    messages = [{"role": "user", "content": WEATHER}]
    r = llama.chat(model=MODEL, messages=messages, tools=[TOOL], options=ZERO)
    call = r.message.tool_calls[0]
    want(call.function.name == "get_weather" and dict(call.function.arguments) == {"city": "Paris"}, r)
    messages += [r.message, {"role": "tool", "tool_name": "get_weather", "content": get_weather("Paris")}]
    r = llama.chat(model=MODEL, messages=messages, tools=[get_weather], options=ZERO)
    want(SPOKEN in r.message.content, r)
    parts = list(llama.chat(model=MODEL, messages=messages[:1], tools=[TOOL], options=ZERO, stream=True))
    want(any(p.message.tool_calls for p in parts), parts)


@case("ollama-python", "structured output")
def _():
    check_json(llama.chat(model=MODEL, messages=ASK, format=SCHEMA, options=ZERO).message.content)
    Item.model_validate_json(llama.generate(model=MODEL, prompt=QUESTION, format=Item.model_json_schema(),
                                            options=ZERO).response)
    json.loads(llama.generate(model=MODEL, prompt=QUESTION, format="json", options=ZERO).response)


@case("ollama-python", "thinking")
def _():
    r = llama.chat(model=MODEL, messages=ASK, think=True, options={"temperature": 0, "num_predict": 400})
    want(r.message.thinking, r)


@case("ollama-python", "list, show, ps")
def _():
    want([m.model for m in llama.list().models] == [MODEL], llama.list())
    want("tools" in llama.show(MODEL).capabilities, llama.show(MODEL))
    want([m.model for m in llama.ps().models] == [MODEL], llama.ps())


@case("ollama-python", "async, errors")
async def _():
    client = ollama.AsyncClient(host=URL)
    r = await client.chat(model=MODEL, messages=ASK, options=ZERO)
    want(ANSWER in r.message.content, r)
    try:
        await client.chat(model="other", messages=ASK)
    except ollama.ResponseError as error:
        want(error.status_code == 404 and "not served" in error.error, error)
    else:
        want(False, "another model was accepted")


if __name__ == "__main__":
    run()
