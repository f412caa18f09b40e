package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
)

const asked = `{"model":"sparrow-test","input":"hello"`

// drawnName matches a random id of a response or of one of its items.
var drawnName = regexp.MustCompile(`(resp|msg|rs|fc|ctc)_[A-Z2-7]+`)

// ids returns the text with random ids replaced by fixed ones.
func ids(text string) string { return drawnName.ReplaceAllString(text, "${1}_X") }

// respond sends a request to /v1/responses and returns the response, which must succeed.
func respond(t *testing.T, url, body string, header ...string) *openai.Response {
	t.Helper()
	got := post(t, url+responsesPath, body, header...)
	if got.status != 200 {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	var r struct {
		openai.Response
		Output     []json.RawMessage `json:"output"`
		ToolChoice json.RawMessage   `json:"tool_choice"`
	}
	if err := json.Unmarshal([]byte(got.body), &r); err != nil {
		t.Fatal(err)
	}
	return &r.Response
}

// told returns the events of a reply with reasoning, text and two tool calls.
func told() []sparrow.Event {
	call := func(i int, id, name, arguments string) chat.Delta {
		return chat.Delta{Kind: chat.DeltaToolCall,
			Call: chat.CallDelta{Index: i, ID: id, Name: name, Arguments: arguments}}
	}
	return []sparrow.Event{
		{Deltas: []chat.Delta{{Kind: chat.DeltaReasoning, Text: "Hm"}}},
		{Deltas: []chat.Delta{{Kind: chat.DeltaReasoning, Text: "m."}, {Kind: chat.DeltaContent, Text: "I"}}},
		{Deltas: []chat.Delta{{Kind: chat.DeltaContent, Text: " look."}, call(0, "c1", "f", "")}},
		{Deltas: []chat.Delta{call(0, "", "", `{"a"`), call(0, "", "", `:1}`), call(1, "c2", "g", `{}`)}},
		{Finish: sparrow.FinishToolCalls,
			Usage: &sparrow.Usage{PromptTokens: 7, CachedTokens: 4, CompletionTokens: 9, ReasoningTokens: 3}},
	}
}

const toldOutput = `[{"type":"reasoning","id":"rs_X_0","status":"completed","summary":[],` +
	`"content":[{"type":"reasoning_text","text":"Hmm."}]},` +
	`{"type":"message","id":"msg_X_1","status":"completed","role":"assistant",` +
	`"content":[{"type":"output_text","text":"I look.","annotations":[],"logprobs":[]}]},` +
	`{"type":"function_call","id":"fc_X_2","status":"completed","call_id":"c1","name":"f","arguments":"{\"a\":1}"},` +
	`{"type":"function_call","id":"fc_X_3","status":"completed","call_id":"c2","name":"g","arguments":"{}"}]`

func TestAResponseInOnePiece(t *testing.T) {
	_, hs := start(t, newFake(playing(told()...)), Options{})
	got := post(t, hs.URL+responsesPath, asked+`,"instructions":"be","metadata":{"k":"v"},"max_output_tokens":50,
		"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"store":false}`)
	want := `{"id":"resp_X","object":"response","created_at":1700000001,"completed_at":1700000001,` +
		`"status":"completed","background":false,"error":null,"incomplete_details":null,"model":"sparrow-test",` +
		`"output":` + toldOutput + `,"usage":{"input_tokens":7,` +
		`"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":9,` +
		`"output_tokens_details":{"reasoning_tokens":3},"total_tokens":16},"instructions":"be",` +
		`"max_output_tokens":50,"metadata":{"k":"v"},"parallel_tool_calls":true,"previous_response_id":null,` +
		`"reasoning":{"effort":null,"summary":null},"store":false,"temperature":1,"top_p":1,` +
		`"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[{"type":"function","name":"f",` +
		`"parameters":{"type":"object"},"strict":null}],"top_logprobs":0,"truncation":"disabled"}`
	if diff := cmp.Diff(want, ids(got.body)); got.status != 200 || diff != "" {
		t.Errorf("status %d: %s", got.status, diff)
	}
}

// events returns the names and the data of a stream's events, which must be numbered from 0.
func events(t *testing.T, body string) (names []string, data []string) {
	t.Helper()
	for i, text := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, rest, ok := strings.Cut(text, "\n")
		start := fmt.Sprintf(`data: {"type":%q,"sequence_number":%d,`, strings.TrimPrefix(name, "event: "), i)
		if !ok || !strings.HasPrefix(name, "event: ") || !strings.HasPrefix(rest, start) {
			t.Fatalf("event %d is %s", i, text)
		}
		names = append(names, strings.TrimPrefix(name, "event: "))
		data = append(data, ids("{"+strings.TrimPrefix(rest, start)))
	}
	return names, data
}

func TestAResponseInAStream(t *testing.T) {
	_, hs := start(t, newFake(playing(told()...)), Options{})
	got := post(t, hs.URL+responsesPath, asked+`,"stream":true}`)
	names, data := events(t, got.body)
	want := []string{
		"response.created", "response.in_progress",
		"response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
		"response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done",
		"response.output_item.done",
		"response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done",
		"response.output_item.done",
		"response.output_item.added", "response.function_call_arguments.delta",
		"response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done",
		"response.output_item.added", "response.function_call_arguments.delta",
		"response.function_call_arguments.done", "response.output_item.done",
		"response.completed",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatal(diff)
	}
	if got.header.Get("Content-Type") != "text/event-stream" || strings.Contains(got.body, "[DONE]") {
		t.Errorf("%v: %s", got.header, got.body)
	}
	for i, text := range map[int]string{
		4:  `{"item_id":"rs_X_0","output_index":0,"content_index":0,"delta":"Hm"}`,
		6:  `{"item_id":"rs_X_0","output_index":0,"content_index":0,"text":"Hmm."}`,
		9:  `{"output_index":1,"item":{"type":"message","id":"msg_X_1","status":"in_progress","role":"assistant","content":[]}}`,
		11: `{"item_id":"msg_X_1","output_index":1,"content_index":0,"delta":"I","logprobs":[]}`,
		13: `{"item_id":"msg_X_1","output_index":1,"content_index":0,"text":"I look.","logprobs":[]}`,
		14: `{"item_id":"msg_X_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"I look.",` +
			`"annotations":[],"logprobs":[]}}`,
		17: `{"item_id":"fc_X_2","output_index":2,"delta":"{\"a\""}`,
		19: `{"item_id":"fc_X_2","output_index":2,"name":"f","arguments":"{\"a\":1}"}`,
	} {
		if data[i] != text {
			t.Errorf("event %d is %s, want %s", i, data[i], text)
		}
	}
	if !strings.Contains(data[0], `"status":"in_progress"`) || !strings.Contains(data[0], `"output":[],"usage":null`) {
		t.Errorf("the first event: %s", data[0])
	}
	last := data[len(data)-1]
	if !strings.Contains(last, `"output":`+toldOutput+`,`) || !strings.Contains(last, `"status":"completed"`) {
		t.Errorf("the last event: %s", last)
	}
}

func TestAResponseThatEndsByLengthIsIncomplete(t *testing.T) {
	cut := playing(append(say("a", "b")[:2], sparrow.Event{Finish: sparrow.FinishLength, Usage: usage(2)})...)
	_, hs := start(t, newFake(cut), Options{})
	got := post(t, hs.URL+responsesPath, asked+`}`)
	for _, part := range []string{`"status":"incomplete","background"`, `"completed_at":null`,
		`"incomplete_details":{"reason":"max_output_tokens"}`, `"id":"msg_X_0","status":"incomplete"`} {
		if !strings.Contains(ids(got.body), part) {
			t.Errorf("no %s in %s", part, got.body)
		}
	}
	names, _ := events(t, post(t, hs.URL+responsesPath, asked+`,"stream":true}`).body)
	if last := names[len(names)-1]; last != "response.incomplete" {
		t.Errorf("a stream ends with %s", last)
	}
}

func TestAnEmptyAnswerIsAnEmptyMessage(t *testing.T) {
	_, hs := start(t, newFake(playing(sparrow.Event{Finish: sparrow.FinishStop, Usage: usage(1)})), Options{})
	if got := post(t, hs.URL+responsesPath, asked+`}`); !strings.Contains(got.body, `"type":"output_text","text":""`) {
		t.Errorf("%s", got.body)
	}
}

func TestAResponseThatFailsInMidStream(t *testing.T) {
	failing := playing(append(say("Hel")[:1],
		sparrow.Event{Finish: sparrow.FinishError, Err: fmt.Errorf("%w: oom", sparrow.ErrStep), Usage: usage(1)})...)
	_, hs := start(t, newFake(failing), Options{})
	names, data := events(t, post(t, hs.URL+responsesPath, asked+`,"stream":true}`).body)
	last := len(names) - 1
	if names[last] != "response.failed" || !strings.Contains(data[last], `"status":"failed"`) ||
		!strings.Contains(data[last], `"error":{"code":"server_error","message":"the server failed`) ||
		!strings.Contains(data[last], `"status":"incomplete","role":"assistant"`) {
		t.Errorf("%s: %s", names[last], data[last])
	}
	var failed struct{ Response struct{ ID string } }
	if err := json.Unmarshal([]byte(data[last]), &failed); err != nil || failed.Response.ID == "" {
		t.Fatalf("%s: %v", data[last], err)
	}
	if got := get(t, hs.URL+responsePrefix+failed.Response.ID); got.status != http.StatusNotFound {
		t.Errorf("a failed response is stored: status %d", got.status)
	}
	if got := post(t, hs.URL+responsesPath, asked+`}`); got.status != http.StatusInternalServerError {
		t.Errorf("in one piece: status %d", got.status)
	}
}

func TestRequestsOfTheResponsesAPIReachTheEngine(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	respond(t, hs.URL, `{"model":"sparrow-test","instructions":"be","max_output_tokens":9,"temperature":0.5,
		"parallel_tool_calls":false,"top_logprobs":2,"tool_choice":{"type":"function","name":"f"},
		"thinking":{"type":"enabled"},"text":{"format":{"type":"json_schema","name":"s","schema":{"type":"object"}}},
		"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}],
		"input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a"},
		{"type":"function_call_output","call_id":"c","output":"r"}]}`)
	yes := true
	want := &chat.Request{
		Messages: []chat.Message{
			{Role: chat.System, Content: "be"}, {Role: chat.User, Content: "q"},
			{Role: chat.Assistant, ToolCalls: []chat.Call{{ID: "c", Name: "f", Arguments: `{"a`}}},
			{Role: chat.ToolRole, Content: "r", ToolCallID: "c"},
		},
		Tools: []chat.Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`),
			Strict: true}},
		ToolChoice: chat.ToolChoice{Mode: chat.ChoiceFunction, Name: "f"}, Thinking: &yes, AddGenerationPrompt: true,
		ResponseFormat: json.RawMessage(`{"type":"object"}`),
	}
	r := e.last(t)
	if diff := cmp.Diff(want, r.Chat); diff != "" {
		t.Error(diff)
	}
	if r.MaxTokens != 9 || !r.FitContext || r.Sampling.Temperature != 0.5 || r.Sampling.TopLogprobs != 2 ||
		r.Format.Kind != sparrow.FormatSchema {
		t.Errorf("%+v", r)
	}
}

func TestErrorsOfTheResponsesAPINameItsFields(t *testing.T) {
	odd := func(field string) func(sparrow.Request) ([]sparrow.Event, error) {
		return func(sparrow.Request) ([]sparrow.Event, error) {
			return nil, &sparrow.RequestError{Field: field, Reason: "no", Err: sparrow.ErrContext}
		}
	}
	for _, c := range []struct {
		name   string
		script func(sparrow.Request) ([]sparrow.Event, error)
		body   string
		status int
		param  string
	}{
		{"a prompt that is too long", odd("prompt"), asked + `}`, 400, "input"},
		{"a limit", odd("max_tokens"), asked + `,"stream":true}`, 400, "max_output_tokens"},
		{"a format", odd("response_format"), asked + `}`, 400, "text.format"},
		{"a message", func(sparrow.Request) ([]sparrow.Event, error) {
			return nil, fmt.Errorf("%w: messages[2].role: no", chat.ErrRequest)
		}, asked + `}`, 400, "input"},
		{"a full queue", func(sparrow.Request) ([]sparrow.Event, error) { return nil, sparrow.ErrQueueFull },
			asked + `}`, 429, ""},
		{"another model", saying("x"), `{"model":"m","input":"x"}`, 404, "model"},
		{"a previous response that is not there", saying("x"), asked + `,"previous_response_id":"resp_1"}`, 400,
			"previous_response_id"},
		{"an item that is not there", saying("x"), `{"model":"sparrow-test","input":[{"id":"msg_1_0"}]}`, 400, "input"},
		{"background", saying("x"), asked + `,"background":true}`, 400, "background"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, hs := start(t, newFake(c.script), Options{})
			got := post(t, hs.URL+responsesPath, c.body)
			e := errorOf(t, got)
			if got.status != c.status || (e.Param == nil) != (c.param == "") || e.Param != nil && *e.Param != c.param {
				t.Errorf("status %d: %s", got.status, got.body)
			}
		})
	}
}
