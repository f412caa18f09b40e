//go:build !race

// This file is not built with the race detector, whose own allocations would make the counts wrong.

package mla_test

import (
	"fmt"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
)

// After warm-up a decode step allocates nothing, because it reuses the arrays, plans and scratch memory of the previous
// step.
func TestDecodeAllocatesNothing(t *testing.T) {
	src, err := family.Open("../../../testdata/oracle/glm_moe_dsa-1")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
		for _, kind := range []plan.Mode{plan.ModeDecode, plan.ModeVerify} {
			t.Run(fmt.Sprintf("%s %v", kv, kind), func(t *testing.T) {
				cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: kv})
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Allocate(&cfg, 12); err != nil {
					t.Fatal(err)
				}
				run, err := step.New(m, cfg, step.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				defer run.Close()
				tokens := make([]int32, 260)
				for i := range tokens {
					tokens[i] = int32(i * 7 % m.Config().Vocab)
				}
				long, short := []int32{3, 1, 4, 9, 5}, []int32{2, 6}
				if _, err := run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens[:256], Pages: long},
					{Kind: plan.ModeExtend, Tokens: tokens[:20], Pages: short}}); err != nil {
					t.Fatal(err)
				}
				n := 1
				if kind == plan.ModeVerify {
					n = 2
				}
				works := []step.Work{{Kind: kind, Tokens: tokens[:n], Cached: 256, Pages: long, Logits: n},
					{Kind: kind, Tokens: tokens[:n], Cached: 20, Pages: short, Logits: n}}
				at := 30
				decode := func() {
					// Lengths change from step to step as they do in real decoding.
					works[0].Cached, works[1].Cached = 256+at, 20+at
					at = (at + 1) % 31
					if _, err := run.Run(works); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					decode()
				}
				// The CPU's expert operation passes its arguments to the workers by reference: one allocation for each
				// layer with experts.
				const experts = 2
				if got := testing.AllocsPerRun(40, decode); got > experts {
					t.Errorf("%v allocations per step, want at most %d", got, experts)
				}
			})
		}
	}
}
