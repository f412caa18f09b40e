package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/testmodel"
	"sparrow/sample"
)

// The error for a refused request names the field, the requested value and the supported values; a request exactly at a
// limit is accepted.
func TestRefusalsSayWhatWasAsked(t *testing.T) {
	in := still(t, testmodel.V32Draft(t), Config{CacheTokens: 128, MaxQueue: 3, Draft: drafts(t, 2)}).intake
	ask := func(prompt int, f func(r *Request)) Request {
		r := Request{Prompt: tokens(1, prompt), Sampling: greedy()}
		f(&r)
		return r
	}
	number := func(n int) *int { return &n }
	for _, c := range []struct {
		refused     Request
		field, want string
		taken       Request // accepted request exactly at the limit
	}{
		{ask(5, func(r *Request) { r.Sampling.N = 4 }), "n", "is 4, but at most 3 sequences may wait at the same time",
			ask(5, func(r *Request) { r.Sampling.N = 3 })},
		{ask(5, func(r *Request) { r.Draft = number(3) }), "draft",
			"is 3, but this engine drafts at most 2 tokens at a time",
			ask(5, func(r *Request) { r.Draft = number(2) })},
		{ask(5, func(r *Request) { r.Draft = number(-1) }), "draft",
			"is -1, but this engine drafts at most 2 tokens at a time",
			ask(5, func(r *Request) { r.Draft = number(0) })},
		{ask(5, func(r *Request) { r.Prompt[3] = 640 }), "prompt", "token 3 is 640, but the vocabulary has 640 tokens",
			ask(5, func(r *Request) { r.Prompt[3] = 639 })},
		{ask(5, func(r *Request) { r.Prompt[4] = -1 }), "prompt", "token 4 is -1, but the vocabulary has 640 tokens",
			ask(5, func(r *Request) { r.Prompt[4] = 0 })},
		{ask(128, func(*Request) {}), "prompt", "has 128 tokens, but the context holds 128 with at least one for the " +
			"answer; send fewer, or open the model with a larger --context if it allows that",
			ask(127, func(*Request) {})},
		{ask(100, func(r *Request) { r.MaxTokens = 29 }), "max_tokens",
			"is 29; the prompt has 100 tokens, and the context of 128 tokens has space for 28 more",
			ask(100, func(r *Request) { r.MaxTokens = 28 })},
		{ask(5, func(r *Request) { r.MaxTokens = -2 }), "max_tokens", "is -2, want a positive number",
			ask(5, func(r *Request) { r.MaxTokens = 0 })},
		{ask(5, func(r *Request) { r.MaxTokens, r.MinTokens = 7, 8 }), "min_tokens", "is 8, want 0 to max_tokens (7)",
			ask(5, func(r *Request) { r.MaxTokens, r.MinTokens = 7, 7 })},
		{ask(5, func(r *Request) { r.MinTokens = -1 }), "min_tokens", "is -1, want 0 to max_tokens (0)",
			ask(5, func(r *Request) { r.MinTokens = 1 })},
		{ask(5, func(r *Request) { r.Score = &Score{Top: -1} }), "prompt_logprobs", "is -1, want 0 to 20",
			ask(5, func(r *Request) { r.Score = &Score{Top: 0} })},
		{ask(5, func(r *Request) { r.Score = &Score{Top: 21} }), "prompt_logprobs", "is 21, want 0 to 20",
			ask(5, func(r *Request) { r.Score = &Score{Top: 20} })},
		{ask(5, func(r *Request) { r.Score = &Score{From: 6} }), "score",
			"begins at token 6, want one of the 5 given tokens",
			ask(5, func(r *Request) { r.Score = &Score{From: 5} })},
		{ask(5, func(r *Request) { r.Score = &Score{From: -1} }), "score",
			"begins at token -1, want one of the 5 given tokens",
			ask(5, func(r *Request) { r.Score = &Score{Top: 1} })},
		{ask(5, func(r *Request) { r.Score = &Score{From: 9, Continuations: [][]int32{{1, 2, 3}, {4}}} }), "score",
			"begins at token 9, want one of the 8 given tokens",
			ask(5, func(r *Request) { r.Score = &Score{From: 8, Continuations: [][]int32{{1, 2, 3}, {4}}} })},
		{ask(5, func(r *Request) { r.Score = &Score{Continuations: slices.Repeat([][]int32{{1}}, sample.MaxN+1)} }),
			"continuations", fmt.Sprintf("are %d, want 1 to %d", sample.MaxN+1, sample.MaxN),
			ask(5, func(r *Request) { r.Score = &Score{Continuations: slices.Repeat([][]int32{{1}}, 2)} })},
		{ask(5, func(r *Request) { r.Score = &Score{Continuations: [][]int32{{1}, {}}} }), "continuations",
			"item 1 has no tokens",
			ask(5, func(r *Request) { r.Score = &Score{Continuations: [][]int32{{1}, {2}}} })},
		{ask(120, func(r *Request) { r.Score = &Score{Continuations: [][]int32{{1}, tokens(2, 9)}} }), "prompt",
			"has 129 tokens with its continuation, but the context holds 128",
			ask(120, func(r *Request) { r.Score = &Score{Continuations: [][]int32{{1}, tokens(2, 8)}} })},
	} {
		var got *RequestError
		if _, err := in.prepare(c.refused); !errors.As(err, &got) || got.Field != c.field || got.Reason != c.want {
			t.Errorf("error %v; want %s: %s", err, c.field, c.want)
		}
		if _, err := in.prepare(c.taken); err != nil {
			t.Errorf("at the limit of %s: %v", c.field, err)
		}
	}
}

// The memory that is allocated for an answer before it runs is limited: memory for all tokens of a short answer, and
// for the first tokens of a long answer.
func TestMemoryOfAnAnswerIsBounded(t *testing.T) {
	in := still(t, testmodel.V32(t), Config{CacheTokens: 4 * reservedTokens}).intake
	for most, want := range map[int]int{1: 1, 100: 100, reservedTokens: reservedTokens,
		2*reservedTokens - 20: reservedTokens} {
		j, err := in.prepare(Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: most})
		if err != nil {
			t.Fatal(err)
		}
		if got := cap(j.choices[0].seq.Tokens) - 10; got < want || got > want+want/4+16 {
			t.Errorf("an answer of up to %d tokens has memory for %d tokens, want %d", most, got, want)
		}
	}
}
