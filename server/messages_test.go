package server

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/chat"
)

const askedMessage = `{"model":"sparrow-test","max_tokens":50,"messages":[{"role":"user","content":"hello"}]`

const toldBlocks = `[{"type":"thinking","thinking":"Hmm.","signature":"unsigned"},{"type":"text","text":"I look."},` +
	`{"type":"tool_use","id":"c1","name":"f","input":{"a":1}},{"type":"tool_use","id":"c2","name":"g","input":{}}]`

func TestAMessageInOnePiece(t *testing.T) {
	_, hs := start(t, newFake(playing(told()...)), Options{})
	got := post(t, hs.URL+messagesPath, askedMessage+`}`)
	want := `{"id":"msg_X","type":"message","role":"assistant","model":"sparrow-test","content":` + toldBlocks +
		`,"stop_reason":"tool_use","stop_sequence":null,"stop_details":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,` +
		`"cache_read_input_tokens":4,"output_tokens":9,"output_tokens_details":{"thinking_tokens":3}}}`
	if diff := cmp.Diff(want, ids(got.body)); got.status != 200 || diff != "" {
		t.Errorf("status %d: %s", got.status, diff)
	}
	if id := got.header.Get("Request-Id"); id != "t1" {
		t.Errorf("request id %q", id)
	}
}

func TestAMessageInAStream(t *testing.T) {
	_, hs := start(t, newFake(playing(told()...)), Options{})
	got := post(t, hs.URL+messagesPath, askedMessage+`,"stream":true}`)
	block := func(i, start string, deltas ...string) string {
		text := "content_block_start," + `"index":` + i + `,"content_block":` + start + "\n"
		for _, d := range deltas {
			text += "content_block_delta," + `"index":` + i + `,"delta":` + d + "\n"
		}
		return text + "content_block_stop," + `"index":` + i + "\n"
	}
	want := `message_start,"message":{"id":"msg_X","type":"message","role":"assistant","model":"sparrow-test",` +
		`"content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"usage":{"input_tokens":7,` +
		`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0}}}` + "\nping\n" +
		block("0", `{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"Hm"}`,
			`{"type":"thinking_delta","thinking":"m."}`, `{"type":"signature_delta","signature":"unsigned"}`) +
		block("1", `{"type":"text","text":""}`, `{"type":"text_delta","text":"I"}`,
			`{"type":"text_delta","text":" look."}`) +
		block("2", `{"type":"tool_use","id":"c1","name":"f","input":{}}`,
			`{"type":"input_json_delta","partial_json":"{\"a\""}`, `{"type":"input_json_delta","partial_json":":1}"}`) +
		block("3", `{"type":"tool_use","id":"c2","name":"g","input":{}}`,
			`{"type":"input_json_delta","partial_json":"{}"}`) +
		`message_delta,"delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":null},"usage":{"input_tokens":3,` +
		`"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":9,"output_tokens_details":{"thinking_tokens":3}}` + "\nmessage_stop\n"
	if diff := cmp.Diff(want, ids(plainEvents(t, got.body))); diff != "" {
		t.Error(diff)
	}
	if kind := got.header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("content type %s", kind)
	}
}

// plainEvents returns one line for each event: its type and its other members.
func plainEvents(t *testing.T, body string) string {
	t.Helper()
	var b strings.Builder
	for _, text := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(text, "event: "), "\n")
		rest, same := strings.CutPrefix(data, `data: {"type":"`+name+`"`)
		if !ok || !same || !strings.HasSuffix(rest, "}") {
			t.Fatalf("not an event: %s", text)
		}
		b.WriteString(name + strings.TrimSuffix(rest, "}") + "\n")
	}
	return b.String()
}

func TestWhyAMessageStopped(t *testing.T) {
	end := func(f sparrow.Finish, matched string, deltas ...chat.Delta) []sparrow.Event {
		return []sparrow.Event{{Deltas: deltas}, {Finish: f, Matched: matched, Usage: usage(50)}}
	}
	word := chat.Delta{Kind: chat.DeltaContent, Text: "x"}
	cut := chat.Delta{Kind: chat.DeltaToolCall, Call: chat.CallDelta{ID: "c", Name: "f", Arguments: `{"a":"b`}}
	for _, c := range []struct {
		name   string
		events []sparrow.Event
		want   string
	}{
		{"the end", end(sparrow.FinishStop, "", word), `[{"type":"text","text":"x"}],"stop_reason":"end_turn","stop_sequence":null`},
		{"nothing said", end(sparrow.FinishStop, ""), `[],"stop_reason":"end_turn","stop_sequence":null`},
		{"a stop sequence", end(sparrow.FinishStop, "END", word),
			`[{"type":"text","text":"x"}],"stop_reason":"stop_sequence","stop_sequence":"END"`},
		{"the limit", end(sparrow.FinishLength, "", word),
			`[{"type":"text","text":"x"}],"stop_reason":"max_tokens","stop_sequence":null`},
		{"the end of the context", append(end("", "", word)[:1], sparrow.Event{Finish: sparrow.FinishLength,
			Usage: usage(49)}),
			`[{"type":"text","text":"x"}],"stop_reason":"model_context_window_exceeded","stop_sequence":null`},
		{"the limit inside a call", end(sparrow.FinishLength, "", cut),
			`[{"type":"tool_use","id":"c","name":"f","input":{"a":"b"}}],"stop_reason":"max_tokens","stop_sequence":null`},
	} {
		_, hs := start(t, newFake(playing(c.events...)), Options{})
		got := post(t, hs.URL+messagesPath, askedMessage+`}`)
		if !strings.Contains(got.body, `"content":`+c.want) {
			t.Errorf("%s: %s", c.name, got.body)
		}
	}
}

func TestAMessageBecomesAChat(t *testing.T) {
	e := newFake(saying("done"))
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+messagesPath, `{"model":"sparrow-test","max_tokens":64,"temperature":0.5,"top_k":3,
		"stop_sequences":["END"],"metadata":{"user_id":"u"},"service_tier":"auto",
		"system":[{"type":"text","text":"x-anthropic-billing-header: cc=1"},{"type":"text","text":"Be brief.",
			"cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be kind."}],
		"thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"high"},
		"tools":[{"name":"mcp__server__a_tool_whose_name_is_longer_than_openai_allows_it_to_be_here","description":"d",
			"input_schema":{"type":"object","$schema":"x","properties":{"a":{"type":"string","format":"odd"}}},
			"cache_control":{"type":"ephemeral"},"eager_input_streaming":true}],
		"tool_choice":{"type":"any","disable_parallel_tool_use":true},"context_management":{"edits":[]},
		"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
				{"type":"redacted_thinking","data":"zzz"},{"type":"text","text":"ok"},
				{"type":"tool_use","id":"t1","name":"f","input":{"x":1}},
				{"type":"tool_use","id":"t2","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"r1"},
				{"type":"tool_result","tool_use_id":"t2","is_error":true,
					"content":[{"type":"text","text":"r"},{"type":"text","text":"2"}]},
				{"type":"text","text":"go on"}]}]}`, "anthropic-version", "2023-06-01", "anthropic-beta", "x,y")
	if got.status != 200 {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	r := e.last(t)
	want := []chat.Message{{Role: chat.System, Content: "Be brief.\nBe kind."}, {Role: chat.User, Content: "a\nb"},
		{Role: chat.Assistant, Content: "ok", Reasoning: "hm", ToolCalls: []chat.Call{
			{ID: "t1", Name: "f", Arguments: `{"x":1}`}, {ID: "t2", Name: "f", Arguments: `{}`}}},
		{Role: chat.ToolRole, ToolCallID: "t1", Content: "r1"}, {Role: chat.ToolRole, ToolCallID: "t2",
			Content: "r\n2"},
		{Role: chat.User, Content: "go on"}}
	if diff := cmp.Diff(want, r.Chat.Messages); diff != "" {
		t.Error(diff)
	}
	if r.MaxTokens != 64 || r.Sampling.Temperature != 0.5 || r.Sampling.TopK != 3 || r.Sampling.Stop[0] != "END" ||
		r.Chat.Thinking == nil || !*r.Chat.Thinking || r.MaxReasoning != 1024 || r.Chat.Effort != "" ||
		r.Chat.ToolChoice.Mode != chat.ChoiceRequired || len(r.Chat.Tools) != 1 || !r.Chat.AddGenerationPrompt {
		t.Errorf("%+v, chat %+v", r, r.Chat)
	}
	for _, name := range []string{"metadata", "service_tier", "system[].cache_control", "system",
		"tools[].cache_control", "tools[].eager_input_streaming",
		"context_management", "messages[].content[]", "messages[].content[].is_error"} {
		if !strings.Contains(", "+got.header.Get(ignoredHeader)+",", ", "+name+",") {
			t.Errorf("%s is not among the ignored fields %s", name, got.header.Get(ignoredHeader))
		}
	}
}

func TestAMessageOfNoTokensReadsThePrompt(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	body := strings.Replace(askedMessage, `"max_tokens":50`, `"max_tokens":0`, 1)
	got := post(t, hs.URL+messagesPath, body+`}`)
	if !strings.Contains(got.body, `"content":[],"stop_reason":"max_tokens"`) ||
		!strings.Contains(got.body, `"output_tokens":0,`) || e.last(t).MaxTokens != 1 {
		t.Errorf("status %d: %s, limit %d", got.status, got.body, e.last(t).MaxTokens)
	}
	if got := post(t, hs.URL+messagesPath, body+`,"stream":true}`); strings.Contains(got.body, "content_block") {
		t.Error(got.body)
	}
}

func TestThinkingBetweenTools(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	thinking := `,"thinking":{"type":"between_tools"}}`
	post(t, hs.URL+messagesPath, askedMessage+thinking)
	if on := e.last(t).Chat.Thinking; on == nil || *on {
		t.Error("it thinks before any tool was called")
	}
	post(t, hs.URL+messagesPath, `{"model":"sparrow-test","max_tokens":5,"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]`+thinking)
	if on := e.last(t).Chat.Thinking; on == nil || !*on {
		t.Error("it does not think about the result of a tool")
	}
}

func TestALastMessageOfTheAssistantIsContinued(t *testing.T) {
	e := newFake(saying("done"))
	_, hs := start(t, e, Options{})
	post(t, hs.URL+messagesPath, `{"model":"sparrow-test","max_tokens":5,"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":"The answer is"}]}`)
	if r := e.last(t); !r.Chat.ContinueFinal || r.Chat.AddGenerationPrompt {
		t.Errorf("%+v", r.Chat)
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	_, hs := start(t, newFake(saying("x")), Options{Keys: keys})
	user := `"messages":[{"role":"user","content":`
	for _, c := range []struct {
		name, body string
		status     int
		kind, says string
	}{
		{"no limit", `{"model":"sparrow-test",` + user + `"x"}]}`, 400, "invalid_request_error",
			"max_tokens: required"},
		{"no messages", `{"model":"sparrow-test","max_tokens":1}`, 400, "invalid_request_error", "messages: required"},
		{"another model", `{"model":"claude","max_tokens":1,` + user + `"x"}]}`, 404, "not_found_error",
			"sparrow-test"},
		{"an image", `{"model":"sparrow-test","max_tokens":1,` + user + `[{"type":"image","source":{"type":"url","url":"u"}}]}]}`,
			400, "invalid_request_error", `messages[0].content[0].type: \"image\" is not supported; the models read text`},
		{"an image in a result", `{"model":"sparrow-test","max_tokens":1,` + user + `[{"type":"tool_result","tool_use_id":"x",
			"content":[{"type":"image","source":{}}]}]}]}`, 400, "invalid_request_error", "content[0].content[0].type"},
		{"a result without its call", `{"model":"sparrow-test","max_tokens":1,` + user + `[{"type":"tool_result","tool_use_id":"x"}]}]}`,
			400, "invalid_request_error", "no earlier message has a tool_use block"},
		{"a tool of Anthropic's", askedMessage + `,"tools":[{"type":"bash_20250124","name":"bash"}]}`,
			400, "invalid_request_error", "tools[0].type"},
		{"a demanded tool of a provider", askedMessage + `,"tools":[{"type":"web_search_20250305","name":"web_search"}],
			"tool_choice":{"type":"tool","name":"web_search"}}`, 400, "invalid_request_error",
			"tool_choice.name: web_search_20250305 is required"},
		{"a demanded call of nothing", askedMessage + `,"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}],
			"tool_choice":{"type":"any"}}`, 400, "invalid_request_error",
			"tool_choice: web_fetch_20250910 is required"},
		{"an unknown choice", askedMessage + `,"tool_choice":{"type":"some"}}`, 400, "invalid_request_error",
			"tool_choice.type"},
		{"a server of tools", askedMessage + `,"mcp_servers":[{"url":"u"}]}`, 400, "invalid_request_error",
			"mcp_servers"},
		{"not JSON", `{`, 400, "invalid_request_error", "malformed JSON"},
	} {
		got := post(t, hs.URL+messagesPath, c.body, "x-api-key", "secret")
		if got.status != c.status || !strings.HasPrefix(got.body, `{"type":"error","error":{"type":"`+c.kind+`","message":"`) ||
			!strings.Contains(got.body, c.says) || !strings.HasSuffix(got.body, `"request_id":"t1"}`) {
			t.Errorf("%s: status %d: %s", c.name, got.status, got.body)
		}
	}
	for _, header := range [][]string{{}, {"x-api-key", "wrong"}} {
		got := post(t, hs.URL+messagesPath, askedMessage+`}`, header...)
		if got.status != 401 || !strings.Contains(got.body, `{"type":"authentication_error"`) {
			t.Errorf("%s: status %d: %s", header, got.status, got.body)
		}
	}
	if got := post(t, hs.URL+messagesPath+"/elsewhere", "{}"); got.status != 404 ||
		!strings.Contains(got.body, `"not_found_error"`) {
		t.Errorf("another path: %d %s", got.status, got.body)
	}
}

func TestCountedTokens(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	got := post(t, hs.URL+messagesPath+"/count_tokens",
		`{"model":"sparrow-test","system":"s","messages":[{"role":"user","content":"abc"}]}`)
	if want := `{"input_tokens":` + itoa(len("<system>s<user>abc")) + `}`; got.status != 200 || got.body != want {
		t.Errorf("status %d: %s, want %s", got.status, got.body, want)
	}
	got = post(t, hs.URL+messagesPath+"/count_tokens", `{"model":"sparrow-test"}`)
	if got.status != 400 {
		t.Errorf("without messages: %d %s", got.status, got.body)
	}
}

func TestModelsForAnthropicsClients(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	model := `{"type":"model","id":"sparrow-test","display_name":"sparrow-test","created_at":"2023-11-14T22:13:20Z",` +
		`"lifecycle":"active","max_input_tokens":4096,"max_tokens":4096}`
	for path, want := range map[string]string{
		"/v1/models":              `{"data":[` + model + `],"has_more":false,"first_id":"sparrow-test","last_id":"sparrow-test"}`,
		"/v1/models/sparrow-test": model,
	} {
		if got := get(t, hs.URL+path, "anthropic-version", "2023-06-01"); got.body != want {
			t.Errorf("%s: %s", path, got.body)
		}
	}
}

func TestAMessageThatFailsInItsStream(t *testing.T) {
	events := append(say("Hel")[:1], sparrow.Event{Finish: sparrow.FinishError, Usage: usage(1)})
	_, hs := start(t, newFake(playing(events...)), Options{})
	got := post(t, hs.URL+messagesPath, askedMessage+`,"stream":true}`)
	if !strings.HasSuffix(got.body, "\n\n") || !strings.Contains(got.body,
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":") {
		t.Error(got.body)
	}
}

// A response header lists the keywords of schemas that are not enforced, each with the field of the interface that
// contains the schema.
func TestIgnoredKeywordsAreNamed(t *testing.T) {
	e := newFake(saying("x"))
	e.ignored = []sparrow.Ignored{{Tool: -1, Pointer: "/properties/a", Keyword: "shiny"},
		{Tool: 2, Pointer: "", Keyword: "é"}, {Tool: 3}}
	_, hs := start(t, e, Options{})
	for _, c := range []struct{ path, body, want string }{
		{"/v1/chat/completions", hello + `,"foo":1}`, `foo, response_format.json_schema.schema/properties/a/shiny, ` +
			`tools[].function.parameters"/\u00e9", tools[].function.parameters`},
		{responsesPath, asked + `}`,
			`text.format.schema/properties/a/shiny, tools[].parameters"/\u00e9", tools[].parameters`},
		{messagesPath, askedMessage + `,"stream":true}`,
			`output_config.format.schema/properties/a/shiny, tools[].input_schema"/\u00e9", tools[].input_schema`},
		{"/api/chat", `{"model":"sparrow-test","messages":[{"role":"user","content":"x"}]}`,
			`format/properties/a/shiny, tools[].function.parameters"/\u00e9", tools[].function.parameters`},
	} {
		if got := post(t, hs.URL+c.path, c.body).header.Get(ignoredHeader); got != c.want {
			t.Errorf("%s: %s", c.path, got)
		}
	}
}
