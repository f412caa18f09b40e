package chat

import (
	"strings"
	"testing"
)

// The formats accept system messages in the middle and at the end of a conversation, as coding agents send them.
func TestSystemMessagesInTheMiddle(t *testing.T) {
	on := true
	first := []Message{{Role: System, Content: "s0"}, {Role: User, Content: "u1"}, {Role: System, Content: "s1"}}
	more := append(first[:3:3], Message{Role: Assistant, Reasoning: "r", ToolCalls: []Call{{ID: "c", Name: "f"}}},
		Message{Role: ToolRole, ToolCallID: "c", Content: "x"}, Message{Role: System, Content: "s2"})
	for _, c := range []struct {
		format Format
		turn   string // expected text of the first user turn
		last   string // expected text of the last message
	}{
		{DeepSeekV32{}, "s0" + deepseekUser + "u1\n\ns1" + deepseekAssistant, deepseekUser + "s2" + deepseekAssistant},
		{DeepSeekV4{}, "s0" + deepseekUser + "u1\n\ns1" + deepseekAssistant,
			"</tool_result>\n\ns2" + deepseekAssistant},
		{GLM5{}, glmSystem + "s0" + glmUser + "u1" + glmSystem + "s1" + glmAssistant, glmSystem + "s2" + glmAssistant},
	} {
		render := func(list []Message) string {
			t.Helper()
			p, err := c.format.Render(Request{Messages: list, Thinking: &on, AddGenerationPrompt: true})
			if err != nil {
				t.Fatalf("%s: %v", c.format.Name(), err)
			}
			return p.Text
		}
		one, two := render(first), render(more)
		if !strings.Contains(one, c.turn) || !strings.Contains(two, c.turn) || !strings.Contains(two, c.last) {
			t.Errorf("%s:\n%s\n%s", c.format.Name(), one, two)
		}
		if turn := one[:strings.Index(one, c.turn)+len(c.turn)]; !strings.HasPrefix(two, turn) {
			t.Errorf("%s: the next turn does not begin with\n%s\nbut is\n%s", c.format.Name(), turn, two)
		}
	}
}

// Deferred tools can be called, but the prompt does not list them.
func TestDeferredToolsAreNotListed(t *testing.T) {
	req := Request{Messages: []Message{{Role: User, Content: "u"}}, AddGenerationPrompt: true,
		Tools: []Tool{{Name: "shown"}, {Name: "hidden", Deferred: true}}}
	for _, f := range []Format{DeepSeekV31{}, DeepSeekV32{}, DeepSeekV4{}, GLM5{}, GLM5{V52: true}} {
		p, err := f.Render(req)
		if err != nil || !strings.Contains(p.Text, "shown") || strings.Contains(p.Text, "hidden") {
			t.Errorf("%s: %v: %s", f.Name(), err, p.Text)
		}
	}
	if len(callable(req)) != 2 {
		t.Error("a deferred tool cannot be called")
	}
}
