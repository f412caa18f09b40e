package anthropic

import (
	"slices"
	"strings"
	"testing"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// The chat made from a request has the value of every field of the request.
func TestRequestsAsChats(t *testing.T) {
	limit, temperature, topP, topK := 9, 0.5, 0.75, 7
	r := &Request{Model: "m", MaxTokens: &limit, Temperature: &temperature, TopP: &topP, TopK: &topK,
		Stop: []string{"x"}, Stream: true, Effort: "low", System: []string{"be brief"},
		Messages: []Message{{Role: RoleUser, Content: []Block{{Type: BlockText, Text: "hi"}}}}}
	c := r.AsChat()
	if c.Model != "m" || *c.MaxTokens != 9 || *c.Temperature != 0.5 || *c.TopP != 0.75 || *c.TopK != 7 ||
		!slices.Equal(c.Stop, []string{"x"}) || !c.Stream || c.ReasoningEffort != "low" || len(c.Messages) != 2 ||
		c.Messages[0].Role != openai.RoleSystem || c.ToolChoice != nil || c.ParallelToolCalls != nil ||
		c.ContinueFinalMessage {
		t.Errorf("%+v", c)
	}
	for single, parallel := range map[bool]bool{false: true, true: false} {
		r.ToolChoice = &ToolChoice{Type: ChoiceTool, Name: "f", Single: single}
		if c := r.AsChat(); *c.ParallelToolCalls != parallel || c.ToolChoice.Mode != openai.ChoiceFunction ||
			c.ToolChoice.Name != "f" {
			t.Errorf("%+v, in parallel: %v", c.ToolChoice, *c.ParallelToolCalls)
		}
	}
}

// A tool reference to a tool that the request does not contain is shown to the model as the name of the tool.
func TestReferencesToUnknownTools(t *testing.T) {
	r := &Request{Tools: []Tool{{Name: "known", Description: "d"}}}
	got := r.shown(&Block{Result: []string{"text"}, References: []string{"known", "other"}})
	if want := []string{"text", r.Tools[0].declared().Declaration(), "other"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Errors are converted to the error types of Anthropic's interface.
func TestTypesOfErrors(t *testing.T) {
	for status, want := range map[int]string{400: "invalid_request_error", 401: "authentication_error",
		404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
		503: "overloaded_error", 504: "timeout_error"} {
		if got := errorType(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
}

// The last events of a message contain its stop reason, the stop sequence that ended it, and its token usage.
func TestTheLastEvents(t *testing.T) {
	reason, sequence, details := "stop_sequence", "END", "why"
	r := &Response{StopReason: &reason, StopSequence: &sequence, StopDetails: &details, Usage: Usage{OutputTokens: 7}}
	out, err := AppendStop([]byte("before "), r)
	if err != nil {
		t.Fatal(err)
	}
	usage, err := wire.Marshal(r.Usage)
	if err != nil {
		t.Fatal(err)
	}
	want := `before event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"END","stop_details":"why"},` +
		`"usage":` + string(usage) + `}

event: message_stop
data: {"type":"message_stop"}

`
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

// Indices of many digits are written in every event of a block.
func TestNumbersOfBlocks(t *testing.T) {
	start, err := AppendBlockStart(nil, 1023, Block{Type: BlockText})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{start, AppendDelta(nil, 1023, BlockText, "x"),
		AppendBlockStop(nil, 1023, Block{Type: BlockText})} {
		if !strings.Contains(string(text), `"index":1023`) {
			t.Errorf("%s", text)
		}
	}
}

// A message is written as one response and as a stream of events with the same content. Thinking that is omitted is
// only in the signature, from which it can be decoded.
func TestMessagesAreWritten(t *testing.T) {
	r := NewResponse("msg_1", "m")
	out, err := AppendStart([]byte("before "), r)
	if err != nil {
		t.Fatal(err)
	}
	const empty = `"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,` +
		`"stop_sequence":null,"stop_details":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,` +
		`"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0}}}`
	for _, b := range []struct {
		Block
		events, json string
	}{
		{Block{Type: BlockThinking, Text: `"why"`},
			`event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\"why\""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"unsigned"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

`, `{"type":"thinking","thinking":"\"why\"","signature":"unsigned"}`},
		{Block{Type: BlockThinking, Text: "why", Omit: true},
			`event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"` +
				openai.Seal("why") + `"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

`, `{"type":"thinking","thinking":"","signature":"` + openai.Seal("why") + `"}`},
		{Block{Type: BlockText, Text: "<hi>"},
			`event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"<hi>"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

`, `{"type":"text","text":"<hi>"}`},
		{Block{Type: BlockToolUse, Text: `{"a":1}`, ID: "toolu_1", Name: "f", Input: []byte(`{"a":1}`)},
			`event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

`, `{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}}`},
	} {
		i := len(r.Content)
		r.Content = append(r.Content, b.Block)
		got, err := AppendBlockStart([]byte("before "), i, b.Block)
		if err != nil {
			t.Fatal(err)
		}
		if !b.Omit {
			got = AppendDelta(got, i, b.Type, b.Text)
		}
		if got = AppendBlockStop(got, i, b.Block); string(got) != "before "+b.events {
			t.Errorf("got\n%s\nwant\n%s", got, b.events)
		}
		text, err := wire.Marshal(b.Block)
		if err != nil || string(text) != b.json {
			t.Errorf("got %s, %v\nwant %s", text, err, b.json)
		}
	}
	want := "before event: message_start\ndata: {\"type\":\"message_start\",\"message\":{" + empty + "}\n\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	list, err := wire.Marshal(NewModelList(NewModel("m", "2026-01-02T03:04:05Z", 4096)))
	const model = `{"data":[{"type":"model","id":"m","display_name":"m","created_at":"2026-01-02T03:04:05Z",` +
		`"lifecycle":"active","max_input_tokens":4096,"max_tokens":4096}],"has_more":false,"first_id":"m","last_id":"m"}`
	if err != nil || string(list) != model {
		t.Errorf("got %s, %v\nwant %s", list, err, model)
	}
	failed, err := wire.Marshal(NewErrorBody(&wire.Error{Message: "busy", Code: wire.CodeQueueFull}, "req_1"))
	const body = `{"type":"error","error":{"type":"rate_limit_error","message":"busy"},"request_id":"req_1"}`
	if err != nil || string(failed) != body {
		t.Errorf("got %s, %v\nwant %s", failed, err, body)
	}
	const event = "before event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"," +
		"\"message\":\"busy\"}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
	got := AppendPing(AppendError([]byte("before "), &wire.Error{Message: "busy", Code: wire.CodeQueueFull}))
	if string(got) != event {
		t.Errorf("got\n%s\nwant\n%s", got, event)
	}
}
