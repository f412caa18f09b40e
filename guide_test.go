package sparrow

import (
	"encoding/json"
	"testing"

	"sparrow/chat"
)

var timer = chat.Tool{Name: "set_timer", Description: "Sets a timer.", Strict: true,
	Parameters: json.RawMessage(`{"type":"object","properties":{"minutes":{"type":"integer","minimum":1,"maximum":600}},"required":["minutes"],"additionalProperties":false}`)}

// A demanded call is made whatever the model would rather say, and its arguments follow the schema.
func TestDemandedToolCall(t *testing.T) {
	e := start(t, Config{})
	for _, choice := range []chat.ToolChoice{{Mode: chat.ChoiceRequired}, {Mode: chat.ChoiceFunction, Name: "set_timer"}} {
		for _, thinking := range []bool{false, true} {
			r := ask("Hello! How are you today?")
			r.Tools, r.ToolChoice, r.Thinking = []chat.Tool{timer}, choice, &thinking
			got := generate(t, e, Request{Sampling: greedy(), Chat: r, MaxTokens: 200})
			a := got.Choices[0]
			if thinking && a.Finish == FinishLength {
				continue // the model may think for ever; nothing is demanded before it stops
			}
			if len(a.Message.ToolCalls) == 0 || a.Finish != FinishToolCalls {
				t.Fatalf("%v thinking %v: no call: %q, finish %s", choice.Mode, thinking, a.Text, a.Finish)
			}
			var args struct{ Minutes int }
			c := a.Message.ToolCalls[0]
			if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil || c.Name != "set_timer" || args.Minutes < 1 || args.Minutes > 600 {
				t.Errorf("%v: called %s(%s): %v", choice.Mode, c.Name, c.Arguments, err)
			}
		}
	}
}

// A format begins where reasoning ends.
func TestFormatAfterReasoning(t *testing.T) {
	e := start(t, Config{})
	r := ask("A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?")
	thinking := true
	r.Thinking = &thinking
	got := generate(t, e, Request{Sampling: greedy(), Chat: r, MaxTokens: 300,
		Format: Format{Kind: FormatSchema, Schema: []byte(`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":99}},"required":["n"],"additionalProperties":false}`)}})
	a := got.Choices[0]
	var v struct{ N *int }
	if a.Message.Reasoning == "" || json.Unmarshal([]byte(a.Message.Content), &v) != nil || v.N == nil {
		t.Errorf("reasoning %q, content %q, finish %s", a.Message.Reasoning, a.Message.Content, a.Finish)
	}
}
