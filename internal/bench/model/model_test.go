package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sparrow/builtin"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/layout"
	"sparrow/plan"
)

// run measures the built-in model with the given options.
func run(t *testing.T, o Options) (*Report, error) {
	t.Helper()
	return runUntil(context.Background(), t, o)
}

// runUntil measures the built-in model until ctx ends.
func runUntil(ctx context.Context, t *testing.T, o Options) (*Report, error) {
	t.Helper()
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dev := cpu.Open(vec.Best(), kernel.Options{Workers: 2})
	defer dev.Close()
	o.Budget, o.PauseTime, o.Chunk, o.Threads = time.Millisecond, 20*time.Millisecond, 32, 2
	return Run(ctx, src, dev, o)
}

// Two ranks are measured like one device, for both ways of dividing attention. If attention is divided by requests,
// each rank has pages only for its own sequences.
func TestMeasuresRanks(t *testing.T) {
	for _, how := range []plan.Division{plan.ByHeads, plan.ByRequests} {
		second := cpu.Open(vec.Best(), kernel.Options{Workers: 1})
		defer second.Close()
		r, err := run(t, Options{Contexts: []int{300}, Batches: []int{3}, Policy: plan.Policy{KV: "fp8"},
			Ranks: []kernel.Device{second}, Attention: how})
		if err != nil {
			t.Fatalf("%v: %v", how, err)
		}
		if c := r.Cells[0]; !strings.HasPrefix(r.Kernels, "2 x ") || c.Decode == nil || !(c.Decode.StepMs > 0) {
			t.Errorf("%v: kernels %s, cell %+v", how, r.Kernels, c)
		}
	}
}

// The heading lists settings that differ from the defaults. It has no read rate if no weights were read.
func TestHeadNamesSettings(t *testing.T) {
	r, err := run(t, Options{Contexts: []int{0}, Batches: []int{1}, Policy: plan.Policy{Dense: plan.SwitchOff},
		Precise: true, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 threads, precise, dense off, rows", ", mapped, ready in "} {
		if !strings.Contains(r.head(), want) {
			t.Errorf("%s lacks %q", r.head(), want)
		}
	}
	plain, err := run(t, Options{Contexts: []int{0}, Batches: []int{1}})
	if err != nil || !strings.Contains(plain.head(), "2 threads, rows") || !strings.Contains(plain.head(), " GB/s") {
		t.Errorf("%s (%v)", plain.head(), err)
	}
	_, err = run(t, Options{Contexts: []int{512}, Batches: []int{1}, MemoryBytes: 1 << 10})
	if err == nil || !strings.Contains(err.Error(), "KiB are free") || strings.Contains(err.Error(), "takes 0.0") {
		t.Errorf("too little memory: %v", err)
	}
}

// An interrupted run ends after its current step, also while the cache is being filled.
func TestInterruptedRunsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := runUntil(ctx, t, Options{}); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}

func TestMeasuresEveryCell(t *testing.T) {
	r, err := run(t, Options{Contexts: []int{0, 300, 1 << 20}, Batches: []int{1, 3}, Policy: plan.Policy{KV: "fp8"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 6 || r.Layout != "fp8-656" || r.Pause == nil || r.Pause.Collections == 0 {
		t.Fatalf("%+v", r)
	}
	for _, c := range r.Cells {
		if c.Context == 1<<20 {
			if !strings.Contains(c.Skipped, "positions") || c.Decode != nil {
				t.Errorf("context %d: cell %+v", c.Context, c)
			}
			continue
		}
		if c.Skipped != "" || c.Decode.Tokens != c.Batch || c.Prefill.Tokens != 32/c.Batch*c.Batch {
			t.Errorf("%+v", c)
		}
		for _, p := range []*Phase{c.Decode, c.Prefill} {
			sum := 0.0
			for s, ms := range p.Stages {
				if ms < 0 {
					t.Errorf("stage %v takes %v ms", Stage(s), ms)
				}
				sum += ms
			}
			if math.Abs(sum-p.StepMs) > 1e-3*p.StepMs || p.Stages[Products] == 0 || p.Stages[Head] == 0 ||
				p.Stages[Attention] == 0 {
				t.Errorf("context %d: stages %v of a step of %v ms", c.Context, p.Stages, p.StepMs)
			}
			ops := map[string]int{}
			for _, k := range p.Kernels {
				if ops[k.Name] = k.Launches; k.Us <= 0 {
					t.Errorf("%s takes %v us", k.Name, k.Us)
				}
			}
			if layers := 2 * ops["store rows"]; layers == 0 || ops["norm"] <= layers || ops["embed"] != 1 {
				t.Errorf("the operations of a step are %v", ops)
			}
			if math.Abs(p.TokensPerSecond*p.MsPerToken()-1e3) > 1e-6*1e3 {
				t.Errorf("%v tokens/s at %v ms each", p.TokensPerSecond, p.MsPerToken())
			}
		}
	}
}

// written writes a random model of a preset to a folder and returns the path.
func written(t *testing.T, preset string, edit func(config []byte) []byte) *family.Source {
	t.Helper()
	text, err := synth.PresetConfig(preset)
	if err != nil {
		t.Fatal(err)
	}
	c, err := synth.New(preset, edit(text), synth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tiny")
	if err := c.Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// Every step of a DeepSeek-V4 model begins with a state that covers the context, with whole pages and a partial page,
// and all states are released.
func TestMeasuresModelsWithStates(t *testing.T) {
	src := written(t, "v4-tiny", func(config []byte) []byte { return config })
	dev := cpu.Open(vec.Best(), kernel.Options{Workers: 2})
	defer dev.Close()
	o := Options{Contexts: []int{0, 300, 2048}, Batches: []int{1, 2}, Chunk: 32, Budget: time.Millisecond,
		PauseTime: 20 * time.Millisecond, Threads: 2}
	r, err := Run(context.Background(), src, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cells {
		if c.Skipped != "" || c.Decode.Tokens != c.Batch || c.Prefill.Tokens != 32 {
			t.Fatalf("%+v", c)
		}
		for _, p := range []*Phase{c.Decode, c.Prefill} {
			if p.Steps < 1 || p.Stages[Attention] == 0 || p.Stages[Products] == 0 || p.Stages[Rest] < 0 {
				t.Errorf("context %d: phase %+v", c.Context, p)
			}
		}
	}
	if r.Pause == nil || !strings.Contains(r.Fill, "states") {
		t.Errorf("%+v", r)
	}
}

// Between steps and after the last step, a job holds only its own states, each unchanged by the step, also if the model
// cannot remove a token from a state.
func TestJobsGiveStatesBack(t *testing.T) {
	for _, shape := range []string{"v4-tiny", "glm53f-tiny"} {
		t.Run(shape, func(t *testing.T) {
			dev := cpu.Open(vec.Best(), kernel.Options{Workers: 1})
			defer dev.Close()
			b, err := load(written(t, shape, func(config []byte) []byte { return config }), dev,
				Options{}.withDefaults(false))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.allocate(t.Context(), []Cell{{Context: 320, Batch: 2}}, nil); err != nil {
				t.Fatal(err)
			}
			j, err := b.job(plan.ModeDecode, 320, 2, 1)
			if err != nil {
				t.Fatal(err)
			}
			counted := b.model.(interface{ States() int })
			for range 3 {
				if _, _, err := b.timed(j); err != nil {
					t.Fatal(err)
				}
				if n := counted.States(); n != 2 || j.before[0].Len() != 320 {
					t.Fatalf("%d states between steps, the first of %d tokens; want 2 states of 320 tokens", n,
						j.before[0].Len())
				}
			}
			if j.release(); counted.States() != 0 {
				t.Errorf("%d states were not released", counted.States())
			}
		})
	}
}

// A deeper context scans more keys; with an empty context there is nothing to select.
func TestScanGrows(t *testing.T) {
	r, err := run(t, Options{Contexts: []int{0, 8192}, Batches: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Cells[0].Decode.Stages[Scan], r.Cells[1].Decode.Stages[Scan]; b < 3*a {
		t.Errorf("a scan takes %v ms at context 0 and %v ms at context 8192", a, b)
	}
}

func TestRefusesWhereNothingFits(t *testing.T) {
	_, err := run(t, Options{Contexts: []int{1 << 30}, Batches: []int{1}})
	if err == nil || !strings.Contains(err.Error(), "context 1073741824, batch 1: the model has") ||
		!strings.Contains(err.Error(), "--contexts") {
		t.Errorf("a context beyond the model: error %v", err)
	}
}

func TestSaysWhatDoesNotFit(t *testing.T) {
	r, err := run(t, Options{Contexts: []int{64, 4096}, Batches: []int{1}, MemoryBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if r.Cells[0].Skipped != "" || !strings.Contains(r.Cells[1].Skipped, "4.0 MiB are free") {
		t.Errorf("the cells were skipped because of %q and %q", r.Cells[0].Skipped, r.Cells[1].Skipped)
	}
	var b bytes.Buffer
	if err := r.Print(&b); err != nil || !strings.Contains(b.String(), "context 4096, batch 1 was not measured") {
		t.Errorf("error %v, report %s", err, b.String())
	}
}

func TestRefusesWhatCannotBeMeasured(t *testing.T) {
	for _, o := range []Options{{Contexts: []int{-1}}, {Batches: []int{0}}, {Batches: []int{33}}} {
		if _, err := run(t, o); err == nil {
			t.Errorf("options %+v were not refused", o)
		}
	}
}

// All filled keys differ, and filled rows have the magnitude of normalised rows.
func TestFill(t *testing.T) {
	r, err := newFilled(t)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range r {
		l, err := layout.IndexOf(c.Index.Layout)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[[layout.IndexDim]float32]bool{}
		sum := 0.0
		for s := range c.Index.Slots() {
			var key [layout.IndexDim]float32
			l.Decode(key[:], bytesOf(c.Index, s/c.Index.PageTokens), c.Index.PageTokens, s%c.Index.PageTokens)
			if seen[key] {
				t.Fatalf("layer %d: key %d occurs twice", i, s)
			}
			seen[key] = true
			for _, v := range key {
				sum += float64(v) * float64(v)
			}
		}
		if mean := sum / float64(layout.IndexDim*c.Index.Slots()); math.Abs(mean-1) > 0.05 {
			t.Errorf("layer %d: keys have variance %v", i, mean)
		}
	}
}

func TestAgainst(t *testing.T) {
	phase := func(rate float64) *Phase { return &Phase{MedianMs: 1e3 / rate, StepMs: 1, Tokens: 1} }
	r := &Report{Cells: []Cell{{Context: 2048, Batch: 1, Prefill: phase(300), Decode: phase(30)},
		{Context: 100, Batch: 1, Prefill: phase(300), Decode: phase(30)}, {Context: 200, Batch: 1, Decode: phase(30)},
		{Context: 300, Batch: 1, Skipped: "no memory"}}}
	const results = `{"n_prompt":512,"n_gen":0,"n_depth":2048,"avg_ts":25.0}
{"n_prompt":0,"n_gen":32,"n_depth":2048,"avg_ts":15.0}
{"n_prompt":0,"n_gen":32,"n_depth":200,"avg_ts":15.0}`
	if err := r.Against(strings.NewReader(results)); err != nil {
		t.Fatal(err)
	}
	if len(r.Peer) != 3 || math.Abs(r.Peer[0].Ratio-12) > 1e-9 || r.Peer[0].Wanted != 10 ||
		r.Peer[1].Test != "decode" || math.Abs(r.Peer[1].Ratio-2) > 1e-9 || r.Peer[2].Wanted != 0 {
		t.Errorf("%+v", r.Peer)
	}
	if len(r.Targets) != 2 || !r.Targets[0].Met || r.Targets[1].Met {
		t.Errorf("%+v", r.Targets)
	}
	for text, want := range map[string]string{
		"":  "no results",
		"[": "llama-bench",
		`{"n_prompt":512,"n_gen":0,"n_depth":7,"avg_ts":25.0}`:     "depth 7",
		`{"n_prompt":512,"n_gen":16,"n_depth":2048,"avg_ts":25.0}`: "not -pg",
		`{"n_prompt":512,"n_gen":0,"n_depth":2048}`:                "tokens/s",
		`{"n_prompt":512,"n_gen":0,"n_depth":200,"avg_ts":25.0}`:   "no prefill chunks",
		`{"n_prompt":0,"n_gen":32,"n_depth":300,"avg_ts":25.0}`:    "depth 300",
	} {
		c := &Report{Cells: r.Cells}
		if err := c.Against(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestFlatness(t *testing.T) {
	for _, c := range []struct {
		deep float64
		met  bool
	}{{11.4, true}, {11.6, false}} {
		r := &Report{Flat: &Flat{ShallowMs: 10, DeepMs: c.deep}}
		if r.judge(); len(r.Targets) != 1 || r.Targets[0].Met != c.met {
			t.Errorf("a step of %v ms: %+v", c.deep, r.Targets)
		}
	}
}

// A model with enough positions is measured at both depths alternately.
func TestFlatTakesBothDepthsInTurn(t *testing.T) {
	src := written(t, "v32-tiny", func(config []byte) []byte {
		return bytes.Replace(config, []byte(`"max_position_embeddings": 16384`),
			[]byte(`"max_position_embeddings": 163840`), 1)
	})
	dev := cpu.Open(vec.Best(), kernel.Options{Workers: 2})
	defer dev.Close()
	o := Options{Contexts: []int{flatShallow, flatDeep}, Batches: []int{1}, Chunk: 1, Budget: time.Millisecond,
		PauseTime: time.Millisecond, Policy: plan.Policy{KV: "fp8"}, MemoryBytes: 4 << 30}
	r, err := Run(context.Background(), src, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.cell(flatDeep, 1) == nil {
		t.Fatalf("128k tokens were not measured: %s", r.Cells[1].Skipped)
	}
	if f := r.Flat; f == nil || f.Steps < fewest || !(f.ShallowMs > 0) || !(f.DeepMs > 0) || r.Model != "tiny" {
		t.Errorf("flat result %+v of model %s", r.Flat, r.Model)
	}
}

// A report that is written as JSON and read again is unchanged.
func TestJSON(t *testing.T) {
	in := Report{Cells: []Cell{{Context: 5, Batch: 1, Decode: &Phase{StepMs: 3, Stages: Stages{Scan: 1, Rest: 2}}}}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Report
	if err := json.Unmarshal(text, &out); err != nil || out.Cells[0].Decode.Stages != in.Cells[0].Decode.Stages ||
		!strings.Contains(string(text), `"indexer scan":1`) {
		t.Errorf("%v, %s", err, text)
	}
}

func TestReportsReadWell(t *testing.T) {
	r, err := run(t, Options{Contexts: []int{0, 128}, Batches: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	var text, md, svg bytes.Buffer
	if err := errors.Join(r.Print(&text), r.Markdown(&md), r.Plot().Write(&svg)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"random rows", "decode", "prefill", "indexer scan", "GC pause"} {
		if !strings.Contains(text.String(), part) || !strings.Contains(md.String(), part) {
			t.Errorf("a report lacks %q:\n%s", part, text.String())
		}
	}
	if n := strings.Count(svg.String(), "<circle"); n != 6 {
		t.Errorf("%d points are drawn, want 6", n)
	}
	series := map[string]int{}
	for _, s := range r.Plot().Series {
		series[s.Name] += len(s.Points)
		if len(s.Points) != 2 || s.Points[0].X != 0 || s.Points[1].X != 128 {
			t.Errorf("%s has the points %v, want one for each context", s.Name, s.Points)
		}
	}
	if len(series) != 3 {
		t.Errorf("series %v, want 3", series)
	}
}
