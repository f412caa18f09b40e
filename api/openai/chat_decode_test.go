package openai

import (
	"fmt"
	"sparrow/internal/wire"
	"strings"
	"testing"
)

// chatWith returns the JSON text of a valid chat request with additional fields.
func chatWith(members string) string {
	return `{"model":"m","messages":[{"role":"user","content":"hi"}],` + members + `}`
}

// chatOf returns the JSON text of a chat request with the given messages.
func chatOf(messages string) string { return `{"model":"m","messages":[` + messages + `]}` }

const weatherTool = `{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}`

// rejection is a body that must be refused with a param, a code and certain words in the message.
type rejection struct{ name, body, param, code, says string }

// checkRejections checks that decode refuses every body in tests with the expected parameter, code and words.
func checkRejections[T any](t *testing.T, decode func([]byte) (*T, *wire.Error), tests []rejection) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v, err := decode([]byte(test.body))
			if err == nil {
				t.Fatalf("accepted as %+v", v)
			}
			if err.Param != test.param || string(err.Code) != test.code || !strings.Contains(err.Message, test.says) {
				t.Errorf("got param %q, code %s, message %q; want param %q, code %s, words %q",
					err.Param, err.Code, err.Message, test.param, test.code, test.says)
			}
			if kind := NewErrorBody(err).Error.Type; err.Status() != 400 || kind != TypeInvalidRequest {
				t.Errorf("status %d, type %s", err.Status(), kind)
			}
			if err.Param != "" && !strings.HasPrefix(err.Message, err.Param) {
				t.Errorf("message %q does not start with the field %s", err.Message, err.Param)
			}
		})
	}
}

func TestChatFieldsOutOfRangeAreRefusedByName(t *testing.T) {
	var tests []rejection
	for _, r := range []struct{ field, values, says string }{
		{"temperature", "-0.1 2.01 1e300", "is not in [0, 2]"},
		{"top_p", "0 -1 1.0001", "is not in (0, 1]"},
		{"top_k", "-2 1073741825", "is not in [-1, "},
		{"min_p", "-0.5 1.5", "is not in [0, 1]"},
		{"frequency_penalty", "-2.1 2.1", "is not in [-2, 2]"},
		{"presence_penalty", "-2.1 2.1", "is not in [-2, 2]"},
		{"repetition_penalty", "0 -1 0.09 10.5", "is not in [0.1, 10]"},
		{"n", "0 -1 129", "is not in [1, 128]"},
		{"max_tokens", "0 -5 1073741825", "is not in [1, "},
		{"max_completion_tokens", "0 -5", "is not in [1, "},
		{"min_tokens", "-1", "is not in [0, "},
		{"top_logprobs", "-1 21", "is not in [0, 20]"},
	} {
		for _, v := range strings.Fields(r.values) {
			tests = append(tests, rejection{r.field + " of " + v,
				chatWith(fmt.Sprintf(`"logprobs":true,%q:%s`, r.field, v)), r.field, "value_out_of_range", r.says})
		}
	}
	for _, field := range []string{"temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty",
		"repetition_penalty"} {
		tests = append(tests, rejection{field + " beyond a float", chatWith(fmt.Sprintf(`%q:1e999`, field)), field,
			"value_out_of_range", "1e999 is too large"})
	}
	for _, field := range []string{"n", "max_tokens", "seed", "min_tokens", "top_k"} {
		tests = append(tests,
			rejection{field + " beyond 64 bits", chatWith(fmt.Sprintf(`%q:9223372036854775808`, field)), field,
				"value_out_of_range", "does not fit a 64-bit integer"},
			rejection{field + " with an exponent beyond 53 bits", chatWith(fmt.Sprintf(`%q:1e99`, field)), field,
				"value_out_of_range", "too large"},
			rejection{field + " beyond a float", chatWith(fmt.Sprintf(`%q:1e999`, field)), field, "value_out_of_range",
				"too large"},
			rejection{field + " with a fraction", chatWith(fmt.Sprintf(`%q:1.5`, field)), field, "invalid_type",
				"expected an integer, got 1.5"})
	}
	checkRejections(t, strictChat, tests)
}

func TestChatFieldsOfTheWrongTypeAreRefusedByPath(t *testing.T) {
	var tests []rejection
	for field, want := range map[string]string{
		"model": "a string", "temperature": "a number", "top_p": "a number", "top_k": "an integer", "min_p": "a number",
		"n": "an integer", "max_tokens": "an integer", "seed": "an integer", "logit_bias": "an object",
		"stop": "a string or an array of strings", "stop_token_ids": "an array of token ids", "stream": "a boolean",
		"stream_options": "an object", "logprobs": "a boolean", "top_logprobs": "an integer",
		"tools": "an array of tools", "parallel_tool_calls": "a boolean", "response_format": "an object",
		"reasoning_effort": "a string", "chat_template_kwargs": "an object", "thinking": "an object",
		"messages": "an array of messages", "ignore_eos": "a boolean", "min_tokens": "an integer",
		"sparrow": "an object", "cache_salt": "a string", "user": "a string", "metadata": "an object",
		"store": "a boolean", "service_tier": "a string", "prediction": "an object",
		"include_stop_str_in_output": "a boolean", "add_generation_prompt": "a boolean",
		"continue_final_message": "a boolean", "tool_choice": "none, auto, required or an object",
		"max_completion_tokens": "an integer",
	} {
		wrong := `"text"`
		switch {
		case strings.Contains(want, "object"):
			wrong = "[]"
		case strings.Contains(want, "string"):
			wrong = "17"
		}
		body := `{"` + field + `":` + wrong + `}`
		tests = append(tests, rejection{field, body, field, "invalid_type", "expected " + want})
	}
	tests = append(tests,
		rejection{"an element of stop", chatWith(`"stop":["a",1]`), "stop[1]", "invalid_type",
			"expected a string, got a number"},
		rejection{"an element of stop_token_ids", chatWith(`"stop_token_ids":[1,"2"]`), "stop_token_ids[1]",
			"invalid_type", "expected an integer, got a string"},
		rejection{"a bias", chatWith(`"logit_bias":{"5":"1"}`), "logit_bias.5", "invalid_type", "expected a number"},
		rejection{"the trace switch", chatWith(`"sparrow":{"trace":1}`), "sparrow.trace", "invalid_type",
			"expected a boolean"},
		rejection{"include_usage", chatWith(`"stream":true,"stream_options":{"include_usage":"yes"}`),
			"stream_options.include_usage", "invalid_type", "a boolean"},
		rejection{"the switch for thinking in a template argument",
			chatWith(`"chat_template_kwargs":{"thinking":"yes"}`), "chat_template_kwargs.thinking", "invalid_type",
			"a boolean"},
		rejection{"a message", chatOf(`"hi"`), "messages[0]", "invalid_type", "expected an object, got a string"},
		rejection{"a message's content", chatOf(`{"role":"user","content":5}`), "messages[0].content", "invalid_type",
			"a string or an array of text parts"},
		rejection{"a content part", chatOf(`{"role":"user","content":[7]}`), "messages[0].content[0]", "invalid_type",
			"an object"},
		rejection{"the text of a content part", chatOf(`{"role":"user","content":[{"type":"text","text":[]}]}`),
			"messages[0].content[0].text", "invalid_type", "a string, got an array"},
		rejection{"a tool's parameters",
			chatWith(`"tools":[{"type":"function","function":{"name":"f","parameters":"{}"}}]`),
			"tools[0].function.parameters", "invalid_type", "a JSON schema"},
		rejection{"arguments as an object",
			chatOf(
				`{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{}}}]}`),
			"messages[0].tool_calls[0].function.arguments", "invalid_type", "a string, got an object"},
		rejection{"a schema",
			chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":true}}`),
			"response_format.json_schema.schema", "invalid_type", "a JSON schema"},
		rejection{"the body as an array", `[1]`, "", "invalid_type", "the body must be a JSON object, got an array"},
		rejection{"the body as a string", `"x"`, "", "invalid_type", "got a string"},
		rejection{"the body as null", `null`, "", "invalid_type", "got null"},
	)
	checkRejections(t, strictChat, tests)
}

func TestUnknownRefusedAndRepeatedNames(t *testing.T) {
	checkRejections(t, strictChat, []rejection{
		{"a mistyped name", chatWith(`"temprature":1`), "temprature", "unknown_parameter", "did you mean temperature?"},
		{"a name like no other", chatWith(`"foo_bar_baz":1`), "foo_bar_baz", "unknown_parameter", "omit it"},
		{"letter case counts", chatWith(`"Stream":true`), "Stream", "unknown_parameter", "did you mean stream?"},
		{"an unknown member of a message", chatOf(`{"role":"user","content":"x","contents":"y"}`),
			"messages[0].contents", "unknown_parameter", "did you mean content?"},
		{"an unknown member of the extension", chatWith(`"sparrow":{"tarce":true}`), "sparrow.tarce",
			"unknown_parameter", "did you mean trace?"},
		{"an unknown member of stream_options", chatWith(`"stream":true,"stream_options":{"usage":true}`),
			"stream_options.usage", "unknown_parameter", "unknown field"},
		{"a name that needs quotes", chatWith(`"a b":1`), `["a b"]`, "unknown_parameter", "unknown field"},
		{"functions beside tools", chatWith(`"functions":[],"tools":[` + weatherTool + `]`), "tools", "invalid_value",
			"send only tools"},
		{"tools beside functions", chatWith(`"tools":[` + weatherTool + `],"functions":[]`), "functions",
			"invalid_value", "send only tools"},
		{"function_call", chatWith(`"function_call":"required"`), "function_call", "invalid_value", "use none, auto"},
		{"audio", chatWith(`"audio":{"voice":"x"}`), "audio", "unsupported_parameter", "only text"},
		{"guided_grammar", chatWith(`"guided_grammar":"x"`), "guided_grammar", "unsupported_parameter",
			"use response_format"},
		{"guided twice", chatWith(`"guided_json":{},"guided_choice":["a"]`), "guided_choice", "invalid_value", "twice"},
		{"guided_json as broken text", chatWith(`"guided_json":"{"`), "guided_json", "invalid_value", "not JSON"},
		{"guided_choice of nothing", chatWith(`"guided_choice":[]`), "guided_choice",
			"missing_required_parameter", "choose from"},
		{"structured_outputs with a grammar", chatWith(`"structured_outputs":{"grammar":"x"}`),
			"structured_outputs.grammar", "unsupported_parameter", "regex"},
		{"enable_thinking outside the template arguments", chatWith(`"enable_thinking":true`), "enable_thinking",
			"unsupported_parameter", "chat_template_kwargs"},
		{"a prompt", chatWith(`"prompt":"x"`), "prompt", "unsupported_parameter", "/v1/completions"},
		{"another modality", chatWith(`"modalities":["text","audio"]`), "modalities", "unsupported_value",
			`only ["text"]`},
		{"another verbosity", chatWith(`"verbosity":"some"`), "verbosity", "invalid_value", "low, medium, high"},
		{"a priority out of range", chatWith(`"priority":-2000000`), "priority", "value_out_of_range", "1048576"},
		{"model twice", `{"model":"a","model":"b","messages":[{"role":"user","content":"x"}]}`, "model",
			"duplicate_parameter", "twice"},
		{"role twice", chatOf(`{"role":"user","role":"system","content":"x"}`), "messages[0].role",
			"duplicate_parameter", "twice"},
		{"a name twice inside a schema",
			chatWith(
				`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","type":"array"}}}]`),
			"tools[0].function.parameters.type", "duplicate_parameter", "twice"},
		{"malformed wins over everything before it", `{"foo":1,"temperature":"x",}`, "", "invalid_json", "byte 27"},
		{"half an emoji", chatOf(`{"role":"user","content":"\ud83d"}`), "messages[0].content", "invalid_value",
			"surrogate"},
	})
}

func TestChatMessagesAreCheckedByRole(t *testing.T) {
	call := func(id string) string {
		return `{"role":"assistant","content":null,"tool_calls":[{"id":"` + id +
			`","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	}
	checkRejections(t, strictChat, []rejection{
		{"no messages", `{"model":"m"}`, "messages", "missing_required_parameter", "at least one"},
		{"null messages", `{"model":"m","messages":null}`, "messages", "missing_required_parameter", "at least one"},
		{"an empty list", chatOf(``), "messages", "missing_required_parameter", "at least one"},
		{"no model", `{"messages":[{"role":"user","content":"x"}]}`, "model", "missing_required_parameter",
			"/v1/models"},
		{"no role", chatOf(`{"content":"x"}`), "messages[0].role", "missing_required_parameter", "system, developer"},
		{"an unknown role", chatOf(`{"role":"bot","content":"x"}`), "messages[0].role", "invalid_value",
			`"bot" is not supported; use system`},
		{"the old role function", chatOf(`{"role":"function","name":"f","content":"x"}`), "messages[0].tool_call_id",
			"missing_required_parameter", "role tool"},
		{"no content", chatOf(`{"role":"user"}`), "messages[0].content", "missing_required_parameter", "role user"},
		{"null content", chatOf(`{"role":"system","content":null}`), "messages[0].content",
			"missing_required_parameter", "role system"},
		{"no parts", chatOf(`{"role":"user","content":[]}`), "messages[0].content", "invalid_value", "empty array"},
		{"an empty assistant", chatOf(`{"role":"assistant"}`), "messages[0].content", "missing_required_parameter",
			"unless there are tool_calls"},
		{"an image",
			chatOf(
				`{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}`),
			"messages[0].content[1].type", "unsupported_value", `"image_url" is not supported; the models read text`},
		{"sound", chatOf(`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}`),
			"messages[0].content[0].type", "unsupported_value", "input_audio"},
		{"an image inside a text part", chatOf(`{"role":"user","content":[{"type":"text","text":"x","image_url":{}}]}`),
			"messages[0].content[0].image_url", "invalid_value", "no such member"},
		{"a part without a type", chatOf(`{"role":"user","content":[{"text":"x"}]}`), "messages[0].content[0].type",
			"missing_required_parameter", "text"},
		{"a text part without a text", chatOf(`{"role":"user","content":[{"type":"text"}]}`),
			"messages[0].content[0].text", "missing_required_parameter", "required"},
		{"tool calls of a user",
			chatOf(
				`{"role":"user","content":"x","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`),
			"messages[0].tool_calls", "invalid_value", "only an assistant"},
		{"reasoning of a user", chatOf(`{"role":"user","content":"x","reasoning_content":"y"}`),
			"messages[0].reasoning_content", "invalid_value", "only an assistant"},
		{"two different reasonings",
			chatOf(`{"role":"assistant","content":"x","reasoning":"a","reasoning_content":"b"}`), "messages[0]",
			"invalid_value", "two names of one field"},
		{"a refusal", chatOf(`{"role":"assistant","refusal":"no"}`), "messages[0].refusal", "unsupported_parameter",
			"as content"},
		{"a call without an id", chatOf(call("")), "messages[0].tool_calls[0].id", "missing_required_parameter",
			"required"},
		{"a call without a name",
			chatOf(`{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"arguments":""}}]}`),
			"messages[0].tool_calls[0].function.name", "missing_required_parameter", "required"},
		{"a call of another type", chatOf(`{"role":"assistant","tool_calls":[` +
			`{"id":"1","type":"web","function":{"name":"f","arguments":""}}]}`), "messages[0].tool_calls[0].type",
			"unsupported_value", `use "function"`},
		{"a result without an id", chatOf(call("1") + `,{"role":"tool","content":"x"}`), "messages[1].tool_call_id",
			"missing_required_parameter", "role tool"},
		{"a result of no call", chatOf(call("1") + `,{"role":"tool","tool_call_id":"2","content":"x"}`),
			"messages[1].tool_call_id", "invalid_value", `no earlier message has a tool call with the id "2"`},
		{"a result before its call", chatOf(`{"role":"tool","tool_call_id":"1","content":"x"},` + call("1")),
			"messages[0].tool_call_id", "invalid_value", "no earlier message"},
		{"a result id on a user", chatOf(`{"role":"user","tool_call_id":"1","content":"x"}`),
			"messages[0].tool_call_id", "invalid_value", "only a tool message"},
		{"continuing a user", chatWith(`"continue_final_message":true`), "continue_final_message", "invalid_value",
			"only an assistant"},
		{"continuing and starting",
			`{"model":"m","messages":[{"role":"assistant","content":"x"}],"continue_final_message":true,"add_generation_prompt":true}`,
			"continue_final_message", "invalid_value", "cannot both"},
	})
}

func TestChatFieldsAreCheckedTogether(t *testing.T) {
	checkRejections(t, strictChat, []rejection{
		{"two different limits", chatWith(`"max_tokens":5,"max_completion_tokens":6`), "max_completion_tokens",
			"invalid_value", "differs from max_tokens"},
		{"more at least than at most", chatWith(`"max_tokens":5,"min_tokens":6`), "min_tokens", "invalid_value",
			"more than max_tokens, which is 5"},
		{"alternatives without logprobs", chatWith(`"top_logprobs":2`), "top_logprobs", "invalid_value",
			"only allowed if logprobs is true"},
		{"stream options without a stream", chatWith(`"stream_options":{"include_usage":true}`), "stream_options",
			"invalid_value", "if stream is true"},
		{"a negative id in a bias", chatWith(`"logit_bias":{"-1":1}`), "logit_bias.-1", "invalid_value", "token id"},
		{"a word in a bias", chatWith(`"logit_bias":{"dog":1}`), "logit_bias.dog", "invalid_value", "token id"},
		{"a padded id in a bias", chatWith(`"logit_bias":{"007":1}`), "logit_bias.007", "invalid_value", "token id"},
		{"an id beyond 32 bits in a bias", chatWith(`"logit_bias":{"2147483648":1}`), "logit_bias.2147483648",
			"invalid_value", "token id"},
		{"a strong bias", chatWith(`"logit_bias":{"5":101}`), "logit_bias.5", "value_out_of_range", "[-100, 100]"},
		{"an empty stop string", chatWith(`"stop":["a",""]`), "stop[1]", "invalid_value", "empty stop string"},
		{"an empty stop", chatWith(`"stop":""`), "stop[0]", "invalid_value", "empty stop string"},
		{"a long stop string", chatWith(`"stop":"` + strings.Repeat("x", MaxStopBytes+1) + `"`), "stop[0]",
			"string_above_max_length", "1025 bytes, at most 1024"},
		{"a negative stop id", chatWith(`"stop_token_ids":[-1]`), "stop_token_ids[0]", "value_out_of_range",
			"[0, 2147483647]"},
		{"a long salt", chatWith(`"cache_salt":"` + strings.Repeat("x", 257) + `"`), "cache_salt",
			"string_above_max_length", "257 bytes"},
		{"a layer that is no number", chatWith(`"sparrow":{"selections":{"layers":["a"]}}`),
			"sparrow.selections.layers[0]", "invalid_type", "expected an integer"},
		{"a negative layer", chatWith(`"sparrow":{"selections":{"layers":[-1]}}`), "sparrow.selections.layers[0]",
			"value_out_of_range", "-1"},
		{"an unknown word for layers", chatWith(`"sparrow":{"selections":{"layers":"some"}}`),
			"sparrow.selections.layers", "invalid_value", `want "all"`},
		{"no layers", chatWith(`"sparrow":{"selections":{"layers":[]}}`), "sparrow.selections.layers", "invalid_value",
			"lists no layer"},
		{"an unknown word for tokens", chatWith(`"sparrow":{"selections":{"tokens":"input"}}`),
			"sparrow.selections.tokens", "invalid_value", `"output", "all"`},
		{"one end of a range", chatWith(`"sparrow":{"selections":{"tokens":[4]}}`), "sparrow.selections.tokens",
			"invalid_value", "two positions"},
		{"a replay that is no object", chatWith(`"sparrow":{"replay":[]}`), "sparrow.replay", "invalid_type",
			"an object"},
		{"an empty row", chatWith(`"sparrow":{"replay":{"rows":[{}]}}`), "sparrow.replay.rows[0]",
			"missing_required_parameter", "has no layers or experts"},
		{"an empty layer", chatWith(`"sparrow":{"replay":{"rows":[{"layers":[{}]}]}}`),
			"sparrow.replay.rows[0].layers[0]", "missing_required_parameter", "has no keys"},
		{"a selection that is no base64",
			chatWith(`"sparrow":{"replay":{"rows":[{"layers":[{"keys":1,"selected":"*"}]}]}}`),
			"sparrow.replay.rows[0].layers[0].selected",
			"invalid_value", "base64"},
		{"too deep a draft", chatWith(`"sparrow":{"draft":8}`), "sparrow.draft", "value_out_of_range", "[0, 7]"},
		{"a tool without a type", chatWith(`"tools":[{"function":{"name":"f"}}]`), "tools[0].type",
			"missing_required_parameter", `use "function"`},
		{"a custom tool without a name", chatWith(`"tools":[{"type":"custom","custom":{}}]`), "tools[0].custom.name",
			"missing_required_parameter", "required"},
		{"a custom tool with another grammar", chatWith(`"tools":[{"type":"custom","custom":{"name":"f",` +
			`"format":{"type":"grammar","grammar":{"syntax":"yacc","definition":"x"}}}}]`),
			"tools[0].custom.format.grammar.syntax",
			"unsupported_value", "use lark or regex"},
		{"a custom tool with a broken pattern", chatWith(`"tools":[{"type":"custom","custom":{"name":"f",` +
			`"format":{"type":"grammar","grammar":{"syntax":"regex","definition":"[a-z"}}}}]`),
			"tools[0].custom.format.grammar.definition",
			"invalid_value", `missing closing ]: "[a-z"`},
		{"a demanded tool of a provider", chatWith(`"tools":[{"type":"web_search"}],"tool_choice":"required"`),
			"tool_choice", "unsupported_value", "web_search is a hosted tool"},
		{"a tool without a name", chatWith(`"tools":[{"type":"function","function":{}}]`), "tools[0].function.name",
			"missing_required_parameter", "required"},
		{"a tool name with a space", chatWith(`"tools":[{"type":"function","function":{"name":"a b"}}]`),
			"tools[0].function.name", "invalid_value", "letters, digits"},
		{"a long tool name", chatWith(`"tools":[{"type":"function","function":{"name":"` + strings.Repeat("f", 65) +
			`"}}]`), "tools[0].function.name", "string_above_max_length", "65 bytes"},
		{"two tools of one name", chatWith(`"tools":[` + weatherTool + `,` + weatherTool + `]`),
			"tools[1].function.name", "invalid_value", "earlier tool"},
		{"an unknown tool choice", chatWith(`"tool_choice":"any"`), "tool_choice", "invalid_value",
			`"any" is not supported; use none`},
		{"a required call without tools", chatWith(`"tool_choice":"required"`), "tool_choice", "invalid_value",
			"at least one tool"},
		{"a named tool that is not there",
			chatWith(`"tools":[` + weatherTool + `],"tool_choice":{"type":"function","function":{"name":"x"}}`),
			"tool_choice.function.name", "invalid_value", "not the name of a tool in tools"},
		{"a choice without a name", chatWith(`"tools":[` + weatherTool + `],"tool_choice":{"type":"function"}`),
			"tool_choice.function.name", "missing_required_parameter", "required"},
		{"allowed tools", chatWith(`"tool_choice":{"type":"allowed_tools","allowed_tools":{}}`),
			"tool_choice", "unsupported_value", "only the tools"},
		{"a format without a type", chatWith(`"response_format":{}`), "response_format.type",
			"missing_required_parameter", "json_schema"},
		{"an unknown format", chatWith(`"response_format":{"type":"xml"}`), "response_format.type", "unsupported_value",
			`"xml" is not supported; use text`},
		{"a schema format without a schema object", chatWith(`"response_format":{"type":"json_schema"}`),
			"response_format.json_schema", "missing_required_parameter", "required"},
		{"a schema without a name", chatWith(`"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`),
			"response_format.json_schema.name", "missing_required_parameter", "required"},
		{"a schema without a schema", chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`),
			"response_format.json_schema.schema", "missing_required_parameter", "use type json_object"},
		{"a schema with the wrong type",
			chatWith(`"response_format":{"type":"text","json_schema":{"name":"x","schema":{}}}`),
			"response_format.json_schema", "invalid_value", "the type is text"},
		{"an unknown effort", chatWith(`"reasoning_effort":"huge"`), "reasoning_effort", "invalid_value",
			"none, minimal, low"},
		{"an unknown kind of thinking", chatWith(`"thinking":{"type":"auto"}`), "thinking.type", "invalid_value",
			"enabled or disabled"},
		{"contradicting switches",
			chatWith(`"thinking":{"type":"enabled"},"chat_template_kwargs":{"enable_thinking":false}`),
			"chat_template_kwargs.enable_thinking", "invalid_value", "contradicts thinking.type"},
		{"an effort of none with thinking",
			chatWith(`"chat_template_kwargs":{"thinking":true},"reasoning_effort":"none"`), "reasoning_effort",
			"invalid_value", "contradicts chat_template_kwargs.thinking"},
	})
}

// A tool choice of an unsupported type causes one error: its missing name is not reported as a second error.
func TestAChoiceIsRefusedOnce(t *testing.T) {
	for _, choice := range []string{`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`,
		`{"type":"web_search"}`, `{"type":"x"}`} {
		_, err := strictChat([]byte(chatWith(`"tools":[` + weatherTool + `],"tool_choice":` + choice)))
		if err == nil || err.Param != "tool_choice" || strings.Contains(err.Message, "required; ") ||
			strings.Contains(err.Message, "function.name") {
			t.Errorf("%s: %v", choice, err)
		}
	}
}

func TestCountsAreLimited(t *testing.T) {
	many := func(n int, element string) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	numbered := func(n int, format string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(parts, ",")
	}
	checkRejections(t, strictChat, []rejection{
		{"one stop string too many", chatWith(`"stop":[` + many(MaxStops+1, `"a"`) + `]`), "stop",
			"array_above_max_length", "17 strings, at most 16"},
		{"ten thousand stop strings", chatWith(`"stop":[` + many(10_000, `"a"`) + `]`), "stop",
			"array_above_max_length", "10000 strings, at most 16"},
		{"stop ids", chatWith(`"stop_token_ids":[` + many(257, `1`) + `]`), "stop_token_ids", "array_above_max_length",
			"257 token ids"},
		{"biases", chatWith(`"logit_bias":{` + numbered(1025, `"%d":1`) + `}`), "logit_bias", "array_above_max_length",
			"1025 entries"},
		{"messages", chatOf(many(MaxMessages+1, `{"role":"user","content":"x"}`)), "messages", "array_above_max_length",
			"8193 messages"},
		{"parts", chatOf(`{"role":"user","content":[` + many(1025, `{"type":"text","text":"x"}`) + `]}`),
			"messages[0].content", "array_above_max_length", "1025 content parts"},
		{"tools", chatWith(`"tools":[` + numbered(513, `{"type":"function","function":{"name":"f%d"}}`) + `]`), "tools",
			"array_above_max_length", "513 tools"},
		{"template arguments", chatWith(`"chat_template_kwargs":{` + numbered(65, `"k%d":1`) + `}`),
			"chat_template_kwargs", "array_above_max_length", "65 entries"},
	})
	for _, body := range []string{
		chatWith(`"stop":[` + many(MaxStops, `"a"`) + `]`),
		chatWith(`"logit_bias":{` + numbered(MaxLogitBias, `"%d":1`) + `}`),
		chatOf(many(MaxMessages, `{"role":"user","content":"x"}`)),
	} {
		if _, err := strictChat([]byte(body)); err != nil {
			t.Errorf("at the limit: %v", err)
		}
	}
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	_, err := strictChat([]byte(
		`{"temperature":3,"top_p":"x","n":0,"foo":1,"messages":[{"role":"user"},{"role":"user","content":[{"type":"file","file":{}}]}]}`))
	var params []string
	for _, p := range err.Problems {
		params = append(params, p.Param)
	}
	want := "top_p foo messages[1].content[0].type model temperature n messages[0].content"
	if got := strings.Join(params, " "); got != want {
		t.Errorf("problems at %s, want %s", got, want)
	}
	for _, p := range err.Problems {
		if !strings.Contains(err.Message, p.String()) {
			t.Errorf("message %q leaves out %q", err.Message, p)
		}
	}

	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, `"unknown_%d":1,`, i)
	}
	_, err = strictChat([]byte(chatWith(b.String() + `"n":0`)))
	if len(err.Problems) != 16 || !strings.HasSuffix(err.Message, "; and 9985 more") ||
		len(err.Message) > 4096 {
		t.Errorf("%d problems, %d bytes: ...%s", len(err.Problems), len(err.Message), err.Message[len(err.Message)-40:])
	}
}
