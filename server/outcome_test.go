package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/internal/testkit/await"
	"sparrow/internal/wire"
	"sparrow/sample"
)

func TestEveryFailureHasAStatus(t *testing.T) {
	bad := sample.Default()
	bad.TopP, bad.N = 2, 0
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   wire.Code
		param  string
		says   string
	}{
		{"queue full", fmt.Errorf("%w: 9 wait", sparrow.ErrQueueFull), 429, wire.CodeQueueFull, "", "Retry-After"},
		{"engine closed", sparrow.ErrClosed, 503, wire.CodeUnavailable, "", "closed"},
		{"draining", ErrDraining, 503, wire.CodeUnavailable, "", "shutting down"},
		{"a field", fmt.Errorf("x: %w", &sparrow.RequestError{Field: "max_tokens", Reason: "too many"}), 400,
			wire.CodeInvalidValue, "max_tokens", "too many"},
		{"a field that does not fit the context",
			&sparrow.RequestError{Field: "max_tokens", Reason: "too many", Err: sparrow.ErrContext}, 400,
			wire.CodeContextLength, "max_tokens", "too many"},
		{"a field with a schema that cannot be enforced",
			&sparrow.RequestError{Field: "response_format", Reason: "odd",
				Err: &grammar.SchemaError{Kind: grammar.ErrUnsupported}}, 400, wire.CodeUnsupportedValue, schemaParam,
			"odd"},
		{"a tool with a schema that is too large",
			&sparrow.RequestError{Field: "tools", Reason: "big", Err: fmt.Errorf("x: %w", grammar.ErrTooLarge)}, 400,
			wire.CodeTooLong, "tools", "big"},
		{"sampling", fmt.Errorf("%w: %w", sparrow.ErrRequest, bad.Validate()), 400, wire.CodeInvalidValue, "top_p",
			"n: 0 is not in"},
		{"deadline of ours", ErrDeadline, 504, wire.CodeDeadline, "", "longer than"},
		{"any deadline", context.DeadlineExceeded, 504, wire.CodeDeadline, "", "longer than"},
		{"chat with a field", fmt.Errorf("%w: messages[3].role: is odd: very", chat.ErrRequest), 400,
			wire.CodeInvalidValue, "messages[3].role", "is odd: very"},
		{"chat without a field", fmt.Errorf("%w: Strange Thing: is odd", chat.ErrRequest), 400, wire.CodeInvalidValue,
			"", "Strange Thing: is odd"},
		{"chat that the format cannot express", fmt.Errorf("%w: no effort", chat.ErrUnsupported), 400,
			wire.CodeUnsupportedValue, "", "no effort"},
		{"chat with a field that the format cannot express",
			fmt.Errorf("x: %w: reasoning_effort: %q cannot be had", chat.ErrUnsupported, "high"), 400,
			wire.CodeUnsupportedValue, "reasoning_effort", `"high" cannot be had`},
		{"template", fmt.Errorf("%w: roles must alternate", chat.ErrTemplate), 400, wire.CodeInvalidValue, "messages",
			"alternate"},
		{"no chat format", chat.ErrNoFormat, 400, wire.CodeUnsupportedValue, "messages", "/v1/completions"},
		{"no tokenizer", sparrow.ErrNoTokenizer, 400, wire.CodeUnsupportedValue, "", "token ids"},
		{"schema", &grammar.SchemaError{Pointer: "/a", Problem: "odd", Kind: grammar.ErrUnsupported}, 400,
			wire.CodeUnsupportedValue, schemaParam, "#/a"},
		{"token outside the vocabulary", fmt.Errorf("%w: 999", sample.ErrToken), 400, wire.CodeOutOfRange, "", "999"},
		{"any other bad request", fmt.Errorf("%w: odd", sparrow.ErrRequest), 400, wire.CodeInvalidValue, "", "odd"},
		{"body too large", &http.MaxBytesError{Limit: 10}, 413, wire.CodeBodyTooLarge, "", "10 bytes"},
		{"a failed step", fmt.Errorf("%w: secret", sparrow.ErrStep), 500, wire.CodeInternal, "", "request id t1"},
		{"anything unknown", errors.New("secret"), 500, wire.CodeInternal, "", "request id t1"},
		{"our own error", wire.NewError(wire.CodeModelNotFound, "model", "no"), 404, wire.CodeModelNotFound,
			"model", "no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := toError(c.err, "t1")
			if got.Status() != c.status || got.Code != c.code || got.Param != c.param ||
				!strings.Contains(got.Message, c.says) {
				t.Errorf("got %d %s %q: %s", got.Status(), got.Code, got.Param, got.Message)
			}
			if c.status >= 500 && strings.Contains(got.Message, "secret") {
				t.Errorf("the client was told %q", got.Message)
			}
		})
	}
}

// errorOf decodes an error body and checks that it has OpenAI's format.
func errorOf(t *testing.T, r reply) openai.ErrorFields {
	t.Helper()
	var shape map[string]map[string]any
	if err := json.Unmarshal([]byte(r.body), &shape); err != nil || len(shape) != 1 || len(shape["error"]) != 4 {
		t.Fatalf("not OpenAI's error shape: %s", r.body)
	}
	var body openai.ErrorBody
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatal(err)
	}
	return body.Error
}

// within reports whether a path is the given one or below it.
func within(path, top string) bool {
	return path == top || top != "" && strings.HasPrefix(path, top+".")
}

func TestBadRequestsAreRefusedAndNameTheField(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{MaxBodyBytes: 1 << 20, Strict: true})
	const chatPath, textPath = "/v1/chat/completions", "/v1/completions"
	message := `"messages":[{"role":"user","content":"hi"}]`
	with := func(fields string) string { return `{"model":"sparrow-test",` + message + `,` + fields + `}` }
	stops := strings.Repeat(`"s",`, 9999) + `"s"`
	for _, c := range []struct {
		name, path, body string
		status           int
		param            string
	}{
		{"malformed JSON", chatPath, `{"model":`, 400, "model"},
		{"no JSON at all", chatPath, `hello`, 400, ""},
		{"an empty body", chatPath, ``, 400, ""},
		{"an array", chatPath, `[]`, 400, ""},
		{"two values", chatPath, with(`"n":1`) + `{}`, 400, ""},
		{"invalid UTF-8", chatPath,
			"{\"model\":\"sparrow-test\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", 400, ""},
		{"a wrong type", chatPath, with(`"temperature":"hot"`), 400, "temperature"},
		{"a negative number", chatPath, with(`"max_tokens":-5`), 400, "max_tokens"},
		{"NaN", chatPath, with(`"temperature":NaN`), 400, "temperature"},
		{"an endless number", chatPath, with(`"temperature":1e999`), 400, "temperature"},
		{"an unknown field", chatPath, with(`"temprature":1`), 400, "temprature"},
		{"10,000 stop strings", chatPath, with(`"stop":[` + stops + `]`), 400, "stop"},
		{"a body above the limit", chatPath, with(`"user":"` + strings.Repeat("x", 1<<20) + `"`), 413, ""},
		{"deep nesting", chatPath, with(`"metadata":` + strings.Repeat(`{"a":`, 1<<17)), 400, "metadata"},
		{"an unknown model", chatPath, `{"model":"gpt-4o",` + message + `}`, 404, "model"},
		{"no model", chatPath, `{` + message + `}`, 400, "model"},
		{"a prompt for a chat", chatPath, `{"model":"sparrow-test","prompt":"x"}`, 400, "prompt"},
		{"a completion without a prompt", textPath, `{"model":"sparrow-test"}`, 400, "prompt"},
		{"a completion of an unknown model", textPath, `{"model":"m","prompt":"x"}`, 404, "model"},
		{"an echoed id outside the vocabulary", textPath, `{"model":"sparrow-test","prompt":[256],"echo":true}`, 400,
			"prompt[0][0]"},
		{"no tokens without special ones", textPath, `{"model":"sparrow-test","prompt":"","add_special_tokens":false}`,
			400, "prompt"},
		{"more prompts than may ever wait", textPath, `{"model":"sparrow-test","prompt":["a","b","c"],"n":3}`, 400,
			"prompt"},
		{"a draft that nobody makes", textPath, `{"model":"sparrow-test","prompt":"x","sparrow":{"draft":3}}`, 400,
			"sparrow.draft"},
		{"tokenize without anything", "/tokenize", `{}`, 400, "prompt"},
		{"tokenize for another model", "/tokenize", `{"model":"m","prompt":"x"}`, 404, "model"},
		{"tokenize with a role that the model lacks", "/tokenize", `{"messages":[{"role":"developer","content":"x"}]}`,
			400, "messages[0].role"},
		{"detokenize outside the vocabulary", "/detokenize", `{"tokens":[1,256]}`, 400, "tokens[1]"},
		{"detokenize a negative id", "/detokenize", `{"tokens":[-1]}`, 400, "tokens[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := post(t, hs.URL+c.path, c.body)
			e := errorOf(t, got)
			param := ""
			if e.Param != nil {
				param = *e.Param
			}
			if got.status != c.status || !within(param, c.param) || e.Code == nil ||
				e.Type != openai.TypeInvalidRequest {
				t.Errorf("status %d, param %q: %.300s", got.status, param, got.body)
			}
		})
	}
	if got := post(t, hs.URL+chatPath, `{"model":"gpt-4o",`+message+`}`); !strings.Contains(got.body,
		`model_not_found`) || !strings.Contains(got.body, `sparrow-test`) {
		t.Errorf("the served model is not named: %s", got.body)
	}
	if len(e.requests) != 0 {
		t.Errorf("the engine got %d requests", len(e.requests))
	}
	if got := post(t, hs.URL+chatPath, with(`"n":1`)); got.status != 200 {
		t.Errorf("afterwards a good request fails: %s", got.body)
	}
}

func TestEngineErrorsReachTheClient(t *testing.T) {
	failing := func(err error) func(sparrow.Request) ([]sparrow.Event, error) {
		return func(sparrow.Request) ([]sparrow.Event, error) { return nil, err }
	}
	late := func(err error) func(sparrow.Request) ([]sparrow.Event, error) {
		return playing(sparrow.Event{Finish: sparrow.FinishError, Err: err, Usage: usage(0)})
	}
	odd := func(field string, err error) func(sparrow.Request) ([]sparrow.Event, error) {
		return failing(&sparrow.RequestError{Field: field, Reason: "x", Err: err})
	}
	for _, c := range []struct {
		name, fields string
		script       func(sparrow.Request) ([]sparrow.Event, error)
		status       int
		param        string
		code         wire.Code
	}{
		{"queue full", ``, failing(sparrow.ErrQueueFull), 429, "", wire.CodeQueueFull},
		{"queue full when the loop took it", `,"stream":true`, late(fmt.Errorf("%w: x", sparrow.ErrQueueFull)), 429, "",
			wire.CodeQueueFull},
		{"closed", ``, failing(sparrow.ErrClosed), 503, "", wire.CodeUnavailable},
		{"a chat's prompt is its messages", ``, odd("prompt", nil), 400, "messages", wire.CodeInvalidValue},
		{"a chat's limit under its newer name", `,"max_completion_tokens":9`, odd("max_tokens", nil), 400,
			"max_completion_tokens", wire.CodeInvalidValue},
		{"a chat's limit under its older name", `,"max_tokens":9`, odd("max_tokens", nil), 400, "max_tokens",
			wire.CodeInvalidValue},
		{"a chat longer than the context", ``, odd("prompt", sparrow.ErrContext), 400, "messages",
			wire.CodeContextLength},
		{"a chat's limit beyond the context", `,"max_completion_tokens":9`, odd("max_tokens", sparrow.ErrContext), 400,
			"max_completion_tokens", wire.CodeContextLength},
		{"a format that cannot be enforced", ``, odd("response_format", grammar.ErrUnsupported), 400, schemaParam,
			wire.CodeUnsupportedValue},
		{"a failed step before the first token", `,"stream":true`, late(fmt.Errorf("%w: oom", sparrow.ErrStep)), 500,
			"", wire.CodeInternal},
		{"a failed step in one piece", ``, late(nil), 500, "", wire.CodeInternal},
		{"cancelled by the engine itself", ``, playing(sparrow.Event{Finish: sparrow.FinishCancelled, Usage: usage(0)}),
			503, "", wire.CodeUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, hs := start(t, newFake(c.script), Options{})
			got := post(t, hs.URL+"/v1/chat/completions", hello+c.fields+`}`)
			e := errorOf(t, got)
			if got.status != c.status || (e.Param == nil) != (c.param == "") ||
				(e.Param != nil && *e.Param != c.param) || *e.Code != string(c.code) {
				t.Errorf("status %d: %s", got.status, got.body)
			}
			if again := got.header.Get("Retry-After"); (again == "1") != (c.status == 429 || c.status == 503) {
				t.Errorf("Retry-After %q", again)
			}
		})
	}
}

func TestErrorsInMidStreamAreEvents(t *testing.T) {
	events := append(say("Hel")[:1],
		sparrow.Event{Finish: sparrow.FinishError, Err: fmt.Errorf("%w: oom", sparrow.ErrStep), Usage: usage(1)})
	e := newFake(playing(events...))
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+"/v1/chat/completions", hello+`,"stream":true}`)
	want :=
		`data: {"error":{"message":"the server failed on this request only; the log has the reason under ` +
			`request id t1","type":"server_error","param":null,"code":"internal_error"}}` + "\n\n"
	if got.status != 200 || !strings.HasSuffix(got.body, want) || strings.Contains(got.body, "[DONE]") {
		t.Errorf("status %d:\n%s", got.status, got.body)
	}
	await.True(t, "the stream to be closed", func() bool { return e.opened() == 0 })
}

func TestOneBadPromptClosesTheOthers(t *testing.T) {
	e := newFake(func(r sparrow.Request) ([]sparrow.Event, error) {
		if r.Prompt == "bad" {
			return nil, &sparrow.RequestError{Field: "prompt", Reason: "no"}
		}
		return say("x"), nil
	})
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":["a","b","bad"]}`)
	if got.status != 400 || e.opened() != 0 || len(e.requests) != 2 {
		t.Errorf("status %d, %d open of %d: %s", got.status, e.opened(), len(e.requests), got.body)
	}
}
