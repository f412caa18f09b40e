package server

import (
	"strings"
	"testing"

	"sparrow"
	"sparrow/engine"
)

func TestAliases(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{Aliases: []string{"gpt-4o", "claude-*", "openai/gpt-*"}})
	chat := `{"model":"NAME","messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		path, body, name string
		status           int
	}{
		{"/v1/chat/completions", chat + `}`, "gpt-4o", 200},
		{"/v1/chat/completions", chat + `}`, "openai/gpt-9", 200},
		{"/v1/chat/completions", chat + `}`, "gpt-5", 404},
		{"/v1/chat/completions", chat + `}`, "sparrow-test", 200},
		{messagesPath, chat + `,"max_tokens":3}`, "claude-sonnet-9", 200},
		{messagesPath + "/count_tokens", chat + `}`, "claude-haiku-9", 200},
		{responsesPath, `{"model":"NAME","input":"x"}`, "claude-x", 200},
		{"/api/chat", chat + `}`, "gpt-4o:latest", 200},
		{"/v1/completions", `{"model":"NAME","prompt":"x"}`, "gpt-4o", 200},
	} {
		got := post(t, hs.URL+c.path, strings.Replace(c.body, "NAME", c.name, 1))
		if got.status != c.status {
			t.Errorf("%s %s: status %d: %s", c.path, c.name, got.status, got.body)
		}
		if want := `"model":"` + c.name + `"`; c.status == 200 && !strings.HasSuffix(c.path, "/count_tokens") &&
			!strings.Contains(got.body, want) {
			t.Errorf("%s: the answer does not name the model as the request does, %s: %s", c.path, want, got.body)
		}
	}
	if got := post(t, hs.URL+responsesPath, `{"input":"x","model":"gpt-4o","tools":[{"type":"custom","name":"sh"}],
		"tool_choice":{"type":"custom","name":"sh"}}`); !strings.Contains(got.body, `"tool_choice":{"type":"custom"`) {
		t.Errorf("the choice of a custom tool is repeated as %s", got.body)
	}
	if got := get(t, hs.URL+"/v1/models"); !strings.Contains(got.body, `"id":"gpt-4o"`) ||
		strings.Contains(got.body, "claude") {
		t.Errorf("the list is %s", got.body)
	}
	if got := get(t, hs.URL+"/v1/models/claude-x"); got.status != 200 ||
		!strings.Contains(got.body, `"id":"claude-x"`) {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	for _, bad := range []string{"", "[x"} {
		if err := (Options{Aliases: []string{bad}}).Validate(); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestTokenizerInfo(t *testing.T) {
	e := newFake(saying("x"))
	e.info.Tokenizer = engine.Tokenizer{Class: "C", BOS: "<b>", EOS: "<e>", AddsBOS: true, ChatTemplate: "{{ x }}"}
	_, hs := start(t, e, Options{})
	want := `{"tokenizer_class":"C","bos_token":"<b>","eos_token":"<e>","pad_token":null,"unk_token":null,` +
		`"add_bos_token":true,"model_max_length":4096,"chat_template":"{{ x }}"}`
	if got := get(t, hs.URL+"/tokenizer_info"); got.body != want {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Both interfaces that have the field verbosity accept every value of it, and the field has no effect.
func TestVerbosity(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	for _, word := range []string{"low", "medium", "high"} {
		for path, body := range map[string]string{
			"/v1/chat/completions": hello + `,"verbosity":"` + word + `"}`,
			responsesPath:          asked + `,"text":{"verbosity":"` + word + `"}}`,
		} {
			if got := post(t, hs.URL+path, body); got.status != 200 {
				t.Errorf("%s, %s: status %d: %s", path, word, got.status, got.body)
			}
		}
	}
}

func TestOllamaSaysWhatTheModelIs(t *testing.T) {
	e := newFake(saying("x"))
	e.info.Parameters, e.info.Format = 671_026_419_200, "FP8 in blocks of 128 x 128"
	e.info.Tokenizer.ChatTemplate = "{{ t }}"
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+"/api/show", `{"model":"sparrow-test"}`)
	for _, want := range []string{`"parameter_size":"671.0B"`, `"quantization_level":"FP8"`, `"template":"{{ t }}"`,
		`"general.parameter_count":671026419200`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
	for n, want := range map[int64]string{5: "5", 29_600_000: "29.6M", 1_500: "1.5K", 1_600_000_000_000: "1.6T"} {
		if got := parameterSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestInputItems(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	r := respond(t, hs.URL, `{"model":"sparrow-test","instructions":"i","input":[{"role":"user","content":"a"},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c","output":"r","id":"own"},{"role":"user","content":"b"}]}`)
	url := hs.URL + responsePrefix + r.ID + "/input_items"
	in := func(i string) string { return `"in_` + r.ID + `_` + i + `"` }
	for _, c := range []struct {
		query, want string
	}{
		{"?order=asc&limit=1", `{"object":"list","data":[{"type":"message","id":` + in("0") +
			`,"role":"user","content":[{"type":"input_text","text":"a"}]}],"first_id":` + in("0") +
			`,"last_id":` + in("0") + `,"has_more":true}`},
		{"?after=own", `{"object":"list","data":[{"type":"function_call","id":` + in("1") +
			`,"call_id":"c","name":"f","arguments":"{}"},{"type":"message","id":` + in("0") +
			`,"role":"user","content":[{"type":"input_text","text":"a"}]}],"first_id":` + in("1") +
			`,"last_id":` + in("0") + `,"has_more":false}`},
	} {
		if got := get(t, url+c.query); got.status != 200 || got.body != c.want {
			t.Errorf("%s: %d %s\nwant %s", c.query, got.status, got.body, c.want)
		}
	}
	for query, status := range map[string]int{"?limit=0": 400, "?limit=x": 400, "?order=up": 400, "?after=zz": 400,
		"": 200} {
		if got := get(t, url+query); got.status != status {
			t.Errorf("%s: status %d: %s", query, got.status, got.body)
		}
	}
	if got := get(t, hs.URL+responsePrefix+"resp_none/input_items"); got.status != 404 {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

// The trace of a response contains the effective effort and the tools that were left out.
func TestATraceNamesEffortAndToolsLeftOut(t *testing.T) {
	last := sparrow.Event{Finish: sparrow.FinishStop, Usage: usage(1),
		TraceLog: &sparrow.Trace{ID: "t1", Match: aMatch}}
	_, hs := start(t, newFake(playing(last)), Options{})
	got := post(t, hs.URL+responsesPath, asked+`,"reasoning":{"effort":"low"},"tools":[{"type":"web_search"}],
		"sparrow":{"trace":true}}`)
	if want := `"effort":{"asked":"low","used":"on"},"left_out":["web_search"]`; !strings.Contains(got.body, want) {
		t.Errorf("no %s in %s", want, got.body)
	}
}
