package step

import (
	"errors"
	"slices"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
	"sparrow/sample"
)

// Invariants of this file: functions that only compute values return the right ones, and nothing of a pass is left for
// the next.

// described is a model of which only the configuration is known.
type described struct{ model.Model }

func (described) Config() *config.Config { return &config.Config{MaxPositions: 100} }

// The description of a batch has one entry for each sequence in every list, however many sequences the previous batch
// had, and contains nothing that the previous batch recorded, replayed or sampled.
func TestABatchHasNothingOfTheOneBefore(t *testing.T) {
	r := &Runner{model: described{}}
	r.target.batch.Pass = plan.PassTarget
	full := Work{Kind: plan.ModeExtend, Tokens: []int32{1, 2}, Cached: 1, Before: []int32{9}, Pages: []int32{1},
		Windows: []int32{2}, Logits: 1, Best: true, Draws: []sample.Draw{{}}, Record: plan.Record{Experts: true},
		RecordTo: 2, Replay: replayOf(t, 1, 2)}
	if err := r.collect([]Work{full, full, full}); err != nil {
		t.Fatal(err)
	}
	if b := &r.target.batch; !b.Draws || !b.Record.Experts || !b.Replay.Selections {
		t.Errorf("a batch that samples, records and replays is %+v", b)
	}
	if err := r.collect([]Work{{Kind: plan.ModeDecode, Tokens: []int32{4}, Before: []int32{8}}}); err != nil {
		t.Fatal(err)
	}
	b, in := &r.target.batch, &r.target.input
	if b.Draws || b.Record != (plan.Record{}) || b.Replay != (plan.Replay{}) || b.Mode != plan.ModeDecode {
		t.Errorf("a decode is %+v", b)
	}
	for name, n := range map[string]int{"requests": len(b.Requests), "tokens": len(in.Tokens), "tables": len(in.Tables),
		"states": len(in.States), "windows": len(in.Windows), "replays": len(in.Replays), "draws": len(in.Draws),
		"before": len(in.Before)} {
		if n != 1 {
			t.Errorf("%s: %d entries, want 1", name, n)
		}
	}
	if !slices.Equal(in.Before[0], []int32{8}) || in.Tokens[0][0] != 4 {
		t.Errorf("tokens %v after %v", in.Tokens[0], in.Before[0])
	}
}

// replayOf returns choices of n rows from a position on.
func replayOf(t *testing.T, first, n int) *record.Replay {
	t.Helper()
	var rows []record.Row
	for i := range n {
		rows = append(rows, record.Row{Position: first + i, Layers: []record.Layer{{Keys: first + i + 1, All: true}}})
	}
	r, err := record.NewReplay(rows, record.Shape{Layers: make([]record.LayerShape, 1), TopK: 64})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Of the rows of a replay, those at the positions of the new tokens are replayed.
func TestTheReplayedRowsOfAWork(t *testing.T) {
	for _, c := range []struct{ first, rows, from, n int }{ // new tokens at 10 to 14
		{8, 2, 0, 0}, {8, 3, 0, 1}, {8, 7, 0, 5}, {8, 20, 0, 5}, {10, 5, 0, 5}, {12, 2, 2, 2}, {14, 1, 4, 1},
		{14, 9, 4, 1}, {15, 3, 0, 0},
	} {
		w := Work{Tokens: make([]int32, 5), Cached: 10, Replay: replayOf(t, c.first, c.rows)}
		var b plan.Batch
		var q plan.Request
		if err := w.choices(&b, &q); err != nil {
			t.Fatal(err)
		}
		if q.ReplayFrom != c.from || q.Replays != c.n || b.Replay.Selections != (c.n > 0) {
			t.Errorf("%d rows from %d on: %d new tokens from %d on are replayed, want %d from %d on", c.rows, c.first,
				q.Replays, q.ReplayFrom, c.n, c.from)
		}
	}
}

// Captured passes are kept as long as they are at most half of all kept passes; otherwise all are dropped.
func TestPassesThatAreForgotten(t *testing.T) {
	for captured, want := range map[int]int{0: 0, maxPasses / 2: maxPasses / 2, maxPasses/2 + 1: 0} {
		r := &Runner{passes: map[plan.Shape]*pass{}, graphs: graphs{passes: map[*pass]bool{}}}
		for i := range maxPasses {
			p := &pass{plan: &plan.Plan{}}
			if r.passes[plan.Shape{Requests: i}] = p; i < captured {
				r.graphs.passes[p] = true
			}
		}
		if err := r.forgetPasses(); err != nil {
			t.Fatal(err)
		}
		if len(r.passes) != want {
			t.Errorf("%d of %d passes were captured: %d are kept, want %d", captured, maxPasses, len(r.passes), want)
		}
	}
}

// Batches are padded to few numbers of requests.
func TestBuckets(t *testing.T) {
	for n, want := range map[int]int{1: 1, 7: 7, 8: 8, 9: 16, 16: 16, 57: 64, 64: 64, 65: 80, 80: 80, 81: 96} {
		if got := bucket(n); got != want {
			t.Errorf("%d requests are padded to %d, want %d", n, got, want)
		}
	}
}

// Passes with few rows have no more requests, logits, recorded rows and replayed rows than rows.
func TestBoundsOfPassesWithFewRows(t *testing.T) {
	most := plan.Most{Rows: 100, Requests: 40, Logits: 60, Recorded: 70, Replayed: 80}
	got := withFewer(most, 16)
	if len(got) != 2 || got[1] != most {
		t.Fatalf("%+v", got)
	}
	few := got[0]
	if !few.Joint || few.Rows != 16 || few.Requests != 16 || few.Logits != 16 || few.Recorded != 16 ||
		few.Replayed != 16 {
		t.Errorf("%+v", few)
	}
}

// late is an event of work that fails.
type late struct{}

func (late) Wait() error { return errors.New("lost") }

// A pass that fails while the host waits for it leaves the destinations of tokens unknown.
func TestPlacesAfterALatePass(t *testing.T) {
	for event, known := range map[kernel.Event]bool{late{}: false, kernel.Done{}: true} {
		f := &feed{}
		f.sent[1].held = []int32{1}
		p := Pending{event: event, feed: f, result: Result{Plan: &plan.Plan{}}}
		if _, err := p.Wait(); (err == nil) != known || (len(f.sent[1].held) > 0) != known {
			t.Errorf("%T: %v, places %v, want them known: %v", event, err, f.sent[1].held, known)
		}
	}
}

// The first tokens of blocks are written where the block of the request begins; requests are the works with logits.
func TestWhereBlocksBegin(t *testing.T) {
	var k picks
	works := []Draft{{Logits: true}, {}, {Logits: true, Sampled: 3}, {Logits: true}, {Logits: true, Sampled: 1}}
	k.begin(works, 100, 5, 1)
	if want := []int32{-1 - 105, 1, 0, 0, -1 - 115, 3, 0, 0}; !slices.Equal(k.list, want) {
		t.Errorf("words %v, want %v", k.list, want)
	}
}
