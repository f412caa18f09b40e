package plan

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cost"
)

// contests returns a list of sizes, each with the times of two alternatives; v holds size, first time and second time
// in turn.
func contests(v ...float64) (out []cost.Contest) {
	for i := 0; i < len(v); i += 3 {
		out = append(out, cost.Contest{Size: int(v[i]), First: v[i+1], Second: v[i+2]})
	}
	return out
}

// The choices of a plan follow from the measured times, for any values of the times.
func TestChoicesFollowFromTimes(t *testing.T) {
	for _, c := range []struct {
		name    string
		prompts []cost.Contest
		keys    int
		all     bool
	}{
		{"dense wins everywhere", contests(128, 1, 2, 256, 2, 4), 256, true},
		{"dense wins nowhere", contests(128, 2, 1, 256, 3, 9), 0, false},
		{"a tie is none", contests(128, 1, 2, 256, 3, 3, 512, 3, 9), 128, false},
		{"nothing was measured", nil, 0, true},
	} {
		if keys, all := crossing(c.prompts); keys != c.keys || all != c.all {
			t.Errorf("%s: up to %d keys, all %v; want %d, %v", c.name, keys, all, c.keys, c.all)
		}
	}
	for want, list := range map[bool][]cost.Contest{true: contests(1, 2, 1, 9, 5, 8),
		false: contests(1, 1, 2, 9, 8, 5)} {
		times := costs{Choices: cost.Choices{V4: list}}
		if times.flat() != want {
			t.Errorf("%v: gathered %v", list, !want)
		}
	}
	hw := Hardware{Arch: SM90, NativeNextN: []int{2, 3, 4}}
	for n, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 1, 6: 3, 7: 1, 8: 4, 9: 3, 10: 2, 12: 4} {
		if got := hw.group(n); got != want {
			t.Errorf("%d rows in groups of %d, want %d", n, got, want)
		}
	}
}

// A configuration follows the measured times of its hardware and quotes them in its reasons; a user's setting overrides
// the times.
func TestReasonsQuoteTimes(t *testing.T) {
	says := func(cfg Config, text string) {
		t.Helper()
		for _, r := range cfg.Reasons {
			if strings.Contains(r.Text, text) {
				return
			}
		}
		t.Errorf("%s: no reason contains %q: %q", cfg.Hardware.Arch, text, cfg.Reasons)
	}
	for _, arch := range []string{"cpu", "sm90"} {
		s := newSetup(t, arch)
		times := s.hw.costs()
		for _, layout := range []string{"bf16", "fp8", "fp8-576"} {
			cfg := newSetup(t, arch, kv(layout)).resolve(t)
			limit, all := crossing(times.Prompts)
			if all {
				limit = cfg.Model.K
			}
			want(t, layout+" threshold", cfg.T, min(limit, cfg.Model.K))
			says(cfg, fmt.Sprintf("dense form for prompts of at most %d keys: %sa layer's attention of a prompt of",
				cfg.T,
				times.source()))
			says(cfg, "(measured with the 128 heads of DeepSeek-V3.2)")
		}
		asked := newSetup(t, arch, wish(func(p *Policy) { p.DenseThreshold = 77 })).resolve(t)
		want(t, "threshold asked for", asked.T, 77)
		says(asked, "dense form for prompts of at most 77 keys: requested by the user")
		other := newSetup(t, arch, func(s *setup) { s.model.K = 64 }).resolve(t)
		want(t, "threshold with a smaller index_topk", other.T, 64)

		s.hw.NoTiles = true
		if cfg := s.resolve(t); arch == "cpu" {
			want(t, "threshold without tiles", cfg.T, cfg.Model.K)
			says(cfg, "dense form for prompts of at most 2048 keys: index_topk")
			exact := newSetup(t, arch, kv("f32")).resolve(t)
			want(t, "threshold of exact rows", exact.T, exact.Model.K)
		}

		faster := V4Paged
		if times.flat() {
			faster = V4Flat
		}
		for mode, kernel := range map[SparsePrefill]Kernel{SparsePrefillUnset: faster, SparsePrefillAuto: faster,
			SparsePrefillOn: V4Flat, SparsePrefillOff: V4Paged} {
			cfg := newSetup(t, arch, family(t, "deepseek_v4"), wish(func(p *Policy) {
				p.V4SparsePrefill = mode
			})).resolve(t)
			want(t, "v4 prefill "+mode.String(), cfg.Prefill, kernel)
			if mode == SparsePrefillUnset {
				says(cfg, fmt.Sprintf("prefill %s: %sa layer's attention of a prompt of 30720 tokens takes", faster,
					times.source()))
			}
		}
	}
}

// On every GPU a reason that quotes times states whether they were measured on it, with the kernels of the plan, or are
// assumed. Only an H200 with the kernels for Hopper was measured, and decodes with the portable kernels on an H200.
func TestReasonsOfEveryGPUSayWhatIsAssumed(t *testing.T) {
	names := HardwareNames()
	for name := range devices {
		names = append(names, name)
	}
	slices.Sort(names)
	gpus, quotes := 0, 0
	for _, name := range names {
		hw := hardware(t, name)
		if !hw.Arch.CUDA() {
			continue
		}
		gpus++
		isH200 := name == "sm90" || name == "h200"
		for _, portable := range []bool{false, true} {
			hw.Portable = portable
			own := hw.Arch == SM90 && !portable
			for _, c := range []struct {
				model   string
				running int
			}{{"deepseek_v32", 0}, {"deepseek_v32", 16}, {"glm-5.2", 1}, {"deepseek_v3", 0}, {"kimi_k2", 64},
				{"deepseek_v4", 0}, {"v4-pro", 8}, {"glm5_next", 0}} {
				p, _ := Defaults(&hw, model(t, c.model, 64).Family, Policy{Running: c.running})
				if c.model == "deepseek_v32" {
					p.Speculation.Tokens = 8
				}
				m := model(t, c.model, 64)
				cfg, _, err := Resolve(hw, m, p)
				if err != nil {
					t.Fatalf("%s on %s: %v", c.model, name, err)
				}
				texts := slices.Clone(cfg.Reasons)
				for _, s := range build(t, cfg, verify(9000)).Segments {
					texts = append(texts, s.Reasons...)
				}
				for _, r := range texts {
					if !timed.MatchString(r.Text) {
						continue
					}
					quotes++
					kernels := "Hopper kernels"
					if !own && (strings.HasPrefix(r.Text, "rows over FP8 pages") ||
						strings.HasPrefix(r.Text, "rows over pools")) {
						kernels = "portable kernels"
					}
					want := fmt.Sprintf("assumed (measured with %s on an H200): ", kernels)
					if isH200 && (own || kernels == "portable kernels") {
						want = fmt.Sprintf("on an H200 with %s, ", kernels)
					}
					if strings.Count(r.Text, "H200") != 1 || !strings.Contains(r.Text, want) {
						t.Errorf("%s on %s, portable %v: %q, want %q", c.model, name, portable, r.Text, want)
					}
				}
				for _, r := range cfg.Rejected {
					if strings.Contains(r.Reason, "measured") && !(own && isH200) {
						t.Errorf("%s on %s, portable %v: %s %q", c.model, name, portable, r.Kernel, r.Reason)
					}
				}
			}
		}
	}
	if gpus < 30 || quotes < 15*gpus {
		t.Errorf("%d GPUs with %d texts that quote times: the walk is too small", gpus, quotes)
	}
}

// timed matches texts that quote a time.
var timed = regexp.MustCompile(`\d (ms|us) |takes? a layer`)

// A CPU without a matrix unit has other kernels than the measured CPU.
func TestReasonsWithoutTilesSayWhatIsAssumed(t *testing.T) {
	for noTiles, want := range map[bool]string{false: "on two cores of a Xeon with AMX kernels, ",
		true: "assumed (measured with AMX kernels on two cores of a Xeon): "} {
		s := newSetup(t, "cpu", family(t, "deepseek_v4"))
		s.hw.NoTiles = noTiles
		cfg := s.resolve(t)
		if !slices.ContainsFunc(cfg.Reasons, func(r Reason) bool { return strings.Contains(r.Text, want) }) {
			t.Errorf("no reason contains %q: %q", want, cfg.Reasons)
		}
	}
}

// A sparse prefill that the user turned off is rejected because it is turned off, not because another candidate is
// preferred.
func TestSparsePrefillOff(t *testing.T) {
	for _, hw := range []string{"cpu", "sm90"} {
		cfg := newSetup(t, hw, family(t, "deepseek_v4"), wish(func(p *Policy) {
			p.V4SparsePrefill = SparsePrefillOff
		})).resolve(t)
		found := false
		for _, r := range cfg.RejectedFor(PhasePrefill) {
			if r.Kernel == V4Flat {
				found = r.Code == E02 && r.Reason == "the sparse prefill was disabled"
			}
		}
		want(t, hw, found, true)
	}
}

// The defaults for a GPU are reported as flags with reasons and measured times; settings of the user are not replaced.
func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		on     Arch
		of     Family
		asked  Policy
		chosen string
	}{
		{CPU, DeepSeekV32, Policy{}, ""},
		{SM90, DeepSeekV4, Policy{}, ""},
		{GFX95, DeepSeekV32, Policy{}, ""}, // no kernel of ours runs there
		{SM90, DeepSeekV32, Policy{}, "--kv fp8 --prefill sparse-flat"},
		{SM90, GLMMoeDSA, Policy{KV: "fp8"}, "--prefill sparse-flat"},
		{SM90, DeepSeekV32, Policy{KV: "fp8-656"}, "--prefill sparse-flat"},
		{SM90, DeepSeekV32, Policy{KV: "bf16"}, ""},
		{SM80, GLM5Next, Policy{}, "--kv fp8 --prefill sparse-flat"},
		{SM90, GLM5Next, Policy{KV: "fp8-528"}, "--prefill sparse-flat"},
		{SM90, GLM5Next, Policy{KV: "bf16"}, ""},
		{SM90, GLM5Next, Policy{KV: "fp8", Deterministic: true}, ""},
		{SM90, GLM5Next, Policy{KV: "fp8", Prefill: "sparse-pools"}, ""},
		{SM90, DeepSeekV3, Policy{KV: "fp8"}, ""},
		{SM90, DeepSeekV32, Policy{Deterministic: true}, "--kv fp8"},
		{SM90, DeepSeekV32, Policy{Decode: "sparse-block"}, "--kv fp8"},
		{SM90, DeepSeekV32, Policy{Prefill: "sparse-block"}, "--kv fp8"},
	} {
		hw := hardware(t, c.on.String())
		p, chosen := Defaults(&hw, c.of, c.asked)
		want(t, fmt.Sprintf("%v %v %+v", c.on, c.of, c.asked), strings.Join(chosen, " "), c.chosen)
		if p.Prefill != c.asked.Prefill && !strings.Contains(p.PrefillWhy,
			"0.92 us over gathered rows, 1.21 in place") {
			t.Errorf("prefill %s: %q", p.Prefill, p.PrefillWhy)
		}
		kv := "656 bytes, a bf16 row 1152"
		if c.of.Pooled() {
			kv = "528 bytes, a bf16 row 1024"
		}
		if measured := strings.Contains(p.PrefillWhy, "(measured with the 656-byte rows of DeepSeek-V3.2)"); measured !=
			(c.of.Pooled() && p.PrefillWhy != "") {
			t.Errorf("%v, prefill %s: %q", c.of, p.Prefill, p.PrefillWhy)
		}
		if p.KV != c.asked.KV && !strings.Contains(p.KVWhy, kv) {
			t.Errorf("kv %s: %q", p.KV, p.KVWhy)
		}
	}
}

// The documents contain the measured times that plans use.
func TestDocumentsHoldTheTimes(t *testing.T) {
	for arch, file := range map[Arch]string{CPU: "../docs/benchmarks/record-cpu.md",
		SM90: "../docs/benchmarks/record-h200.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		times := (&Hardware{Arch: arch}).costs()
		for _, c := range slices.Concat(times.Prompts, times.V4) {
			row := fmt.Sprintf("\n| %d | %v | %v |", c.Size, c.First, c.Second)
			if !strings.Contains(string(text), row) {
				t.Errorf("%s has no row %q", file, row[1:])
			}
		}
		for _, d := range times.Decodes {
			row := fmt.Sprintf("\n| %d | %v | %v | %v |", d.Rows, d.Whole, d.Keys256, d.Keys512)
			if !strings.Contains(string(text), row) {
				t.Errorf("%s has no row %q", file, row[1:])
			}
		}
	}
	text, err := os.ReadFile("../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	keys, prompts := map[Arch]string{}, map[bool]string{true: "gathered (`v4-flat`)", false: "in place (`v4-paged`)"}
	flat := map[Arch]bool{}
	for _, arch := range []Arch{CPU, SM90} {
		times := (&Hardware{Arch: arch}).costs()
		flat[arch], keys[arch] = times.flat(), "`index_topk`"
		if limit, all := crossing(times.Prompts); !all {
			keys[arch] = fmt.Sprintf("%d keys; `index_topk` over exact rows and without a matrix unit", limit)
		}
	}
	for _, row := range []string{
		fmt.Sprintf("overrides it | %s | %s |", keys[CPU], keys[SM90]),
		fmt.Sprintf("| V4 prompts | %s | %s |", prompts[flat[CPU]], prompts[flat[SM90]]),
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/plan.md does not say %q", row)
		}
	}
}

// Times of the H200 are quoted as measured for every GPU of this kind, and as assumed for other GPUs. The memory of
// GPUs of one kind may differ by up to a tenth, depending on the maker and the driver.
func TestTimesAreMeasuredOnlyOnTheirGPU(t *testing.T) {
	h200 := hardware(t, "h200")
	h := cost.H200()
	measured := h.GPU.MemoryBytes
	h200.MemoryBytes = measured
	for name, c := range map[string]struct {
		change  func(*Hardware)
		assumed bool
	}{
		"the same":           {func(*Hardware) {}, false},
		"a little less":      {func(h *Hardware) { h.MemoryBytes -= measured/10 - 1 }, false},
		"a little more":      {func(h *Hardware) { h.MemoryBytes += measured/10 - 1 }, false},
		"much less memory":   {func(h *Hardware) { h.MemoryBytes -= measured / 10 }, true},
		"much more memory":   {func(h *Hardware) { h.MemoryBytes += measured / 10 }, true},
		"other processors":   {func(h *Hardware) { h.SMs-- }, true},
		"an architecture":    {func(h *Hardware) { h.Arch = SM100 }, true},
		"portable kernels":   {func(h *Hardware) { h.Portable = true }, true},
		"its portable times": {func(*Hardware) {}, false},
	} {
		hw := h200
		c.change(&hw)
		got := hw.costs()
		if name == "its portable times" {
			got = hw.portableCosts()
		}
		if got.assumed != c.assumed {
			t.Errorf("%s: assumed %v", name, got.assumed)
		}
	}
}
