package engine

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/usage"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// Invariants of this file, which cannot be seen in answers: no unneeded work is done, all work is counted and watched,
// and settings stay in effect.

// A request whose choices all run does not count as a waiting request of its tenant: the tenant may queue another large
// request.
func TestRequestsThatRunAreNotQueued(t *testing.T) {
	b := backlog{most: 4}
	for _, n := range []int{1, 1} {
		if err := b.add("a", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.add("b", 2); err != nil {
		t.Fatal(err)
	}
	b.done("a", true)
	if err := b.add("a", 3); err != nil {
		t.Errorf("a second request of a tenant with one waiting request: error %v", err)
	}
	if err := b.add("a", 3); err == nil {
		t.Error("a third request was accepted, want an error")
	}
}

// A request to stop at once stays in effect: a later request to stop after all running requests does not delay the
// stop.
func TestStoppingAtOnceStays(t *testing.T) {
	in := newInbox(&Config{}, &tally{})
	in.stop(true)
	if in.stop(false); !in.halt || !in.closing {
		t.Errorf("halt %v, closing %v", in.halt, in.closing)
	}
}

// A trace contains the durations between the events of its request, and the cached tokens of all choices.
func TestATraceHasTheTimesOfItsRequest(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	compiled := Period{at(1), at(2)}
	j := &Job{trace: &Trace{}, request: Request{ID: "x", Compiled: compiled}, arrived: at(3), admitted: at(7),
		first: at(12)}
	var matches []kv.Match
	for i := range 3 {
		c := &choice{seq: sched.Sequence{Preempted: 1 + i}, match: kv.Match{Tokens: 64 * (1 + i)}}
		c.restored = Restored{Tokens: 128 * (1 + i)}
		j.choices, matches = append(j.choices, c), append(matches, c.match)
	}
	want := Trace{ID: "x", Match: matches[0], Matches: matches, Restored: Restored{Tokens: 128}, Preempted: 6,
		Queued: 4 * time.Second, Prefill: 5 * time.Second, Decode: 8 * time.Second, Arrived: at(3), Admitted: at(7),
		First: at(12), Ended: at(20), Compiled: compiled}
	if j.complete(at(20)); !reflect.DeepEqual(*j.trace, want) {
		t.Errorf("%+v, want %+v", *j.trace, want)
	}
	j.trace, j.first = &Trace{}, time.Time{} // the request ended before its first token
	if j.complete(at(20)); j.trace.Queued != 4*time.Second || j.trace.Prefill != 0 || j.trace.Decode != 0 {
		t.Errorf("the request has no token: %+v", *j.trace)
	}
	j.trace, j.admitted = &Trace{}, time.Time{}
	if j.complete(at(20)); j.trace.Queued != 0 {
		t.Errorf("the request was in no batch: %+v", *j.trace)
	}
}

// If weights were copied to memory, or are on a GPU, they do not count as free memory.
func TestMappedWeights(t *testing.T) {
	for _, c := range []struct {
		packed bool
		arch   plan.Arch
		want   int64
	}{{false, plan.CPU, 5}, {true, plan.CPU, 0}, {false, plan.SM90, 0}} {
		z := &sizing{setup: &setup{cfg: Config{WeightBytes: 5, Packed: c.packed}}}
		if got := z.mapped(&plan.Config{Hardware: plan.Hardware{Arch: c.arch}}); got != c.want {
			t.Errorf("packed %v on %v: mapped returned %d bytes, want %d", c.packed, c.arch, got, c.want)
		}
	}
}

// The cache of a GPU leaves free the memory that operations need and a sixteenth of the free memory. On the CPU the
// limit depends on the whole memory and the weights, not on what is free now. If the size of the memory is unknown,
// only integer overflow limits the cache.
func TestACacheLeavesWhatIsReserved(t *testing.T) {
	for _, c := range []struct {
		arch        plan.Arch
		free, total int64
		want        int64
	}{
		{plan.SM90, 1600, 2000, 1400}, {plan.SM90, 106, 2000, 0}, {plan.SM90, 0, 2000, 0},
		{plan.SM90, 0, 0, maxCacheBytes}, {plan.CPU, 1600, 2000, 1450}, {plan.CPU, 0, 2000, 1450},
		{plan.CPU, 0, 0, maxCacheBytes},
	} {
		z := &sizing{setup: &setup{cfg: Config{ReservedBytes: 100, WeightBytes: 300}}, free: c.free, total: c.total}
		if got := z.cacheLimit(&plan.Config{Hardware: plan.Hardware{Arch: c.arch}}); got != c.want {
			t.Errorf("%d of %d bytes free on %v: cacheLimit returned %d bytes, want %d", c.free, c.total, c.arch, got,
				c.want)
		}
	}
}

// The memory of passes includes passes that run between operations. It includes logits for at most as many prompt rows
// as a step has rows.
func TestMemoryOfPasses(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	e := still(t, testmodel.V32(t), Config{MaxStall: time.Second, StepTokens: 48})
	want := e.loop.passes.runner.Bytes() + e.loop.inner.passes.runner.Bytes()
	if got := e.Info().Memory.Arena; got != want || e.loop.inner.passes.runner.Bytes() == 0 {
		t.Errorf("passes take %d bytes, want %d", got, want)
	}
	if got := (&sizing{setup: e.setup}).arenaBytes(&e.info.Config, e.info.ContextTokens); got != want {
		t.Errorf("%d bytes are measured, want %d", got, want)
	}
	if n := (&sizing{setup: e.setup}).promptLogits(); n != 48 {
		t.Errorf("%d rows of prompt logits in a step of 48 rows", n)
	}
}

// The times by which drafting is judged do not include passes with prompts, neither target passes nor draft passes.
func TestPassesOfPromptsDoNotCountForDrafts(t *testing.T) {
	p := &passes{drafts: []step.Draft{{Kind: plan.ModeDraft, Tokens: make([]int32, 1)}, {Kind: plan.ModeExtend,
		Tokens: make([]int32, 3)}}}
	if rows, prompts := p.draftSize(); rows != 4 || !prompts {
		t.Errorf("draftSize returned %d rows, prompts %v; want 4, true", rows, prompts)
	}
	p.drafts = p.drafts[:1]
	if rows, prompts := p.draftSize(); rows != 1 || prompts {
		t.Errorf("draftSize returned %d rows, prompts %v; want 1, false", rows, prompts)
	}
	blocks := &drafter{setup: &setup{}}
	blocks.info.Config.Model.Block = 5
	p.drafts = append(p.drafts, step.Draft{Kind: plan.ModeExtend, Tokens: make([]int32, 3)})
	if rows, prompts := blocks.size(p); rows != 10 || prompts { // blocks of drafts contain no prompt rows
		t.Errorf("%d rows of blocks, prompts %v", rows, prompts)
	}
	clock, idle := &ticks{now: time.Unix(1000, 0)}, spec.New(drafts(t, 2), 0)
	begun := time.Unix(999, 0)
	for _, c := range []struct {
		what   string
		note   func(d *drafter)
		counts bool
	}{
		{"a draft pass", func(d *drafter) { d.notePass(begun, false, nil, &plan.Plan{}, 3, false) }, true},
		{"a draft pass with prompts", func(d *drafter) { d.notePass(begun, false, nil, &plan.Plan{}, 3, true) }, false},
		{"a draft pass that failed", func(d *drafter) { d.notePass(begun, false, errFault, &plan.Plan{}, 3, false) },
			false},
		{"a wait for drafts", func(d *drafter) {
			d.saw = begun
			d.launched(&batch{items: []sched.Item{{Decode: true, Drafts: 2}, {Decode: true}}})
		}, true},
		{"a wait after which a prompt was enqueued too", func(d *drafter) {
			d.saw = begun
			d.launched(&batch{items: []sched.Item{{Decode: true, Drafts: 2}, {}}})
		}, false},
		{"a wait after which nothing was drafted", func(d *drafter) {
			d.saw = begun
			d.launched(&batch{items: []sched.Item{{Decode: true}}})
			d.launched(&batch{items: []sched.Item{{Decode: true, Drafts: 2}}})
		}, false},
		{"a batch without drafts that were seen", func(d *drafter) {
			d.launched(&batch{items: []sched.Item{{Decode: true, Drafts: 2}}})
		}, false},
		{"a pass that decodes", func(d *drafter) {
			d.noteForward(&plan.Plan{Rows: 2, Segments: []plan.Segment{{Row: plan.RowDecode}}}, time.Second)
		}, true},
		{"a pass with a prompt", func(d *drafter) {
			d.noteForward(&plan.Plan{Rows: 2, Segments: []plan.Segment{{Row: plan.RowDecode},
				{Row: plan.RowShortPrefill}}}, time.Second)
		}, false},
	} {
		d := &drafter{setup: &setup{cfg: Config{Clock: clock}}, tally: &tally{}, control: spec.New(drafts(t, 2), 0)}
		if c.note(d); reflect.DeepEqual(d.control, idle) == c.counts {
			t.Errorf("%s is counted: %v, want %v", c.what, !c.counts, c.counts)
		}
	}
}

// While a prompt is computed chunk by chunk, its request does not influence the common number of drafts.
func TestPromptsDoNotAgreeOnDrafts(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	e, _ := overlapping(t, testmodel.V32Draft(t), Config{Draft: spec.Auto(), StepTokens: 32})
	open(t, e, Request{Prompt: tokens(1, 90), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true})
	e.iterations(2)
	if n := len(e.loop.drafter.adapting); n != 0 {
		t.Errorf("%d requests are adapting during the prompt, want 0", n)
	}
	for e.Stats().OutputTokens == 0 {
		e.iterations(1)
	}
	for range 3 {
		if n := len(e.loop.drafter.adapting); n != 1 {
			t.Errorf("%d requests are adapting after the prompt, want 1", n)
		}
		e.iterations(1)
	}
}

// A pass that the device refuses counts as a fault. If its batch has one item, the request fails at once and is removed
// from the counters of open requests. A sequence that runs alone after a failed batch does not change the estimated
// time of batches.
func TestPassesThatAreNotEnqueued(t *testing.T) {
	passes, most := 0, 0
	e, _, _ := startPaced(t, Config{}, before(func(works []step.Work) error {
		if passes++; len(works) > most {
			return plan.E28
		}
		return nil
	}))
	j := open(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true})
	e.iterations(1)
	if st := e.Stats(); passes != 1 || st.Isolated != 0 || st.Faults != 1 || st.Failed != 1 || st.Running != 0 {
		t.Errorf("%d passes were begun, want 1; statistics %+v", passes, st)
	}
	if _, last := collect(j); !errors.Is(last.Err, plan.E28) {
		t.Errorf("the request ended with %+v", last)
	}
	most = 2
	for i := range 2 {
		open(t, e, Request{Prompt: tokens(1+i, 9), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true})
	}
	e.iterations(3)
	most, e.tally.gaps = 1, gaps{}
	e.iterations(1)
	if st := e.Stats(); st.Isolated != 1 || st.Faults != 2 || st.Failed != 1 || st.LongestGap != 0 {
		t.Errorf("the items of %d batches ran one by one, %d faults, %d requests failed, a gap of %v", st.Isolated,
			st.Faults,
			st.Failed, st.LongestGap)
	}
}

// A stall above MaxStall is logged once, and again only after a much longer stall.
func TestAStallIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	e, _, _ := startPaced(t, Config{MaxStall: time.Nanosecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 60, IgnoreEOS: true})
	e.iterations(3)
	open(t, e, Request{Prompt: tokens(7, 500), Sampling: greedy(), MaxTokens: 1})
	e.iterations(14)
	if n := strings.Count(log.String(), "max_stall=1ns"); n < 1 || n > 4 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// The memory that Need computes for a model equals the memory that its engine allocates, including the states of its
// sequences.
func TestNeedIsWhatAnEngineTakes(t *testing.T) {
	alone(t, "expected sizes are those of one rank")
	for _, dir := range []string{testmodel.V32(t), testmodel.V4(t)} {
		source, m := load(t, dir, kernel.Options{}, nil)
		c := testConfig(source, Config{CacheTokens: 2048, MaxRunning: 3})
		n, err := Measure(m, c, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		i := still(t, dir, Config{CacheTokens: 2048, MaxRunning: 3}).Info()
		if want := i.Memory.Cache + i.Memory.States; n.Cache != want || n.Tokens != i.CacheTokens || n.Free != 1<<40 {
			t.Errorf("%s: the cache has %d bytes and %d tokens, want %d and %d", dir, n.Cache, n.Tokens, want,
				i.CacheTokens)
		}
		// A cache without a requested size holds one prompt of the length of a step, or of the requested context if
		// that is longer.
		for context, tokens := range map[int]int{0: 512, 100: 512, 700: 700, 768: 768,
			1 << 30: m.Config().MaxPositions} {
			c.CacheTokens, c.ContextTokens = 0, context
			tokens = wholePages(tokens, i.PageTokens) * i.PageTokens
			if n, err := Measure(m, c, 1); err != nil || n.Tokens != tokens {
				t.Errorf("%s: with a context of %d the cache has %d tokens, error %v; want %d", dir, context, n.Tokens,
					err, tokens)
			}
		}
	}
}

// ticks is a clock whose waits call the given functions one after the other and then end.
type ticks struct {
	machine
	now    time.Time
	todo   []func()
	limits []time.Duration // limits of the waits so far
}

func (c *ticks) Now() time.Time { return c.now }

func (c *ticks) Wait(_ <-chan struct{}, limit time.Duration) bool {
	c.limits = append(c.limits, limit)
	if len(c.todo) == 0 {
		return true
	}
	c.todo[0]()
	c.todo = c.todo[1:]
	return false
}

// Every pass that takes too long is reported once, also if an earlier pass was reported and has ended.
func TestTheWatchdogReportsEveryPass(t *testing.T) {
	c := &ticks{now: time.Unix(1000, 0)}
	var log strings.Builder
	w := &watchdog{tally: &tally{}, after: time.Second,
		setup: &setup{cfg: Config{Clock: c, Log: slog.New(slog.NewTextHandler(&log, nil))}}}
	hangs := func(want bool) {
		t.Helper()
		if got := w.tally.stats.Device != ""; got != want {
			t.Errorf("a hang is reported: %v, want %v", got, want)
		}
	}
	for range 2 {
		c.todo = append(c.todo,
			func() { w.begin(c.now) },
			func() { hangs(false); c.now = c.now.Add(time.Second) },
			func() { hangs(true); c.now = c.now.Add(time.Second) },
			func() { hangs(true); w.begin(c.now) }, // the next pass begins
			func() { hangs(false); w.end() })
	}
	w.watch(nil)
	for words, want := range map[string]int{"longer than the watchdog allows": 2, "has ended": 2} {
		if n := strings.Count(log.String(), words); n != want {
			t.Errorf("%q was logged %d times, want %d", words, n, want)
		}
	}
}

// The watchdog checks the current pass eight times within its limit, but at most once per millisecond. Without a limit
// it does not run.
func TestHowOftenTheWatchdogLooks(t *testing.T) {
	for after, want := range map[time.Duration][]time.Duration{0: nil, -1: nil, time.Second: {time.Second / 8},
		8*time.Millisecond - 1: {time.Millisecond}} {
		c := &ticks{now: time.Unix(1000, 0)}
		w := &watchdog{tally: &tally{}, after: after, setup: &setup{cfg: Config{Clock: c}}}
		w.watch(nil)
		if !slices.Equal(c.limits, want) {
			t.Errorf("with a limit of %v the watchdog waits for %v, want %v", after, c.limits, want)
		}
	}
}

// readable is a model whose expert counts can be read.
type readable struct {
	model.Model
	reads int
}

func (c *readable) CountExperts() error { return nil }

func (c *readable) ReadExperts(*usage.Table) error { c.reads++; return nil }

// Expert counts are read at the requested interval and not more often, because reading waits for the device.
func TestCountsOfExpertsAreReadAtIntervals(t *testing.T) {
	c, m := &ticks{now: time.Unix(1000, 0)}, &readable{}
	x := experts{tally: &tally{}, setup: &setup{model: m, cfg: Config{Clock: c, Usage: usage.New("", 1, 4, 1)}}}
	for i, want := range []int{0, 1, 1, 1, 2} {
		switch i {
		case 1:
			x.tally.stats.Steps = 1 // before the first step there are no counts to read
		case 3:
			c.now = c.now.Add(time.Second - 1)
		case 4:
			c.now = c.now.Add(1)
		}
		if err := x.read(time.Second); err != nil || m.reads != want {
			t.Errorf("call %d: the counts were read %d times, want %d; error %v", i, m.reads, want, err)
		}
	}
}

// frozen is a clock whose time does not change.
type frozen struct{ machine }

func (frozen) Now() time.Time { return time.Unix(1000, 0) }

// When the engine ends, it counts the expert choices made since it last read the counters.
func TestTheLastChoicesOfExpertsAreCounted(t *testing.T) {
	alone(t, "every rank counts its own experts")
	total := func(requests int) float64 {
		e := start(t, testmodel.V32Draft(t), Config{Clock: frozen{}, Usage: expertCounts(t, testmodel.V32Draft(t)),
			NoReuse: true})
		for i := range requests {
			generate(t, e, Request{Prompt: tokens(1+i, 90), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true})
		}
		e.Close(t.Context())
		return e.Usage().Total()
	}
	if one, three := total(1), total(3); one == 0 || three != 3*one {
		t.Errorf("%v choices by one request, %v by three requests", one, three)
	}
}

// All rows of a choice that ended while they were computed are counted as unused.
func TestRowsOfEndedChoicesAreUnused(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	e, _ := overlapping(t, testmodel.V32(t), Config{}, checked(t))
	j := open(t, e, Request{Prompt: tokens(1, 40), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true})
	e.iterations(1)
	j.Cancel()
	e.iterations(1)
	if got := e.Stats(); got.Unused != 40 || got.Aborted != 1 {
		t.Errorf("%d unused rows, %d cancelled requests; want 40 and 1", got.Unused, got.Aborted)
	}
}

// watched counts the operations of a pass that the watchdog does not watch.
type watched struct {
	kernel.Device
	engine  atomic.Pointer[Engine]
	between *atomic.Bool // a batch ran between operations of this pass
	after   atomic.Int64 // number of operations after that batch
	missed  atomic.Int64
}

func (w *watched) Do(op kernel.Op) error {
	if e := w.engine.Load(); e != nil {
		if e.loop.watchdog.began.Load() == 0 {
			w.missed.Add(1)
		}
		if w.between.Load() {
			w.after.Add(1)
		}
	}
	return w.Device.Do(op)
}

// Batches that run between the operations of another batch have no drafts, because prompts wait for them. The watchdog
// then watches the remaining operations of the other batch.
func TestBetweenOperations(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	w, between := &watched{}, atomic.Bool{}
	w.between = &between
	e, err := buildOver(t, testmodel.V32Draft(t), Config{NoReuse: true, MaxStall: time.Microsecond,
		Draft: drafts(t, 2)}, kernel.Options{Workers: 1}, func(d kernel.Device) kernel.Device {
		w.Device = d
		return w
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, e)
	drafted := 0
	e.cfg.Observe = func(inside bool) {
		between.Store(inside)
		for _, q := range e.loop.sched.All() {
			if inside {
				drafted += len(q.Drafts)
			}
		}
	}
	for i := range 2 {
		open(t, e, Request{Prompt: tokens(1+i, 8), Sampling: greedy(), MaxTokens: 40, IgnoreEOS: true})
	}
	e.iterations(3)
	open(t, e, Request{Prompt: tokens(7, 150), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	e.loop.inner.longest = time.Hour // longest operation of the previous batch
	w.engine.Store(e)
	for range 4 {
		if e.iterations(1); e.Stats().Between > 0 {
			break
		}
	}
	w.engine.Store(nil)
	if i := &e.loop.inner; i.before != time.Hour || i.longest >= time.Hour {
		t.Errorf("the longest operation took %v, that of the previous batch %v", i.longest, i.before)
	}
	if st := e.Stats(); st.Between == 0 || st.Drafted == 0 || drafted != 0 {
		t.Errorf("%d batches between operations drafted %d tokens; %d tokens were drafted in total", st.Between,
			drafted, st.Drafted)
	}
	if w.missed.Load() > 0 || w.after.Load() == 0 {
		t.Errorf("%d operations were not watched; %d operations followed a batch between operations", w.missed.Load(),
			w.after.Load())
	}
}

// The time of a pass that is enqueued while the drafting layer runs begins after that layer: the sum of all times is
// the time that the device was busy.
func TestTimeOfDraftsAheadCountsOnce(t *testing.T) {
	alone(t, "a single device advances the clock of the test")
	e, p := pacedOverlap(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 1)})
	collect(open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 12, IgnoreEOS: true}))
	e.Close(t.Context())
	if st := e.Stats(); st.Busy != time.Duration(p.at.Load()) || st.DraftsAhead == 0 || st.Overlapped == 0 {
		t.Errorf("the device was busy for %v, passes took %v; %d draft passes enqueued ahead, %d passes overlapped",
			time.Duration(p.at.Load()), st.Busy, st.DraftsAhead, st.Overlapped)
	}
}

// If a chain of drafts fails, none of its drafts is verified.
func TestAChainThatFailsLeavesNoDrafts(t *testing.T) {
	e := start(t, testmodel.V32Draft(t), Config{NoReuse: true, Draft: drafts(t, 3)}, checked(t), func(e *Engine) {
		e.loop.passes.runner = &faultyDrafts{runner: e.loop.passes.runner, fault: func(pass int) error {
			if pass == 2 { // in this pass the second draft of the first chain is computed
				return errFault
			}
			return nil
		}}
	})
	generate(t, e, Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 6, IgnoreEOS: true})
	if st := e.Stats(); st.DraftsFailed != 1 || st.Verified != 0 {
		t.Errorf("%d sequences stopped drafting, %d items were verified; want 1 and 0", st.DraftsFailed, st.Verified)
	}
}

// Nothing is drafted after a token that ends the answer: if a drafted token is a stop token, it is the last draft of
// its chain.
func TestNothingIsDraftedAfterTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		dir    string
		drafts int
	}{"a chain": {testmodel.V32Draft(t), 4}, "a block": {testmodel.V4Spark(t), 3}} {
		t.Run(name, func(t *testing.T) {
			// chains returns the drafted chains and the answer. The first run has no stop tokens; the second run stops
			// at the first drafted tokens that are not in the answer.
			chains := func(stops []int32) (list [][]int32, answer []int32) {
				cfg := Config{NoReuse: true, Draft: drafts(t, c.drafts)}
				r := Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 10, IgnoreEOS: true}
				if name == "a block" {
					r.Sampling.StopTokenIDs = stops
				} else {
					cfg.EOS = stops
				}
				e := start(t, c.dir, cfg, before(func(works []step.Work) error {
					for i := range works {
						if works[i].Kind == plan.ModeVerify {
							list = append(list, slices.Clone(works[i].Tokens[1:]))
						}
					}
					return nil
				}))
				answer = generate(t, e, r).Choices[0].Tokens
				return list, answer
			}
			free, answer := chains(nil)
			var stops []int32
			for _, l := range free {
				if len(l) > 1 && !slices.Contains(answer, l[0]) {
					stops = append(stops, l[0])
				}
			}
			if len(stops) == 0 {
				t.Fatalf("no draft is wrong: %v", free)
			}
			ended := 0
			list, _ := chains(stops)
			for _, l := range list {
				for i, token := range l {
					if slices.Contains(stops, token) {
						if ended++; i != len(l)-1 {
							t.Errorf("drafts %v continue after a token that ends the answer, one of %v", l, stops)
						}
					}
				}
			}
			if ended == 0 {
				t.Error("no draft is a token that ends the answer, so the test checks nothing")
			}
		})
	}
}

// If a page is evicted before it was copied to the persistent tiers, it is copied once, when it is evicted.
func TestAPageThatLeavesIsStored(t *testing.T) {
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{DiskDir: t.TempDir(), DiskBytes: 1 << 26}))
	running(t, e)
	x := e.loop.tiers
	k := kv.Kept{Stored: prefix.Stored{Hash: prefix.Hash{1}, Tokens: tokens(1, 64)}, Page: 2, Window: -1}
	x.Stored(k)
	x.Leaving(k)
	if len(x.stored) != 0 {
		t.Errorf("%d pages wait to be copied again, want 0", len(x.stored))
	}
	if !x.stack.Has(k.Hash) {
		t.Error("no tier has the page")
	}
	var taken []*tier.Page
	for p := x.stack.Room(); p != nil; p = x.stack.Room() {
		taken = append(taken, p)
	}
	k.Hash = prefix.Hash{2}
	x.Stored(k)
	if x.Leaving(k); x.stats.NoRoom != 1 || x.stack.Has(k.Hash) {
		t.Errorf("%d of %d pages had no room, want 1", x.stats.NoRoom, len(taken))
	}
	for _, p := range taken {
		p.Drop()
	}
}

// Pages of the same prompt have different hashes in models with different weights.
func TestPagesOfOtherWeightsHaveOtherNames(t *testing.T) {
	names := map[prefix.Hash]bool{}
	for i := range byte(2) {
		c := tiered("", 8, 64, tier.Options{HostBytes: 1 << 26})
		c.Weights.Sampled[31] = i
		e := still(t, testmodel.V32(t), c)
		running(t, e)
		chain, err := e.loop.pools[0].Chain(tokens(1, 100), kv.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names[chain[0]] = true
	}
	if len(names) != 2 {
		t.Error("a page has an equal name with other weights")
	}
}

// idle is a clock that calls a function when the loop has no work.
type idle struct {
	machine
	do func()
}

func (c *idle) Wait(wake <-chan struct{}, limit time.Duration) bool {
	if limit == 0 {
		c.do()
	}
	return c.machine.Wait(wake, limit)
}

// Pages are fetched only for a bounded number of waiting requests. A request that releases its pages does not wait for
// any page.
func TestFewRequestsThatWaitFetchPages(t *testing.T) {
	store := respserver.Start(t)
	store.Set(respserver.Hangs)
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{StoreURL: store.URL()}))
	emptied(t, e)
	running(t, e, func(e *Engine) { t.Cleanup(func() { store.Set(respserver.Works) }) })
	var jobs []*Job
	for i := range maxSeeking + 3 {
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 100), Sampling: greedy(), MaxTokens: 1}))
	}
	e.loop.receive()
	if n := e.loop.tiers.seeking; n != maxSeeking {
		t.Errorf("%d requests fetch pages, want %d", n, maxSeeking)
	}
	c := jobs[0].choices[0]
	if e.loop.released(&c.seq); c.restore != nil || e.loop.tiers.seeking != maxSeeking-1 {
		t.Errorf("%d requests fetch pages; the request that released its pages fetches pages: %v", e.loop.tiers.seeking,
			c.restore != nil)
	}
	again := jobs[1].choices[0] // this choice is admitted a second time
	again.restored = Restored{Tokens: 64, Tiers: map[string]int{"store": 64}}
	if !e.loop.tiers.admit(&again.seq) || again.restored.Tokens != 0 {
		t.Errorf("a sequence that is admitted again has %d tokens from tiers", again.restored.Tokens)
	}
	for _, j := range jobs {
		j.Cancel()
	}
}

// A request that waits for its pages gets an answer when the engine is closed.
func TestClosingWaitsForPages(t *testing.T) {
	store := respserver.Start(t)
	store.Set(respserver.Hangs)
	clock, closed := &idle{do: func() {}}, false
	c := tiered("", 8, 64, tier.Options{StoreURL: store.URL()})
	c.Clock = clock
	e := still(t, testmodel.V32(t), c)
	emptied(t, e)
	_, run := running(t, e)
	clock.do = func() {
		if !closed && e.loop.sched.Restoring() {
			closed = true
			e.inbox.stop(false)
			go store.Set(respserver.Works) // ends the fetch, which fails
		}
	}
	j := open(t, e, Request{Prompt: tokens(1, 400), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	run()
	if got, err := j.whole(); err != nil || len(got.Choices[0].Tokens) != 2 || !closed {
		t.Errorf("last event %+v, error %v; closed while the request waited: %v", got, err, closed)
	}
}
