package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
	"sparrow/sample"
)

// Invariants of this file: functions that only compute values return the right values. Each test compares complete
// results.

// queuedJob returns a job of an engine whose loop does not run.
func queuedJob(t *testing.T, e *Engine, r Request) *Job {
	t.Helper()
	j := open(t, e, r)
	e.loop.receive()
	return j
}

// Steps that are smaller than a group of positions of linear attention are refused.
func TestStepsHoldAGroup(t *testing.T) {
	for _, c := range []struct {
		group, step int
		says        string
	}{{0, 1, ""}, {16, 16, ""}, {16, 15, "--step-tokens 15: linear attention of prompts is computed in groups of 16 " +
		"positions, which need at least 16 tokens in a step; set --step-tokens 16 or more, or --deterministic"}} {
		err := groupsFit(&plan.Config{LinearGroup: c.group}, c.step)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// For each pass, account adds the tokens, records the time of the first token, and sends the events in order. Progress
// does not decrease, although a preempted sequence has fewer tokens in the cache.
func TestAPassIsAccountedOnce(t *testing.T) {
	clock := &paced{}
	e, _ := prepared(t, testmodel.V32(t), Config{Clock: clock})
	j := queuedJob(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9, Trace: true})
	c, p := j.choices[0], &plan.Plan{}
	j.computed = 7
	clock.at.Store(1)
	e.loop.account(&sched.Item{Seq: &c.seq}, p, nil, nil)
	if !j.first.IsZero() {
		t.Error("the time of the first token was set by a pass without a token")
	}
	clock.at.Store(2)
	e.loop.account(&sched.Item{Seq: &c.seq, Last: true}, p, outcomesOf(3, 4), nil)
	clock.at.Store(3)
	e.loop.account(&sched.Item{Seq: &c.seq, Last: true}, &plan.Plan{}, outcomesOf(5), nil)
	if computed, cached := j.Progress(); computed != 7 || cached != 0 {
		t.Errorf("%d tokens are computed, %d of them cached", computed, cached)
	}
	if want := time.Unix(1000, 2); !j.first.Equal(want) {
		t.Errorf("the first token came at %v, want %v", j.first, want)
	}
	if j.usage.CompletionTokens != 3 || e.Stats().OutputTokens != 3 || j.usage.PromptTokens != 9 {
		t.Errorf("usage %+v, %d tokens in total", j.usage, e.Stats().OutputTokens)
	}
	if got := j.trace; got.Steps != 3 || len(got.Plans) != 2 || got.Plans[0] != (PlanUse{p, 2}) ||
		got.Plans[1].Steps != 1 {
		t.Errorf("the trace has %d steps with plans %v", got.Steps, got.Plans)
	}
	for i := range int32(3) {
		if ev, ok := j.Poll(); !ok || ev.Token != 3+i {
			t.Errorf("event %d: %+v", i, ev)
		}
	}
	if _, ok := j.Poll(); ok {
		t.Error("there are more events than tokens")
	}
}

// A trace lists the periods in which a choice was suspended: from the latest batch before a preemption to the next
// batch.
func TestATraceHasSuspensions(t *testing.T) {
	e, _ := prepared(t, testmodel.V32(t), Config{Clock: &paced{}})
	j := queuedJob(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9, Trace: true})
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	c := j.choices[0]
	if j.arrived = at(4); j.Waited() != 996*time.Second {
		t.Errorf("at 1000 s a request that arrived at 4 s has waited for %v", j.Waited())
	}
	c.seq.Match, c.restored = kv.Match{Tokens: 5, Prompt: 9}, Restored{Tokens: 3}
	before := *e.inbox
	for i, preempted := range []int{0, 0, 1, 1, 3} {
		c.seq.Preempted = preempted
		e.loop.noteAdmitted([]sched.Item{{Seq: &c.seq}}, at(int64(10+i)))
	}
	if want := []Period{{at(11), at(12)}, {at(13), at(14)}}; !slices.Equal(j.trace.Suspended, want) {
		t.Errorf("suspended periods %v, want %v", j.trace.Suspended, want)
	}
	if !j.admitted.Equal(at(10)) || j.usage.CachedTokens != 8 || j.computed != 8 || c.match != c.seq.Match {
		t.Errorf("admitted at %v, usage %+v, %d tokens computed, match %v", j.admitted, j.usage, j.computed, c.match)
	}
	if j.Waited() != 6*time.Second {
		t.Errorf("the request waited for %v", j.Waited())
	}
	if st := e.Stats(); st.PromptTokens != 9 || st.CachedTokens != 8 {
		t.Errorf("%d prompt tokens, %d cached", st.PromptTokens, st.CachedTokens)
	}
	if before.queued.waiting != 1 || e.inbox.queued.waiting != 0 || e.inbox.waits.jobs != 0 {
		t.Errorf("%d sequences queued before, then %d and %d", before.queued.waiting, e.inbox.queued.waiting,
			e.inbox.waits.jobs)
	}
}

// If the choices of a request end in different ways, the request counts as failed if one choice failed, otherwise as
// cancelled if one choice was cancelled. The last event is that of the last choice.
func TestTheEndOfARequestIsCountedOnce(t *testing.T) {
	for _, c := range []struct {
		ends []Finish
		want [3]int64 // numbers of finished, aborted and failed requests
	}{
		{[]Finish{FinishStop, FinishLength}, [3]int64{1, 0, 0}},
		{[]Finish{FinishStop, FinishCancelled}, [3]int64{0, 1, 0}},
		{[]Finish{FinishCancelled, FinishStop}, [3]int64{0, 1, 0}},
		{[]Finish{FinishError, FinishCancelled}, [3]int64{0, 0, 1}},
		{[]Finish{FinishCancelled, FinishError}, [3]int64{0, 0, 1}},
		{[]Finish{FinishError, FinishStop}, [3]int64{0, 0, 1}},
	} {
		released := 0
		e, _ := prepared(t, testmodel.V32(t), Config{})
		r := Request{Prompt: tokens(1, 9), Sampling: seeded(1), MaxTokens: 9,
			Guide: Guide{Release: func() { released++ }}}
		r.Sampling.N = 2
		j := queuedJob(t, e, r)
		j.choices[1].matched = "stop"
		for i, why := range c.ends {
			e.tally.Lock()
			e.loop.end(j.choices[i], why, nil)
			e.loop.end(j.choices[i], FinishError, errFault) // has no effect, because the choice has ended
			e.loop.conclude(j.choices[i], FinishError, errFault)
			e.tally.Unlock()
			ev, _ := j.Poll()
			want := Event{Choice: i, Token: -1, Finish: why, Last: i == 1, Matched: []string{"", "stop"}[i]}
			if !reflect.DeepEqual(ev, want) || released != i {
				t.Errorf("%v: event %+v, want %+v; released %d times", c.ends, ev, want, released)
			}
		}
		if st := e.Stats(); [3]int64{st.Finished, st.Aborted, st.Failed} != c.want || st.Waiting != 0 {
			t.Errorf("%v: %d requests finished, %d aborted, %d failed, %d wait; want %v", c.ends, st.Finished,
				st.Aborted,
				st.Failed, st.Waiting, c.want)
		}
	}
}

// The function Admit gets the number of all tokens of a request, and a request that it refuses is not counted.
func TestAdmitIsToldTheGivenTokens(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	told := 0
	r := Request{Prompt: tokens(1, 9), Sampling: greedy(), Admit: func(n int) error { told = n; return errFault }}
	for _, c := range []struct {
		score *Score
		want  int
	}{{nil, 9}, {&Score{Continuations: [][]int32{tokens(2, 3), tokens(3, 4)}}, 16}} {
		r.Score = c.score
		if _, err := e.Submit(r); !errors.Is(err, errFault) || told != c.want {
			t.Errorf("Admit was called with %d tokens, want %d; error %v", told, c.want, err)
		}
	}
	if st := e.Stats(); st.Requests != 0 || st.Waiting != 0 || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

// Rows that were found in the cache are reported once as cached, if they are in the recorded range.
func TestCachedRowsAreNotComputed(t *testing.T) {
	for _, c := range []struct {
		from, to, cached int
		want             []record.Range
	}{{10, 20, 128, []record.Range{{10, 20}}}, {10, 200, 128, []record.Range{{10, 128}}}, {0, 4, 0, nil},
		{128, 130, 128, nil}, {127, 130, 128, []record.Range{{127, 128}}}} {
		j := &Job{setup: &setup{}}
		j.queue.init()
		x := &choice{job: j, index: 2, recording: &step.Recording{},
			seq: sched.Sequence{Record: sched.Span{From: c.from, To: c.to}}}
		it := &sched.Item{Seq: &x.seq, Cached: c.cached, Tokens: tokens(1, 4)}
		for range 2 {
			if err := x.keep(it, step.Result{}, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		ev, ok := j.Poll()
		if ok != (c.want != nil) || ok && (!slices.Equal(ev.Recorded.NotComputed, c.want) || ev.Token != -1 ||
			ev.Choice != 2 || len(ev.Recorded.Rows) != 0) {
			t.Errorf("%+v: %+v", c, ev)
		}
		if _, again := j.Poll(); again {
			t.Errorf("%+v: the cached rows were reported twice", c)
		}
	}
}

// A row is recorded once: the next row to record follows the latest one, up to the end of the requested range.
func TestTheNextRowToRecord(t *testing.T) {
	for _, c := range []struct {
		r    Record
		want [3]int // after each token
	}{{Record{Tokens: RecordAll}, [3]int{9, 10, 11}}, {Record{}, [3]int{9, 10, 11}},
		{Record{Tokens: RecordRange, From: 2, To: 10}, [3]int{9, 10, 10}},
		{Record{Tokens: RecordRange, From: 10, To: 20}, [3]int{10, 10, 11}}} {
		e := still(t, testmodel.V32(t), Config{})
		running(t, e)
		c.r.Experts = true
		j := open(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true, Record: &c.r})
		for i, want := range c.want {
			if e.iterations(1); j.choices[0].seq.Record.From != want {
				t.Errorf("%+v: row %d is next after %d tokens, want %d", c.r, j.choices[0].seq.Record.From, i+1, want)
			}
		}
		j.Cancel()
		e.loop.receive()
	}
}

// A request drafts as many tokens as it requests, an adaptive number if it requests none, and nothing for 0.
func TestTheDraftsOfARequest(t *testing.T) {
	for _, off := range []bool{false, true} {
		in := &intake{drafts: spec.New(spec.Auto(), 0)}
		if off {
			in.drafts = nil
		}
		for asked := -1; asked < 4; asked++ {
			r := &Request{Draft: &asked}
			if asked < 0 {
				r.Draft = nil
			}
			got := in.draftsFor(r)
			if got.Active() != (!off && asked != 0) || got.Adapts() != (!off && asked < 0) ||
				!off && asked >= 0 && got.Depth(1) != asked {
				t.Errorf("drafting off %v, %d asked for: active %v, adaptive %v, %d drafts", off, asked, got.Active(),
					got.Adapts(), got.Depth(1))
			}
		}
	}
}

// Layers and positions of records just outside the valid range are refused.
func TestRecordsAreRefusedAtTheirEdges(t *testing.T) {
	in := still(t, tinyGLM, Config{CacheTokens: 1024}).intake
	layers := in.info.Config.Model.Layers
	for _, c := range []struct {
		r    Record
		want string // name of the refused field; empty if the record is valid
	}{
		{Record{}, "sparrow"},
		{Record{Experts: true}, ""},
		{Record{Selections: true, Layers: []int{0, layers - 1}}, ""},
		{Record{Selections: true, Layers: []int{layers}}, "sparrow.selections.layers"},
		{Record{Selections: true, Layers: []int{-1}}, "sparrow.selections.layers"},
		{Record{Selections: true, Tokens: RecordRange, From: 0, To: 1}, ""},
		{Record{Selections: true, Tokens: RecordRange, From: 1, To: 1}, "sparrow.selections.tokens"},
		{Record{Selections: true, Tokens: RecordRange, From: -1, To: 1}, "sparrow.selections.tokens"},
	} {
		_, err := in.checkRecord(&Request{Prompt: tokens(1, 9), Sampling: greedy(), Record: &c.r}, 2)
		var got *RequestError
		if errors.As(err, &got); (err == nil) != (c.want == "") || err != nil && got.Field != c.want {
			t.Errorf("record %+v: error %v, want %q", c.r, err, c.want)
		}
	}
	for _, c := range []struct {
		r    Record
		want sched.Span
	}{{Record{}, sched.Span{From: 8, To: 1<<63 - 1}}, {Record{Tokens: RecordAll}, sched.Span{To: 1<<63 - 1}},
		{Record{Tokens: RecordRange, From: 2, To: 5}, sched.Span{From: 2, To: 5}}} {
		if got := c.r.span(9); got != c.want {
			t.Errorf("record %+v: span %v, want %v", c.r, got, c.want)
		}
	}
}

// Before the minimum length, tokens that end a choice are not allowed unless they are the only allowed tokens.
func TestEndsAreRemovedWhereMoreIsAllowed(t *testing.T) {
	noEnd := sample.Mask{^uint64(1 << 3), ^uint64(1)}
	for _, c := range []struct{ mask, want sample.Mask }{
		{sample.Mask{1 << 3, 1}, sample.Mask{1 << 3, 1}},
		{sample.Mask{1 << 3, 3}, sample.Mask{0, 2}},
		{sample.Mask{1<<3 | 1<<4, 1}, sample.Mask{1 << 4, 0}},
	} {
		l := constraint{mask: slices.Clone(c.mask), noEnd: noEnd}
		if l.removeEnds(); !slices.Equal(l.mask, c.want) {
			t.Errorf("mask %x remains of %x, want %x", l.mask, c.mask, c.want)
		}
	}
}

// Reasoning has exactly its maximum number of tokens, and the tokens after its end are not constrained.
func TestReasoningEndsAtItsLimit(t *testing.T) {
	w := vocabulary(t)
	four, _ := w.TokenID("4")
	end, ok := w.TokenID("</think>")
	if !ok {
		t.Fatal("the vocabulary has no token that ends reasoning")
	}
	e := still(t, "", Config{})
	r := ask(t, "How many?")
	r.Guide = Guide{ReasoningEnd: end, MaxReasoning: 2}
	for i, out := range advanced(t, e, r, four, four, four, four, four) {
		if want := []int32{four, four, end, four, four}[i]; out.event.Token != want || out.finish != "" {
			t.Errorf("token %d is %d, want %d", i, out.event.Token, want)
		}
	}
	for i, out := range advanced(t, e, r, end, four, four, four) { // reasoning of this request ends before its limit
		if want := []int32{end, four, four, four}[i]; out.event.Token != want {
			t.Errorf("token %d is %d, want %d", i, out.event.Token, want)
		}
	}
}

// told counts the calls of a listener.
type told struct {
	roots, cleared  int
	stored, removed []byte
}

func (x *told) Root(prefix.Hash)       { x.roots++ }
func (x *told) Stored(s prefix.Stored) { x.stored = append(x.stored, s.Hash[0]) }
func (x *told) Removed(h prefix.Hash)  { x.removed = append(x.removed, h[0]) }
func (x *told) Cleared()               { x.cleared++ }

// Several pools call a listener as one pool would: a page is reported as stored with the first pool and as removed with
// the last, and all pools are cleared together.
func TestPoolsTellAsOne(t *testing.T) {
	x := &told{}
	o := &onceStored{Listener: x, of: 3, pools: map[prefix.Hash]int{}}
	for range 3 {
		o.Root(prefix.Hash{})
	}
	a, b := prefix.Hash{1}, prefix.Hash{2}
	for _, h := range []prefix.Hash{a, a, b} {
		o.Stored(prefix.Stored{Hash: h})
	}
	o.Removed(a)
	o.Removed(b)
	if x.roots != 1 || !slices.Equal(x.stored, []byte{1, 2}) || !slices.Equal(x.removed, []byte{2}) {
		t.Errorf("%d roots, stored %v, removed %v", x.roots, x.stored, x.removed)
	}
	for i := range 6 {
		if o.Cleared(); x.cleared != 1+i/3 {
			t.Errorf("cleared %d times after %d pools", x.cleared, i+1)
		}
	}
	o.Stored(prefix.Stored{Hash: a}) // the page was cleared with the other pages and is stored again
	if o.Removed(a); !slices.Equal(x.stored, []byte{1, 2, 1}) || !slices.Equal(x.removed, []byte{2, 1}) {
		t.Errorf("after clearing: stored %v, removed %v", x.stored, x.removed)
	}
	if len(o.pools) != 0 {
		t.Errorf("pages that no pool has are remembered: %v", o.pools)
	}
}

// A cache in host memory has the largest number of pages that fit into a quarter of the free memory.
func TestACacheTakesAQuarterOfFreeMemory(t *testing.T) {
	for _, dir := range []string{testmodel.V32(t), testmodel.V4(t)} {
		e := still(t, dir, Config{CacheTokens: 256, StepTokens: 16, MaxRunning: 2, RecordBytes: -1})
		s := *e.setup
		s.cfg.CacheTokens, s.cfg.WeightBytes = 0, 0
		cfg := s.info.Config
		// In this test passes need little of the free memory, and four contexts would need more than a quarter of it.
		pages := min(90, 2*s.model.Config().MaxPositions/cfg.Page)
		z := &sizing{setup: &s}
		most := z.cacheOf(&cfg, pages).bytes
		z.free = 4*most + 3
		z.total = 100 * z.free
		if more := z.cacheOf(&cfg, pages+1); more.total() > spare(z.free, 0) {
			t.Fatalf("%s: passes take %d bytes and states %d bytes of %d free bytes", dir, more.arena, more.states,
				z.free)
		}
		if got, err := z.sizeCache(&cfg); err != nil || got.pages != pages || got.bytes != most {
			t.Errorf("%s: %+v, %v; want %d pages in %d bytes", dir, got, err, pages, most)
		}
	}
	for _, c := range []struct{ memory, weights, want int64 }{{800, 100, 600}, {800, 400, 350}, {800, 0, 700}} {
		if got := spare(c.memory, c.weights); got != c.want {
			t.Errorf("spare returned %d bytes of %d bytes of memory with %d bytes of weights, want %d", got, c.memory,
				c.weights, c.want)
		}
	}
}

// Tokens of a prompt are computed densely up to the threshold of the plan, if the plan has one.
func TestThePromptThreshold(t *testing.T) {
	for dense, want := range map[bool]int{true: 5, false: 0} {
		if got := threshold(&plan.Config{DenseOK: dense, T: 5}); got != want {
			t.Errorf("dense %v: threshold returned %d, want %d", dense, got, want)
		}
	}
}

// Each draft of a block is sampled with the random number of its own position, like a token of a later pass at that
// position.
func TestDrawsAreThoseOfTheirPositions(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	s := *e.setup
	s.draws = true
	r := Request{Prompt: tokens(1, 9), Sampling: seeded(7), MaxTokens: 9}
	j, err := (&intake{setup: &s}).prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	c := j.choices[0]
	for ahead := range 3 {
		for i, got := range c.draw(&c.draws, ahead, 3) {
			if want := c.sampler.Draw(ahead + i); !reflect.DeepEqual(got, want) {
				t.Errorf("draw %d with %d tokens ahead: %+v, want %+v", i, ahead, got, want)
			}
		}
	}
	list := c.drawBlock(1, 3)
	for i, got := range list {
		if want := c.sampler.Draw(1 + i); !reflect.DeepEqual(got, want) || i > 0 && reflect.DeepEqual(got, list[0]) {
			t.Errorf("draft %d: %+v, want %+v", i, got, want)
		}
	}
	if len(list) != 3 || len(c.draw(&c.draws, 0, 2)) != 2 {
		t.Errorf("drawBlock returned %d draws", len(list))
	}
	if j, err = (&intake{setup: &s}).prepare(Request{Prompt: tokens(1, 9), Sampling: greedy()}); err != nil {
		t.Fatal(err)
	}
	if c := j.choices[0]; c.draw(&c.draws, 0, 1) != nil || c.drawBlock(0, 2) != nil {
		t.Error("drawBlock returned draws although the best token is taken")
	}
}

// Every work of the drafting layer samples its drafts with the random numbers of their positions, whether the host has
// the tokens before them or not.
func TestDraftsAreDrawnAtTheirPositions(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	s := *e.setup
	s.draws = true
	for _, sampled := range []bool{true, false} {
		r := Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 90}
		if sampled {
			r.Sampling = seeded(7)
		}
		j, err := (&intake{setup: &s}).prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		c, p := j.choices[0], &passes{}
		check := func(what string, from, n int) {
			t.Helper()
			var want []sample.Draw
			for i := range n {
				want = append(want, c.sampler.Draw(from+i))
			}
			w := p.drafts[len(p.drafts)-1]
			if !sampled {
				want = nil
			}
			if !slices.Equal(w.Draws, want) || !w.Best || !w.Logits {
				t.Errorf("%s: draws %+v, want %+v", what, w.Draws, want)
			}
		}
		last := sched.Item{Seq: &c.seq, Tokens: r.Prompt[7:], Cached: 7, Last: true, Logits: 1}
		p.draftAhead(&last, 0, 1, 0)
		check("after a prompt", 1, 1)
		p.draftAhead(&last, 0, 1, 5)
		check("a block after a prompt", 1, 5)
		verified := sched.Item{Seq: &c.seq, Tokens: []int32{r.Prompt[8], 1, 2}, Cached: 8, Last: true, Logits: 3,
			Drafts: 2, Decode: true}
		p.draftAhead(&verified, 0, 1, 0)
		check("after drafts", 1, 3)
		p.draftAhead(&verified, 0, 1, 5)
		check("a block after drafts", 1, 7)
		c.seq.Drafts = []int32{3, 4}
		p.draftNext(&chain{c: c})
		check("in a chain", 2, 1)
		c.limits.noCalls = sample.Mask{1} // masks do not apply to blocks
		end := verified.Cached + verified.Kept() + 1
		p.draftBlock(&verified, 0, 5)
		check("a block", 0, 5)
		if w := p.drafts[5]; !slices.Equal(w.Tokens, c.seq.Tokens[end-1:end]) || w.Cached != end-2 {
			t.Errorf("a block: %+v", w)
		}
		if p.draftAhead(&sched.Item{Seq: &c.seq, Tokens: r.Prompt[:4]}, 0, 1, 0); p.drafts[6].Draws != nil ||
			p.drafts[6].Logits || !slices.Equal(p.drafts[6].Tokens, r.Prompt[1:5]) {
			t.Errorf("inside a prompt: %+v", p.drafts[6])
		}
	}
}

// Only pages after those on the device are fetched. Fetched pages are copied between two batches in pieces of a bounded
// number of bytes.
func TestPagesAreFetchedAfterThoseThatAreThere(t *testing.T) {
	alone(t, "the test needs a single pool of pages")
	store := respserver.Start(t)
	c := tiered("", 16, 64, tier.Options{StoreURL: store.URL()})
	c.Clock = frozen{}
	e := still(t, testmodel.V32(t), c)
	emptied(t, e)
	running(t, e)
	x := e.loop.tiers
	settle := func(j *Job) {
		t.Helper()
		for len(j.queue.events) == 0 {
			await.True(t, "pages", func() bool { return len(x.restoring) == 0 || x.advance() })
			e.iterations(1)
			x.settle()
		}
	}
	prompt := tokens(1, 400)
	settle(open(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1}))
	written(t, store, 6)
	e.loop.pools[0].Reset()
	// This prompt is too short to be stored.
	settle(open(t, e, Request{Prompt: prompt[:70], Sampling: greedy(), MaxTokens: 1}))
	x.most = 2*int(e.model.PageBytes(&e.info.Config)) - 1 // one byte less than two pages
	j := queuedJob(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1})
	r := j.choices[0].restore
	if r == nil || r.next != 1 || x.seeking != 1 {
		t.Fatalf("restore %+v, %d sequences fetch pages", r, x.seeking)
	}
	e.iterations(1)
	await.True(t, "all pages", func() bool { return x.stack.Counts()[0].Hits == 5 })
	for pages := 1; pages < 6; {
		was := x.stats.RestoredPages
		await.True(t, "the next page", x.advance)
		if n := int(x.stats.RestoredPages - was); n > 2 {
			t.Errorf("%d pages were copied at once, with a limit of %d bytes", n, x.most)
		}
		pages += int(x.stats.RestoredPages - was)
		x.settle()
	}
	settle(j)
	if got := fmt.Sprint(j.usage.CachedTokens, " ", x.stats.Tokens); got != "384 320" {
		t.Errorf("tokens cached and restored: %s", got)
	}
}

// held adds the full pages of a prompt to the tiers of an engine, with rows of zeros. The pages have the given tokens,
// as if their hashes collided with those of the prompt.
func held(t *testing.T, e *Engine, prompt, given []int32) {
	t.Helper()
	x := e.loop.tiers
	chain, err := x.pools[0].Chain(prompt, kv.OpenOptions{})
	if err != nil || len(chain) == 0 {
		t.Fatalf("the prompt has %d full pages, error %v", len(chain), err)
	}
	size := e.info.PageTokens
	for i, h := range chain {
		p := x.stack.Room()
		clear(p.Data)
		p.Stored = prefix.Stored{Hash: h, Tokens: slices.Clone(given[i*size : (i+1)*size])}
		if i > 0 {
			p.Parent = chain[i-1]
		}
		if x.stack.Keep(p, tier.Leaving); !x.stack.Has(h) {
			t.Fatalf("no tier stored page %d", i)
		}
	}
}

// A fetched page is used only if it has the tokens of the prompt. If one token differs, because two hashes collide, the
// prompt is computed from that page on.
func TestAPageOfOtherTokensIsNotUsed(t *testing.T) {
	prompt := tokens(1, 150)
	for _, differs := range []int{-1, 0, 63, 64, 127} {
		e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26}))
		emptied(t, e)
		_, run := running(t, e)
		other, want := slices.Clone(prompt), 128
		if differs >= 0 {
			other[differs]++
			want = differs / 64 * 64
		}
		held(t, e, prompt, other)
		run()
		r := generate(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1, Trace: true})
		if r.Usage.CachedTokens != want || r.Trace.Restored.Tokens != want ||
			(differs >= 0) != strings.Contains(r.Trace.Restored.Stop, "tokens of a fetched page") {
			t.Errorf("token %d differs: %d tokens are cached, restored %+v; want %d tokens", differs,
				r.Usage.CachedTokens,
				r.Trace.Restored, want)
		}
	}
}

// The loop does not wait while fetched pages are ready, although one iteration copies only some of them.
func TestTheLoopContinuesWhilePagesAreReady(t *testing.T) {
	clock := &idle{do: func() {}}
	c := tiered("", 8, 64, tier.Options{HostBytes: 1 << 26})
	c.Clock = clock
	e := still(t, testmodel.V32(t), c)
	emptied(t, e)
	_, run := running(t, e)
	prompt := tokens(1, 400)
	held(t, e, prompt, prompt)
	x := e.loop.tiers
	x.most = 1 // fills one page in each iteration
	j := queuedJob(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1})
	await.True(t, "all pages", func() bool { return x.stack.Counts()[0].Hits == 6 })
	clock.do = func() {
		n := x.stats.RestoredPages
		if n > 0 && n < 6 {
			t.Errorf("the loop waits after it has filled %d of 6 pages", n)
		}
		if n > 0 && len(x.restoring) > 0 {
			e.inbox.signal() // wakes the loop, so that it continues even if no signal is left
		}
	}
	run()
	if _, err := j.whole(); err != nil || j.Usage().CachedTokens != 384 {
		t.Errorf("%d tokens are cached, error %v", j.Usage().CachedTokens, err)
	}
}

// The work of an item has the fields of the item and the state of its choice, for the target and for the drafting
// layer.
func TestWorksHaveTheFieldsOfTheirItems(t *testing.T) {
	alone(t, "the test names a second rank itself")
	e := still(t, testmodel.V4Draft(t), Config{})
	running(t, e)
	prompt := tokens(1, 20)
	j := queuedJob(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true,
		Record: &Record{Experts: true}})
	e.iterations(1)
	c := j.choices[0]
	if c.state == nil || c.seq.Pages() == nil || c.seq.Windows() == nil {
		t.Fatalf("state %v, pages %v, windows %v", c.state, c.seq.Pages(), c.seq.Windows())
	}
	c.sampled, c.drafted = 6, 7
	it := sched.Item{Seq: &c.seq, Tokens: prompt[3:7], Cached: 3, Rank: 1, Logits: 2,
		Record: sched.Span{From: 1, To: 3}, Pages: []int32{4, 5}, Windows: []int32{6, 7}}
	draft := step.Draft{Kind: plan.ModeExtend, Cached: 3, Rank: 1, Pages: c.seq.Pages(), Windows: c.seq.Windows(),
		State: c.state, Best: true, From: 8}
	work := step.Work{Kind: plan.ModeExtend, Tokens: it.Tokens, Before: prompt[:3], Cached: 3, Rank: 1,
		Pages: it.Pages, Windows: it.Windows, Logits: 2, Best: true, State: c.state,
		Record: plan.Record{Experts: true}, RecordFrom: 1, RecordTo: 3}
	check := func(name string) {
		t.Helper()
		if got := workOf(&it); !reflect.DeepEqual(got, work) {
			t.Errorf("%s: work %+v\nwant %+v", name, got, work)
		}
		if got := draftOf(&it, 8); !reflect.DeepEqual(got, draft) {
			t.Errorf("%s, drafting layer: work %+v\nwant %+v", name, got, draft)
		}
	}
	check("part of a prompt")
	it.Decode, work.Kind, draft.Kind = true, plan.ModeDecode, plan.ModeDraft
	check("one token")
	it.Unknown, work.Sampled = true, 6
	check("a token that the host does not know")
	it.Unknown, work.Sampled = false, 0
	it.Drafts, work.Kind, work.Drafted = 2, plan.ModeVerify, 7
	check("drafts")
	c.sampled, c.drafted = 0, 0
}

// waiting is a runner whose draft passes take a given time in Wait.
type waiting struct {
	runner
	clock *paced
	took  time.Duration
}

func (w *waiting) Wait(step.Pending) (step.Result, error) {
	w.clock.at.Add(int64(w.took))
	return step.Result{Plan: &plan.Plan{}}, nil
}

// If the host began to wait for a draft pass late, and waited for less than an eighth of the time of the pass, the
// measured time is not exact.
func TestDraftPassesThatAreSeenLate(t *testing.T) {
	for took, late := range map[time.Duration]bool{100: false, 99: true} {
		clock := &paced{}
		clock.at.Store(700)
		d := &drafter{setup: &setup{cfg: Config{Clock: clock}}, tally: &tally{}, watchdog: &watchdog{},
			control: spec.New(spec.Auto(), 0)}
		b := &batch{passes: &passes{runner: &waiting{clock: clock, took: took}},
			ahead: ahead{on: true, begun: time.Unix(1000, 0), rows: 3}}
		d.control.DraftPass(3, 4e-7, false) // sets a known time for draft passes
		if _, err := d.wait(b); err != nil || b.ahead.on {
			t.Fatalf("error %v, the draft pass is still ahead: %v", err, b.ahead.on)
		}
		want := spec.New(spec.Auto(), 0)
		want.DraftPass(3, 4e-7, false)
		want.DraftPass(3, (700 + took).Seconds(), late)
		if !reflect.DeepEqual(d.control, want) || d.tally.stats.DraftsAhead != 1 || d.tally.stats.Busy != 700+took {
			t.Errorf("waited for %v of %v: the controller did not note late %v; the device was busy for %v", took,
				700+took, late,
				d.tally.stats.Busy)
		}
	}
}

// Batches with recorded rows or scored prompts are not overlapped, because the host needs their results first.
func TestRecordedAndScoredBatchesDoNotOverlap(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	for name, r := range map[string]Request{
		"recorded": {MaxTokens: 4, Record: &Record{Experts: true}},
		"scored":   {MaxTokens: 1, Score: &Score{}},
	} {
		e, run := overlapping(t, testmodel.V32(t), Config{StepTokens: 32})
		r.Prompt, r.Sampling, r.IgnoreEOS = tokens(1, 90), greedy(), true
		j := open(t, e, r)
		if name == "scored" { // another request, whose tokens the device samples, ends with the first chunk
			open(t, e, Request{Prompt: tokens(2, 9), Sampling: greedy(), MaxTokens: 1})
		}
		run()
		rows, scores := 0, 0
		for ev := range j.events() {
			if scores += len(ev.Scores); ev.Recorded != nil {
				rows += len(ev.Recorded.Rows)
			}
		}
		e.Close(t.Context())
		if st := e.Stats(); st.Overlapped != 0 || name == "recorded" && rows != 4 || name == "scored" && scores != 90 {
			t.Errorf("%s: %d of %d passes overlapped, %d recorded rows, %d scores", name, st.Overlapped, st.Steps, rows,
				scores)
		}
	}
}

// The list of most probable tokens in an event does not change when later tokens are sampled.
func TestEventsKeepTheirLikeliestTokens(t *testing.T) {
	w := vocabulary(t)
	four, _ := w.TokenID("4")
	r := ask(t, "How many?")
	r.Sampling.Logprobs, r.Sampling.TopLogprobs = true, 2
	favoured := []int32{four, w.eos - 1, w.eos}
	for i, out := range advanced(t, still(t, "", Config{}), r, favoured...) {
		if top := out.event.Top; len(top) != 2 || top[0].Token != favoured[i] {
			t.Errorf("token %d: alternatives %+v, want token %d first", i, top, favoured[i])
		}
	}
}

// capturing is a device that supports captured graphs but captures none.
type capturing struct{ kernel.Device }

func (capturing) Capture(func() error) (kernel.Graph, error) { return nil, errFault }

// Captured graphs are part of the needed memory, unless they are disabled.
func TestNeedCountsGraphs(t *testing.T) {
	alone(t, "expected sizes are those of one rank")
	source, m := load(t, testmodel.V32(t), kernel.Options{}, func(d kernel.Device) kernel.Device {
		return capturing{d}
	})
	for off, want := range map[bool]int64{false: step.GraphBytes, true: 0} {
		n, err := Measure(m, testConfig(source, Config{CacheTokens: 512, NoGraphs: off}), 1<<40)
		if err != nil || n.Graphs != want || n.Arena == 0 {
			t.Errorf("NoGraphs %v: need %+v, error %v; want %d bytes of graphs", off, n, err, want)
		}
	}
}

// A pass may record and replay all kinds of data, for as many rows as fit in memory, unless recording is disabled.
func TestLimitsOfRecords(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{StepTokens: 48})
	s := *e.setup
	var l step.Limits
	(&sizing{setup: &s}).limitRecords(&l)
	want := step.Limits{RecordRows: 48, Record: plan.Record{Selections: true, Scores: true, Experts: true},
		Replay: plan.Replay{Selections: true, Experts: true}}
	if !reflect.DeepEqual(l, want) {
		t.Errorf("limits %+v, want %+v", l, want)
	}
	s.cfg.RecordBytes, l = -1, step.Limits{}
	if (&sizing{setup: &s}).limitRecords(&l); !reflect.DeepEqual(l, step.Limits{}) {
		t.Errorf("with recording disabled: limits %+v", l)
	}
	in := newInbox(&Config{RecordBytes: 100}, &tally{})
	for i := range 6 {
		if err := in.admitRecords(&Job{records: 100}); (err == nil) != (i < recordFactor) {
			t.Errorf("request %d: error %v", i, err)
		}
		if err := in.admitRecords(&Job{}); err != nil {
			t.Errorf("a request without a record: error %v", err)
		}
	}
	if in.records != recordFactor*100 {
		t.Errorf("%d bytes of records are counted", in.records)
	}
}

// With drafts, the time of plain decoding is measured only in batches between operations, because other batches verify
// drafts.
func TestTimesOfDecodesAreThoseWithoutDrafts(t *testing.T) {
	for _, c := range []struct {
		draft      spec.Setting
		took, last time.Duration // values of took and tookBefore when the engine ends
	}{{drafts(t, 2), 7, 5}, {spec.Off(), 7, 9}} {
		e := still(t, testmodel.V32Draft(t), Config{Draft: c.draft})
		decodes := []sched.Item{{}, {Decode: true}}
		for _, b := range []struct {
			batch batch
			took  time.Duration
		}{{batch{items: decodes}, 5}, {batch{items: decodes}, 9}, {batch{items: decodes[:1]}, 11},
			{batch{items: decodes, between: true}, 7}} {
			e.loop.noteTime(&b.batch, b.took, false)
		}
		if i := &e.loop.inner; i.took != c.took || i.tookBefore != c.last {
			t.Errorf("drafts %v: took is %v, tookBefore %v; want %v and %v", c.draft, i.took, i.tookBefore, c.took,
				c.last)
		}
	}
}

// Segments that differ in any property of their kind are counted separately.
func TestSegmentsAreCountedByKind(t *testing.T) {
	var s Stats
	list := []plan.Segment{{Rows: 1}, {Rows: 2, Row: 1}, {Rows: 3, Form: 1}, {Rows: 4, Kernel: 1},
		{Rows: 5, Convert: 1}}
	for range 2 {
		for i := range list {
			s.count(&list[i])
		}
	}
	want := []PlanCount{{Steps: 2, Rows: 2}, {Row: 1, Steps: 2, Rows: 4}, {Form: 1, Steps: 2, Rows: 6},
		{Kernel: 1, Steps: 2, Rows: 8}, {Convert: 1, Steps: 2, Rows: 10}}
	if !slices.Equal(s.Plans, want) {
		t.Errorf("%+v, want %+v", s.Plans, want)
	}
}

// If sequences find no free page between operations, they wait again for the full limit and not until the next
// operation.
func TestBetweenOperationsWithoutPages(t *testing.T) {
	clock := &paced{}
	e := still(t, testmodel.V32(t), Config{Clock: clock, MaxStall: time.Millisecond})
	l, b := e.loop, &batch{}
	l.waiting, l.inner.at = time.Unix(1000, 0), time.Unix(1000, 0)
	for _, c := range []struct{ at, waiting, longest time.Duration }{
		{400 * time.Microsecond, 0, 400 * time.Microsecond},
		{time.Millisecond, time.Millisecond, 600 * time.Microsecond},
		{1300 * time.Microsecond, time.Millisecond, 600 * time.Microsecond},
	} {
		clock.at.Store(int64(c.at))
		l.between(b)
		if got := l.waiting.Sub(time.Unix(1000, 0)); got != c.waiting || l.inner.longest != c.longest {
			t.Errorf("at %v: the sequences wait since %v, want %v; the longest operation takes %v", c.at, got,
				c.waiting,
				l.inner.longest)
		}
	}
	if l.waiting = (time.Time{}); b.interrupted != 0 {
		t.Errorf("the batch was interrupted for %v, want 0", b.interrupted)
	}
	clock.at.Store(int64(time.Second))
	if l.between(b); !l.waiting.IsZero() { // no sequence waits, so no wait is measured
		t.Errorf("sequences wait since %v although none can run", l.waiting)
	}
}

// Pages that the engine was told to discard cannot be found later.
func TestDiscardedPagesAreGone(t *testing.T) {
	dir := t.TempDir()
	for i, want := range []int{0, 256, 0} {
		e := startTiered(t, testmodel.V32(t), tiered("bf16", 8, 64, tier.Options{DiskDir: dir, DiskBytes: 1 << 26}))
		got := generate(t, e, Request{Prompt: tokens(1, 300), Sampling: greedy(), MaxTokens: 1}).Usage.CachedTokens
		if got != want {
			t.Errorf("engine %d finds %d cached tokens, want %d", i, got, want)
		}
		if i == 1 {
			e.Discard()
		}
		e.Close(t.Context())
	}
}
