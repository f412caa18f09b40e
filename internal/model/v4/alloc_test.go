//go:build !race

// The race detector allocates memory itself, so that counts are wrong under it.

package v4_test

import (
	"testing"

	"sparrow/internal/step"
	"sparrow/plan"
)

// After warm-up a decode step allocates nothing, whether groups close in it or not.
func TestDecodeAllocatesNothing(t *testing.T) {
	m := open(t, oracle, "cpu")
	b := newBench(t, m, plan.Policy{KV: "fp8"})
	long, short := b.sequence(1, 700), b.sequence(2, 200)
	b.step(long.work(plan.ModeExtend, 500), short.work(plan.ModeExtend, 20))
	works := make([]step.Work, 2)
	decode := func() {
		for i, s := range []*sequence{long, short} {
			works[i] = s.work(plan.ModeDecode, 1)
		}
		if _, err := b.run.Run(works); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		decode()
	}
	if got := testing.AllocsPerRun(100, decode); got > 0 {
		t.Errorf("%v allocations per step, want none", got)
	}
}
