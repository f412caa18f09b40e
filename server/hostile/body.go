package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

func pick[T any](d *rand.Rand, list []T) T { return list[d.IntN(len(list))] }

// paths of endpoints with a JSON body.
var paths = []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
	"/v1/messages/count_tokens", "/v1/score", "/api/chat", "/api/generate", "/api/show", "/tokenize", "/detokenize",
	"/v1/chat/completions/render", "/v1/completions/render", "/debug/explain"}

// otherPaths lists paths of endpoints without a JSON body, paths that do not exist, and paths.
var otherPaths = append([]string{"/", "/health", "/ready", "/metrics", "/version", "/v1/models", "/v1/models/x",
	"/debug/plans", "/api/tags", "/api/ps", "/api/version", "/v1/responses/resp_x", "/v1/responses/", "/..//etc/passwd",
	"/%00", "/v1/nothing", "/favicon.ico", "/server_info", "/model_info", "/v1/loads", "/get_load", "/is_sleeping",
	"/flush_cache", "/sleep", "/wake_up", "/update_weights_from_disk"}, paths...)

// seeds lists bodies that are valid except for the model's name, with their paths.
var seeds = []struct{ path, body string }{
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"How many?"}],"max_tokens":8}`},
	{"/v1/chat/completions", `{"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text",` +
		`"text":"b"}]}],"max_tokens":12,"stream":true,"stream_options":{"include_usage":true},"n":3,"top_p":0.9}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"weather?"}],"max_tokens":16,"tools":[{"type":` +
		`"function","function":{"name":"w","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}],` +
		`"tool_choice":"required"}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":8,"logprobs":true,` +
		`"top_logprobs":5,"seed":7,"stop":["a","b"],"logit_bias":{"5":-100},"frequency_penalty":0.5}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"json"}],"max_tokens":24,"response_format":{` +
		`"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object","properties":{"a":{"type":"integer"}}}}}}`},
	{"/v1/completions", `{"prompt":"once upon a time there was","max_tokens":16,"stream":true}`},
	{"/v1/completions", `{"prompt":[5,6,7,8,9,10],"max_tokens":10,"n":4,"temperature":1,"echo":true,"logprobs":2}`},
	{"/v1/completions", `{"prompt":["a","b","c"],"max_tokens":4}`},
	{"/v1/completions", `{"prompt":"a flood","max_tokens":200,"n":16,"temperature":1,"ignore_eos":true,"stream":true}`},
	{"/v1/responses", `{"input":"hello","max_output_tokens":8,"stream":true}`},
	{"/v1/responses", `{"input":[{"role":"user","content":"hello"}],"max_output_tokens":8,"store":true}`},
	{"/v1/messages", `{"max_tokens":8,"messages":[{"role":"user","content":"hi"}],"stream":true}`},
	{"/v1/messages",
		`{"max_tokens":8,"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`},
	{"/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"hi"}]}`},
	{"/v1/score", `{"text_1":"the cat","text_2":["sat","ran"]}`},
	{"/api/chat", `{"messages":[{"role":"user","content":"hi"}],"options":{"num_predict":8}}`},
	{"/api/generate", `{"prompt":"hi","options":{"num_predict":8,"temperature":0.3},"stream":false}`},
	{"/api/show", `{"verbose":true}`},
	{"/v1/chat/completions/render", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":5}`},
	{"/tokenize", `{"prompt":"some text to count"}`},
	{"/detokenize", `{"tokens":[5,6,7]}`},
}

// seed returns a valid request.
func seed(d *rand.Rand) (path, body string) {
	s := pick(d, seeds)
	return s.path, named + s.body[1:]
}

// named is the beginning of every body, with the name of the built-in model.
const named = `{"model":"sparrow-tiny",`

// mutate replaces a value in a body by an invalid one.
func mutate(d *rand.Rand, body string) string {
	var v any
	if json.Unmarshal([]byte(body), &v) != nil {
		return body
	}
	for range 1 + d.IntN(3) {
		v = replace(d, v)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	// Numbers that Go does not write.
	return strings.ReplaceAll(string(out), `"<huge>"`, pick(d, []string{"1e999", "-1e999", "1e308",
		"99999999999999999999999", "-9223372036854775809", "0.1e-999"}))
}

// replace changes one element of a value.
func replace(d *rand.Rand, v any) any {
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 || d.IntN(8) == 0 {
			x[pick(d, fields)] = hostile(d)
			return x
		}
		at := d.IntN(len(x))
		for name := range x {
			if at == 0 {
				if x[name] = replace(d, x[name]); d.IntN(10) == 0 {
					delete(x, name)
				}
				return x
			}
			at--
		}
	case []any:
		if len(x) > 0 && d.IntN(3) > 0 {
			at := d.IntN(len(x))
			x[at] = replace(d, x[at])
			return x
		}
	}
	return hostile(d)
}

// fields lists field names of requests.
var fields = []string{"n", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "stop",
	"seed", "logprobs", "top_logprobs", "prompt_logprobs", "stream", "stream_options", "response_format", "tools",
	"tool_choice", "logit_bias", "messages", "prompt", "input", "system", "options", "format", "think", "guided_json",
	"guided_regex", "structured_outputs", "echo", "suffix", "best_of", "user", "metadata", "priority", "min_tokens",
	"ignore_eos", "stop_token_ids", "chat_template_kwargs", "previous_response_id", "truncation", "continuations",
	"documents", "sparrow", "kv_transfer_params", "cache_salt"}

// hostile returns a value that few fields accept.
func hostile(d *rand.Rand) any {
	switch d.IntN(14) {
	case 0:
		return nil
	case 1:
		return -1
	case 2:
		return "<huge>"
	case 3:
		return strings.Repeat("a b", 1<<d.IntN(16))
	case 4:
		return d.IntN(2) == 0
	case 5:
		return []any{}
	case 6:
		return map[string]any{}
	case 7:
		return nested(d, 1<<d.IntN(12))
	case 8:
		return []any{nil, 1.5, "x", []any{map[string]any{"a": -1}}}
	case 9:
		return 1 << d.IntN(40)
	case 10:
		return "\x00\ufffd\U0001f600\u202e"
	case 11:
		return []any{-5, 1 << 31, 1 << 40}
	case 12:
		return d.Float64() * 1000
	}
	kind := pick(d, []string{"text", "image_url", "json_object", "json_schema", "function", "regex"})
	return map[string]any{"type": kind, "schema": json.RawMessage(schema(d)), "text": 5,
		"image_url": map[string]any{"url": "file:///etc/passwd"}}
}

// nested returns lists nested to the given depth.
func nested(d *rand.Rand, depth int) any {
	text := strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth)
	if d.IntN(2) == 0 {
		text = strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat(`}`, depth)
	}
	return json.RawMessage(text)
}

// broken returns text that is not JSON, or unusual JSON.
func broken(d *rand.Rand) string {
	_, body := seed(d)
	switch d.IntN(7) {
	case 0:
		return body[:d.IntN(len(body))]
	case 1:
		at := d.IntN(len(body))
		return body[:at] + string(rune(d.IntN(0x3000))) + body[at+1:]
	case 2:
		return strings.Repeat("[", 1+d.IntN(200000))
	case 3:
		return body + body
	case 4:
		return "\xff\xfe" + body
	case 5:
		return strings.ReplaceAll(body, ":", ":"+strings.Repeat(" ", 1<<d.IntN(14)))
	}
	return named + `"prompt":"` + strings.Repeat("word ", 1<<d.IntN(19)) + `"}`
}

// schemaBody returns a request with a hostile schema.
func schemaBody(d *rand.Rand) string {
	return named + fmt.Sprintf(`"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x","max_tokens":8,`+
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":%s}}}`, schema(d))
}

// schema returns a random schema that is expensive, infinitely recursive or contradictory.
func schema(d *rand.Rand) string {
	switch d.IntN(10) {
	case 0:
		return `{"$ref":"#"}`
	case 1:
		return `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`
	case 2:
		n := 1 << d.IntN(10)
		return strings.Repeat(`{"type":"array","items":`, n) + `{}` + strings.Repeat(`}`, n)
	case 3:
		return fmt.Sprintf(`{"type":"string","pattern":%q}`, pick(d, []string{"(a+)+$", "(a|a)*b",
			"((a{1,100}){1,100}){1,100}", "[", "(?=x)", ".{0,99999}", "^(([a-z])+.)+[A-Z]([a-z])+$", `\p{L}+`}))
	case 4:
		return fmt.Sprintf(`{"type":"array","minItems":%d,"maxItems":%d}`, 1<<d.IntN(40), d.IntN(10))
	case 5:
		var b strings.Builder
		for i := range 1 << d.IntN(13) {
			fmt.Fprintf(&b, `,"value %d"`, i)
		}
		return `{"enum":["x"` + b.String() + `]}`
	case 6:
		var b strings.Builder
		for i := range 1 << d.IntN(9) {
			fmt.Fprintf(&b, `,"p%d":{"type":["string","integer","null"]}`, i)
		}
		return `{"type":"object","additionalProperties":false,"properties":{"a":{}` + b.String() + `}}`
	case 7:
		n := 1 + d.IntN(12)
		return strings.Repeat(`{"anyOf":[{"type":"string"},`, n) + `{"type":"integer"}` + strings.Repeat(`]}`, n)
	case 8:
		return `{"allOf":[{"type":"string"},{"type":"integer"}],"not":{}}`
	}
	return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, 1<<d.IntN(34), 1<<d.IntN(34))
}
