package kv_test

import (
	"fmt"

	"sparrow/internal/kv"
)

// A request is served, preempted and resumed. When it is resumed, its computed tokens are found again, except the
// tokens in the page that was not full.
func Example() {
	pool, err := kv.New(kv.Config{Pages: 64, FirstPage: 1, PageTokens: 4, Reuse: true, Main: "fp8-656",
		Index: "index-132"})
	if err != nil {
		panic(err)
	}
	tokens := []int32{11, 12, 13, 14, 15, 16}
	seq, match, _ := pool.Open(tokens, kv.OpenOptions{Salt: []byte("tenant 7")})
	fmt.Println(match)

	// For prefill, space is reserved, the model writes rows into seq.Pages(), and the rows are committed.
	_ = seq.Reserve(len(tokens) - seq.Len())
	_ = seq.Commit(tokens[seq.Len():])

	// This decode has two drafts, of which one is accepted.
	_ = seq.Reserve(3)
	accepted := []int32{17, 18, 19}[:2]
	_ = seq.Commit(accepted)
	_ = seq.Truncate(seq.Len())
	fmt.Println(seq.Len(), "tokens in pages", seq.Pages())

	_ = seq.Close()
	tokens = append(append(tokens, accepted...), 20) // token 20 was sampled, but no pass has computed its row
	seq, match, _ = pool.Open(tokens, kv.OpenOptions{Salt: []byte("tenant 7")})
	fmt.Println(match)
	fmt.Println(pool.Check())

	// Output:
	// matched 0 of 6 tokens (0 pages), stopped at token 0: page never stored
	// 8 tokens in pages [1 2]
	// matched 8 of 9 tokens (2 pages), stopped at token 8: no full page of the prompt is left
	// <nil>
}
