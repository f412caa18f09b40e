package script

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sparrow"
	"sparrow/chat"
)

// These flags set the length of an agent's session. For a long session use -session-turns 150 -session-tokens 200000.
var (
	sessionTurns  = flag.Int("session-turns", 12, "turns of a session")
	sessionTokens = flag.Int("session-tokens", 12000, "number of tokens that the prompt of a session grows to")
)

// words returns n random words of one to three letters.
func words(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		for range 1 + rng.IntN(3) {
			b.WriteByte('a' + byte(rng.IntN(26)))
		}
		b.WriteByte(" \n"[rng.IntN(2)])
	}
	return b.String()
}

// A turn's prompt begins with the tokens of the previous turn, including its reply, so nearly all of it is cached: the
// model's output and the text that the client sends back are rendered and encoded to the same tokens.
func TestASessionOfCallsStaysInTheCache(t *testing.T) {
	for _, format := range []string{"", "deepseek-v3.2", "deepseek-v4", "glm-5.2"} {
		rng := rand.New(rand.NewPCG(48, 1))
		turn := 0
		reply := func(string) chat.Message {
			turn++
			return chat.Message{Content: fmt.Sprintf("Part %d.", turn), Reasoning: words(rng, 20),
				ToolCalls: []chat.Call{{Name: "read", Arguments: fmt.Sprintf(`{"path": "dir/file-%d.txt"}`, turn)}}}
		}
		e, err := Open(t.Context(), sparrow.Config{ChatFormat: format}, max(1<<18, 2**sessionTokens), reply)
		if err != nil {
			t.Fatal(err)
		}
		thinking := format != "" // the template of the built-in model omits earlier reasoning
		c := &chat.Request{Messages: []chat.Message{{Role: chat.System, Content: words(rng, 500)},
			{Role: chat.User, Content: "Do it."}}, AddGenerationPrompt: true, Thinking: &thinking,
			Tools: []chat.Tool{{Name: "read", Description: "Reads a file.", Parameters: []byte(
				`{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}`)}}}
		known, computed, cached, prompt := 0, 0, 0, 0
		for i := range *sessionTurns {
			out, err := e.Generate(t.Context(), sparrow.Request{Chat: c, Tenant: "a"})
			if err != nil {
				t.Fatalf("%s, turn %d: %v", format, i, err)
			}
			u := out.Usage
			computed, cached, prompt = computed+known, cached+min(u.CachedTokens, known), u.PromptTokens
			if lost := known - u.CachedTokens; lost > 2*e.Info().PageTokens {
				t.Errorf("%s, turn %d: %d of %d known tokens were computed again", format, i, lost, known)
			}
			// No row was computed for the last token, which may end the reply.
			known = u.PromptTokens + u.CompletionTokens - 2
			m := out.Choices[0].Message
			if len(m.ToolCalls) != 1 {
				t.Fatalf("%s, turn %d: %+v", format, i, m)
			}
			c.Messages = append(c.Messages, m, chat.Message{Role: chat.ToolRole, ToolCallID: m.ToolCalls[0].ID,
				Content: words(rng, *sessionTokens / *sessionTurns / 4)})
		}
		t.Logf("%q: %.2f%% of %d tokens from the cache, the last prompt has %d", format,
			100*float64(cached)/float64(computed), computed, prompt)
		if *sessionTokens >= 100_000 && 100*(computed-cached) > computed {
			t.Errorf("%q: %d of %d tokens were computed again, more than 1%%", format, computed-cached, computed)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
