//go:build openai

package clienttest

import (
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/server"
)

// shot is a plain prompt in the form of the model's training data.
const shot = "Question: " + treesQuestion + "\nAnswer:"

func complete() openai.CompletionNewParams {
	p := openai.CompletionNewParams{Model: model, Temperature: openai.Float(0), MaxTokens: openai.Int(32)}
	p.Prompt.OfString = openai.String(shot)
	p.Stop.OfString = openai.String("\n\n")
	return p
}

func TestCompletions(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	client := s.client()
	whole, err := client.Completions.New(t.Context(), complete())
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 1 || whole.Choices[0].FinishReason != "stop" ||
		!strings.HasSuffix(whole.Choices[0].Text, "#### 154") {
		t.Errorf("answer: %s", whole.RawJSON())
	}
	events := client.Completions.NewStreaming(t.Context(), complete())
	defer events.Close()
	var joined string
	for events.Next() {
		for _, c := range events.Current().Choices {
			joined += c.Text
		}
	}
	if err := events.Err(); err != nil || joined != whole.Choices[0].Text {
		t.Errorf("streamed %q (%v), whole %q", joined, err, whole.Choices[0].Text)
	}
}

func TestCompletionsOfSeveralPrompts(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	client := s.client()
	p := complete()
	p.Prompt = openai.CompletionNewParamsPromptUnion{
		OfArrayOfStrings: []string{shot, strings.Replace(shot, "22", "11", 1)}}
	p.Echo, p.N = openai.Bool(true), openai.Int(2)
	r, err := client.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Choices) != 4 {
		t.Fatalf("%d choices of 2 prompts with n 2", len(r.Choices))
	}
	for i, c := range r.Choices {
		prompt, end := p.Prompt.OfArrayOfStrings[i/2], []string{"#### 154", "#### 77"}[i/2]
		if c.Index != int64(i) || !strings.HasPrefix(c.Text, prompt) || !strings.HasSuffix(c.Text, end) {
			t.Errorf("choice %d: %s", i, c.RawJSON())
		}
	}
}

func TestCompletionLogprobs(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	client := s.client()
	p := complete()
	p.Logprobs = openai.Int(2)
	r, err := client.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	l := r.Choices[0].Logprobs
	if len(l.Tokens) == 0 || len(l.TokenLogprobs) != len(l.Tokens) || len(l.TopLogprobs) != len(l.Tokens) ||
		len(l.TextOffset) != len(l.Tokens) {
		t.Fatalf("columns of different lengths: %s", l.RawJSON())
	}
	for i, tok := range l.Tokens {
		if len(l.TopLogprobs[i]) < 2 || l.TopLogprobs[i][tok] != l.TokenLogprobs[i] {
			t.Errorf("token %d (%q): %v among %v", i, tok, l.TokenLogprobs[i], l.TopLogprobs[i])
		}
	}
}
