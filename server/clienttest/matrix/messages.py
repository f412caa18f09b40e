"""Cases for the installed version of Anthropic's Python client."""

import anthropic

from harness import ANSWER, CITY, KEY, MODEL, QUESTION, RESULT, SCHEMA, SPOKEN, URL, WEATHER, case, check_json, want

CLIENT = "anthropic-python " + anthropic.__version__
ASK = [{"role": "user", "content": QUESTION}]
GREEDY = {"temperature": 0}  # later versions do not have the parameter
claude = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
TOOL = {"name": "get_weather", "description": "Get the weather of a city.", "input_schema": CITY}


def said(message):
    return "".join(b.text for b in message.content if b.type == "text")


@case(CLIENT, "chat")
def _():
    r = claude.messages.create(extra_body=GREEDY, model=MODEL, max_tokens=100, messages=ASK)
    want(ANSWER in said(r) and r.stop_reason == "end_turn" and r.usage.output_tokens > 1, r)
    r = claude.messages.create(extra_body=GREEDY, model=MODEL, max_tokens=100, messages=ASK, stop_sequences=[ANSWER])
    want(ANSWER not in said(r) and (r.stop_reason, r.stop_sequence) == ("stop_sequence", ANSWER), r)


@case(CLIENT, "stream")
def _():
    with claude.messages.stream(extra_body=GREEDY, model=MODEL, max_tokens=100, messages=ASK) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    want(ANSWER in text and said(final) == text and final.usage.output_tokens > 1, text, final)


@case(CLIENT, "tools")
def _():
    messages = [{"role": "user", "content": WEATHER}]
    r = claude.messages.create(extra_body=GREEDY, model=MODEL, max_tokens=200, messages=messages, tools=[TOOL])
    call = next(b for b in r.content if b.type == "tool_use")
    want(call.input == {"city": "Paris"} and r.stop_reason == "tool_use", r)
    messages += [{"role": "assistant", "content": r.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]}]
    with claude.messages.stream(extra_body=GREEDY, model=MODEL, max_tokens=200, messages=messages, tools=[TOOL]) as s:
        want(SPOKEN in said(s.get_final_message()), s)


@case(CLIENT, "tool choice, streamed")
def _():
    with claude.messages.stream(extra_body=GREEDY, model=MODEL, max_tokens=200, messages=ASK, tools=[TOOL],
                                tool_choice={"type": "tool", "name": "get_weather"}) as s:
        final = s.get_final_message()
    want([b.type for b in final.content] == ["tool_use"] and isinstance(final.content[0].input["city"], str), final)


@case(CLIENT, "thinking")
def _():
    with claude.messages.stream(extra_body=GREEDY, model=MODEL, max_tokens=2000, messages=ASK,
                                thinking={"type": "enabled", "budget_tokens": 1024}) as s:
        final = s.get_final_message()
    want(final.content[0].type == "thinking" and final.content[0].signature, final)
    r = claude.messages.create(extra_body=GREEDY, model=MODEL, max_tokens=100, messages=ASK + [
        {"role": "assistant", "content": final.content}, {"role": "user", "content": WEATHER}])
    want(r.type == "message", r)


@case(CLIENT, "structured output")
def _():
    r = claude.messages.create(extra_body=GREEDY, model=MODEL, max_tokens=200, messages=ASK,
                               output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    check_json(said(r))


@case(CLIENT, "count_tokens, models, errors")
def _():
    n = claude.messages.count_tokens(model=MODEL, messages=ASK, system="Be brief.").input_tokens
    r = claude.messages.create(extra_body=GREEDY, model=MODEL, max_tokens=1, messages=ASK, system="Be brief.")
    want(n == r.usage.input_tokens + r.usage.cache_read_input_tokens, n, r.usage)
    want([m.id for m in claude.models.list()] == [MODEL], claude.models.list())
    try:
        claude.messages.create(model="other", max_tokens=1, messages=ASK)
    except anthropic.NotFoundError as error:
        want(error.body["error"]["type"] == "not_found_error" and error.request_id, error)
    else:
        want(False, "another model was accepted")


@case(CLIENT, "as Claude Code asks")
def _():
    cache = {"type": "ephemeral"}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
              "additionalProperties": False, "properties": {"file_path": {"type": "string", "description": "absolute"},
                             "edits": {"type": "array", "minItems": 1, "items": {"type": "object"}, "x-order": 1},
                             "when": {"type": "string", "format": "date-time", "examples": ["now"]}},
              "required": ["file_path"]}
    names = ("Read", "Edit", "mcp__some_server_with_a_long_name__and_a_tool_with_a_name_longer_than_sixty_four")
    tools = [{"name": name, "description": "d" * 300, "input_schema": schema} for name in names]
    tools[-1]["cache_control"] = cache
    with claude.beta.messages.stream(
            model=MODEL, max_tokens=32000, tools=tools,
            betas=["claude-code-20250219", "interleaved-thinking-2025-05-14", "context-management-2025-06-27"],
            metadata={"user_id": "user_1_account__session_2"}, thinking={"type": "adaptive"},
            output_config={"effort": "low"}, context_management={"edits": [{"type": "clear_thinking_20251015"}]},
            system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1"},
                    {"type": "text", "text": "You are a tool.", "cache_control": cache},
                    {"type": "text", "text": "Be brief.", "cache_control": cache}],
            messages=[{"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>r</system-reminder>"},
                {"type": "text", "text": "Hello", "cache_control": cache}]}]) as s:
        for n, _ in enumerate(s):
            if n > 40:
                break  # disconnects in the middle of the stream
