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
