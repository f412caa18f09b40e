package sparrow_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sparrow"
	"sparrow/chat"
	"sparrow/sample"
)

func open(t *testing.T, c sparrow.Config) *sparrow.Engine {
	t.Helper()
	e, err := sparrow.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func greedy() sample.Params {
	p := sample.Default()
	p.Temperature = 0
	return p
}

func ask(text string) *chat.Request {
	return &chat.Request{Messages: []chat.Message{{Role: "user", Content: text}}, AddGenerationPrompt: true}
}

func TestBuiltInModelSolvesAWordProblem(t *testing.T) {
	e := open(t, sparrow.Config{})
	r, err := e.Generate(context.Background(), sparrow.Request{Sampling: greedy(),
		Chat: ask("A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?")})
	if err != nil {
		t.Fatal(err)
	}
	a := r.Choices[0]
	if !strings.HasSuffix(a.Message.Content, "#### 46") || a.Finish != sparrow.FinishStop {
		t.Errorf("got %q, finish %q", a.Message.Content, a.Finish)
	}
	fmt.Println(a.Text, r.Usage)
}
