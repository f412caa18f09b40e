package sched

import (
	"slices"
	"testing"
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/kv"
)

// Invariants of this file: functions that only compute values return the right values.

// Prompts that run or wait get at least half of the remaining tokens of a batch, and at least one token each.
func TestTheShareOfDrafts(t *testing.T) {
	o := &roster{limits: Limits{MaxPrompts: 4, Grain: 1}}
	f := &forming{roster: o}
	if got := f.draftBudget(9); got != 9 {
		t.Errorf("%d of 9 tokens are for drafts if no prompt is computed", got)
	}
	o.waiting = []*Sequence{{}}
	for left, want := range map[int]int{20: 10, 9: 4, 8: 4, 6: 2, 4: 0, 3: 0} {
		if got := f.draftBudget(left); got != want {
			t.Errorf("%d of %d tokens are for drafts, want %d", got, left, want)
		}
	}
	o.waiting, o.running = nil, []*Sequence{{}} // a running prompt that is not in the batch
	if got := f.draftBudget(20); got != 10 {
		t.Errorf("%d of 20 tokens are for drafts while a prompt runs", got)
	}
	o.limits.Grain = 16
	for left, want := range map[int]int{300: 150, 100: 36, 64: 0, 20: 0} {
		if got := f.draftBudget(left); got != want {
			t.Errorf("%d of %d tokens are for drafts if prompts are cut at multiples of 16, want %d", got, left, want)
		}
	}
}

// A prompt gets an even share of the tokens, rounded up, and of the rows of logits; a short prompt gets up to half.
// Each of the other prompts gets at least Limits.Grain tokens.
func TestTheShareOfAPrompt(t *testing.T) {
	f := &forming{roster: &roster{limits: Limits{BatchTokens: 64, MaxPrompts: 4}}}
	for _, c := range []struct{ grain, prompt, scored, tokens, logits, prompts, want int }{
		{1, 100, 0, 10, 0, 3, 4}, {1, 100, 0, 9, 0, 3, 3}, {1, 100, 0, 64, 0, 1, 64}, {1, 5, 0, 64, 0, 1, 5},
		{1, 16, 0, 21, 0, 4, 11}, {1, 17, 0, 21, 0, 4, 6}, {1, 100, 0, 4, 0, 4, 1}, {1, 16, 0, 4, 0, 4, 1},
		{1, 100, 90, 64, 7, 2, 14}, {1, 100, 90, 64, 8, 2, 14}, {1, 100, 90, 20, 7, 2, 10}, {1, 100, 1, 64, 0, 2, 32},
		{16, 16, 0, 64, 0, 4, 16}, {16, 100, 0, 40, 0, 2, 20}, {4, 16, 0, 21, 0, 4, 9}, {16, 100, 90, 64, 18, 2, 26},
		{16, 100, 90, 64, 9, 2, 19},
	} {
		f.roster.limits.Grain = c.grain
		q := &Sequence{Tokens: make([]int32, c.prompt), Logits: c.scored}
		if got := f.share(q, c.tokens, c.logits, c.prompts); got != c.want {
			t.Errorf("case %+v: the prompt gets %d tokens", c, got)
		}
	}
}

// A slow batch counts as delayed by prompts only if its prompts had been cut to the smallest chunk.
func TestADelayIsThatOfTheSmallestChunk(t *testing.T) {
	for _, smallest := range []bool{false, true} {
		f, err := newFake(64, 4, Limits{BatchTokens: 64, MaxRunning: 4, MaxStall: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var w cost.Work
		w.AddPrompt(SmallestChunk, 0, 0)
		for i := range 2 * enoughMeasured {
			f.sched.Took(Load{load{Work: w, smallest: smallest}}, time.Second)
			if got, told := f.sched.Stall(), smallest && i+1 >= enoughMeasured; (got > 0) != told {
				t.Errorf("smallest %v, %d batches of one second: Stall returned %v", smallest, i+1, got)
			}
		}
	}
}

// A batch of only background sequences takes at most a quarter of the maximum time of other batches.
func TestBatchesOfTheBackgroundAreShort(t *testing.T) {
	tokens := func(background bool) int {
		m := machine{batch: func(_, _, p, _ float64) float64 { return 1e-3 + 1e-3*p }, step: 512}
		g := newRig(t, &m, 200*time.Millisecond, false)
		add := func(owner string, n int) {
			if err := g.s.Add(&Sequence{Tokens: make([]int32, n), Owner: owner, Background: background}); err != nil {
				t.Fatal(err)
			}
		}
		add("stream", 8)
		for range 40 {
			g.step(t)
			add("prompt", 150)
		}
		g.prompts = 0
		add("prompt", 4000)
		g.step(t)
		return g.prompts
	}
	if others, background := tokens(false), tokens(true); others < 3*background || others > 5*background {
		t.Errorf("a background batch has %d tokens of a prompt, other batches have %d", background, others)
	}
}

// At most as many suspended sequences as may run keep their pages. If other sequences need pages, the most recently
// kept pages are released first.
func TestTheLatestKeptPagesGoFirst(t *testing.T) {
	f, err := newFake(64, 4, Limits{BatchTokens: 64, MaxRunning: 3, KeepSuspended: true})
	if err != nil {
		t.Fatal(err)
	}
	var list []*Sequence
	for i := range 3 {
		q := &Sequence{Tokens: []int32{int32(i), 2, 3}}
		if list = append(list, q); f.add(q, 9) != nil {
			t.Fatal("the sequence was not added")
		}
	}
	step(t, f)
	o := f.sched.roster
	o.limits.MaxRunning = 2
	for i, q := range list {
		if o.suspend(q); f.sched.Kept() != min(i+1, 2) {
			t.Errorf("%d of %d suspended sequences have kept their pages", f.sched.Kept(), i+1)
		}
	}
	if len(o.kept) != 2 || o.kept[0] != list[0] || o.kept[1] != list[1] {
		t.Fatalf("%d sequences have kept their pages", len(o.kept))
	}
	if !o.giveUpForAnother(list[2]) || len(o.kept) != 1 || o.kept[0] != list[0] {
		t.Error("the pages that were kept longest were released first")
	}
	if o.giveUpForAnother(list[0]) || len(o.kept) != 1 {
		t.Error("a sequence's kept pages were released for the sequence itself")
	}
}

// The method in returns the part of a span that lies in a chunk of a prompt, relative to the chunk.
func TestTheSpanOfAChunk(t *testing.T) {
	s := Span{From: 5, To: 12}
	for _, c := range []struct {
		at, n int
		want  Span
	}{
		{0, 5, Span{}}, {0, 6, Span{5, 6}}, {0, 20, Span{5, 12}}, {5, 3, Span{0, 3}}, {8, 3, Span{0, 3}},
		{8, 4, Span{0, 4}}, {8, 9, Span{0, 4}}, {11, 5, Span{0, 1}}, {12, 5, Span{}}, {20, 5, Span{}},
	} {
		if got := s.in(c.at, c.n); got != c.want {
			t.Errorf("%d positions from %d on: span %v, want %v", c.n, c.at, got, c.want)
		}
	}
}

// A batch takes all rows of a chunk before the recorded span, and as many rows of the span as it may record and replay.
func TestTheRoomOfABatch(t *testing.T) {
	for _, c := range []struct {
		room           room
		record, replay Span
		at, n, want    int
	}{
		{room{3, 3}, Span{}, Span{}, 0, 9, 9},
		{room{3, 3}, Span{From: 4, To: 20}, Span{}, 0, 9, 7},
		{room{3, 3}, Span{}, Span{From: 4, To: 20}, 0, 9, 7},
		{room{3, 3}, Span{From: 4, To: 20}, Span{From: 2, To: 20}, 0, 9, 5},
		{room{3, 2}, Span{From: 4, To: 20}, Span{From: 5, To: 20}, 0, 9, 7},
		{room{0, 0}, Span{From: 4, To: 20}, Span{}, 0, 9, 4},
		{room{0, 0}, Span{From: 4, To: 20}, Span{}, 4, 9, 0},
		{room{0, 0}, Span{From: 4, To: 20}, Span{}, 20, 9, 9},
		{room{3, 3}, Span{From: 4, To: 6}, Span{}, 0, 9, 9},
		{room{3, 3}, Span{From: 4, To: 20}, Span{}, 6, 9, 3},
	} {
		q := &Sequence{Record: c.record, Replay: c.replay}
		left := c.room
		if got := left.most(q, c.at, c.n); got != c.want {
			t.Errorf("room %+v, record %v, replay %v: %d of %d positions from %d on fit, want %d", c.room, c.record,
				c.replay,
				got, c.n, c.at, c.want)
		}
		if left.take(q, c.at, c.want); left.record < 0 || left.replay < 0 ||
			left.record != c.room.record-c.record.in(c.at, c.want).len() ||
			left.replay != c.room.replay-c.replay.in(c.at, c.want).len() {
			t.Errorf("room %+v, record %v, replay %v: room %+v is left", c.room, c.record, c.replay, left)
		}
	}
}

// The youngest sequence of an account's largest request is suspended. Among equally large requests it is the youngest
// sequence of all, and it is never the oldest of the account.
func TestTheYoungestOfTheLargestRequest(t *testing.T) {
	for _, c := range []struct {
		requests []int // request of each sequence, in order of arrival
		want     int
	}{
		{[]int{1}, -1}, {[]int{1, 2}, 1}, {[]int{1, 2, 3}, 2}, {[]int{1, 1, 2, 2}, 3}, {[]int{1, 2, 1, 2, 1}, 4},
		{[]int{1, 1, 1, 2, 2}, 2}, {[]int{2, 1, 1, 3}, 2}, {[]int{1, 2, 2, 1, 3}, 3},
	} {
		f := newTestFake(t, 1000, 4, Limits{BatchTokens: 64, MaxRunning: 8, MaxPrompts: 8})
		var list []*Sequence
		for i, r := range c.requests {
			list = append(list, mustAdd(t, f, &Sequence{Tokens: prompt(int32(100*i), 3), Tenant: "a", Request: r}, 40))
		}
		for len(f.sched.roster.running) < len(list) {
			mustStep(t, f)
		}
		got := slices.Index(list, f.sched.roster.youngestOf(list[0].tenant(), (*Sequence).tenant, -1))
		if got != c.want {
			t.Errorf("requests %v: sequence %d, want %d", c.requests, got, c.want)
		}
		if f.sched.roster.youngestOf(list[0].tenant(), (*Sequence).tenant, 1) != nil {
			t.Errorf("requests %v: a sequence of another rank was returned", c.requests)
		}
	}
}

// A batch with prompts has at least the smallest chunk of their tokens, Limits.Grain tokens for each prompt, and no
// more than it may.
func TestTheLeastTokensOfPrompts(t *testing.T) {
	for _, c := range []struct{ grain, prompts, most, want int }{{1, 0, 100, SmallestChunk},
		{1, 1, 100, SmallestChunk}, {1, SmallestChunk, 100, SmallestChunk},
		{1, SmallestChunk + 1, 100, SmallestChunk + 1}, {1, 80, 100, 80}, {1, 1, 5, 5}, {1, 80, 50, 50},
		{16, 4, 100, 64}, {16, 1, 100, SmallestChunk}, {16, 4, 50, 50}} {
		f := &forming{roster: &roster{limits: Limits{Grain: c.grain}}, prompts: make([]*Sequence, c.prompts),
			begun: make([]*Sequence, 7)}
		if got := f.leastTokens(c.most); got != c.want {
			t.Errorf("%d prompts, at most %d tokens: at least %d, want %d", c.prompts, c.most, got, c.want)
		}
	}
}

// Spans of recorded and of replayed rows are checked, each by itself.
func TestSpansOfSequencesAreChecked(t *testing.T) {
	for _, rows := range []int{0, 4} {
		f := newTestFake(t, 8, 4, Limits{BatchTokens: 8, MaxRunning: 4, RecordRows: rows})
		for _, c := range []struct {
			span Span
			ok   bool
		}{{Span{}, true}, {Span{1, 3}, rows > 0}, {Span{2, 2}, rows > 0}, {Span{-1, 3}, false}, {Span{3, 2}, false},
			{Span{-2, -1}, false}} {
			for name, q := range map[string]*Sequence{"record": {Record: c.span}, "replay": {Replay: c.span}} {
				q.Tokens = prompt(0, 4)
				if err := f.sched.Add(q); (err == nil) != c.ok {
					t.Errorf("%s %v, at most %d rows of a batch: error %v", name, c.span, rows, err)
				}
			}
		}
	}
}

// A prompt leaves the window pages that the prompts after it in a batch need at least: two prompts that share too few
// window pages have chunks of equal length.
func TestAChunkLeavesWindowPagesForOthers(t *testing.T) {
	window := kv.Window{Pages: 5, Tokens: 4}
	f, err := newWindowed(20, 4, window, Limits{BatchTokens: 32, MaxRunning: 4, MaxPrompts: 2})
	if err != nil {
		t.Fatal(err)
	}
	first := mustAdd(t, f, &Sequence{Tokens: prompt(0, 16)}, 17)
	second := mustAdd(t, f, &Sequence{Tokens: prompt(50, 16)}, 17)
	items := mustStep(t, f)
	for i, q := range []*Sequence{first, second} {
		if it := find(items, q); it == nil || len(it.Tokens) != 8 {
			t.Errorf("prompt %d has the item %+v, want eight tokens", i, it)
		}
	}
	for len(f.goals) > 0 {
		mustStep(t, f)
	}
}

// As many long prompts as a batch may have are in progress, although other tenants were served less. One more begins
// for each tenant that has none in progress while another tenant has two.
func TestLongPromptsInProgress(t *testing.T) {
	for _, c := range []struct {
		tenants, later string // tenant of each prompt, and of those that arrive two batches later
		want           int
	}{{"abc", "", 2}, {"ab", "cd", 2}, {"aa", "a", 2}, {"aa", "b", 3}, {"aa", "bcd", 5}, {"ab", "ab", 2}} {
		f := newTestFake(t, 1000, 4, Limits{BatchTokens: 32, MaxRunning: 8, MaxPrompts: 2})
		most := 0
		for _, tenants := range []string{c.tenants, c.later} {
			for i, tenant := range tenants {
				tokens := prompt(int32(1000*(f.steps+i)), 400)
				mustAdd(t, f, &Sequence{Tokens: tokens, Tenant: string(tenant)}, 402)
			}
			for range 2 {
				mustStep(t, f)
				most = max(most, f.sched.Running())
			}
		}
		for range 8 {
			mustStep(t, f)
			most = max(most, f.sched.Running())
		}
		if most != c.want {
			t.Errorf("prompts of tenants %s, then %s: up to %d are in progress, want %d", c.tenants, c.later, most,
				c.want)
		}
	}
}
