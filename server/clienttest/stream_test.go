//go:build openai

package clienttest

import (
	"context"
	"fmt"
	"testing"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/internal/testkit/await"
	"sparrow/server"
)

func TestStream(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(treesQuestion)
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	got := s.stream(t, p)
	want := s.chat(t, ask(treesQuestion))
	wantChat(t, &got.ChatCompletion, text(t, want), want.Choices[0].FinishReason)
	if len(got.chunks) < 8 {
		t.Errorf("%d chunks: the answer did not come piece by piece", len(got.chunks))
	}
	end := got.last()
	if len(end.Choices) != 0 || end.Usage.CompletionTokens != want.Usage.CompletionTokens ||
		end.Usage.PromptTokens != want.Usage.PromptTokens {
		t.Errorf("closing chunk: %s, want the usage %s and no choice", end.RawJSON(), want.Usage.RawJSON())
	}
	for i, c := range got.chunks[:len(got.chunks)-1] {
		if c.ID != end.ID || c.Object != "chat.completion.chunk" || c.Usage.TotalTokens != 0 || len(c.Choices) != 1 {
			t.Errorf("chunk %d: %s", i, c.RawJSON())
		}
	}
	if first := got.chunks[0].Choices[0].Delta; first.Role != "assistant" {
		t.Errorf("the first chunk has no role: %s", first.RawJSON())
	}
	plain := s.stream(t, ask(treesQuestion))
	if last := plain.last(); len(last.Choices) != 1 || last.Choices[0].FinishReason != "stop" {
		t.Errorf("without include_usage the stream ends with %s", last.RawJSON())
	}
}

// TestCancellation checks that a request stops when its client disconnects: afterwards nothing runs, no page is in use,
// and most of its tokens were never computed.
func TestCancellation(t *testing.T) {
	const tokens = 8000
	for _, c := range []struct {
		name  string
		leave func(t *testing.T, s *service)
	}{
		{"in the middle of a stream", func(t *testing.T, s *service) {
			ctx, cancel := context.WithCancel(t.Context())
			next := s.running(t, ctx, tokens)
			cancel()
			for next() { // text that had already arrived may still be read
			}
		}},
		{"while the whole answer is waited for", func(t *testing.T, s *service) {
			ctx, cancel := context.WithCancel(t.Context())
			p, on := endless(tokens)
			client := s.client()
			done := make(chan error, 1)
			go func() {
				_, err := client.Chat.Completions.New(ctx, p, on)
				done <- err
			}()
			s.await(t, "sparrow_requests_running", 1)
			cancel()
			if err := <-done; err == nil {
				t.Error("an answer came all the same")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, sparrow.Config{}, server.Options{})
			c.leave(t, s)
			s.await(t, "sparrow_requests_running", 0)
			s.await(t, `sparrow_kv_pages{state="used"}`, 0)
			s.await(t, `sparrow_requests_ended_total{outcome="aborted"}`, 1)
			s.await(t, `sparrow_choices_total{reason="cancelled"}`, 1)
			if n := s.metric(t, "sparrow_output_tokens_total"); n >= tokens {
				t.Errorf("all %v tokens were computed", n)
			}
			wantChat(t, s.chat(t, ask(nameQuestion)), nameAnswer, "stop")
		})
	}
}

// await waits until a metric has the wanted value.
func (s *service) await(t *testing.T, name string, want float64) {
	t.Helper()
	await.True(t, fmt.Sprintf("%s is %v", name, want), func() bool { return s.metric(t, name) == want })
}
