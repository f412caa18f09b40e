package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/bench/harness"
	"sparrow/internal/block"
	"sparrow/internal/device/host"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// small keeps test runs short: one short round, and little memory in place of DRAM.
func small(o Options) Options {
	o.Rounds, o.BigBytes, o.enough = 1, 4<<20, time.Millisecond
	if o.Backends == nil {
		o.Backends = cpu.Backends()
	}
	if o.Threads == nil {
		o.Threads = []int{1}
	}
	return o
}

// everything adds cases that other tests imply; make long sets it.
var everything = testflag.Long

// affordable omits the largest shapes if only plain Go can run them.
func affordable() []Case {
	if cpu.Backends()[0].Name != "cpu-go" {
		return Cases()
	}
	return slices.DeleteFunc(Cases(), func(c Case) bool {
		return c.Shape == gemmShape ||
			slices.ContainsFunc([]string{"64 queries", "64 rows of 16 heads", "64 rows of 64 heads",
				"512 tokens, 4 of 16"}, func(s string) bool { return strings.HasPrefix(c.Shape, s) })
	})
}

// shapes keeps one shape of each case unless make long runs all of them: the tests of other packages check the results
// of all shapes.
func shapes(list []Case) []Case {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(c Case) bool {
		again := seen[c.Name]
		seen[c.Name] = true
		return again && !*everything
	})
}

// Each case is right and is timed. The operations, bytes and memory of the first case of each name are those of a
// golden table.
func TestEveryCaseIsRightAndTimed(t *testing.T) {
	cases := shapes(affordable())
	made := map[string]string{}
	for i, c := range cases {
		cases[i].Make = func(r *Rig) *Op {
			op := c.Make(r)
			if made[c.Name] == "" {
				made[c.Name] = described(c, op)
			}
			return op
		}
	}
	var o Options
	if !*everything { // the tests of other packages check the results of the other tiers
		o.Backends = cpu.Backends()[:1]
	}
	r, err := Run(context.Background(), cases, small(o))
	if err != nil {
		t.Fatal(err)
	}
	best := cpu.Backends()[0].Name
	seen := map[string]bool{}
	for _, x := range r.Results {
		if key := x.Name + x.Shape + x.Backend; seen[key] {
			t.Errorf("%s %s on %s was measured twice", x.Name, x.Shape, x.Backend)
		} else {
			seen[key] = true
		}
		if !(x.Micros > 0) || x.Median < x.Micros || x.Spread < 0 || x.Threads != 1 {
			t.Errorf("%+v", x)
		}
		if x.StreamShare < 0 || x.StreamGBs < 0 || math.IsNaN(x.StreamShare) {
			t.Errorf("%s %s: stream read %v GB/s, share %v", x.Name, x.Shape, x.StreamGBs, x.StreamShare)
		}
	}
	for _, c := range cases {
		if (c.Only == nil || c.Only(best)) && !seen[c.Name+c.Shape+best] {
			t.Errorf("%s %s was not timed on %s", c.Name, c.Shape, best)
		}
	}
	if best != "cpu-go" { // plain Go has other first cases
		table.Check(t, "cases.txt", slices.Sorted(maps.Values(made)))
	}
}

// described returns a line with the properties of a case and its operation.
func described(c Case, op *Op) string {
	line := fmt.Sprintf("%s, %s: called %q, group %q, also %q, threads %v, of peak %v; %.6g FLOPs, %.6g bytes of %d",
		c.Name, c.Shape, c.Called, c.Group, c.Also, c.Threads, c.OfPeak, op.FLOPs, op.Bytes, len(op.Memory))
	if op.Turn != nil {
		line += fmt.Sprintf(", %d at a time", len(op.Turn()))
	}
	for _, backend := range []string{"cpu-go", "cpu-avx2", "cpu-avx512", "cpu-amx"} {
		if c.Only != nil && c.Only(backend) {
			line += ", on " + backend
		}
	}
	return line
}

// The values of large memory are random throughout: zeros would be read faster.
func TestLargeMemoryIsRandom(t *testing.T) {
	for _, d := range []kernel.DType{kernel.E4M3, kernel.E2M1x2, kernel.BF16} {
		rig := newRig(1 << 20)
		rig.big = make([]byte, rig.bigBytes)
		rig.fillBig(d)
		zeros, longest, run := 0, 0, 0
		for _, b := range rig.big {
			if run++; b != 0 {
				run = 0
				continue
			}
			zeros++
			longest = max(longest, run)
		}
		if err := rig.failed(); err != nil || zeros > len(rig.big)/50 || longest > 3 {
			t.Errorf("%v: %d of %d bytes are zero, up to %d in a row, error %v", d, zeros, len(rig.big), longest, err)
		}
	}
}

// wrong is a device that returns slightly wrong results for GEMMs and selections.
type wrong struct{ kernel.Device }

func (w wrong) Do(op kernel.Op) error {
	err := w.Device.Do(op)
	switch a := op.(type) {
	case kernel.MultiplyArgs:
		host.RowF32(a.Out, a.Out.Rows-1)[a.Out.Cols-1] *= 1.5
	case kernel.SelectArgs:
		host.RowI32(a.Out, 0)[0]++
	}
	return err
}

// lazy is a device whose operations write nothing: the check must detect the poisoned outputs.
type lazy struct{ kernel.Device }

func (d lazy) Do(op kernel.Op) error {
	switch op.(type) {
	case kernel.NormArgs, kernel.LocateArgs, kernel.StoreArgs, kernel.ExpertArgs, kernel.ScoreArgs,
		kernel.IndexStoreArgs:
		return nil
	}
	return d.Device.Do(op)
}

func with(wrap func(kernel.Device) kernel.Device) []kernel.Backend {
	b := cpu.Backends()[0]
	open := b.Open
	b.Open = func(o kernel.Options) (kernel.Device, error) {
		d, err := open(o)
		return wrap(d), err
	}
	return []kernel.Backend{b}
}

func TestWrongResultsAreNotTimed(t *testing.T) {
	for _, c := range []struct {
		only string
		wrap func(kernel.Device) kernel.Device
	}{
		{"multiply f32 960", func(d kernel.Device) kernel.Device { return wrong{d} }},
		{"select 2048 of 64", func(d kernel.Device) kernel.Device { return wrong{d} }},
		{"norm 512x", func(d kernel.Device) kernel.Device { return lazy{d} }},
		{"locate", func(d kernel.Device) kernel.Device { return lazy{d} }},
		{"store rows fp8-656", func(d kernel.Device) kernel.Device { return lazy{d} }},
		{"experts bf16 1 ", func(d kernel.Device) kernel.Device { return lazy{d} }},
		{"scores fp8 1 ", func(d kernel.Device) kernel.Device { return lazy{d} }},
		{"store index", func(d kernel.Device) kernel.Device { return lazy{d} }},
	} {
		cases, err := harness.Match(Cases(), []string{c.only})
		if err != nil {
			t.Fatal(err)
		}
		if len(cases) != 1 {
			t.Fatalf("%q matches %d cases", c.only, len(cases))
		}
		r, err := Run(context.Background(), cases, small(Options{Backends: with(c.wrap)}))
		if err == nil || !strings.Contains(err.Error(), "wrong result") || len(r.Results) != 0 {
			t.Errorf("%s: error %v, %d results", c.only, err, len(r.Results))
		}
	}
}

// counting is a device that counts the weights that it prepares.
type counting struct {
	kernel.Device
	prepared *int
}

func (c counting) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	*c.prepared++
	return c.Device.Prepare(w, role)
}

// The first run of a case, which is not timed, prepares all weights, so that timed runs prepare none.
func TestWeightsArePreparedBeforeTheyAreTimed(t *testing.T) {
	dev, err := cpu.Backends()[0].Open(kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	n, r := 0, newRig(4<<20)
	op := multiplyParts(r, 1, r.dram(kernel.Blocks(block.Q8_0), dramIn), 128)
	for i := range 3 {
		if err := op.Run(counting{dev, &n}); err != nil {
			t.Fatal(err)
		}
		if want := 4 << 20 / (128 * dramIn / 32 * 34); i == 0 && n != want || n > want {
			t.Errorf("after run %d, %d parts are prepared, want %d", i, n, want)
		}
	}
}

func TestMatch(t *testing.T) {
	if got, err := harness.Match(Cases(), nil); err != nil || len(got) != len(Cases()) {
		t.Errorf("without a filter Match returned %d cases, error %v", len(got), err)
	}
	got, err := harness.Match(Cases(), []string{"select", "norm"})
	if err != nil || len(got) < 3 ||
		slices.ContainsFunc(got, func(c Case) bool { return strings.HasPrefix(c.Name, "multiply") }) {
		t.Errorf("Match returned %d cases, error %v", len(got), err)
	}
	chosen, _ := harness.Match(Cases(), []string{"select"})
	for _, word := range []string{"top-k", "topk"} {
		if got, err := harness.Match(Cases(), []string{word}); err != nil || len(got) != len(chosen) {
			t.Errorf("the filter %s matches %d cases, error %v; select matches %d cases", word, len(got), err,
				len(chosen))
		}
	}
	if got, err := harness.Match(Cases(), []string{"Q4_K"}); err != nil || len(got) < 2 {
		t.Errorf("a filter in capital letters matches %d cases, error %v", len(got), err)
	}
	_, err = harness.Match(Cases(), []string{"nothing of this name"})
	if err == nil || !strings.Contains(err.Error(), "multiply q4_k, ") {
		t.Errorf("a filter without a match: error %v", err)
	}
}

// A report without targets does not print a heading for targets.
func TestNoHeadingWithoutTargets(t *testing.T) {
	r := &Report{Results: []Result{{Name: "take", Shape: "a", Backend: "cpu-go", Threads: 1, Micros: 2}}}
	var text, md strings.Builder
	if err := errors.Join(r.Print(&text), r.Markdown(&md)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "targets") || strings.Contains(md.String(), "| target |") ||
		!strings.Contains(md.String(), "\n\n| operation") {
		t.Errorf("%s\n%s", text.String(), md.String())
	}
}

// An interrupted run ends after the current round and does not report the case.
func TestInterruptedRunsEndBetweenRounds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runs := 0
	c := Case{Name: "a", Make: func(*Rig) *Op {
		return &Op{Poison: func() {}, Check: func(kernel.Device) error { return nil },
			Run: func(kernel.Device) error {
				if runs++; runs == 3 {
					cancel()
				}
				time.Sleep(enough)
				return nil
			}}
	}}
	o := small(Options{})
	o.Rounds = 50
	r, err := Run(ctx, []Case{c, {Name: "b", Make: c.Make}}, o)
	if !errors.Is(err, context.Canceled) || len(r.Results) != 0 || runs > 4 {
		t.Errorf("error %v after %d runs, %d results", err, runs, len(r.Results))
	}
}

func TestUnknownKernelsAreRefused(t *testing.T) {
	_, err := Run(context.Background(), nil, small(Options{Kernels: []string{"cpu-none"}}))
	if err == nil || !strings.Contains(err.Error(), "cpu-none") || !strings.Contains(err.Error(), "cpu-go") {
		t.Errorf("got %v", err)
	}
}

func TestGroupsStayTogether(t *testing.T) {
	got := grouped([]Case{{Name: "a", Group: "x"}, {Name: "b"}, {Name: "c", Group: "x"}, {Name: "d"}})
	if len(got) != 3 || len(got[0]) != 2 || got[0][1].Name != "c" || got[1][0].Name != "b" || got[2][0].Name != "d" {
		t.Errorf("%v", got)
	}
}

// verdicts returns the verdicts of a report with the given results, by target.
func verdicts(results ...Result) map[string]Verdict {
	r := &Report{Results: results}
	j := judge{r: r}
	j.products()
	j.indexer()
	j.attention()
	out := map[string]Verdict{}
	for _, v := range r.Verdicts {
		out[v.What] = v
	}
	return out
}

func TestVerdicts(t *testing.T) {
	gemm := func(name, backend string, us, gf, peak float64) Result {
		return Result{Name: name, Shape: gemmShape, Backend: backend, Threads: 1, Micros: us, GFLOPs: gf,
			PeakGF: gf / peak, PeakShare: peak}
	}
	good := verdicts(
		gemm("tiles bf16 x bf16", "cpu-amx", 100, 950, 0.3), gemm("multiply bf16", "cpu-amx", 300, 320, 0.1),
		gemm("multiply e4m3", "cpu-amx", 420, 220, 0.08), gemm("multiply f32", "cpu-amx", 900, 150, 0.1),
		gemm("multiply f32", "cpu-avx512", 900, 150, 0.86),
		Result{Name: "multiply bf16", Shape: dramShape(1), Threads: 2, GBs: 27, StreamGBs: 30, StreamShare: 0.9},
		Result{Name: "scores fp8", Shape: scoreShape(1), Threads: 1, StreamShare: 0.2, PeakShare: 0.26},
		Result{Name: "select", Shape: selectShape(1), Threads: 1, Micros: 99,
			StreamGBs: float64(4*selectWidth) / 10 / 1e3},
		Result{Name: "select", Shape: selectShape(1), Threads: 2, Micros: 49, StreamGBs: 1},
		Result{Name: "sparse fp8-656", Shape: sparseShape(1), Threads: 1, Micros: 10},
		Result{Name: "sparse bf16-1152", Shape: sparseShape(1), Threads: 1, Micros: 11},
	)
	bad := verdicts(
		gemm("tiles bf16 x bf16", "cpu-amx", 100, 890, 0.3), gemm("multiply bf16", "cpu-amx", 300, 320, 0.1),
		gemm("multiply e4m3", "cpu-amx", 450, 200, 0.08), gemm("multiply f32", "cpu-avx512", 900, 150, 0.84),
		Result{Name: "multiply bf16", Shape: dramShape(1), Threads: 2, GBs: 26, StreamGBs: 30, StreamShare: 0.89},
		Result{Name: "scores fp8", Shape: scoreShape(1), Threads: 1, StreamShare: 0.59, PeakShare: 0.24},
		Result{Name: "select", Shape: selectShape(1), Threads: 1, Micros: 99,
			StreamGBs: float64(4*selectWidth) / 10 / 1e3},
		Result{Name: "select", Shape: selectShape(1), Threads: 2, Micros: 51, StreamGBs: 1},
		Result{Name: "sparse fp8-656", Shape: sparseShape(1), Threads: 1, Micros: 12},
		Result{Name: "sparse bf16-1152", Shape: sparseShape(1), Threads: 1, Micros: 11},
	)
	measured := 0
	for what, v := range good {
		if v.Met == NotMeasured {
			continue
		}
		measured++
		if v.Met != Met || bad[what].Met != NotMet {
			t.Errorf("%s: %s (%s) and %s (%s), want met and not met", what, v.Met, v.Got, bad[what].Met, bad[what].Got)
		}
	}
	if measured != 7 {
		t.Errorf("%d verdicts, want 7", measured)
	}
	if v := verdicts(); len(v) != len(good) {
		t.Errorf("an empty report has %d rows of targets, want %d", len(v), len(good))
	}
}

func TestReportsReadWell(t *testing.T) {
	cases, err := harness.Match(Cases(), []string{"take", "norm 512x"})
	if err != nil {
		t.Fatal(err)
	}
	o := small(Options{Threads: []int{1}, Partial: true})
	r, err := Run(context.Background(), cases, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Judge(o); err != nil || len(r.Verdicts) != 0 || r.Pause != nil {
		t.Errorf("a partial run: error %v, %d verdicts", err, len(r.Verdicts))
	}
	r.Verdicts = []Verdict{{"one thing", "much", "little", NotMet}}
	var text, md bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.Markdown(&md); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"norm", "512x1024", "of stream", "not met", "one thing: want much; got little"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the text lacks %q:\n%s", part, text.String())
		}
	}
	for line := range strings.Lines(md.String()) {
		if n := strings.Count(line, "|"); n != 0 && n != 5 && n != 12 {
			t.Errorf("a row of %d bars: %s", n, line)
		}
	}
}
