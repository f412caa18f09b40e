package sparrow

import (
	"context"
	"strings"
	"testing"

	"sparrow/kernel/group"
)

// An engine on two ranks answers, says that it has two, and sleeps and wakes as any other.
func TestOpenOnRanks(t *testing.T) {
	e := start(t, Config{Ranks: 2, CacheTokens: 4096})
	if i := e.Info(); !strings.HasPrefix(i.Kernels, "2 x cpu-") || i.Config.Model.Ranks != 2 {
		t.Errorf("kernels %q, %d ranks", i.Kernels, i.Config.Model.Ranks)
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
		"4 query heads and 8 experts in equal parts on 3 ranks; supported: 1, 2, 4 ranks; try 2 ranks") {
		t.Errorf("3 ranks: %v", err)
	}
	if _, err := Open(context.Background(), Config{Ranks: group.MaxRanks + 1}); err == nil ||
		!strings.Contains(err.Error(), "Ranks is 65, want at most 64") {
		t.Errorf("65 ranks: %v", err)
	}
	p, err := readParts("")
	if err != nil {
		t.Fatal(err)
	}
	defer p.source.Close()
	q := DeviceRequest{Kernels: "cuda", Source: p.source}
	if _, err := OpenRanks(machine(80<<30, nil), q, Ranks{Count: 2}, group.Options{}); err == nil ||
		!strings.Contains(err.Error(), "supported are CPUs (--kernels cpu --ranks N) and GPUs (--gpus N)") {
		t.Errorf("two devices that are neither CPUs nor GPUs: %v", err)
	}
	if _, err := Open(context.Background(), Config{Ranks: 2, GPUs: []int{0, -1}}); err == nil ||
		!strings.Contains(err.Error(), "give CPUs or GPUs") || !strings.Contains(err.Error(), "from 0 on") {
		t.Errorf("ranks and GPUs: %v", err)
	}
}
