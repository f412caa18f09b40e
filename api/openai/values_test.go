package openai

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/record"
)

// A request with the maximum number of choices over all its prompts is accepted, and one choice more is refused.
func TestChoicesOfAllPromptsAreBounded(t *testing.T) {
	for _, c := range []struct {
		prompts, n int
		refused    bool
	}{{MaxPrompts, 1, false}, {8, MaxN, false}, {9, MaxN, true}, {MaxPrompts, 2, true}} {
		r := &CompletionRequest{Options: Options{Model: "m", N: &c.n}}
		for range c.prompts {
			r.Prompt.Tokens = append(r.Prompt.Tokens, []int32{1})
		}
		if err := r.Validate(); (err != nil) != c.refused || err != nil && err.Param != "n" {
			t.Errorf("%d prompts of %d choices: %v", c.prompts, c.n, err)
		}
	}
}

// Bytes of a token that are not valid UTF-8 are written as escapes of two hexadecimal digits each.
func TestTokensThatAreNoText(t *testing.T) {
	for token, want := range map[string]string{"a": "a", "\n": "\n", "\x0a\xff": `\x0a\xff`, "\xc3": `\xc3`} {
		if got := TokenText([]byte(token)); got != want {
			t.Errorf("%q is shown as %q, want %q", token, got, want)
		}
	}
	if got := BytesText([]byte("\x05\xff")); got != `bytes:\x05\xff` {
		t.Errorf("%q", got)
	}
}

// In a chunk with the usage so far, the total is the sum of the prompt and completion tokens.
func TestChunksWithUsage(t *testing.T) {
	const want = `],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}` + "\n\n"
	so := &Counts{Prompt: 3, Completion: 4}
	for name, got := range map[string][]byte{
		"chat":       NewChatStream(Head{}, true).Append(nil, &ChunkChoice{}, so),
		"completion": NewCompletionStream(Head{}, true).Append(nil, &CompletionChoice{}, so),
	} {
		if !strings.HasSuffix(string(got), want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A page of a list contains the ids of its first and its last object.
func TestPagesNameTheirEnds(t *testing.T) {
	id := func(n *int) string { return fmt.Sprint("id-", *n) }
	if l := NewList([]int{4, 5, 6}, id, true); *l.FirstID != "id-4" || *l.LastID != "id-6" || !l.HasMore ||
		len(l.Data) != 3 || l.Object != "list" {
		t.Errorf("%+v from %s to %s", l, *l.FirstID, *l.LastID)
	}
	if l := NewList(nil, id, false); l.FirstID != nil || l.LastID != nil || l.Data == nil || l.HasMore {
		t.Errorf("%+v", l)
	}
}

// The prompt and its continuations must both be text, or both be token ids.
func TestContinuationsAreLikeTheirPrompt(t *testing.T) {
	text, ids := Prompt{Texts: []string{"a"}}, Prompt{Tokens: [][]int32{{1}}}
	for _, c := range []struct {
		prompt, rest Prompt
		refused      bool
	}{{text, text, false}, {ids, ids, false}, {text, ids, true}, {ids, text, true}} {
		err := (&ScoreRequest{Model: "m", Prompt: c.prompt, Continuations: c.rest}).Validate()
		if (err != nil) != c.refused || err != nil && err.Param != "continuations" {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Numbers of many digits are written in every place of a stream.
func TestNumbersOfStreams(t *testing.T) {
	const n = 1023456789
	head, counts := Head{Created: n}, &Counts{Prompt: n}
	rows := &record.Rows{NotComputed: []record.Range{{n, n}}, Rows: []record.Row{{Position: n,
		Layers: []record.Layer{{Layer: n, Keys: n}}}}}
	events := &ResponseStream{next: n}
	item, err := events.Item(nil, EventItemAdded, n, &Item{Type: ItemMessage})
	if err != nil {
		t.Fatal(err)
	}
	selections, err := (&Selections{Layers: []int{n}, Tokens: RecordedTokens{Range: &record.Range{n, n}}}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		text []byte
		want int
	}{
		{"chat", NewChatStream(head, true).Append(nil, &ChunkChoice{Index: n, Sparrow: rows,
			Delta: Delta{ToolCalls: []ToolCallDelta{{Index: n}}}}, counts), 5 + 5},
		{"completion", NewCompletionStream(head, true).Append(nil, &CompletionChoice{Index: n, Sparrow: rows,
			Logprobs: &CompletionLogprobs{TextOffset: []int{n}}}, counts), 5 + 5},
		{"an item", item, 2},
		{"arguments", (&ResponseStream{next: n}).Arguments(nil, EventArgumentsDelta, Place{Output: n}, "", ""), 2},
		{"selections", selections, 3},
	} {
		if got := strings.Count(string(c.text), "1023456789"); got != c.want {
			t.Errorf("%s: the number is written %d times, want %d: %s", c.name, got, c.want, c.text)
		}
	}
}
