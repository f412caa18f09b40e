//go:build !race

// This file is not built with the race detector, which allocates memory itself and would make the counts wrong.

package v4_test

import (
	"testing"

	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/plan"
)

// After warm-up a decode step allocates nothing, whether it completes groups or not.
func TestDecodeAllocatesNothing(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	long, short := b.Sequence(1, 700), b.Sequence(2, 200)
	b.Step(long.Work(plan.ModeExtend, 500), short.Work(plan.ModeExtend, 20))
	works := make([]step.Work, 2)
	decode := func() {
		for i, s := range []*steps.Sequence{long, short} {
			works[i] = s.Work(plan.ModeDecode, 1)
		}
		if _, err := b.Runner.Run(works); err != nil {
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
