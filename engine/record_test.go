package engine

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testkit/strict"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// The estimate that requests are refused by is an upper bound of the bytes that they return, and a close one; passes
// record only the requested rows, and plans of batches without such rows record nothing.
func TestRecordedBytesAreBounded(t *testing.T) {
	if raceEnabled {
		t.Skip("one request at a time: TestSharedSelectionsName uses the same goroutines")
	}
	var passes, plain int
	e := start(t, tinyGLM, Config{}, after(func(works []step.Work, res step.Result) {
		want := 0
		for i := range works {
			want += works[i].RecordTo - works[i].RecordFrom
		}
		if p := res.Plan; p.Recorded != want || (want == 0) != (p.Record == plan.Record{}) {
			t.Errorf("a plan records %d rows (%+v), %d are asked for", p.Recorded, p.Record, want)
		}
		if passes++; want == 0 {
			plain++
		}
	}))
	for _, r := range []Record{{Selections: true}, {Experts: true}, {Selections: true, Tokens: RecordAll},
		{Selections: true, Scores: true, Experts: true, Tokens: RecordAll},
		{Selections: true, Layers: []int{2}, Tokens: RecordRange, From: 140, To: 155}} {
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			ask := Request{Prompt: tokens(4, 150), MaxTokens: 10, Sampling: greedy(), IgnoreEOS: true, Record: &r,
				Tenant: fmt.Sprintf("%+v", r)} // nothing is cached
			ask.Sampling.N = 1
			j := open(t, e, ask)
			sent := 0
			for ev := range j.events() {
				if ev.Err != nil {
					t.Fatal(ev.Err)
				}
				if ev.Recorded != nil {
					sent += len(ev.Recorded.AppendJSON(nil))
				}
			}
			bound := e.intake.recordedBytes(&ask, 10)
			if sent == 0 || int64(sent) > bound || bound > 3*int64(sent) {
				t.Errorf("%d bytes are sent, the bound is %d", sent, bound)
			}
		})
	}
	generate(t, e, Request{Prompt: tokens(4, 150), MaxTokens: 3, Sampling: greedy()})
	if plain == 0 || plain == passes {
		t.Errorf("%d of %d passes record nothing", plain, passes)
	}
}

// A layer that shares the selection of another layer records that of the other one.
func TestSharedSelectionsName(t *testing.T) {
	e := start(t, tinyGLM, Config{})
	var rows []record.Row
	j := open(t, e, Request{Prompt: tokens(4, 150), MaxTokens: 2, Sampling: greedy(), IgnoreEOS: true,
		Record: &Record{Selections: true, Layers: []int{2}}})
	for ev := range j.events() {
		if ev.Recorded != nil {
			rows = append(rows, ev.Recorded.Rows...)
		}
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if len(r.Layers) != 2 || r.Layers[0].Layer != 1 || len(r.Layers[0].Selected) == 0 || r.Layers[1].As == nil ||
			*r.Layers[1].As != 1 || r.Layers[1].Selected != nil {
			t.Errorf("row %+v, want layer 1 and layer 2 as it", r)
		}
	}
}

// Under the rules of a GPU selections, their scores and experts are recorded and replayed.
func TestRecordingOnAGPU(t *testing.T) {
	alone(t, "its device is a GPU")
	if raceEnabled {
		t.Skip("one request at a time: TestSharedSelectionsName uses the same goroutines")
	}
	// The device has rows in the layouts and shapes that CUDA's operations take.
	built, err := buildOver(t, tinyGLM, Config{CacheTokens: 1024, Policy: plan.Policy{KV: "fp8"}}, kernel.Options{},
		func(d kernel.Device) kernel.Device {
			s, err := strict.Open(d)
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	if err != nil {
		t.Fatal(err)
	}
	e, run := running(t, built)
	run()
	if e.info.Config.Hardware.Arch == plan.CPU {
		t.Fatal("plans are for CPUs")
	}
	ask := Request{Prompt: tokens(4, 150), MaxTokens: 3, Sampling: greedy(), IgnoreEOS: true,
		Record: &Record{Selections: true, Scores: true, Experts: true, Tokens: RecordAll}}
	recorded := func(r Request) (rows []record.Row, out []int32) {
		for ev := range open(t, e, r).events() {
			if ev.Err != nil {
				t.Fatal(ev.Err)
			}
			if ev.Recorded != nil {
				rows = append(rows, ev.Recorded.Rows...)
			}
			if ev.Token >= 0 {
				out = append(out, ev.Token)
			}
		}
		return rows, out
	}
	rows, out := recorded(ask)
	if n := len(rows); n != 152 || len(rows[151].Layers[0].Selected) == 0 || len(rows[151].Experts) == 0 {
		t.Fatalf("%d rows", n)
	}
	if l := rows[151].Layers[0]; len(l.Scores) != 4*record.CountPositions(l.Selected) {
		t.Errorf("%d bytes of scores for %d positions", len(l.Scores), record.CountPositions(l.Selected))
	}
	ask.Replay = rows
	again, same := recorded(ask)
	if !slices.Equal(out, same) || len(again) != len(rows) {
		t.Fatalf("replayed, %d rows and tokens %v; want %d and %v", len(again), same, len(rows), out)
	}
	for i := range rows {
		for l := range rows[i].Layers {
			if !bytes.Equal(again[i].Layers[l].Selected, rows[i].Layers[l].Selected) {
				t.Fatalf("replayed, row %d selects otherwise in layer %d", i, l)
			}
		}
		if !reflect.DeepEqual(again[i].Experts, rows[i].Experts) {
			t.Fatalf("replayed, row %d has other experts", i)
		}
	}
}
