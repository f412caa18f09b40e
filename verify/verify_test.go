package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
	"sparrow/verify"
	"sparrow/weight"
)

var checkpoints = []string{"deepseek_v32-1", "deepseek_v32-fp8-1", "glm_moe_dsa-1"}

// long enables cases that take minutes and that other tests imply. The reference agrees because the kernels agree with
// it operation by operation, and chunks agree because they have the bits of whole prompts.
var long = testflag.Long

// shorter returns a folder like that of a checkpoint without the longest golden case, which takes most of the time, or
// the name itself if make long runs the tests. Other tests verify the longest case of the same checkpoint.
func shorter(t *testing.T, name string) string {
	t.Helper()
	if *long {
		return name
	}
	return someCases(t, folder(name), []string{"short", "at_topk"})
}

// folder returns the folder of a checkpoint by its name; an unpacked archive is named by its path.
func folder(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return "../testdata/oracle/" + name
}

func load(t *testing.T, name, kernels string) model.Model {
	t.Helper()
	return open(t, name, kernels, kernel.Options{})
}

func open(t *testing.T, name, kernels string, o kernel.Options) model.Model {
	t.Helper()
	return openPath(t, folder(name), kernels, o)
}

// openPath loads a checkpoint folder or a GGUF file.
func openPath(t *testing.T, path, kernels string, o kernel.Options) model.Model {
	t.Helper()
	src, err := family.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !*long {
		o.Workers = 1 // results do not depend on the number of workers, which package kernel/cpu tests
	}
	dev, err := kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func run(t *testing.T, name string, m model.Model, p plan.Policy, chunk int) *verify.Report {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(folder(name), m, verify.Options{Config: cfg, Chunk: chunk})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Passed {
		var text bytes.Buffer
		r.Print(&text)
		t.Errorf("out of tolerance:\n%s", &text)
	}
	return r
}

// kernels returns the names of all implementations of the operations that this machine can run: the reference, then the
// CPU tiers from the best down.
func kernels() []string {
	names := []string{"ref"}
	for _, b := range cpu.Backends() {
		if b.Available() == nil {
			names = append(names, b.Name)
		}
	}
	return names
}

// plain reports whether the best tier is plain Go, which is ten times slower; fewer chunk sizes are then tested.
func plain() bool { return kernels()[1] == "cpu-go" }

// With float32 rows, all results agree with the independent implementation, whole and in chunks, with every
// implementation of the operations.
func TestExact(t *testing.T) {
	for _, name := range checkpoints {
		for i, k := range kernels() {
			t.Run(name+"/"+k, func(t *testing.T) {
				chunks := []int{0, 1, 7, 64, 128}
				switch {
				case k == "ref" && *long:
					chunks = []int{0}
				case k == "ref":
					t.Skip("make long runs it: the kernels agree with it operation by operation")
				case *long && (i != 1 || plain()):
					// The best CPU tier runs every chunk size; slower tiers run two.
					chunks = []int{0, 64}
				case !*long && k == "cpu-go" && !plain() && name != "deepseek_v32-fp8-1":
					t.Skip("make long runs it: this tier with another checkpoint")
				case !*long && i == 1 && name == "deepseek_v32-1":
					chunks = []int{0, 7}
				case !*long && i == 1: // chunks have the bits of whole prompts
					chunks = []int{0}
				case !*long:
					chunks = []int{64}
				}
				m := open(t, name, k, kernel.Options{Precise: true})
				golden := name
				if k == "cpu-go" && !plain() && !*long { // ten times slower; after 128 tokens its answer selects keys
					golden = someCases(t, folder(name), []string{"at_topk"})
				}
				for _, c := range chunks {
					r := run(t, golden, m, plan.Policy{KV: "f32"}, c)
					if !r.Exact {
						t.Error("the report does not say that rows were exact")
					}
				}
			})
		}
	}
}

// The best kernels without --precise may round their inputs to 17 bits. They differ from the independent implementation
// by less than exactness allows. The exception is one position in a hundred, where a choice between nearly equal scores
// differs.
func TestProductsOverFloat32Rows(t *testing.T) {
	for _, name := range checkpoints {
		m := load(t, name, "cpu")
		hw, _ := plan.HardwareFor("cpu")
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := verify.Run(folder(name), m, verify.Options{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Cases {
			if c.MedianError > 5e-4 || c.ArgmaxEqual < c.ArgmaxOf-c.ArgmaxOf/100 || c.SetsEqual < c.Selections {
				t.Errorf("%s, %s: median error %.2e, %d of %d most likely tokens and %d of %d selections equal", name,
					c.Name, c.MedianError, c.ArgmaxEqual, c.ArgmaxOf, c.SetsEqual, c.Selections)
			}
			for l, v := range c.Hidden {
				if v < 0.999 {
					t.Errorf("%s, %s: hidden states after layer %d have a cosine of %v", name, c.Name, l, v)
				}
			}
		}
	}
}

// Quantised caches stay close to the independent implementation by the measures of tolerance.go.
func TestQuantised(t *testing.T) {
	for i, name := range checkpoints {
		m := load(t, name, "cpu")
		for j, p := range []plan.Policy{
			{KV: "bf16"},
			{KV: "bf16", ExactIndex: true},
			{KV: "fp8-656"},
			{KV: "fp8-576"},
			{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"},
			{KV: "fp8-656", Prefill: "sparse-flat"},
			{KV: "fp8-576", Prefill: "sparse-flat", Decode: "sparse-raw"},
			{KV: "bf16", Dense: plan.SwitchOff},
			{KV: "fp8-656", Dense: plan.SwitchOff},
		} {
			t.Run(fmt.Sprintf("%s/%s %s dense %v exact index %v", name, p.KV, p.Prefill, p.Dense, p.ExactIndex),
				func(t *testing.T) {
					if !*long && (i+j)%3 != 0 {
						t.Skip("make long runs it: these rows with another checkpoint")
					}
					run(t, name, m, p, 64)
				})
		}
	}
}

// A model that computes something else does not pass. Here a cache rounded to bf16 fails the exact comparison.
func TestRoundingIsNotTakenForExact(t *testing.T) {
	m := load(t, "deepseek_v32-1", "cpu")
	hw, _ := plan.HardwareFor("cpu")
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8-576"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(folder("deepseek_v32-1"), m, verify.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for _, c := range r.Cases {
		worst = max(worst, c.MaxError)
	}
	if worst < 2e-3 {
		t.Errorf("largest error with 8-bit rows is %g; the comparison does not show rounding", worst)
	}
}

func TestNoGolden(t *testing.T) {
	if _, err := verify.ReadGolden(t.TempDir()); !errors.Is(err, verify.ErrNoGolden) ||
		!strings.Contains(err.Error(), "as in testdata/oracle/deepseek_v32-1") {
		t.Errorf("got %v, want ErrNoGolden and a folder that has some", err)
	}
}

// A golden file whose tensors are missing or have other types is refused, and the error names the tensor.
func TestDamagedGoldenFiles(t *testing.T) {
	ids := weight.SourceBytes("a.input_ids", weight.I32, []int{2}, make([]byte, 8))
	logits := weight.SourceBytes("a.logits_last", weight.F32, []int{1, 4}, make([]byte, 16))
	greedy := weight.SourceBytes("a.greedy", weight.I32, []int{1}, make([]byte, 4))
	margin := weight.SourceBytes("a.greedy_margin", weight.F32, []int{1}, make([]byte, 4))
	for _, c := range []struct {
		name, cases string
		tensors     []weight.Source
		says        string
	}{
		{"whole", `[{"name": "a"}]`, []weight.Source{ids, logits, greedy, margin}, ""},
		{"no cases", `[]`, []weight.Source{ids}, "lists no cases"},
		{"a case without tensors", `[{"name": "a"}, {"name": "b"}]`, []weight.Source{ids, logits, greedy, margin},
			"lacks b.input_ids"},
		{"ids that are floats", `[{"name": "a"}]`, []weight.Source{weight.SourceBytes("a.input_ids", weight.F32,
			[]int{2}, make([]byte, 8)), logits, greedy, margin}, "a.input_ids"},
		{"logits that are integers", `[{"name": "a"}]`, []weight.Source{ids, weight.SourceBytes("a.logits_last",
			weight.I32, []int{1, 4}, make([]byte, 16)), greedy, margin}, "a.logits_last"},
		{"fewer selections than calls", `[{"name": "a", "indexer_calls": 1}]`, []weight.Source{ids, logits, greedy,
			margin}, "lacks a.topk.0"},
	} {
		dir := t.TempDir()
		if err := weight.CreateSharded(dir, c.tensors, nil, 0); err != nil {
			t.Fatal(err)
		}
		tensors := filepath.Join(dir, "golden.safetensors")
		if err := os.Rename(filepath.Join(dir, "model.safetensors"), tensors); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "golden.json"), []byte(`{"cases": `+c.cases+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := verify.ReadGolden(dir)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}
