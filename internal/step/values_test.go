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

// Invariants of this file: functions that only compute values return the right values, and no data of a pass remains
// for the next pass.

// described is a model that has a configuration but computes nothing.
type described struct{ model.Model }

func (described) Config() *config.Config { return &config.Config{MaxPositions: 100} }

// The description of a batch has one entry for each sequence in every list, whatever the number of sequences of the
// previous batch. It contains no records, replays or sampling parameters of the previous batch.
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
		t.Errorf("the description of a batch that samples, records and replays is %+v", b)
	}
	if err := r.collect([]Work{{Kind: plan.ModeDecode, Tokens: []int32{4}, Before: []int32{8}}}); err != nil {
		t.Fatal(err)
	}
	b, in := &r.target.batch, &r.target.input
	if b.Draws || b.Record != (plan.Record{}) || b.Replay != (plan.Replay{}) || b.Mode != plan.ModeDecode {
		t.Errorf("the description of a batch with one decode is %+v", b)
	}
	for name, n := range map[string]int{"requests": len(b.Requests), "tokens": len(in.Tokens), "tables": len(in.Tables),
		"states": len(in.States), "windows": len(in.Windows), "replays": len(in.Replays), "draws": len(in.Draws),
		"before": len(in.Before)} {
		if n != 1 {
			t.Errorf("%s: %d entries, want 1", name, n)
		}
	}
	if !slices.Equal(in.Before[0], []int32{8}) || in.Tokens[0][0] != 4 {
		t.Errorf("new tokens %v after the tokens %v", in.Tokens[0], in.Before[0])
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

// Only the rows of a replay at the positions of the new tokens are replayed.
func TestTheReplayedRowsOfAWork(t *testing.T) {
	for _, c := range []struct{ first, rows, from, n int }{ // the new tokens have positions 10 to 14
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

// Captured passes are kept while they are at most half of all kept passes. If more passes are captured, all passes are
// dropped.
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
			t.Errorf("%d of %d passes were captured: %d passes are kept, want %d", captured, maxPasses, len(r.passes),
				want)
		}
	}
}

// The number of requests of a batch is rounded up to one of a few values.
func TestBuckets(t *testing.T) {
	for n, want := range map[int]int{1: 1, 7: 7, 8: 8, 9: 16, 16: 16, 57: 64, 64: 64, 65: 80, 80: 80, 81: 96} {
		if got := bucket(n); got != want {
			t.Errorf("%d requests are padded to %d, want %d", n, got, want)
		}
	}
}

// In a pass with few rows, the maximum numbers of requests, logits, recorded rows and replayed rows are at most the
// number of rows.
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
	most = plan.Most{Rows: 100, Requests: 2, Logits: 3, Recorded: 4, Replayed: 5}
	want := most
	want.Joint, want.Rows = true, 16
	if got := withFewer(most, 16); len(got) != 2 || got[0] != want {
		t.Errorf("limits below the number of rows: %+v, want %+v", got, want)
	}
	most.Rows = 16
	if got := withFewer(most, 16); len(got) != 1 || got[0] != want {
		t.Errorf("all passes have few rows: %+v, want %+v", got, want)
	}
}

// late is the event of a pass that fails while the host waits for it.
type late struct{}

func (late) Wait() error { return errors.New("lost") }

// If a pass fails while the host waits for it, the rows of its tokens on the device are unknown.
func TestPlacesAfterALatePass(t *testing.T) {
	for event, known := range map[kernel.Event]bool{late{}: false, kernel.Done{}: true} {
		f := &feed{}
		f.sent[1].held = []int32{1}
		p := Pending{event: event, feed: f, result: Result{Plan: &plan.Plan{}}}
		if _, err := p.Wait(); (err == nil) != known || (len(f.sent[1].held) > 0) != known {
			t.Errorf("event %T: error %v, places %v, want the places to be known: %v", event, err, f.sent[1].held,
				known)
		}
	}
}

// The first token of each block is written at the row where the block of its request begins. Only works with logits
// have a block.
func TestWhereBlocksBegin(t *testing.T) {
	var k picks
	works := []Draft{{Logits: true}, {}, {Logits: true, Sampled: 3}, {Logits: true}, {Logits: true, Sampled: 1}}
	k.begin(works, 100, 5, 1)
	if want := []int32{-1 - 105, 1, 0, 0, -1 - 115, 3, 0, 0}; !slices.Equal(k.list, want) {
		t.Errorf("list of words %v, want %v", k.list, want)
	}
}

// A batch replays every kind of choice that one of its works replays, whatever the order of the works.
func TestABatchReplaysWhatAnyWorkDoes(t *testing.T) {
	kinds := []plan.Replay{{}, {Selections: true}, {Experts: true}, {Selections: true, Experts: true}}
	for _, first := range kinds {
		for _, second := range kinds {
			var b plan.Batch
			for _, k := range []plan.Replay{first, second} {
				w := Work{Tokens: make([]int32, 5), Replay: replayOf(t, 0, 5)}
				w.Replay.Selections, w.Replay.Experts = k.Selections, k.Experts
				if err := w.choices(&b, &plan.Request{}); err != nil {
					t.Fatal(err)
				}
			}
			want := plan.Replay{Selections: first.Selections || second.Selections,
				Experts: first.Experts || second.Experts}
			if b.Replay != want {
				t.Errorf("works that replay %+v and %+v: the batch replays %+v", first, second, b.Replay)
			}
		}
	}
}

// drafting is a model with a drafting layer.
type drafting struct{ model.Model }

func (drafting) DraftHead() error { return nil }

// The kinds of passes for which memory is measured include every kind of pass that can run, with its largest sizes.
func TestTheKindsOfPasses(t *testing.T) {
	draws := func(list []plan.Most) []plan.Most {
		for i := range list {
			list[i].Draws = true
		}
		return list
	}
	limits := Limits{Rows: 100, Requests: 4, Prompts: 2, Context: 50, PromptLogits: 8}
	decodes := []plan.Most{{Rows: 4, Width: 1, Logits: 4}, {Rows: 8, Width: 2, Logits: 8},
		{Rows: 12, Width: 3, Logits: 12}}
	prompts := plan.Most{Rows: 100, Prompts: 2, Width: 3, Logits: 20}
	// Every device needs memory for passes of blocks.
	block := plan.Most{Pass: plan.PassBlock, Rows: 8, Width: 2, Logits: 8, Draws: true}
	chain := plan.Most{Pass: plan.PassChain, Rows: 4, Width: 1, Logits: 4}
	stored := plan.Most{Pass: plan.PassDraft, Rows: 100, Prompts: 2, Width: 3, Logits: 4}
	picked := plan.Most{Pass: plan.PassPick, Rows: 4, Width: 1, Logits: 4}
	for _, c := range []struct {
		what   string
		change func(l *Limits, cfg *plan.Config)
		want   []plan.Most
	}{
		{"drafts one by one", func(*Limits, *plan.Config) {}, append(slices.Clone(decodes), prompts, chain, stored)},
		{"drafts on a device that draws", func(l *Limits, _ *plan.Config) { l.Draws = true },
			draws(append(slices.Clone(decodes), prompts, chain, stored, picked))},
		{"blocks", func(_ *Limits, cfg *plan.Config) { cfg.Model.Block = 2 },
			append(slices.Clone(decodes), prompts, block)},
		{"blocks on a device that draws", func(l *Limits, cfg *plan.Config) { l.Draws, cfg.Model.Block = true, 2 },
			draws(append(slices.Clone(decodes), prompts, block))},
		{"no drafts", func(_ *Limits, cfg *plan.Config) { cfg.N = 0 },
			[]plan.Most{decodes[0], {Rows: 100, Prompts: 2, Width: 1, Logits: 12}}},
		{"few rows", func(l *Limits, cfg *plan.Config) { l.Rows, cfg.N = 3, 0 },
			[]plan.Most{{Rows: 3, Width: 1, Logits: 3}, {Rows: 3, Prompts: 2, Width: 1, Logits: 3}}},
		{"decodes alone", func(l *Limits, cfg *plan.Config) { l.Decodes, cfg.N = true, 0 }, decodes[:1]},
	} {
		l, cfg := limits, plan.Config{N: 3}
		c.change(&l, &cfg)
		want := slices.Clone(c.want)
		for i := range want {
			want[i].Requests, want[i].Context = l.Requests, l.Context
		}
		if got := l.kinds(drafting{}, &cfg); !slices.Equal(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.what, got, want)
		}
	}
	l := limits
	l.Record, l.Replay, l.RecordRows = plan.Record{Experts: true}, plan.Replay{Selections: true}, 6
	for _, k := range l.kinds(drafting{}, &plan.Config{N: 3})[:4] {
		if k.Record != l.Record || k.Replay != l.Replay || k.Recorded != min(6, k.Rows) ||
			k.Replayed != min(6, k.Rows) {
			t.Errorf("%+v", k)
		}
	}
}

// short is a model with few positions.
type short struct{ model.Model }

func (short) Config() *config.Config { return &config.Config{MaxPositions: 8} }

// A draft is refused if it names a row that the previous pass does not have, or a token beyond the last position. Every
// limit is tested with the last valid and the first invalid value.
func TestDraftsAreRefusedAtTheirEdges(t *testing.T) {
	r := &Runner{model: short{}}
	r.target.input.Tokens = [][]int32{make([]int32, 3), make([]int32, 4)}
	r.picks.most, r.ends.requests = 2, []int{0, -1}
	whole := Draft{Kind: plan.ModeDraft, Tokens: make([]int32, 3), Sampled: 1, Right: make([]Range, 2), Cached: 5,
		Logits: true, Draws: make([]sample.Draw, 3)}
	next := Draft{Kind: plan.ModeDraft, Tokens: make([]int32, 1), Cached: 7, Logits: true}
	for _, c := range []struct {
		what    string
		from    Draft
		chained bool
		change  func(d *Draft)
		ok      bool
	}{
		{"to the last position", whole, false, func(*Draft) {}, true},
		{"beyond it", whole, false, func(d *Draft) { d.Cached = 6 }, false},
		{"without cached tokens", whole, false, func(d *Draft) { d.Cached = 0 }, true},
		{"after a negative number of tokens", whole, false, func(d *Draft) { d.Cached = -1 }, false},
		{"without rows", next, false, func(d *Draft) { d.Tokens = nil }, false},
		{"rows of a prompt", next, false, func(d *Draft) { d.Kind = plan.ModeExtend }, true},
		{"rows of mode decode", next, false, func(d *Draft) { d.Kind = plan.ModeDecode }, false},
		{"hidden states of the last work", whole, false, func(d *Draft) { d.From = 1 }, true},
		{"hidden states of a work after the last", whole, false, func(d *Draft) { d.From = 2 }, false},
		{"hidden states of a work before the first", whole, false, func(d *Draft) { d.From = -1 }, false},
		{"more rows than the work has", whole, false,
			func(d *Draft) { d.Tokens, d.Cached = make([]int32, 4), 4 }, false},
		{"as many rows as another work has", whole, false,
			func(d *Draft) { d.Tokens, d.Cached, d.From = make([]int32, 4), 4, 1 }, true},
		{"sampled tokens without logits", whole, false, func(d *Draft) { d.Logits = false }, false},
		{"drafts that were not sampled", whole, false, func(d *Draft) { d.Sampled = 0 }, false},
		{"as many drafts as tokens", whole, false,
			func(d *Draft) { d.Tokens, d.Draws = make([]int32, 2), make([]sample.Draw, 3) }, false},
		{"more drafts than there is memory for", whole, false, func(d *Draft) {
			d.Tokens, d.Cached, d.From = make([]int32, 4), 4, 1
			d.Right, d.Draws = make([]Range, 3), make([]sample.Draw, 4)
		}, false},
		{"too few draws", whole, false, func(d *Draft) { d.Draws = d.Draws[:2] }, false},
		{"too many draws", whole, false, func(d *Draft) { d.Draws = make([]sample.Draw, 4) }, false},
		{"no draws", whole, false, func(d *Draft) { d.Draws = nil }, true},
		{"a chain", next, true, func(*Draft) {}, true},
		{"a chain of two rows", next, true, func(d *Draft) { d.Tokens, d.Cached = make([]int32, 2), 0 }, false},
		{"a chain without logits", next, true, func(d *Draft) { d.Logits = false }, false},
		{"a chain after a row without logits", next, true, func(d *Draft) { d.From = 1 }, false},
		{"a chain after no row", next, true, func(d *Draft) { d.From = 2 }, false},
		{"a chain after a row before the first", next, true, func(d *Draft) { d.From = -1 }, false},
		{"a chain with sampled tokens", next, true, func(d *Draft) { d.Sampled = 1 }, false},
	} {
		d := c.from
		c.change(&d)
		if err := r.checkDrafts([]Draft{d}, c.chained); (err == nil) != c.ok {
			t.Errorf("%s: error %v, want the draft to be accepted: %v", c.what, err, c.ok)
		}
	}
	r.cfg.Model.Block = 2
	if r.checkDrafts([]Draft{next}, true) == nil {
		t.Error("a chain of blocks is accepted")
	}
	whole.Draws = make([]sample.Draw, 4)
	if err := r.checkDrafts([]Draft{whole}, false); err != nil {
		t.Errorf("a block: error %v", err)
	}
}

// chosen is a pass that has chosen the given number of tokens.
type chosen struct {
	model.Pass
	out model.Outputs
}

func (p *chosen) Outputs() *model.Outputs { return &p.out }

// The next pass can read the tokens of the latest pass only: after a pass that chose no token, there are none.
func TestTokensOfAnOlderPassAreForgotten(t *testing.T) {
	some := &pass{plan: &plan.Plan{Pass: plan.PassTarget}, Pass: &chosen{}}
	some.Outputs().Best.IDs = kernel.Tensor{DType: kernel.I32, Rows: 3, Cols: 1, Stride: 1,
		Buf: kernel.HostBuffer(make([]byte, 12))}
	none := &pass{plan: &plan.Plan{Pass: plan.PassTarget}, Pass: &chosen{}}
	for _, f := range []feed{{from: some}, {saved: 2}, {}} {
		f.table, f.kind = some.Outputs().Best.IDs, plan.PassTarget
		if f.remember(some); f.chosen().Rows != 3 || f.want(0, 0, 3, plan.PassTarget) != nil {
			t.Errorf("%d tokens were chosen, want 3", f.chosen().Rows)
		}
		if f.remember(none); f.from != nil || f.saved != 0 || f.want(0, 0, 1, plan.PassTarget) == nil {
			t.Errorf("%d tokens of an older pass can still be read, want 0", f.saved)
		}
		f.saved = 2
		if f.remember(none); f.saved != 0 {
			t.Errorf("%d saved tokens of an older pass can still be read, want 0", f.saved)
		}
	}
}
