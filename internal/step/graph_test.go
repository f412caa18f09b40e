package step_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testkit/gpu"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// decoding decodes some sequences of different lengths together and returns the logits of every step. If drafts is
// positive, each step verifies that many tokens and the drafting layer continues them.
type decoding struct {
	sequences, steps, rows int
	drafts                 bool
}

func (d decoding) run(t *testing.T, m model.Model, p plan.Policy, l step.Limits) ([][]float32, step.Graphs) {
	t.Helper()
	b := newBench(t, m, p)
	b.run.Close()
	l.Rows, l.Requests, l.Context = 700, 16, min(b.cfg.Model.Context, 512)
	var err error
	if b.run, err = step.New(m, b.cfg, l); err != nil {
		t.Fatal(err)
	}
	defer b.run.Close()
	works := make([]step.Work, d.sequences)
	for i := range works {
		tokens := b.prompt(i+1, 40+23*i)
		works[i] = step.Work{Kind: plan.ModeExtend, Tokens: tokens, Pages: b.pages(len(tokens) + d.steps*d.rows + 8)}
	}
	for i := range works {
		b.step(works[i])
	}
	var all [][]float32
	for s := range d.steps {
		for i := range works {
			w := &works[i]
			w.Cached += len(w.Tokens)
			w.Kind, w.Tokens, w.Logits = plan.ModeDecode, b.prompt(s+11*i, d.rows), d.rows
			if d.rows > 1 {
				w.Kind = plan.ModeVerify
			}
		}
		all = append(all, b.step(works...)...)
		if d.drafts {
			all = append(all, b.draft(works)...)
		}
	}
	return all, b.run.Graphs()
}

// draft runs two drafting passes for works: the second continues the chain of the first.
func (b *bench) draft(works []step.Work) [][]float32 {
	b.Helper()
	drafts := make([]step.Draft, len(works))
	for i, w := range works {
		drafts[i] = step.Draft{Kind: plan.ModeDraft, Tokens: w.Tokens, Cached: w.Cached, Pages: w.Pages, Logits: true,
			From: i}
	}
	var out [][]float32
	for _, chained := range []bool{false, true} {
		res, err := b.run.Draft(drafts, chained)
		if err != nil {
			b.Fatal(err)
		}
		for i := range drafts {
			out = append(out, slices.Clone(res.Row(i)))
			d := &drafts[i]
			d.Cached, d.Tokens = d.Cached+len(d.Tokens), d.Tokens[:1]
		}
	}
	return out
}

var decodings = []decoding{{sequences: 1, steps: 5, rows: 1}, {sequences: 9, steps: 5, rows: 1},
	{sequences: 11, steps: 4, rows: 2}}

// The logits of a padded pass that runs from a captured graph are bitwise equal to those of plain launches, also when
// the graph runs a second time.
func TestGPUGraphsKeepBits(t *testing.T) {
	for _, set := range gpuSettings(t)[:3] {
		for _, checkpoint := range []string{"testdata/oracle/deepseek_v32-1", "testdata/oracle/deepseek_v32-fp8-1",
			"testdata/oracle/glm_moe_dsa-1", "builtin"} {
			dev := gpu.Open(t)
			m := loadOn(t, "../../"+checkpoint, dev)
			for _, d := range decodings {
				sameGraphs(t, fmt.Sprintf("%s, %s, %+v", checkpoint, set.name, d), m, set.policy, d)
			}
		}
	}
}

// Draft passes that run from captured graphs give logits bitwise equal to those of draft passes with plain launches.
func TestGPUDraftGraphsKeepBits(t *testing.T) {
	gpuSettings(t)
	for _, kind := range []synth.DType{synth.FP8, synth.BF16} {
		dev := gpu.Open(t)
		m := loadOn(t, layersOf(t, 2, 1, 128, kind), dev)
		sameGraphs(t, kind.String(), m, plan.Policy{KV: "fp8-656", Speculation: plan.Speculation{Tokens: 3}},
			decoding{sequences: 9, steps: 4, rows: 2, drafts: true})
	}
}

func sameGraphs(t *testing.T, what string, m model.Model, p plan.Policy, d decoding) {
	t.Helper()
	plain, none := d.run(t, m, p, step.Limits{GraphBytes: -1})
	if none != (step.Graphs{}) {
		t.Errorf("%s: graphs are disabled, but the counters are %+v", what, none)
	}
	b := &bench{T: t}
	for range 2 {
		got, n := d.run(t, m, p, step.Limits{})
		b.sameBits(what, got, plain)
		t.Logf("%s: %d graphs of %d launches, %d bytes", what, n.Held, n.Launches, n.Bytes)
		if n.Captured == 0 || n.Replayed < int64(d.steps)-3 || n.Failed != 0 {
			t.Errorf("%s: %+v", what, n)
		}
	}
}

// detached loads a checkpoint on the CUDA device without a GPU: launches are checked and counted, but not executed.
func detached(t *testing.T, folder string) (model.Model, *op.Device) {
	t.Helper()
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	return loadOn(t, folder, dev), dev
}

func loadOn(t *testing.T, folder string, dev kernel.Device) model.Model {
	t.Helper()
	src, err := family.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	return m
}

// The first pass of a shape uses plain launches and the second is captured. Later passes launch the graph as a whole,
// in addition to the copies of inputs, results and fault bits. Batches of nine and twelve sequences share a graph.
func TestGraphsReplay(t *testing.T) {
	m, dev := detached(t, "../../testdata/oracle/deepseek_v32-fp8-1")
	b := newBench(t, m, plan.Policy{KV: "fp8-656"})
	b.run.Close()
	var err error
	if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 64, Requests: 16, Context: 512}); err != nil {
		t.Fatal(err)
	}
	defer b.run.Close()
	held := dev.MemoryUse().Scratch
	if held == 0 {
		t.Error("no scratch memory was reserved")
	}
	decode := func(n int) (launches int64, g step.Graphs) {
		works := make([]step.Work, n)
		for i := range works {
			works[i] = step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 200, Pages: []int32{1, 2, 3, 4},
				Logits: 1}
		}
		before := dev.Launches()
		if rows := b.step(works...); len(rows) != n {
			t.Errorf("%d rows of logits for %d sequences", len(rows), n)
		}
		return dev.Launches() - before, b.run.Graphs()
	}
	plain, g := decode(9)
	if plain < 20 || g.Captured != 0 {
		t.Errorf("the first pass took %d launches; counters %+v", plain, g)
	}
	if _, g = decode(12); g.Captured != 1 || g.Replayed != 1 || g.Held != 1 || g.Bytes == 0 {
		t.Errorf("after the second pass of a shape: counters %+v", g)
	}
	// A replayed pass makes four launches: the inputs, the graph, the results and the fault bits.
	if n, g := decode(9); n != 4 || g.Captured != 1 || g.Replayed != 2 || int64(g.Launches) != plain-3 {
		t.Errorf("a replay took %d launches; counters %+v; %d plain launches", n, g, plain)
	}
	if _, g = decode(1); g.Captured != 1 || g.Held != 1 {
		t.Errorf("the first pass of another shape was captured: counters %+v", g)
	}
	if dev.MemoryUse().Scratch != held {
		t.Errorf("scratch memory grew from %d to %d bytes", held, dev.MemoryUse().Scratch)
	}
	// Memory that a graph may use was freed: the next pass uses plain launches, and the pass after it is captured
	// again.
	x, err := kernel.New(dev, kernel.F32, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	dev.Free(x.Buf)
	if n, g := decode(9); n != plain || g.Held != 0 || g.Replayed != 2 {
		t.Errorf("after memory was freed, a pass took %d launches; counters %+v", n, g)
	}
	if _, g = decode(9); g.Captured != 2 || g.Held != 1 || g.Replayed != 3 {
		t.Errorf("after the second pass since memory was freed: counters %+v", g)
	}
}

// Batches are padded to a bucket, unless padding would exceed the maximum number of rows or requests of a pass; then a
// batch keeps its own shape.
func TestBatchesArePaddedUpToTheLimits(t *testing.T) {
	m, _ := detached(t, "../../testdata/oracle/deepseek_v32-fp8-1")
	for _, c := range []struct {
		rows, requests int // maximum numbers of rows and requests in a pass
		each           int // number of rows of each request
		shared         bool
	}{{16, 16, 1, true}, {12, 12, 1, true}, {32, 16, 2, true}, {31, 16, 2, false}} {
		b := newBench(t, m, plan.Policy{KV: "fp8-656"})
		b.run.Close()
		var err error
		if b.run, err = step.New(m, b.cfg, step.Limits{Rows: c.rows, Requests: c.requests, Context: 512}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{9, 12} {
			works := make([]step.Work, n)
			for i := range works {
				works[i] = step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 200, Pages: []int32{1, 2, 3, 4},
					Logits: c.each}
				if c.each == 2 {
					works[i].Kind, works[i].Tokens = plan.ModeVerify, []int32{7, 8}
				}
			}
			if rows := b.step(works...); len(rows) != n*c.each {
				t.Errorf("%+v: %d rows of logits for %d sequences", c, len(rows), n)
			}
		}
		if g := b.run.Graphs(); (g.Captured == 1) != c.shared {
			t.Errorf("%+v: after batches of 9 and 12 requests %d graphs were captured", c, g.Captured)
		}
		b.run.Close()
	}
}

// Prompt chunks that all have different shapes do not evict the graphs of decode passes.
func TestPromptsLeaveGraphs(t *testing.T) {
	m, _ := detached(t, "../../testdata/oracle/deepseek_v32-fp8-1")
	b := newBench(t, m, plan.Policy{KV: "fp8-656"})
	b.run.Close()
	var err error
	if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 64, Requests: 8, Context: 512}); err != nil {
		t.Fatal(err)
	}
	defer b.run.Close()
	decode := step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 20, Pages: []int32{1}, Logits: 1}
	b.step(decode)
	b.step(decode)
	for i := range 600 {
		b.step(step.Work{Kind: plan.ModeExtend, Tokens: b.prompt(1, 1+i%30), Cached: i / 30 * 20, Logits: 1,
			Pages: []int32{1, 2, 3, 4, 5, 6, 7}})
	}
	b.step(decode)
	if g := b.run.Graphs(); g.Captured != 1 || g.Held != 1 || g.Replayed != 2 {
		t.Errorf("after 600 prompt shapes: counters %+v", g)
	}
}

// When the graphs exceed their memory budget, the least recently used graph is evicted. A graph larger than the budget
// is refused, and its passes run with plain launches.
func TestGraphsKeepTheirBudget(t *testing.T) {
	m, _ := detached(t, "../../testdata/oracle/deepseek_v32-fp8-1")
	run := func(budget int64) step.Graphs {
		b := newBench(t, m, plan.Policy{KV: "fp8-656"})
		b.run.Close()
		var err error
		if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 64, Requests: 8, Context: 512,
			GraphBytes: budget}); err != nil {
			t.Fatal(err)
		}
		defer b.run.Close()
		for _, n := range []int{1, 2, 4, 1, 2, 4, 1, 2, 4, 4} {
			var works []step.Work
			for range n {
				works = append(works, step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 20,
					Pages: []int32{1}, Logits: 1})
			}
			b.step(works...)
		}
		return b.run.Graphs()
	}
	g := run(0)
	if g.Captured != 3 || g.Held != 3 || g.Evicted != 0 || g.Failed != 0 || g.Budget != step.GraphBytes {
		t.Errorf("with a budget for all graphs: counters %+v", g)
	}
	each := g.Bytes / 3
	if g = run(2*each + each/2); g.Held != 2 || g.Evicted == 0 || g.Bytes > g.Budget || g.Failed != 0 {
		t.Errorf("with a budget for two graphs: counters %+v", g)
	}
	if g = run(each / 2); g.Held != 0 || g.Failed != 3 || g.Failure == nil || g.Replayed != 0 {
		t.Errorf("with a budget for no graph: counters %+v", g)
	}
}

// withoutGraphs is a device whose captures fail.
type withoutGraphs struct{ *op.Device }

func (withoutGraphs) Capture(func() error) (kernel.Graph, error) {
	return nil, errors.New("no room for a graph")
}

// A capture that fails is counted with its reason; passes of its shape run with plain launches and are not captured
// again.
func TestFailedCapturesRunPlainly(t *testing.T) {
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	m := loadOn(t, "../../testdata/oracle/deepseek_v32-fp8-1", withoutGraphs{dev})
	b := newBench(t, m, plan.Policy{KV: "fp8-656"})
	defer b.run.Close()
	for i := range 4 {
		before := dev.Launches()
		b.step(step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 20, Pages: []int32{1}, Logits: 1})
		if n := dev.Launches() - before; n < 20 {
			t.Errorf("pass %d took %d launches", i, n)
		}
	}
	if g := b.run.Graphs(); g.Failed != 1 || g.Replayed != 0 || g.Failure == nil ||
		!strings.Contains(g.Failure.Error(), "a pass of 1 rows runs with plain launches: no room for a graph") {
		t.Errorf("%+v", g)
	}
}

// The plan of a result states how its pass was enqueued: with plain launches, during capture, from the graph, or in
// parts. Plans that were returned earlier do not change.
func TestPlansSayHowTheyWereEnqueued(t *testing.T) {
	m, dev := detached(t, "../../testdata/oracle/deepseek_v32-fp8-1")
	b := newBench(t, m, plan.Policy{KV: "fp8-656"})
	b.run.Close()
	var err error
	if b.run, err = step.New(m, b.cfg, step.Limits{Rows: 64, Requests: 8, Context: 512}); err != nil {
		t.Fatal(err)
	}
	defer b.run.Close()
	decode := []step.Work{{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 200, Pages: []int32{1, 2, 3, 4},
		Logits: 1}}
	var plans []*plan.Plan
	pass := func(parts int) {
		t.Helper()
		s, err := b.run.Begin(decode)
		if err != nil {
			t.Fatal(err)
		}
		for range parts {
			if _, err := s.Left(); err != nil {
				t.Fatal(err)
			}
			if err := s.Run(); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.End()
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.Wait()
		if err != nil || res.Plan != p.Plan() {
			t.Fatal(res.Plan, p.Plan(), err)
		}
		plans = append(plans, res.Plan)
	}
	for range 4 {
		pass(0)
	}
	pass(1)
	pass(0)
	x, err := kernel.New(dev, kernel.F32, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	dev.Free(x.Buf) // the graph may use this memory
	pass(0)
	pass(0)
	var got []string
	for _, p := range plans {
		got = append(got, p.Graph.String())
		if p.Key != plans[0].Key || p.Rows != 1 || len(p.Segments) != 1 {
			t.Errorf("%s: plan %v of %d rows, want %v", p.Graph, p.Key, p.Rows, plans[0].Key)
		}
	}
	want := []string{"none", "capture", "replay", "replay", "none", "replay", "none", "capture"}
	if !slices.Equal(got, want) {
		t.Errorf("graphs %q, want %q", got, want)
	}
	if plans[2] != plans[3] || plans[0] != plans[4] {
		t.Error("passes that were enqueued in the same way have different plans, so that traces would list each of " +
			"them")
	}
}
