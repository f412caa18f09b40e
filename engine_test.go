package sparrow

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/chat"
	"sparrow/sample"
)

func ask(text string) *chat.Request {
	return &chat.Request{Messages: []chat.Message{{Role: "user", Content: text}}, AddGenerationPrompt: true}
}

func TestBuiltInModelSolvesAWordProblem(t *testing.T) {
	notUnderRace(t)
	e := start(t, Config{})
	r := generate(t, e, Request{Sampling: greedy(),
		Chat: ask(garden)})
	a := r.Choices[0]
	if !strings.HasSuffix(a.Message.Content, "#### 46") || a.Finish != FinishStop {
		t.Errorf("got %q, finish %q", a.Message.Content, a.Finish)
	}
	if r.Usage.PromptTokens == 0 || r.Usage.CompletionTokens != len(a.Tokens) {
		t.Errorf("usage %+v for %d tokens", r.Usage, len(a.Tokens))
	}
}

func TestRequestWithoutSamplingTakesTheDefault(t *testing.T) {
	e := start(t, Config{})
	out, _, err := e.prepare(t.Context(), &Request{Tokens: tokens(1, 5)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", out.Sampling), fmt.Sprintf("%+v", sample.Default()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
