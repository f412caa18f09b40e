package builtin_test

import (
	"encoding/json"
	"os"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

var long = testflag.Long

type goldenFile struct {
	Cases []struct {
		Task   string  `json:"task"`
		Prompt []int32 `json:"prompt_tokens"`
		Output []int32 `json:"output_tokens"`
	} `json:"cases"`
}

// The trained checkpoint gives the outputs that an independent implementation computed in float32, token for token,
// with every quantised cache: its margins are far larger than the effect of rounding the cache.
func TestGoldenOutputs(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden goldenFile
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != 20 {
		t.Fatalf("%d golden cases, want 20", len(golden.Cases))
	}
	t.Run("cpu", func(t *testing.T) {
		first, others := golden, golden
		if !*long { // the tests of package eval cover every layout
			first.Cases, others.Cases = nil, golden.Cases[:2]
			// The short run has one case of each task. The two find_one cases are left out, because the README's first
			// example already has 4,000 tokens.
			seen := map[string]bool{"find_one_2048": true, "find_one_4096": true}
			for _, c := range golden.Cases {
				if !seen[c.Task] {
					first.Cases = append(first.Cases, c)
				}
				seen[c.Task] = true
			}
		}
		m := load(t, "cpu")
		testGolden(t, first, m, "fp8-656")
		testGolden(t, others, m, "bf16", "fp8-576")
	})
	t.Run("4 ranks", func(t *testing.T) {
		// with all cases, three divisions would take three times as long as one device
		few := goldenFile{golden.Cases[:1]}
		if *long {
			few.Cases = golden.Cases[:3]
		}
		testGolden(t, few, loadRanks(t, "cpu", 4, plan.ByHeads), "fp8-656")
	})
	t.Run("2 ranks by requests", func(t *testing.T) {
		testGolden(t, goldenFile{golden.Cases[:1]}, loadRanks(t, "cpu", 2, plan.ByRequests), "fp8-656")
	})
	t.Run("cuda", func(t *testing.T) {
		if err := cuda.Available(); err != nil {
			t.Skipf("needs a Hopper GPU: %v", err)
		}
		testGolden(t, golden, load(t, "cuda"), "bf16", "fp8-656", "fp8-576")
	})
	t.Run("portable", func(t *testing.T) {
		if err := cuda.PortableAvailable(); err != nil {
			t.Skipf("needs a GPU: %v", err)
		}
		testGolden(t, golden, load(t, "cuda-portable"), "bf16", "fp8-656", "fp8-576")
	})
	for _, how := range []plan.Division{plan.ByHeads, plan.ByRequests} {
		t.Run("2 ranks on a GPU/"+how.String(), func(t *testing.T) {
			if err := cuda.Available(); err != nil {
				t.Skipf("needs a Hopper GPU: %v", err)
			}
			testGolden(t, golden, loadRanks(t, "cuda", 2, how), "fp8-656")
		})
	}
}

func testGolden(t *testing.T, golden goldenFile, m model.Model, caches ...string) {
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range caches {
		t.Run(kv, func(t *testing.T) {
			cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: kv})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range golden.Cases {
				got := generate(t, m, cfg, c.Prompt, len(c.Output))
				for i, want := range c.Output {
					if got[i] != want {
						t.Errorf("%s: token %d is %d, want %d", c.Task, i, got[i], want)
						break
					}
				}
			}
		})
	}
}

func load(t *testing.T, kernels string) model.Model {
	t.Helper()
	src, err := family.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends(), op.Backends()).Open(kernels, kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// loadRanks loads the model divided over several ranks. The result must have the same bits as on one device.
func loadRanks(t *testing.T, kernels string, ranks int, how plan.Division) model.Model {
	t.Helper()
	src, err := family.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	var devs []kernel.Device
	for range ranks {
		dev, err := kernel.NewRegistry(cpu.Backends(), op.Backends()).Open(kernels, kernel.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, dev)
	}
	g, err := group.New(devs, group.Options{Compare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	m, err := src.LoadRanks(g, how, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// generate decodes n tokens greedily after a prompt and returns them.
func generate(t *testing.T, m model.Model, cfg plan.Config, prompt []int32, n int) []int32 {
	t.Helper()
	pages := (len(prompt)+n)/cfg.Page + 1
	if err := m.Allocate(&cfg, pages); err != nil {
		t.Fatal(err)
	}
	rank := 0
	if cfg.Model.ByRequests() {
		rank = cfg.Model.Ranks - 1
	}
	table := make([]int32, pages)
	for i := range table {
		table[i] = int32((rank+1)*pages - 1 - i)
	}
	r, err := step.New(m, cfg, step.Limits{Rows: len(prompt), Requests: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	work := step.Work{Kind: plan.ModeExtend, Tokens: prompt, Rank: rank, Pages: table, Logits: 1}
	var out []int32
	for len(out) < n {
		res, err := r.Run([]step.Work{work})
		if err != nil {
			t.Fatal(err)
		}
		best := 0
		for i, v := range res.Row(0) {
			if v > res.Row(0)[best] {
				best = i
			}
		}
		out = append(out, int32(best))
		work = step.Work{Kind: plan.ModeDecode, Tokens: out[len(out)-1:], Cached: work.Cached + len(work.Tokens),
			Rank: rank, Pages: table, Logits: 1}
	}
	// The first decode is launched plainly, the second is captured, and later ones of the same shape replay the graph.
	if _, captures := m.Device().(kernel.Capturer); captures && n > 4 && (r.Graphs().Replayed == 0 ||
		r.Graphs().Failed > 0) {
		t.Errorf("%d tokens without a captured graph: %+v", n, r.Graphs())
	}
	return out
}
