package v4_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/synth"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/layout"
	"sparrow/plan"
)

// In a context of 393,216 tokens, each row scores 98,304 groups and reads 3,072 entries. Entries and keys of the tokens
// before the last page are random; rows of the last page are computed. These rows have the same bits whole and in
// chunks, gathered and in place, and as decodes, and equal those of the reference. Window pages are reused round-robin,
// so that caches and arena together stay small.
func TestLongContext(t *testing.T) {
	const tokens, page, computed = 393216, 256, 44
	dir := t.TempDir() + "/v4-long"
	c, err := synth.New("v4-long", []byte(strings.Replace(testmodel.V4Config, `"max_position_embeddings": 65536`,
		`"max_position_embeddings": 1048576`, 1)), synth.Options{Seed: 3})
	if err == nil {
		err = c.Write(t.Context(), dir, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := longContext{tokens: tokens - page + computed, cached: tokens - page, pages: tokens/page + 1,
		made: map[int][][]byte{}}
	cpu := steps.Open[*v4.Model](t, dir, "cpu")
	want := l.run(t, cpu, plan.Policy{KV: "fp8"}, computed, 4)
	if len(want) != computed+4 {
		t.Fatalf("%d rows of logits", len(want))
	}
	same := (&steps.Bench{TB: t}).SameBits
	same("in place and in chunks", l.run(t, cpu, plan.Policy{KV: "fp8", Prefill: "v4-paged"}, 17, 4), want)
	same("gathered and in chunks", l.run(t, cpu, plan.Policy{KV: "fp8", Prefill: "v4-flat"}, 29, 4), want)
	const proved = 4
	l.tokens = l.cached + proved
	for i, row := range l.run(t, steps.Open[*v4.Model](t, dir, "ref"), plan.Policy{KV: "fp8"}, proved, 0) {
		var gap, size float64
		for j, v := range row {
			gap += (float64(v) - float64(want[i][j])) * (float64(v) - float64(want[i][j]))
			size += float64(v) * float64(v)
		}
		if !(math.Sqrt(gap) <= 2e-3*math.Sqrt(size)) {
			t.Errorf("row %d is %g away from the reference's, which has size %g", i, math.Sqrt(gap), math.Sqrt(size))
		}
	}
}

// A longContext is a sequence whose first cached tokens have random entries.
type longContext struct {
	tokens, cached, pages int
	made                  map[int][][]byte // pages of random entries of each pool
}

// longWindows is the number of window pages that a sequence uses round-robin.
const longWindows = 3

// run fills a cache, computes the tokens after the cached ones in chunks and decodes more, and returns all logits.
func (l longContext) run(t *testing.T, m *v4.Model, p plan.Policy, chunk, decodes int) [][]float32 {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err == nil {
		err = m.AllocateWindows(&cfg, l.pages, longWindows)
	}
	if err != nil {
		t.Fatal(err)
	}
	caches := l.fill(t, m)
	limits := step.Limits{Rows: chunk, Requests: 1, Context: l.tokens + decodes, PromptLogits: chunk}
	arena, err := step.Measure(m, cfg, limits)
	if err != nil {
		t.Fatal(err)
	}
	// One launch gathers all groups, and scores stay within the budget of 256 MiB.
	if arena > 512<<20 || caches > 128<<20 {
		t.Errorf("an arena of %d MiB and caches of %d MiB", arena>>20, caches>>20)
	}
	run, err := step.New(m, cfg, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	pages, windows := make([]int32, l.pages), make([]int32, l.pages)
	for i := range pages {
		pages[i], windows[i] = int32(i*571%l.pages), -1
		if i >= l.cached/cfg.Page-1 {
			windows[i] = int32(i % longWindows)
		}
	}
	state, err := m.Restore(l.cached, windows[:l.cached/cfg.Page])
	if err != nil {
		t.Fatal(err)
	}
	defer state.Release()
	var out [][]float32
	for at := l.cached; at < l.tokens+decodes; {
		w := step.Work{Kind: plan.ModeDecode, Cached: at, Pages: pages, Windows: windows, State: state}
		n := 1
		if at < l.tokens {
			w.Kind, n = plan.ModeExtend, min(chunk, l.tokens-at)
		}
		for i := range n {
			w.Tokens = append(w.Tokens, int32((at+i)*37%m.Config().Vocab))
		}
		w.Logits = n
		res, err := run.Run([]step.Work{w})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			out = append(out, slices.Clone(res.Row(i)))
		}
		at += n
	}
	return out
}

// fill writes the same random entries and keys to every cache of a layout and returns the size of all caches. Entries
// of the first pages are repeated; no two keys are equal.
func (l longContext) fill(t *testing.T, m *v4.Model) (bytes int64) {
	t.Helper()
	const distinct = 8
	rng := rand.New(rand.NewPCG(11, 1))
	row := make([]float32, layout.V4Dim)
	number := 0
	for _, pools := range m.Pools() {
		for _, p := range pools {
			number++
			values, repeat := row, distinct
			encode := func([]byte, int) { t.Fatalf("layout %v", p.Layout) }
			if keys, err := layout.IndexOf(p.Layout); err == nil {
				values, repeat = row[:layout.IndexDim], p.Pages()
				encode = func(b []byte, slot int) { keys.Encode(b, p.PageTokens, slot, values) }
			} else if entries, err := layout.V4Of(p.Layout); err == nil {
				encode = func(b []byte, slot int) { entries.Encode(b, p.PageTokens, slot, values) }
			}
			made := l.made[number]
			for i := range p.Pages() {
				if i < repeat && i >= len(made) {
					b := make([]byte, p.Mem.Cols)
					for slot := range p.PageTokens {
						for j := range values {
							values[j] = rng.Float32()*4 - 2
						}
						encode(b, slot)
					}
					made = append(made, b)
				}
				if err := m.Device().Write(p.Mem.Slice(i, i+1), made[i%repeat]); err != nil {
					t.Fatal(err)
				}
			}
			l.made[number] = made
			bytes += p.Mem.Extent()
		}
	}
	return bytes
}
