package load

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The tokens of a stream are counted by pieces of text, or by the usage in every event. Pieces without text count only
// if they end a choice before its first token.
func TestTokensOfStreams(t *testing.T) {
	const done = "data: [DONE]\n\n"
	piece := func(text string) string { return `data: {"choices":[` + text + "]}\n\n" }
	content := func(s string) string { return piece(`{"delta":{"content":"` + s + `"}}`) }
	used := func(usage string, texts ...string) string {
		var choices []string
		for _, text := range texts {
			choices = append(choices, `{"delta":{"content":"`+text+`"}}`)
		}
		return `data: {"choices":[` + strings.Join(choices, ",") + `],"usage":{` + usage + "}}\n"
	}
	for name, c := range map[string]struct {
		stream, want string
	}{
		"pieces":      {content("a") + content("b") + content("c") + done, "3 tokens, 2 gaps, abc, 0+0"},
		"completions": {piece(`{"text":"a"}`) + piece(`{"text":"b"}`) + done, "2 tokens, 1 gaps, , 0+0"},
		"reasoning": {piece(`{"delta":{"reasoning_content":"r"}}`) + content("a") + done,
			"2 tokens, 1 gaps, a, 0+0"},
		"an empty first piece": {piece(`{"delta":{}}`) + content("a") + done, "1 tokens, 0 gaps, a, 0+0"},
		"an end without text":  {piece(`{"delta":{},"finish_reason":"stop"}`) + done, "1 tokens, 0 gaps, , 0+0"},
		"an end after text": {content("a") + piece(`{"delta":{},"finish_reason":"stop"}`) + done,
			"1 tokens, 0 gaps, a, 0+0"},
		"two choices in an event": {piece(`{"delta":{"content":"a"}},{"delta":{"content":"b"}}`) + done,
			"1 tokens, 0 gaps, ab, 0+0"},
		"comments": {": ping\n\nevent: x\n" + content("a") + ":\n" + done, "1 tokens, 0 gaps, a, 0+0"},
		"usage at the end": {content("a") + used(`"prompt_tokens":7,"completion_tokens":9`) + done,
			"1 tokens, 0 gaps, a, 7+9"},
		"usage in every event": {used(`"completion_tokens":1`, "a") + used(`"completion_tokens":2`, "") +
			used(`"prompt_tokens":3,"completion_tokens":5`, "bc") + done, "5 tokens, 4 gaps, abc, 3+5"},
		"usage of no new token": {used(`"completion_tokens":2`, "a") + used(`"completion_tokens":1`, "b") + done,
			"2 tokens, 1 gaps, ab, 0+1"},
		"no token": {piece(`{"delta":{}}`) + done, "error in the stream: the stream ended without a token"},
		"no end":   {content("a"), "error in the stream: the stream ended early"},
		"an error": {content("a") + "data: {\"error\":{\"message\":\"late\"}}\n", `error in the stream: {"message":"late"}`},
		"no JSON":  {"data: <html>\n", "error in the stream: invalid character '<' looking for beginning of value"},
	} {
		var o outcome
		err := o.read(strings.NewReader(c.stream), time.Now().Add(-time.Second))
		got := fmt.Sprintf("%d tokens, %d gaps, %s, %d+%d", o.tokens, len(o.gaps), o.text, o.usage.PromptTokens,
			o.usage.CompletionTokens)
		if err != nil {
			got = err.Error()
		} else if o.first < time.Second || o.last < o.first {
			t.Errorf("%s: the first token came after %v, the last after %v", name, o.first, o.last)
		}
		if got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}
