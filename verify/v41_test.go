package verify_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/verify"
	"sparrow/weight"
)

// DeepSeek-V4.1 gives the results of the independent implementation, whole and in chunks that cut pairs, windows and
// pages; decodes continue from the cache. The model has shared entries and selections, selections at two levels and
// n-gram tables.
func TestV41Exact(t *testing.T) {
	dir := unpacked(t, "deepseek_v41-1")
	for i, k := range kernels() {
		t.Run(k, func(t *testing.T) {
			chunks := []int{0, 127}
			switch {
			case i == 0 && !*long:
				t.Skip("make long runs it")
			case i == 0:
				chunks = []int{0}
			case i == 1 && *long:
				chunks = []int{0, 1, 3, 64, 127}
			case i > 1 && !*long:
				t.Skip("make long runs it")
			}
			m := openPath(t, dir, k, kernel.Options{Precise: true})
			for _, c := range chunks {
				t.Run(fmt.Sprint(c), func(t *testing.T) {
					r := run(t, dir, m, plan.Policy{KV: "f32"}, c)
					for _, c := range r.Cases {
						if !r.Exact || c.Selections != 16 || c.GreedyOf != 24 {
							t.Errorf("case %s compared %d selections and %d greedy tokens", c.Name, c.Selections,
								c.GreedyOf)
						}
					}
				})
			}
		})
	}
}

// Entries in four bits with a window in eight bits stay within the tolerances of tolerance.go, and chunks of any size
// store the same bytes and give the same numbers.
func TestV41Packed(t *testing.T) {
	dir := unpacked(t, "deepseek_v41-1")
	m := openPath(t, dir, "cpu", kernel.Options{})
	first := run(t, dir, m, plan.Policy{}, 0)
	golden := shorter(t, dir)
	chunks := []int{64}
	if *long {
		chunks = []int{1, 3, 64, 127}
	}
	for _, chunk := range chunks {
		r := run(t, golden, m, plan.Policy{}, chunk)
		for i, c := range r.Cases {
			if want := first.Cases[i]; c.MaxError != want.MaxError || c.MedianCosine != want.MedianCosine ||
				c.GreedyEqual != want.GreedyEqual {
				t.Errorf("case %s in chunks of %d: error %v and cosine %v, whole %v and %v", c.Name, chunk, c.MaxError,
					c.MedianCosine, want.MaxError, want.MedianCosine)
			}
		}
	}
}

// At the last positions of every prompt, the candidate blocks equal those of the independent implementation.
func TestV41Candidates(t *testing.T) {
	dir := unpacked(t, "deepseek_v41-1")
	m := openPath(t, dir, "cpu", kernel.Options{Precise: true})
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Allocate(&cfg, 4); err != nil {
		t.Fatal(err)
	}
	what := plan.Record{Selections: true}
	steps, err := step.New(m, cfg, step.Limits{Rows: 700, Requests: 1, Context: 1024, Record: what})
	if err != nil {
		t.Fatal(err)
	}
	defer steps.Close()
	file, err := weight.OpenFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	golden, err := verify.ReadGolden(dir)
	if err != nil {
		t.Fatal(err)
	}
	g := golden[2] // this case has more blocks than are kept
	x, _ := file.Tensor(g.Name + ".blocks")
	want, err := weight.ReadI32(x)
	if err != nil {
		t.Fatal(err)
	}
	state, err := m.(model.Stateful).NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer state.Release()
	n := len(g.Input)
	res, err := steps.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: g.Input, Pages: []int32{3, 1, 2}, State: state,
		Record: what, RecordFrom: n - 4, RecordTo: n}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if got := res.Blocks(5, i); !slices.Equal(got, want[i*16:(i+1)*16]) {
			t.Errorf("row %d keeps blocks %v, want %v", n-4+i, got, want[i*16:(i+1)*16])
		}
	}
}
