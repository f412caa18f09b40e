package sparrow

import (
	"context"
	"testing"
)

// A stream reports how many tokens of its prompt have been computed: the cached tokens at the start, and all of them
// when the answer begins.
func TestProgressOfAStream(t *testing.T) {
	e, err := Open(t.Context(), Config{Model: tinyFP8, Workers: 1, CacheTokens: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	const prompt = 200
	for round, found := range []bool{false, true} {
		s, err := e.Stream(t.Context(), Request{Tokens: tokens(3, prompt), Sampling: greedy(), MaxTokens: 2,
			IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, ok := s.Next(); !ok {
				break
			}
		}
		if computed, cached := s.Progress(); computed != prompt || (cached > 0) != found {
			t.Errorf("round %d: progress reports %d of %d prompt tokens, %d of them cached", round, computed, prompt,
				cached)
		}
		s.Close()
	}
}
