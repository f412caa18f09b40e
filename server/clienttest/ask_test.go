//go:build openai

package clienttest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// oddQuestion is unlike the training data, so that at temperature 2 its answers differ between seeds.
const oddQuestion = "Anna has many pears. She is tall and the cat runs. How many hats?"

// client returns OpenAI's client for the service. It never retries, so that a test gets the first response.
func (s *service) client(more ...option.RequestOption) openai.Client {
	all := []option.RequestOption{option.WithBaseURL(s.url() + "/v1"), option.WithAPIKey("unused"),
		option.WithMaxRetries(0)}
	return openai.NewClient(append(all, more...)...)
}

// ask returns a chat request with one question and greedy decoding.
func ask(question string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	}
}

// endless returns a request that ignores the model's own end and runs up to a limit of tokens, for tests that need a
// running request.
func endless(tokens int) (openai.ChatCompletionNewParams, option.RequestOption) {
	p := ask(nameQuestion)
	p.MaxTokens = openai.Int(int64(tokens))
	return p, option.WithJSONSet("ignore_eos", true)
}

// chat sends a request without streaming.
func (s *service) chat(t *testing.T, p openai.ChatCompletionNewParams,
	more ...option.RequestOption) *openai.ChatCompletion {
	t.Helper()
	client := s.client()
	r, err := client.Chat.Completions.New(t.Context(), p, more...)
	if err != nil {
		t.Fatalf("%v: %s", err, errorText(err))
	}
	return r
}

// text returns the text of the answer's only choice.
func text(t *testing.T, r *openai.ChatCompletion) string {
	t.Helper()
	if len(r.Choices) != 1 {
		t.Fatalf("%d choices, want 1: %s", len(r.Choices), r.RawJSON())
	}
	return r.Choices[0].Message.Content
}

// wantChat checks the text and the finish reason of the answer's only choice.
func wantChat(t *testing.T, r *openai.ChatCompletion, content, finish string) {
	t.Helper()
	if got := text(t, r); got != content || r.Choices[0].FinishReason != finish {
		t.Errorf("answer %q ended by %s, want %q ended by %s", got, r.Choices[0].FinishReason, content, finish)
	}
}

// streamed is a stream that was read to its end.
type streamed struct {
	openai.ChatCompletionAccumulator
	chunks []openai.ChatCompletionChunk
}

// last returns the last chunk of the stream.
func (s *streamed) last() openai.ChatCompletionChunk { return s.chunks[len(s.chunks)-1] }

// stream sends a streaming request and joins the chunks with the client's own accumulator.
func (s *service) stream(t *testing.T, p openai.ChatCompletionNewParams, more ...option.RequestOption) *streamed {
	t.Helper()
	client := s.client()
	events := client.Chat.Completions.NewStreaming(t.Context(), p, more...)
	defer events.Close()
	out := &streamed{}
	for events.Next() {
		chunk := events.Current()
		if !out.AddChunk(chunk) {
			t.Fatalf("a chunk does not fit those before it: %s", chunk.RawJSON())
		}
		out.chunks = append(out.chunks, chunk)
	}
	if err := events.Err(); err != nil {
		t.Fatalf("%v: %s", err, errorText(err))
	}
	if len(out.chunks) == 0 {
		t.Fatal("a stream without chunks")
	}
	return out
}

// running opens a stream, waits for its first text, and returns a function that reads the next chunk. The stream runs
// until the context or the test ends.
func (s *service) running(t *testing.T, ctx context.Context, tokens int) (next func() bool) {
	t.Helper()
	p, on := endless(tokens)
	client := s.client()
	events := client.Chat.Completions.NewStreaming(ctx, p, on)
	t.Cleanup(func() { events.Close() })
	for events.Next() {
		if c := events.Current().Choices; len(c) == 1 && c[0].Delta.Content != "" {
			return events.Next
		}
	}
	t.Fatalf("no text came: %v", events.Err())
	return nil
}

// story returns filler text of about 12 tokens per sentence that contains two facts, in words of the model's training
// data.
func story(sentences int) string {
	nouns := []string{"road", "tower", "garden", "harbor", "window", "market", "forest", "bridge"}
	ways := []string{"again", "often", "today", "slowly", "quietly"}
	var b strings.Builder
	b.WriteString("Text:\n")
	for i := range sentences {
		switch i {
		case sentences / 3:
			b.WriteString("The pet of Maya is owl. ")
		case sentences / 2:
			b.WriteString("The locker number of Tina is 100. ")
		}
		fmt.Fprintf(&b, "Nobody sees the %s because the %s waits %s. ", nouns[i%8], nouns[(i/8+i*3+1)%8], ways[i%5])
	}
	return strings.TrimSpace(b.String()) + "\n\n"
}
