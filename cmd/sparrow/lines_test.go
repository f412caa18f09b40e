package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/spec"
	"sparrow/internal/sysmem"
	"sparrow/plan"
	"sparrow/server"
)

// The lines that serve prints at its start describe every part of the engine.
func TestStartLinesOfAnEngine(t *testing.T) {
	three, err := spec.Fixed(3)
	if err != nil {
		t.Fatal(err)
	}
	i := sparrow.Info{Kernels: "cuda", Device: "H200", Defaults: []string{"--kv fp8", "--max-running 256"},
		Experts: "on the device", Pages: 10, CacheTokens: 640, StepTokens: 512, ContextTokens: 2048, MaxRunning: 64,
		MaxQueue: 99, MaxStall: 50 * time.Millisecond, Drafts: 3, Draft: three, Tiers: []string{"host", "disk"},
		Notices: []plan.Notice{{Level: plan.NoticeInfo, Text: "not shown"}, {Level: plan.NoticeWarning, Text: "shown"}},
		Memory: sparrow.Memory{Weights: 1 << 20, Packed: true, Cache: 2 << 20, Arena: 3 << 20, Scratch: 4 << 20,
			Device: 5 << 20},
		Config: plan.Config{KV: plan.BF16, Page: 64, Prefill: plan.SparseFlat, Decode: plan.SparseRaw, DenseOK: true,
			T: 128, Model: plan.Model{Family: plan.DeepSeekV32, K: 2048, Layers: 61}}}
	changed := func(change func(i *sparrow.Info)) sparrow.Info {
		c := i
		change(&c)
		return c
	}
	for _, c := range []struct {
		info sparrow.Info
		want []string
	}{
		{i, []string{"plan     bf16 cache (", "rows, pages of 64 tokens), prefill sparse-flat, decode sparse-raw, " +
			"dense for the first 128 tokens of a prompt; top 2048 keys of each query; kernels cuda\n",
			"device   H200; its defaults: --kv fp8, --max-running 256\n", "experts  on the device\n",
			"drafts   3 tokens at a time are drafted by layer 61 and verified together\n", "shown",
			"memory   weights 1.0 MiB, packed; cache 2.0 MiB: 10 pages, 640 tokens; 3.0 MiB for the largest step, " +
				"4.0 MiB for operations, of 5.0 MiB\n", "tier     host\ntier     disk\n",
			"limits   largest step x context: 512 x 2048 tokens; at most 64 sequences at once, 99 may wait; prompts " +
				"delay streams by at most 50ms if possible\n"}},
		{changed(func(i *sparrow.Info) { i.Memory.Device, i.Memory.Packed, i.MaxStall = 0, false, 0 }), []string{
			"memory   weights 1.0 MiB; cache 2.0 MiB: 10 pages, 640 tokens; 3.0 MiB for the largest step\n",
			"prompts may delay streams by a whole step\n"}},
		{changed(func(i *sparrow.Info) { i.Config.Model.Family = plan.DeepSeekV3 }),
			[]string{"; every key of each query; "}},
		{changed(func(i *sparrow.Info) { i.Config.Model.Family = plan.GLM5Next }),
			[]string{"top 2048 pools of 4 tokens of each query"}},
		{changed(func(i *sparrow.Info) {
			i.Config.DenseOK, i.Config.DenseAgainst = false, []string{"x", "y"}
			i.Draft, i.Config.Model.Block, i.Config.Model.NextN = spec.Auto(), 5, 2
		}), []string{", dense off: x, y; ", "drafts   auto: up to 3 tokens at a time are drafted by 2 stages, in " +
			"blocks of 5 and verified together, as long as this saves time"}},
		{changed(func(i *sparrow.Info) { i.Drafts, i.NoDrafts = 0, "no layer" }),
			[]string{"drafts   none: no layer\n"}},
	} {
		var b strings.Builder
		describe(&b, c.info, &deviceFlags{})
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q", &b, want)
			}
		}
		if strings.Contains(b.String(), "not shown") {
			t.Errorf("%s contains a notice of level info", &b)
		}
	}
	var b strings.Builder
	if noteDevice(&b, i); b.String() != "device: H200; its defaults: --kv fp8, --max-running 256\nexperts: on the "+
		"device\n" {
		t.Errorf("on a GPU: %q", &b)
	}
	b.Reset()
	if noteDevice(&b, sparrow.Info{Device: "CPU"}); b.Len() > 0 {
		t.Errorf("on a CPU: %q", &b)
	}
}

// The memory of a server is the sum of its parts. What is in the memory of a GPU is not counted.
func TestMemoryOfAServer(t *testing.T) {
	m := sparrow.Memory{Weights: 1 << 40, Cache: 2 << 40, States: 4 << 40, Arena: 8 << 40, Scratch: 16 << 40,
		Tiers: 32 << 40}
	for _, c := range []struct {
		change func(m *sparrow.Memory)
		model  int64
	}{
		{func(*sparrow.Memory) {}, 14 << 40},
		{func(m *sparrow.Memory) { m.Packed = true }, 15 << 40},
		{func(m *sparrow.Memory) { m.Device = 1 }, 0},
	} {
		m := m
		c.change(&m)
		s := sumMemory(sparrow.Info{Memory: m}, 400, 7)
		program := s.program
		s.program = 0
		if want := (memorySum{model: c.model, requests: 400, store: 7, garbage: 100, tiers: 32 << 40}); s != want ||
			s.total() != c.model+507+32<<40 {
			t.Errorf("%+v, total %d, want %+v", s, s.total(), want)
		}
		if program < 0 || m.Device > 0 && program == 0 {
			t.Errorf("the program takes %d bytes", program)
		}
	}
	if s := sumMemory(sparrow.Info{}, 0, server.NoStore); s.store != 0 {
		t.Errorf("%d bytes of stored responses without a store", s.store)
	}
	s := memorySum{model: 1 << 60, program: 2 << 20, requests: 3 << 20, store: 4 << 20, garbage: 5 << 20,
		tiers: 6 << 20}
	const want = "tiers of the cache 6.0 MiB, requests 3.0 MiB, stored responses 4.0 MiB, garbage 5.0 MiB, the " +
		"program 2.0 MiB; in addition mapped files"
	warned := strings.Contains(s.String(), "warning: the process may use only ")
	if !strings.Contains(s.String(), want) || warned != (sysmem.Total() > 0) { // not every system tells its memory
		t.Errorf("%v lacks %q or a warning", &s, want)
	}
}

// Servers with a role print where pages come from.
func TestRolesAreAnnounced(t *testing.T) {
	for want, o := range map[string]server.Transfer{
		"": {},
		"role     prefill: others pull pages of prompts from [::1]:56\n": {Role: server.RolePrefill, Host: "::1",
			Port: 56},
		"role     decode: pages of prompts are pulled from servers in [10.0.0.0/8]\n": {Role: server.RoleDecode,
			From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		var b strings.Builder
		if new(transferFlags).announce(&b, &o); b.String() != want {
			t.Errorf("%q, want %q", &b, want)
		}
	}
}

// A trace prints tokens, drafts, times and steps, and merges plans of the same kernels.
func TestTracesArePrinted(t *testing.T) {
	segment := plan.Segment{Rows: 5}
	use := func(steps int) sparrow.PlanUse {
		return sparrow.PlanUse{Plan: &plan.Plan{Segments: []plan.Segment{segment}}, Steps: steps}
	}
	last := sparrow.Event{Finish: sparrow.FinishStop, Usage: &sparrow.Usage{PromptTokens: 9, CachedTokens: 4,
		CompletionTokens: 11, ReasoningTokens: 3, DraftedTokens: 7, AcceptedTokens: 6},
		TraceLog: &sparrow.Trace{Queued: 1500 * time.Microsecond, Prefill: 1500 * time.Millisecond,
			Decode: 2 * time.Second, Steps: 8, Preempted: 2, Plans: []sparrow.PlanUse{use(1), use(3)}}}
	var b strings.Builder
	printTrace(&b, last, 42)
	for _, want := range []string{"tokens   9 in (4 from the cache), 11 out, 3 of them reasoning, 7 drafted and 6 " +
		"accepted; finish stop; seed 42\n", "times    queued 1.5 ms, prefill 1.50 s, decode 2.00 s (5.0 tokens/s); 8 " +
		"steps, preempted 2 times\n", fmt.Sprintf("plan     20 %v rows in 4 steps: ", segment.Row), " and 1 more)\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %q", &b, want)
		}
	}
}
