package chat

import (
	"encoding/json"
	"errors"
	"testing"
)

// Requests that contradict themselves are refused by every format, and similar consistent requests are rendered.
func TestContradictionsAreRefused(t *testing.T) {
	user, call := Message{Role: User, Content: "hi"}, Call{ID: "c", Name: "f", Arguments: "{}"}
	so := Message{Role: Assistant, Content: "so"}
	said := Message{Role: Assistant, Content: "so", ToolCalls: []Call{call}}
	answer := Message{Role: ToolRole, Content: "1", ToolCallID: "c"}
	calls := func(c Call) Message { return Message{Role: Assistant, ToolCalls: []Call{c}} }
	f := Tool{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}
	ask := func(m ...Message) Request { return Request{Messages: m, Tools: []Tool{f}} }
	tools := func(list ...Tool) Request { return Request{Messages: []Message{user}, Tools: list} }
	choose := func(c ToolChoice, list ...Tool) Request {
		return Request{Messages: []Message{user}, Tools: list, ToolChoice: c}
	}
	goOn := func(begin bool, m ...Message) Request {
		return Request{Messages: m, Tools: []Tool{f}, ContinueFinal: true, AddGenerationPrompt: begin}
	}
	for name, c := range map[string]struct {
		r  Request
		ok bool
	}{
		"plain":                   {ask(user), true},
		"no message":              {Request{}, false},
		"a call and its answer":   {ask(user, said, answer), true},
		"answered twice":          {ask(user, said, answer, answer), false},
		"another call's answer":   {ask(user, said, Message{Role: ToolRole, ToolCallID: "d"}), false},
		"an answer to nothing":    {ask(user, answer), false},
		"continue an answer":      {goOn(false, user, so), true},
		"continue a call":         {goOn(false, user, said), false},
		"continue the user":       {goOn(false, user), false},
		"continue and begin":      {goOn(true, user, so), false},
		"calls of the user":       {ask(Message{Role: User, ToolCalls: []Call{call}}), false},
		"reasoning of the user":   {ask(Message{Role: User, Content: "hi", Reasoning: "hm"}), false},
		"the user answers":        {ask(Message{Role: User, Content: "hi", ToolCallID: "c"}), false},
		"a call without a name":   {ask(user, calls(Call{ID: "c"})), false},
		"arguments of a list":     {ask(user, calls(Call{ID: "c", Name: "f", Arguments: "[1]"}), answer), false},
		"two tools of one name":   {tools(f, f), false},
		"a tool without a name":   {tools(Tool{}), false},
		"a tool with a space":     {tools(Tool{Name: "a b"}), false},
		"parameters of a list":    {tools(Tool{Name: "f", Parameters: json.RawMessage(`[]`)}), false},
		"a call of no tool":       {choose(ToolChoice{Mode: ChoiceRequired}), false},
		"a tool that is sent":     {choose(ToolChoice{Mode: ChoiceFunction, Name: "f"}, f), true},
		"a tool that is not sent": {choose(ToolChoice{Mode: ChoiceFunction, Name: "g"}, f), false},
		"an unknown choice":       {choose(ToolChoice{Mode: 77}, f), false},
		"tools of the user":       {ask(Message{Role: User, Content: "hi", Tools: []Tool{{Name: "g"}}}), false},
		"a format of the user": {
			ask(Message{Role: User, Content: "hi", ResponseFormat: json.RawMessage(`{}`)}), false},
		"parameters that are cut": {tools(Tool{Name: "f", Parameters: json.RawMessage(`{"a":`)}), false},
		"an unknown role":         {ask(Message{Role: "owner", Content: "x"}), false},
	} {
		for _, format := range []Format{DeepSeekV31{}, DeepSeekV32{}, DeepSeekV4{}, GLM5{}, Kimi{}} {
			_, err := format.Render(c.r)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrRequest) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s, %s: %v", format.Name(), name, err)
			}
		}
	}
}
