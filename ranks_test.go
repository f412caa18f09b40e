package sparrow

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

// An engine on two ranks answers requests, reports two ranks, and can sleep and wake up.
func TestOpenOnRanks(t *testing.T) {
	e := start(t, Config{Ranks: 2, CacheTokens: 4096})
	if i := e.Info(); !strings.HasPrefix(i.Kernels, "2 x cpu-") || i.Config.Model.Ranks != 2 {
		t.Errorf("kernels %q, %d ranks", i.Kernels, i.Config.Model.Ranks)
	}
	one := start(t, Config{CacheTokens: 4096, Kernels: "cpu"}).Info().Memory
	for how, tokens := range map[plan.Division]int{plan.ByHeads: 4096, plan.ByRequests: 8192} {
		i := start(t, Config{Ranks: 2, CacheTokens: 4096, Attention: how}).Info()
		if i.Memory.Cache != 2*one.Cache || i.CacheTokens != tokens || i.Memory.Arena <= one.Arena {
			t.Errorf("%v: on two ranks the cache has %d bytes for %d tokens and passes have %d bytes; on one rank %d "+
				"and %d", how,
				i.Memory.Cache, i.CacheTokens, i.Memory.Arena, one.Cache, one.Arena)
		}
	}
	ask := func() string {
		t.Helper()
		r, err := e.Generate(context.Background(), Request{Tokens: tokens(1, 30), Sampling: greedy(), MaxTokens: 6,
			IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Choices[0].Text
	}
	first := ask()
	if err := e.Sleep(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if err := e.Wake(context.Background()); err != nil {
		t.Fatal(err)
	}
	if again := ask(); again != first {
		t.Errorf("%q after waking, %q before", again, first)
	}
}

func TestRanksThatAreRefused(t *testing.T) {
	if _, err := Open(context.Background(), Config{Ranks: 3}); err == nil || !strings.Contains(err.Error(),
		"8 experts in equal parts on 3 ranks; supported: 1, 2, 4, 8 ranks; try 2 ranks") {
		t.Errorf("3 ranks: %v", err)
	}
	if _, err := Open(context.Background(), Config{Ranks: group.MaxRanks + 1}); err == nil ||
		!strings.Contains(err.Error(), "Ranks is 65, want at most 64") {
		t.Errorf("65 ranks: %v", err)
	}
	if _, err := Open(context.Background(), Config{Ranks: 2, GPUs: []int{0, -1}}); err == nil ||
		!strings.Contains(err.Error(), "give one of them") || !strings.Contains(err.Error(), "each 0 or more") {
		t.Errorf("ranks and GPUs: %v", err)
	}
}

// The passes of several GPUs are enqueued, reserved and captured on each GPU without executing kernels, so that errors
// in launch code are found without a GPU.
func TestRanksOnGPUsAreEnqueued(t *testing.T) {
	p, err := readParts("")
	if err != nil {
		t.Fatal(err)
	}
	defer p.source.Close()
	for _, how := range []plan.Division{plan.ByHeads, plan.ByRequests} {
		t.Run(how.String(), func(t *testing.T) {
			g, err := device.OpenRanks(machine(80<<30, nil), device.Request{Source: p.source},
				device.Ranks{GPUs: []int{0, 0}, Attention: how}, group.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			}()
			m, err := p.source.LoadRanks(g, how, nil)
			if err != nil {
				t.Fatal(err)
			}
			enqueue(t, m)
		})
	}
}

// enqueue runs a prompt and decodes two sequences, one on each rank if each rank has its own pages.
func enqueue(t *testing.T, m model.Model) {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8"})
	if err != nil {
		t.Fatal(err)
	}
	const pages = 4
	if err := m.Allocate(&cfg, pages); err != nil {
		t.Fatal(err)
	}
	r, err := step.New(m, cfg, step.Limits{Rows: 64, Requests: 4, Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var works []step.Work
	for i := range 2 {
		w := step.Work{Kind: plan.ModeExtend, Tokens: make([]int32, 9), Pages: []int32{int32(2 * i)}, Logits: 1}
		if cfg.Model.ByRequests() {
			w.Rank, w.Pages = i, []int32{int32(i * pages)}
		}
		works = append(works, w)
	}
	for range 4 {
		if _, err := r.Run(works); err != nil {
			t.Fatal(err)
		}
		for i := range works {
			works[i].Cached += len(works[i].Tokens)
			works[i].Kind, works[i].Tokens = plan.ModeDecode, []int32{1}
		}
	}
	if got := r.Graphs(); got.Captured != 1 || got.Replayed != 2 || got.Failed != 0 {
		t.Errorf("graphs: %+v", got)
	}
	if use := m.Device().(kernel.MemoryOwner).MemoryUse(); use.Scratch == 0 || use.Weights == 0 {
		t.Error("the ranks report that they hold no memory")
	}
}

// The memory that each rank needs on its GPU is computed before anything is loaded; ranks on the same GPU divide its
// memory.
func TestRanksOnGPUsAreMeasured(t *testing.T) {
	arch, _, c, err := opened(t, machine(80<<30, nil), Config{GPUs: []int{0, 0}})
	if err != nil || arch != "sm90" || c.reserved == 0 || c.StepTokens != plan.StepTokens(plan.SM90) {
		t.Errorf("%s with %d bytes reserved and steps of %d, %v", arch, c.reserved, c.StepTokens, err)
	}
	if _, _, _, err := opened(t, machine(1<<30, nil), Config{GPUs: []int{0, 0}}); !errors.Is(err, kernel.ErrMemory) ||
		!strings.Contains(err.Error(), "rank 0 of 2") || !strings.Contains(err.Error(), "MiB are free") {
		t.Errorf("a GPU of 1 GiB: %v", err)
	}
	arch, _, c, err = opened(t, machine(80<<30, nil), Config{GPUs: []int{3}})
	if err != nil || arch != "sm90" || c.Device != 3 {
		t.Errorf("one GPU: %s %d, %v", arch, c.Device, err)
	}
}
