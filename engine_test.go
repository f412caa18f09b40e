package sparrow

import (
	"strings"
	"testing"

	"sparrow/chat"
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
