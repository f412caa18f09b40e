package eval

import (
	"math"
	"strings"
	"testing"

	"sparrow"
	"sparrow/plan"
)

// Every chunk begins with the tokens that begin a text, and the tokens after its middle are scored. The standard error
// of the entropy is the sample standard deviation of the log probabilities, divided by the root of their number.
func TestPerplexityOfChunks(t *testing.T) {
	e := open(t, plan.Policy{})
	text := strings.Repeat("A garden has seven trees and two birds. ", 8)
	const chunk, limit = 16, 3
	got, err := MeasurePerplexity(t.Context(), e, text, chunk, limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := e.Encode("", true)
	if err != nil || len(first) == 0 {
		t.Fatalf("nothing begins a text, error %v", err)
	}
	ids, err := e.EncodeWhole(text)
	if err != nil {
		t.Fatal(err)
	}
	ids = append(first, ids...)
	var scores []float64
	for i := range limit {
		tokens := append(first[:len(first):len(first)], ids[i*chunk:][len(first):chunk]...)
		c := sparrow.Continuations{Prompt: tokens[:1], Rest: [][]int32{tokens[1:]}, Skip: []int{chunk / 2}}
		res, err := e.Generate(t.Context(), c.Request(1))
		if err != nil {
			t.Fatal(err)
		}
		scored, _, _ := c.Scored(0, res.Choices[0].Scored)
		for j := range scored {
			scores = append(scores, scored[j].Logprob)
		}
	}
	n := float64(len(scores))
	if got.Chunks != limit || got.Tokens != len(scores) || len(scores) != limit*(chunk/2-1) {
		t.Errorf("%d chunks, %d tokens, want %d", got.Chunks, got.Tokens, len(scores))
	}
	mean, squares := 0.0, 0.0
	for _, v := range scores {
		mean += v / n
	}
	for _, v := range scores {
		squares += (v - mean) * (v - mean)
	}
	deviation := math.Sqrt(squares / (n - 1))
	for name, v := range map[string][2]float64{"entropy": {got.Entropy, -mean},
		"perplexity": {got.Perplexity, math.Exp(-mean)},
		"error":      {got.Error, math.Exp(-mean) * deviation / math.Sqrt(n)}} {
		if math.Abs(v[0]-v[1]) > 1e-9*v[1] {
			t.Errorf("%s %v, want %v", name, v[0], v[1])
		}
	}
}
