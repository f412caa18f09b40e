package sparrow

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/offload"
	"sparrow/model/family"
	"sparrow/model/placement"
	"sparrow/plan"
	"sparrow/sample"
)

// The built-in model gives its answer with any share of its experts in host memory, by every method, and leaves no
// goroutine behind.
func TestHostExperts(t *testing.T) {
	before := runtime.NumGoroutine()
	greedy := sample.Default()
	greedy.Temperature = 0
	ask := func(h HostExperts) string {
		e, err := Open(t.Context(), Config{Kernels: "cpu", Workers: 1, HostExperts: h, CacheTokens: 512})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(t.Context())
		r, err := e.Generate(t.Context(), Request{Prompt: "Goodbye", Sampling: greedy, MaxTokens: 8})
		if err != nil {
			t.Fatal(err)
		}
		return r.Choices[0].Text
	}
	want := ask(HostExperts{})
	for _, h := range []HostExperts{{Share: 0.5}, {Share: 1}, {Share: 0.5, Prefill: placement.Fetched}} {
		if got := ask(h); got != want || got == "" {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
	for range 400 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// A share that makes no sense, and methods whose arithmetic differs where it must not, are refused by name.
func TestHostExpertsThatAreRefused(t *testing.T) {
	for says, c := range map[string]Config{
		"share from 0 to 1": {HostExperts: HostExperts{Share: 1.5}},
		"on 2 ranks":        {HostExperts: HostExperts{Share: 0.5}, Ranks: 2},
		"give both phases one method": {Policy: plan.Policy{Deterministic: true},
			HostExperts: HostExperts{Share: 0.1, Prefill: placement.Fetched}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	ok := Config{Policy: plan.Policy{Deterministic: true}, HostExperts: HostExperts{Share: 0.1}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

// A load that ends in the middle, for want of host memory, says what is missing and leaves nothing behind.
func TestTooLittleHostMemory(t *testing.T) {
	before := runtime.NumGoroutine()
	src, err := family.Open("testdata/oracle/glm_moe_dsa-1")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	r := kernel.NewRegistry(cpu.Backends())
	dev, err := r.Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	far, err := r.Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	host, err := offload.New(far, offload.Options{Memory: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	h := HostExperts{Share: 1}
	_, err = src.LoadPlaced(dev, family.Placed{Placement: h.place(src.ExpertLayers()), Host: host}, nil)
	if !errors.Is(err, kernel.ErrMemory) || !strings.Contains(err.Error(), "are missing") {
		t.Errorf("%v", err)
	}
	if err := errors.Join(dev.Close(), host.Close()); err != nil {
		t.Error(err)
	}
	for range 400 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}
