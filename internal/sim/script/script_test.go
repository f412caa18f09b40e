package script

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/testkit/await"
)

// The engine returns scripted replies unchanged, in every chat format.
func TestRepliesArePlayed(t *testing.T) {
	replies := []chat.Message{
		{Content: "Hello, Köln."},
		{Content: "I look.", Reasoning: "Hm.", ToolCalls: []chat.Call{
			{Name: "find", Arguments: `{"q": "a\nb", "n": 3}`}, {Name: "stop", Arguments: `{}`}}},
	}
	tools := []chat.Tool{{Name: "find", Parameters: []byte(`{"type": "object", "properties": {"q": {"type": "string"},
		"n": {"type": "integer"}}, "required": ["q", "n"]}`)}, {Name: "stop", Parameters: []byte(`{"type": "object",
		"properties": {}}`)}}
	for _, format := range []string{"", "deepseek-v3.2", "deepseek-v4", "glm-5", "glm-5.2"} {
		asked := 0
		e, err := Open(t.Context(), sparrow.Config{ChatFormat: format}, 1<<18, func(prompt string) chat.Message {
			asked++
			if !strings.Contains(prompt, "the question") {
				t.Errorf("%s: the prompt is %q", format, prompt)
			}
			if strings.Contains(prompt, "of tools") {
				return replies[1]
			}
			return replies[0]
		})
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		for i, want := range replies {
			for _, thinking := range []bool{false, true} {
				c := &chat.Request{Messages: []chat.Message{{Role: chat.User, Content: "the question"}},
					Thinking: &thinking, AddGenerationPrompt: true}
				if i == 1 {
					c.Tools, c.Messages[0].Content = tools, strings.Repeat("long ", 9000)+"the question of tools"
				}
				if want.Role, want.Reasoning = chat.Assistant, ""; thinking {
					want.Reasoning = replies[i].Reasoning
				}
				for range 2 { // the second prompt is read from the cache
					got, err := e.Generate(t.Context(), sparrow.Request{Chat: c})
					if err != nil {
						t.Fatalf("%s: %v", format, err)
					}
					ids := cmpopts.IgnoreFields(chat.Call{}, "ID")
					if diff := cmp.Diff(want, got.Choices[0].Message, ids); diff != "" {
						t.Errorf("%s, thinking %v: %s", format, thinking, diff)
					}
				}
			}
		}
		if asked != 4 {
			t.Errorf("%s: %d replies were begun", format, asked)
		}
		ctx, cancel := context.WithTimeout(context.Background(), await.Hang)
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// Many sequences run at the same time, and each gets its own reply.
func TestRepliesAtOnce(t *testing.T) {
	e, err := Open(t.Context(), sparrow.Config{}, 1<<14, func(prompt string) chat.Message {
		_, rest, _ := strings.Cut(prompt, "number ")
		digits, _, _ := strings.Cut(rest, ".")
		return chat.Message{Content: strings.Repeat(digits+" ", 20)}
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for i := range 16 {
		go func() {
			got, err := e.Generate(t.Context(), sparrow.Request{Chat: &chat.Request{AddGenerationPrompt: true,
				Messages: []chat.Message{{Role: chat.User, Content: fmt.Sprintf("number %d.", i)}}}})
			if want := strings.Repeat(fmt.Sprint(i, " "), 20); err == nil && got.Choices[0].Message.Content != want {
				err = fmt.Errorf("%d: %q", i, got.Choices[0].Message.Content)
			}
			done <- err
		}()
	}
	for range 16 {
		if err := await.Value(t, "a reply", done); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
