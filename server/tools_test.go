package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/chat"
)

// codexTools is a list with a tool of every type that coding agents send to /v1/responses.
const codexTools = `"tools":[{"type":"function","name":"run","parameters":{"type":"object"},"strict":false},
	{"type":"custom","name":"patch","description":"Edits.","format":{"type":"grammar","syntax":"lark",
		"definition":"start: \"a\"+"}},
	{"type":"namespace","name":"mcp__docs","description":"Docs.","tools":[
		{"type":"function","name":"find","description":"Finds.","parameters":{"type":"object"},"defer_loading":true},
		{"type":"custom","name":"ask"}]},
	{"type":"web_search","external_web_access":false},{"type":"image_generation","output_format":"png"},
	{"type":"local_shell"},{"type":"mcp","server_label":"x","server_url":"u"},{"type":"web_search_preview_2025_03_11"}]`

func TestToolsAsAgentsSendThem(t *testing.T) {
	var log bytes.Buffer
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{Strict: false, Log: slog.New(slog.NewTextHandler(&log, nil))})
	got := post(t, hs.URL+responsesPath, asked+`,`+codexTools+`}`)
	const left = "web_search, image_generation, local_shell, mcp, web_search_preview_2025_03_11"
	if got.status != 200 || got.header.Get(leftOutHeader) != left {
		t.Fatalf("status %d, left out %q: %s", got.status, got.header.Get(leftOutHeader), got.body)
	}
	hs.Close()
	if !strings.Contains(log.String(), `left_out="`+left+`"`) {
		t.Errorf("not in the log: %s", &log)
	}
	input := `{"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], ` +
		`"additionalProperties": false}`
	want := []chat.Tool{
		{Name: "run", Parameters: []byte(`{"type":"object"}`)},
		{Name: "patch", Description: "Edits.\n\nThe input follows this grammar (lark):\nstart: \"a\"+",
			Parameters: []byte(input), Enforced: []byte(strings.Replace(input, `"string"`,
				`"string", "pattern": "^(?:(?:(?:(?:a))+))$"`, 1))},
		{Name: "mcp__docs__find", Description: "Finds.", Parameters: []byte(`{"type":"object"}`)},
		{Name: "mcp__docs__ask", Parameters: []byte(input)},
	}
	if diff := cmp.Diff(want, e.last(t).Chat.Tools); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{`{"type":"web_search","external_web_access":false}`,
		`{"type":"namespace","name":"mcp__docs"`} {
		if !strings.Contains(got.body, text) {
			t.Errorf("the response does not repeat %s: %s", text, got.body)
		}
	}
}

// A pattern with lookahead is shown to the model but not enforced, and a response header reports that. An invalid
// pattern is refused.
func TestPatternsOfCustomTools(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	for _, c := range []struct {
		pattern, ignored string
		status           int
	}{{`a+`, "", 200}, {`\\u0061+`, "", 200}, {`(?=a)b`, "tools[].format", 200}, {`(a)\\1`, "tools[].format", 200},
		{`(a`, "", 400}, {`*a`, "", 400}} {
		got := post(t, hs.URL+responsesPath, asked+`,"tools":[{"type":"custom","name":"f","format":{"type":"grammar",
			"syntax":"regex","definition":"`+c.pattern+`"}}]}`)
		if got.status != c.status || got.header.Get(ignoredHeader) != c.ignored {
			t.Errorf("%s: status %d, ignored %q: %s", c.pattern, got.status, got.header.Get(ignoredHeader), got.body)
		}
		if c.status == 200 && (len(e.last(t).Chat.Tools[0].Enforced) > 0) != (c.ignored == "") {
			t.Errorf("%s: the input is held to %s", c.pattern, e.last(t).Chat.Tools[0].Enforced)
		}
	}
}

// called returns the events of a reply with a call of each kind of tool.
func called() []sparrow.Event {
	call := func(i int, id, name, arguments string) chat.Delta {
		return chat.Delta{Kind: chat.DeltaToolCall,
			Call: chat.CallDelta{Index: i, ID: id, Name: name, Arguments: arguments}}
	}
	return []sparrow.Event{
		{Deltas: []chat.Delta{call(0, "c1", "patch", ""), call(0, "", "", `{"inp`), call(0, "", "", `ut": "a\`)}},
		{Deltas: []chat.Delta{call(0, "", "", `n\u00e9\ud83d\`), call(0, "", "", `ude00"}`)}},
		{Deltas: []chat.Delta{call(1, "c2", "mcp__docs__find", `{"q": 1}`)}},
		{Finish: sparrow.FinishToolCalls, Usage: usage(9)},
	}
}

func TestCallsOfEachKindOfTool(t *testing.T) {
	_, hs := start(t, newFake(playing(called()...)), Options{})
	got := post(t, hs.URL+responsesPath, asked+`,`+codexTools+`}`)
	output := `[{"type":"custom_tool_call","id":"ctc_X_0","status":"completed","call_id":"c1","name":"patch",` +
		`"input":"a\né😀"},{"type":"function_call","id":"fc_X_1","status":"completed","call_id":"c2",` +
		`"namespace":"mcp__docs","name":"find","arguments":"{\"q\": 1}"}]`
	if !strings.Contains(ids(got.body), `"output":`+output) {
		t.Errorf("%s", got.body)
	}
	_, data := events(t, post(t, hs.URL+responsesPath, asked+`,"stream":true,`+codexTools+`}`).body)
	for _, text := range []string{
		`{"item_id":"ctc_X_0","output_index":0,"delta":"\né"}`, `{"item_id":"ctc_X_0","output_index":0,"delta":"😀"}`,
		`{"item_id":"ctc_X_0","output_index":0,"input":"a\né😀"}`,
	} {
		if !strings.Contains(strings.Join(data, "\n"), text) {
			t.Errorf("no event %s in %s", text, strings.Join(data, "\n"))
		}
	}
	// Chat completions use another format for custom tools than /v1/responses.
	tools := `,"tools":[{"type":"custom","custom":{"name":"patch","format":{"type":"text"}}}]`
	got = post(t, hs.URL+"/v1/chat/completions", hello+tools+`}`)
	want := `{"id":"c1","type":"custom","custom":{"name":"patch","input":"a\né😀"}}`
	if !strings.Contains(got.body, want) {
		t.Errorf("no %s in %s", want, got.body)
	}
	got = post(t, hs.URL+"/v1/chat/completions", hello+tools+`,"stream":true}`)
	if want := `"id":"c1","type":"custom","custom":{"name":"patch","input":"a"}`; !strings.Contains(got.body, want) {
		t.Errorf("no %s in %s", want, got.body)
	}
}

// Calls that a client sends back in the next request reach the engine identical to those of the answer.
func TestCallsAreReplayed(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	respond(t, hs.URL, `{"model":"sparrow-test",`+codexTools+`,"store":false,"input":[{"role":"developer","content":"d"},
		{"role":"user","content":"q"},
		{"type":"custom_tool_call","call_id":"c1","name":"patch","input":"a\n","status":"completed"},
		{"type":"function_call","call_id":"c2","namespace":"mcp__docs","name":"find","arguments":"{}"},
		{"type":"custom_tool_call_output","call_id":"c1","output":"r1"},
		{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"r2"}]}]}`)
	want := []chat.Message{{Role: chat.System, Content: "d"}, {Role: chat.User, Content: "q"},
		{Role: chat.Assistant, ToolCalls: []chat.Call{{ID: "c1", Name: "patch", Arguments: `{"input": "a\n"}`},
			{ID: "c2", Name: "mcp__docs__find", Arguments: "{}"}}},
		{Role: chat.ToolRole, ToolCallID: "c1", Content: "r1"}, {Role: chat.ToolRole, ToolCallID: "c2", Content: "r2"}}
	if diff := cmp.Diff(want, e.last(t).Chat.Messages); diff != "" {
		t.Error(diff)
	}
	post(t, hs.URL+"/v1/chat/completions", `{"model":"sparrow-test","messages":[{"role":"user","content":"q"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"patch","input":"a\n"}}]},
		{"role":"tool","tool_call_id":"c1","content":"r1"}]}`)
	if diff := cmp.Diff(want[2].ToolCalls[:1], e.last(t).Chat.Messages[1].ToolCalls); diff != "" {
		t.Error(diff)
	}
}

func TestFunctionsTheOlderFormOfTools(t *testing.T) {
	e := newFake(playing(told()...))
	_, hs := start(t, e, Options{})
	body := `{"model":"sparrow-test","functions":[{"name":"f","parameters":{"type":"object"}}],"function_call":{"name":"f"},
		"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
		{"role":"function","name":"f","content":"r"}]`
	got := post(t, hs.URL+"/v1/chat/completions", body+`}`)
	want := `"function_call":{"name":"f","arguments":"{\"a\":1}"}},"logprobs":null,"finish_reason":"function_call"`
	if got.status != 200 || !strings.Contains(got.body, want) {
		t.Errorf("status %d: no %s in %s", got.status, want, got.body)
	}
	c := e.last(t).Chat
	if c.ToolChoice != (chat.ToolChoice{Mode: chat.ChoiceFunction, Name: "f"}) || len(c.Tools) != 1 ||
		c.Messages[2].ToolCallID != c.Messages[1].ToolCalls[0].ID || c.Messages[2].Role != chat.ToolRole {
		t.Errorf("%+v", c)
	}
	got = post(t, hs.URL+"/v1/chat/completions", body+`,"stream":true}`)
	if !strings.Contains(got.body, `"function_call":{"name":"f","arguments":`) ||
		strings.Contains(got.body, "tool_calls") ||
		!strings.Contains(got.body, `"finish_reason":"function_call"`) {
		t.Errorf("%s", got.body)
	}
}

// Reasoning is sent to the client encrypted, and the server can read it when the client returns it in any of its forms.
func TestReasoningIsEchoed(t *testing.T) {
	e := newFake(playing(told()...))
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+responsesPath, asked+`,"store":false,"include":["reasoning.encrypted_content"],
		"reasoning":{"summary":"auto"}}`)
	want := `"summary":[{"type":"summary_text","text":"Hmm."}],"encrypted_content":"`
	if !strings.Contains(got.body, want) {
		t.Fatalf("no %s in %s", want, got.body)
	}
	_, rest, _ := strings.Cut(got.body, `"encrypted_content":"`)
	code, _, _ := strings.Cut(rest, `"`)
	for _, item := range []string{
		`{"type":"reasoning","summary":[],"encrypted_content":"` + code + `"}`,
		`{"type":"reasoning","summary":[{"type":"summary_text","text":"Hmm."}],"encrypted_content":null}`,
		`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hmm."}],"encrypted_content":"of another"}`,
	} {
		respond(t, hs.URL, `{"model":"sparrow-test","input":[{"role":"user","content":"q"},`+item+`,
			{"type":"message","role":"assistant","content":"a"},{"role":"user","content":"r"}]}`)
		if m := e.last(t).Chat.Messages[1]; m.Reasoning != "Hmm." {
			t.Errorf("%s: %+v", item, m)
		}
	}
	got = post(t, hs.URL+responsesPath, asked+`,"stream":true,"reasoning":{"summary":"detailed"}}`)
	names, _ := events(t, got.body)
	summary := []string{"response.output_item.added", "response.reasoning_summary_part.added",
		"response.reasoning_summary_text.delta", "response.reasoning_summary_text.delta",
		"response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done"}
	if diff := cmp.Diff(summary, names[2:9]); diff != "" {
		t.Error(diff)
	}
	// If the thinking text is omitted from a message, the signature contains it.
	got = post(t, hs.URL+messagesPath, askedMessage+`,"thinking":{"type":"adaptive","display":"omitted"}}`)
	if want := `{"type":"thinking","thinking":"","signature":"` + code + `"}`; !strings.Contains(got.body, want) {
		t.Errorf("no %s in %s", want, got.body)
	}
	post(t, hs.URL+messagesPath, `{"model":"sparrow-test","max_tokens":9,"messages":[{"role":"user","content":"q"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"`+code+`"},{"type":"text","text":"a"}]},
		{"role":"user","content":"r"}]}`)
	if m := e.last(t).Chat.Messages[1]; m.Reasoning != "Hmm." {
		t.Errorf("%+v", m)
	}
}

func TestToolsThatAreSearchedFor(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+messagesPath, `{"model":"sparrow-test","max_tokens":9,"tools":[
		{"name":"ToolSearch","input_schema":{"type":"object"}},{"name":"Found","description":"d","input_schema":{"type":"object"},
			"defer_loading":true},{"type":"web_search_20250305","name":"web_search","max_uses":8}],
		"messages":[{"role":"user","content":"q"},
			{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"ToolSearch","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
				{"type":"tool_reference","tool_name":"Found"}]}]}]}`)
	if got.status != 200 || got.header.Get(leftOutHeader) != "web_search_20250305" {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	c := e.last(t).Chat
	if len(c.Tools) != 2 || c.Tools[0].Deferred || !c.Tools[1].Deferred ||
		c.Messages[2].Content != `{"name":"Found","description":"d","parameters":{"type":"object"}}` {
		t.Errorf("%+v", c)
	}
}
