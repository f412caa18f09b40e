package sparrow

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sparrow/chat"
)

var timer = chat.Tool{Name: "set_timer", Description: "Sets a timer.", Strict: true,
	Parameters: json.RawMessage(
		`{"type":"object","properties":{"minutes":{"type":"integer","minimum":1,"maximum":600}},"required":["minutes"],"additionalProperties":false}`)}

// A required call is made even if the model would write other text, and its arguments follow the tool's schema.
func TestDemandedToolCall(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	for _, choice := range []chat.ToolChoice{{Mode: chat.ChoiceRequired},
		{Mode: chat.ChoiceFunction, Name: "set_timer"}} {
		for _, thinking := range []bool{false, true} {
			r := ask("Hello! How are you today?")
			r.Tools, r.ToolChoice, r.Thinking = []chat.Tool{timer}, choice, &thinking
			got := generate(t, e, Request{Sampling: greedy(), Chat: r, MaxTokens: 200})
			a := got.Choices[0]
			if thinking && a.Finish == FinishLength {
				continue // the model may reason without end, and the call is required only after its reasoning
			}
			if len(a.Message.ToolCalls) == 0 || a.Finish != FinishToolCalls {
				t.Fatalf("%v thinking %v: the reply has no call: %q, finish %s", choice.Mode, thinking, a.Text,
					a.Finish)
			}
			var args struct{ Minutes int }
			c := a.Message.ToolCalls[0]
			if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil || c.Name != "set_timer" ||
				args.Minutes < 1 || args.Minutes > 600 {
				t.Errorf("%v: called %s(%s): %v", choice.Mode, c.Name, c.Arguments, err)
			}
		}
	}
}

// A response format applies to the text after the end of reasoning.
func TestFormatAfterReasoning(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	r := ask("A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?")
	thinking := true
	r.Thinking = &thinking
	got := generate(t, e, Request{Sampling: greedy(), Chat: r, MaxTokens: 300,
		Format: Format{Kind: FormatSchema,
			Schema: []byte(
				`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":99}},"required":["n"],"additionalProperties":false}`)}})
	a := got.Choices[0]
	var v struct{ N *int }
	if a.Message.Reasoning == "" || json.Unmarshal([]byte(a.Message.Content), &v) != nil || v.N == nil {
		t.Errorf("reasoning %q, content %q, finish %s", a.Message.Reasoning, a.Message.Content, a.Finish)
	}
}

// Reasoning ends at its token limit, and the answer follows as if the model had ended its reasoning. Drafts do not
// change this.
func TestReasoningIsBounded(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	const garden = "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?"
	thinking, none := true, 0
	for _, limit := range []int{0, 1, 7, 10_000} {
		for _, draft := range []*int{nil, &none} {
			c := ask(garden)
			c.Thinking = &thinking
			got := generate(t, e, Request{Sampling: greedy(), Chat: c, MaxTokens: 300, MaxReasoning: limit,
				Draft: draft})
			a := got.Choices[0]
			var before int // number of tokens before the token that ends reasoning
			for before < len(a.Tokens) && a.Tokens[before].Text != "</think>" {
				before++
			}
			cut := limit == 1 || limit == 7
			if cut && before != limit || !cut && before < 8 || a.Message.Content == "" || a.Finish != FinishStop {
				t.Errorf("limit %d: %d tokens of reasoning %q, content %q, finish %s", limit, before,
					a.Message.Reasoning, a.Message.Content, a.Finish)
			}
		}
	}
}

// If a request offers no tools, the model writes no part of a call, even if a call is the most probable output: no tool
// could run, and the markup would appear as content. This also holds before MinTokens is reached, and drafts do not
// change it.
func TestNoCallWithoutTools(t *testing.T) {
	notUnderRace(t)
	weather := chat.Tool{Name: "get_weather", Description: "Current weather of a city.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}
	const question = "Tell me the weather for London."
	plain, drafting := start(t, Config{}), start(t, Config{Draft: drafts(t, 3)})
	for name, choice := range map[string]struct {
		tools []chat.Tool
		mode  chat.ChoiceMode
	}{"no tools": {nil, chat.ChoiceAuto}, "tool choice none": {[]chat.Tool{weather}, chat.ChoiceNone}} {
		for _, least := range []int{0, 12} {
			r := ask(question)
			r.Tools, r.ToolChoice.Mode = choice.tools, choice.mode
			request := Request{Sampling: greedy(), Chat: r, MaxTokens: 60, MinTokens: least}
			a := generate(t, plain, request).Choices[0]
			if a.Message.Content == "" || strings.Contains(a.Text, "<｜tool") || len(a.Message.ToolCalls) > 0 ||
				a.Finish == FinishToolCalls {
				t.Errorf("%s, min_tokens %d: content %q, finish %s, calls %v", name, least, a.Message.Content, a.Finish,
					a.Message.ToolCalls)
			}
			if b := generate(t, drafting, request).Choices[0]; !slices.Equal(ids(a), ids(b)) {
				t.Errorf("%s, min_tokens %d: text %q without drafts, %q with drafts", name, least, a.Text, b.Text)
			}
		}
	}
	if st := drafting.Stats(); st.Drafted == 0 {
		t.Error("nothing was drafted")
	}
	syntax, _ := plain.format.(chat.Caller).CallSyntax()
	biased := greedy()
	biased.LogitBias = map[int32]float64{}
	for _, text := range syntax.Markers {
		if id, ok := plain.tok.TokenID(text); ok {
			biased.LogitBias[id] = 100
		}
	}
	for _, tools := range [][]chat.Tool{nil, {weather}} {
		for _, least := range []int{0, 12} {
			for _, e := range []*Engine{plain, drafting} {
				r := ask("Hello! How are you today?")
				r.Tools = tools
				a := generate(t, e, Request{Sampling: biased, Chat: r, MaxTokens: 20, MinTokens: least}).Choices[0]
				begun := slices.ContainsFunc(a.Tokens, func(tok Token) bool { return biased.LogitBias[tok.ID] > 0 })
				if begun != (tools != nil) {
					t.Errorf("%d tools, min_tokens %d, markers made likely: a call is begun %v in %q", len(tools),
						least, begun, a.Text)
				}
			}
		}
	}
	r := ask(question)
	r.Tools = []chat.Tool{weather}
	if a := generate(t, plain, Request{Sampling: greedy(), Chat: r,
		MaxTokens: 60}).Choices[0]; a.Finish != FinishToolCalls {
		t.Errorf("with the tool offered: %q, finish %s", a.Text, a.Finish)
	}
}

// A schema with an unknown keyword is refused if the format is strict; otherwise the keyword is listed as ignored.
func TestStrictFormats(t *testing.T) {
	e := start(t, Config{})
	for _, strict := range []bool{false, true} {
		got, err := e.Generate(t.Context(), Request{Prompt: "a", MaxTokens: 1, Format: Format{Kind: FormatSchema,
			Strict: strict, Schema: []byte(`{"type": "boolean", "contentEncoding": "x", "unknown": 1}`)}})
		if (err != nil) != strict {
			t.Errorf("strict %v: %v, %v", strict, got, err)
		}
	}
}
