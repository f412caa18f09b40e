package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestIgnoredFieldsAreNamedInAHeaderAndTheLog(t *testing.T) {
	var log bytes.Buffer
	e := newFake(saying("x"))
	debug := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
	_, hs := start(t, e, Options{Log: slog.New(debug)})
	for _, c := range []struct{ name, path, body, ignored string }{
		{"none", "/v1/chat/completions", hello + `}`, ""},
		{"a chat", "/v1/chat/completions", hello + `,"foo":1,"user":"u"}`, "foo, user"},
		{"a stream", "/v1/chat/completions", hello + `,"foo":1,"stream":true}`, "foo"},
		{"a text completion", "/v1/completions", `{"model":"sparrow-test","prompt":"x","bar":{}}`, "bar"},
		{"tokens", "/tokenize", `{"prompt":"x","foo":1}`, "foo"},
	} {
		got := post(t, hs.URL+c.path, c.body)
		if got.status != 200 || got.header.Get(ignoredHeader) != c.ignored {
			t.Errorf("%s: status %d, ignored %q: %s", c.name, got.status, got.header.Get(ignoredHeader), got.body)
		}
	}
	hs.Close()
	if !strings.Contains(log.String(), `ignored="foo, user"`) {
		t.Errorf("not in the log: %s", &log)
	}
	_, hs = start(t, e, Options{Strict: true})
	if got := post(t, hs.URL+"/v1/chat/completions", hello+`,"foo":1}`); *errorOf(t, got).Param != "foo" {
		t.Errorf("not refused: %s", got.body)
	}
}

func TestLimitsAboveTheContextAreReducedUnlessStrict(t *testing.T) {
	for _, strict := range []bool{false, true} {
		e := newFake(saying("x"))
		_, hs := start(t, e, Options{Strict: strict})
		for body, limit := range map[string]int{
			`,"max_tokens":1000000}`: 1000000, `,"max_completion_tokens":-1}`: 0, `,"max_tokens":-1}`: 0, `}`: 0,
		} {
			post(t, hs.URL+"/v1/chat/completions", hello+body)
			if r := e.last(t); r.MaxTokens != limit || r.FitContext == strict {
				t.Errorf("strict %v, %s: at most %d, reduced %v", strict, body, r.MaxTokens, r.FitContext)
			}
		}
		post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":"x","max_tokens":-1}`)
		if r := e.last(t); r.MaxTokens != 0 {
			t.Errorf("a completion without limit: at most %d", r.MaxTokens)
		}
	}
}

func TestTheOwnObjectIsReadStrictly(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	for body, want := range map[string]string{
		`{"selection":{}}`:                "sparrow.selection: unknown field; did you mean selections?",
		`{"selections":{"tokns":"all"}}`:  "sparrow.selections.tokns: unknown field; did you mean tokens?",
		`{"trace":true,"more":{"a":"b"}}`: "sparrow.more: unknown field",
	} {
		got := post(t, hs.URL+"/v1/chat/completions", hello+`,"unknown":1,"sparrow":`+body+`}`)
		if e := errorOf(t, got); got.status != 400 || !strings.Contains(e.Message, want) ||
			strings.Contains(e.Message, "unknown: ") {
			t.Errorf("%s: status %d: %s", body, got.status, got.body)
		}
	}
}
