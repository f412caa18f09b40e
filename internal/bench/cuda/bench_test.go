package bench

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/bench/harness"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

var (
	only    = flag.String("only", "64 tokens,topk 512", "time the cases that contain one of these texts")
	replays = flag.Int("replays", 0, "timed replays of each case")
	pause   = flag.Duration("pause", 0, "idle time before each replay")
	checks  = flag.Bool("check", false, "check the cases and time nothing")
	file    = flag.String("json", "", "write the report to this file")
)

func TestSetsTogetherExceedTheCache(t *testing.T) {
	for set, want := range map[float64]int{1: maxSets, 60 << 20: 3, 100 << 20: 2, 1 << 30: 1} {
		if got := setCount(set, 3*60<<20); got != want {
			t.Errorf("sets of %g bytes with three caches of 60 MB: %d sets, want %d", set, got, want)
		}
	}
}

func TestSummaryCountsAgainstTheHigherRoof(t *testing.T) {
	times := []float64{12, 10, 11, 10, 10, 10, 10, 9, 10, 10, 10}
	c := &Case{Case: titled("n", "s"), FLOPs: 1650e6 * 5, Bytes: 4.3e6 * 2, Rate: FP8}
	r := summarise(c, times, H200())
	if r.Micros != 10 || r.MinMicros != 9 || r.MaxMicros != 12 {
		t.Errorf("median %g us, min %g us, max %g us, want 10, 9, 12", r.Micros, r.MinMicros, r.MaxMicros)
	}
	if math.Abs(r.RoofUS-5) > 1e-9 || math.Abs(r.RoofShare-0.5) > 1e-9 {
		t.Errorf("roof %g us, share %g, want 5 and 0.5: arithmetic is the higher roof", r.RoofUS, r.RoofShare)
	}
	if math.Abs(r.TFLOPs-825) > 1e-6 || math.Abs(r.GBs-860) > 1e-6 {
		t.Errorf("%g TFLOP/s %g GB/s, want 825 and 860", r.TFLOPs, r.GBs)
	}
	if math.Abs(r.Spread-0.1) > 1e-9 {
		t.Errorf("spread %g, want 0.1", r.Spread)
	}
	c.Rate = Memory
	if r := summarise(c, times, H200()); math.Abs(r.RoofUS-2) > 1e-9 {
		t.Errorf("roof of a memory case %g us, want 2", r.RoofUS)
	}
}

func TestSparsePagesHoldEveryRow(t *testing.T) {
	for kind, want := range map[layout.Kind]int{0: 64 * 1024, layout.BF16Row1152: 64 * 1152, layout.FP8Row656: 64 * 656,
		layout.FP8Row576: 64 * 576, layout.V4Row584: int(cuda.V4PageBytes(64)), layout.V41Row288: 64 * 288,
		layout.V41Window528: 64 * 528} {
		h := newHolder(&Rig{Seed: 1})
		page := sparsePage(h, kind, 64)
		if h.err != nil || len(page) != want {
			t.Errorf("%v: a page of %d bytes, want %d: %v", kind, len(page), want, h.err)
		}
		last := page[63*len(page)/64:]
		if kind == layout.V4Row584 { // scales are after the rows
			last = page[63*cuda.V4DataBytes : 64*cuda.V4DataBytes]
		}
		if !slices.ContainsFunc(last, func(b byte) bool { return b != 0 }) {
			t.Errorf("%v: the last row is empty", kind)
		}
	}
}

func TestEveryCaseHasItsFloor(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		id := c.Title()
		if seen[id] {
			t.Errorf("case %s occurs twice", id)
		}
		seen[id] = true
		if c.Bytes <= 0 || c.setBytes() <= 0 || c.New == nil || (c.Rate != Memory && c.FLOPs <= 0) {
			t.Errorf("%s: bytes %g, set %g, flops %g", id, c.Bytes, c.setBytes(), c.FLOPs)
		}
	}
}

// Every recorded time of another engine refers to an existing case: renaming a case without its recorded times fails
// this test.
func TestPeersAreOfCases(t *testing.T) {
	known, err := peers()
	if err != nil || len(known) < 100 {
		t.Fatalf("peers.tsv has %d times, error %v", len(known), err)
	}
	for _, c := range Cases() {
		delete(known, c.peerKey())
	}
	for key, p := range known {
		t.Errorf("peers.tsv has a time of %s for %q, which is not a case", p.Name, key)
	}
}

func TestGPUCasesAreCorrectAndTimed(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	k, err := d.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	cases, err := harness.Match(Cases(), strings.Split(*only, ","))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Run(t.Context(), d, k, cases, Options{Replays: *replays, Pause: *pause, Check: *checks})
	if err != nil {
		t.Error(err)
	}
	if rep == nil || len(rep.Results) == 0 {
		t.Fatal("no results")
	}
	if *checks {
		return
	}
	var table strings.Builder
	if err := rep.Print(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	for _, r := range rep.Results {
		if !(r.Micros > 0) || !r.Checked || r.RoofShare > 1.5 {
			t.Errorf("implausible result %+v", r)
		}
	}
	text, err := json.MarshalIndent(rep, "", " ")
	if err != nil || !strings.Contains(string(text), `"us"`) {
		t.Fatalf("report as JSON: %v", err)
	}
	if *file != "" {
		if err := os.WriteFile(*file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
