package engine

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/testmodel"
)

// lengthsAround returns prompt lengths just below, at and above the page size of 64, the selection of 128 keys, the
// dense threshold, the chunk sizes of the test, and multiples of these numbers.
func lengthsAround() []int {
	list := []int{1, 2, 200, 600}
	for _, n := range []int{64, 100, 128, 192, 256, 300, 512, 640} {
		list = append(list, n-1, n, n+1)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// The logits of a prompt do not depend on how it is computed: whole, in chunks with any remainder, in a batch with
// prompts of other lengths, or after any cached prefix of it, up to the whole prompt. This holds for any length.
func TestNoLengthIsSpecial(t *testing.T) {
	if raceEnabled {
		t.Skip("other tests run requests at the same time")
	}
	var list []Request
	for _, n := range lengthsAround() {
		list = append(list, Request{ID: fmt.Sprint(n), Prompt: tokens(n, n), Sampling: greedy(), MaxTokens: 3,
			IgnoreEOS: true})
	}
	run := func(c Config, list []Request, together bool) *logitsOf {
		t.Helper()
		c.Policy = deterministic("fp8")
		rows := keepLogits()
		e := start(t, testmodel.V32(t), c, rows.watch)
		var jobs []*Job
		for _, r := range list {
			j := open(t, e, r)
			if jobs = append(jobs, j); together {
				continue
			}
			if _, last := collect(j); last.Err != nil {
				t.Fatalf("prompt of %s tokens: error %v", r.ID, last.Err)
			}
		}
		for i, j := range jobs {
			if !together {
				break
			}
			if _, last := collect(j); last.Err != nil {
				t.Fatalf("prompt of %s tokens in a batch with other prompts: error %v", list[i].ID, last.Err)
			}
		}
		return rows
	}
	whole := run(Config{NoReuse: true, StepTokens: 1024}, list, false)
	chunks := []int{100}
	if *everything {
		chunks = []int{64, 100, 127}
	}
	for _, chunk := range chunks {
		sameRows(t, run(Config{NoReuse: true, StepTokens: chunk}, list, false), whole)
	}
	sameRows(t, run(Config{NoReuse: true, StepTokens: 257}, list, true), whole)
	sameRows(t, run(Config{StepTokens: 512}, slices.Concat(list, list), false), whole)
}
