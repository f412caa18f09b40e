"""Clients that need older versions of the packages openai and anthropic."""

import json

import anthropic
import litellm

import messages
from harness import (ANSWER, CITY, KEY, MODEL, QUESTION, RESULT, SPOKEN, URL, V1, WEATHER, Item, case, run, want)

ASK = [{"role": "user", "content": QUESTION}]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
                                         "parameters": CITY}}

# --- litellm

LITE = {"model": "openai/" + MODEL, "api_base": V1, "api_key": KEY, "temperature": 0, "max_tokens": 200}
VIA = {"openai": LITE, "anthropic": LITE | {"model": "anthropic/" + MODEL, "api_base": URL},
       "ollama": LITE | {"model": "ollama_chat/" + MODEL, "api_base": URL}}

for via, args in VIA.items():

    @case("litellm", via + " chat")
    def _(args=args):
        r = litellm.completion(messages=ASK, **args)
        want(ANSWER in r.choices[0].message.content, r)

    @case("litellm", via + " stream")
    def _(args=args):
        whole = "".join(c.choices[0].delta.content or "" for c in litellm.completion(messages=ASK, stream=True, **args))
        want(ANSWER in whole, whole)

    @case("litellm", via + " tool loop")
    def _(args=args):
        talk, asked = [{"role": "user", "content": WEATHER}], []
        for _turn in range(4):
            message = litellm.completion(messages=talk, tools=[TOOL], **args).choices[0].message
            talk.append(message.model_dump())  # with all fields that litellm adds
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                asked.append(json.loads(call.function.arguments))
                talk.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": RESULT})
        want(asked == [{"city": "Paris"}] and SPOKEN in talk[-1]["content"], asked, talk[-1])

    @case("litellm", via + " structured output")
    def _(args=args):
        r = litellm.completion(messages=ASK, response_format=Item, **args)
        want(Item.model_validate_json(r.choices[0].message.content), r)


@case("litellm", "responses")
def _():
    args = {k: v for k, v in LITE.items() if k != "max_tokens"}
    r = litellm.responses(input=QUESTION, **args)
    text = "".join(p.text for i in r.output if i.type == "message" for p in i.content)
    want(ANSWER in text and r.status == "completed", r)
    kinds = [e.type for e in litellm.responses(input=QUESTION, stream=True, **args)]
    want(kinds[-1] == "response.completed", kinds)


# --- llama-index


def index():
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(model=MODEL, api_base=V1, api_key=KEY, temperature=0, max_tokens=200, is_chat_model=True,
                      is_function_calling_model=True, context_window=4096)


@case("llama-index", "chat")
def _():
    from llama_index.core.llms import ChatMessage

    want(ANSWER in index().complete(QUESTION).text)
    want(ANSWER in index().chat([ChatMessage(role="user", content=QUESTION)]).message.content)


@case("llama-index", "stream")
def _():
    from llama_index.core.llms import ChatMessage

    parts = [p.delta or "" for p in index().stream_chat([ChatMessage(role="user", content=QUESTION)])]
    want(ANSWER in "".join(parts) and len(parts) > 1, parts)


@case("llama-index", "tools")
async def _():
    from llama_index.core.agent.workflow import FunctionAgent

    asked = []

    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        asked.append(city)
        return RESULT

    agent = FunctionAgent(tools=[get_weather], llm=index())
    r = await agent.run(WEATHER)
    want(asked[:1] == ["Paris"] and SPOKEN in str(r), asked, str(r))


@case("llama-index", "structured output")
def _():
    from llama_index.core.llms import ChatMessage

    got = index().as_structured_llm(Item).chat([ChatMessage(role="user", content=QUESTION)]).raw
    want(isinstance(got, Item), got)


# --- instructor


def gpt():
    import openai

    return openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)


@case("instructor", "structured output")
def _():
    import instructor

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(gpt(), mode=mode)
        got = client.chat.completions.create(model=MODEL, messages=ASK, response_model=Item, temperature=0,
                                             max_tokens=200, max_retries=1)
        want(isinstance(got, Item), mode, got)


@case("instructor", "anthropic")
def _():
    import instructor

    client = instructor.from_anthropic(messages.claude)
    got = client.messages.create(model=MODEL, messages=ASK, response_model=Item, max_tokens=200, max_retries=1)
    want(isinstance(got, Item), got)


@case("instructor", "stream")
def _():
    import instructor

    client = instructor.from_openai(gpt(), mode=instructor.Mode.TOOLS)
    parts = list(client.chat.completions.create_partial(model=MODEL, messages=ASK, response_model=Item, temperature=0,
                                                        max_tokens=200))
    want(parts and isinstance(parts[-1].count, int), parts)


# --- pydantic-ai


def pydantic_agent(kind, **more):
    from pydantic_ai import Agent

    if kind == "chat":
        from pydantic_ai.models.openai import OpenAIChatModel as Model
    elif kind == "responses":
        from pydantic_ai.models.openai import OpenAIResponsesModel as Model
    else:
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        provider = AnthropicProvider(anthropic_client=anthropic.AsyncAnthropic(base_url=URL, api_key=KEY))
        return Agent(AnthropicModel(MODEL, provider=provider), **more)
    from pydantic_ai.providers.openai import OpenAIProvider

    return Agent(Model(MODEL, provider=OpenAIProvider(base_url=V1, api_key=KEY)), **more)


SETTINGS = {"max_tokens": 200, "extra_body": {"temperature": 0}}
for kind in ("chat", "responses", "messages"):

    @case("pydantic-ai", kind)
    def _(kind=kind):
        r = pydantic_agent(kind, model_settings=SETTINGS).run_sync(QUESTION)
        want(ANSWER in r.output, r)

    @case("pydantic-ai", kind + " stream")
    async def _(kind=kind):
        async with pydantic_agent(kind, model_settings=SETTINGS).run_stream(QUESTION) as r:
            whole = "".join([t async for t in r.stream_text(delta=True)])
        want(ANSWER in whole, whole)

    @case("pydantic-ai", kind + " tools")
    def _(kind=kind):
        agent = pydantic_agent(kind, model_settings=SETTINGS)
        asked = []

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """Get the weather of a city."""
            asked.append(city)
            return RESULT

        r = agent.run_sync(WEATHER)
        want(asked == ["Paris"] and SPOKEN in r.output, asked, r)

    @case("pydantic-ai", kind + " structured output")
    def _(kind=kind):
        from pydantic_ai import NativeOutput

        # Output as a tool call and, except with messages, also as native structured output.
        outputs = [Item] if kind == "messages" else [Item, NativeOutput(Item)]
        for output in outputs:
            got = pydantic_agent(kind, model_settings=SETTINGS, output_type=output).run_sync(QUESTION).output
            want(isinstance(got, Item), got)



if __name__ == "__main__":
    run()
