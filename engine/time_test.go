package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// Invariants of this file: the times that the engine reports and uses are the times that the device took. The clock
// advances only with operations of the device.

// paced is a device that is also the clock of its engine. Each row of a norm operation takes one millisecond; all other
// operations take no time.
type paced struct {
	kernel.Device
	machine
	at atomic.Int64 // current time in nanoseconds
}

func (p *paced) Now() time.Time { return time.Unix(1000, p.at.Load()) }

func (p *paced) Do(op kernel.Op) error {
	if n, ok := op.(kernel.NormArgs); ok {
		p.at.Add(int64(n.X.Rows) * int64(time.Millisecond))
	}
	return p.Device.Do(op)
}

// startPaced returns an engine on a paced device, and a function that starts its loop.
func startPaced(t *testing.T, c Config, hooks ...func(*Engine)) (*Engine, func(), *paced) {
	t.Helper()
	alone(t, "a single device advances the clock of the test")
	p := &paced{}
	c.Clock = p
	e, err := buildOver(t, testmodel.V32(t), c, kernel.Options{Workers: 1}, func(d kernel.Device) kernel.Device {
		p.Device = d
		return p
	})
	if err != nil {
		t.Fatal(err)
	}
	e, run := running(t, e, hooks...)
	p.at.Store(0) // the time before the test is not counted
	return e, run, p
}

// rowsOf returns the number of prompt rows of a plan, and the number of other rows.
func rowsOf(p *plan.Plan) (prompts, decodes int) {
	for _, s := range p.Segments {
		if s.Row.DecodeLike() {
			decodes += s.Rows
		} else {
			prompts += s.Rows
		}
	}
	return prompts, decodes
}

// The time of a batch that runs between the operations of another batch is counted once: the sum over all passes is the
// time that the device was busy.
func TestTimeBetweenOperationsCountsOnce(t *testing.T) {
	hold, arrived := holdsAt(4)
	e, run, clock := startPaced(t, Config{MaxStall: 5 * time.Millisecond, PlanHistory: 1024}, hold)
	run()
	stream := open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 60, IgnoreEOS: true})
	stream.Next()
	prompt := open(t, e, Request{Prompt: tokens(7, 150), Sampling: greedy(), MaxTokens: 2, IgnoreEOS: true})
	close(arrived)
	collect(prompt)
	collect(stream)
	st, sum := e.Stats(), time.Duration(0)
	for _, r := range e.Plans() {
		sum += r.Took
	}
	if all := time.Duration(clock.at.Load()); st.Busy != all || sum != all || st.Between == 0 {
		t.Errorf("the device was busy for %v, passes took %v and batches %v, %d of them between operations", all,
			st.Busy, sum, st.Between)
	}
}

// The usual time of the longest operation moves by an eighth towards that of each divided batch.
func TestTheUsualOperation(t *testing.T) {
	e, _, _ := startPaced(t, Config{MaxStall: 5 * time.Millisecond, NoReuse: true})
	open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 90, IgnoreEOS: true})
	e.iterations(2)
	i, want := &e.loop.inner, time.Duration(0)
	for n := range 3 {
		before := i.batches
		open(t, e, Request{Prompt: tokens(2+n, 100+40*n), Sampling: greedy(), MaxTokens: 1})
		for i.batches == before {
			e.iterations(1)
		}
		if want += (i.longest - want) / 8; i.batches != before+1 || i.usual != want || want == 0 {
			t.Errorf("after %d batches, the longest operation took %v, usually %v; want %v", i.batches, i.longest,
				i.usual, want)
		}
	}
}

// pacedOverlap runs an engine with overlapped passes on a paced device, whose clock starts at 0.
func pacedOverlap(t *testing.T, dir string, c Config) (*Engine, *paced) {
	t.Helper()
	p := &paced{}
	c.Clock = p
	e, err := buildOver(t, dir, c, kernel.Options{Workers: 1}, func(d kernel.Device) kernel.Device {
		p.Device = d
		return beside{p}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, run := running(t, e)
	p.at.Store(0)
	run()
	return e, p
}

// The time of passes that are enqueued while other passes run is counted once.
func TestTimeOfOverlappedPassesCountsOnce(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	e, p := pacedOverlap(t, testmodel.V32(t), Config{PlanHistory: 1024})
	for i := range 3 {
		collect(open(t, e, Request{Prompt: tokens(1+i, 8), Sampling: greedy(), MaxTokens: 10, IgnoreEOS: true}))
	}
	e.Close(t.Context())
	st, sum := e.Stats(), time.Duration(0)
	for _, r := range e.Plans() {
		sum += r.Took
	}
	if all := time.Duration(p.at.Load()); st.Busy != all || sum != all || st.Overlapped == 0 {
		t.Errorf("the device was busy for %v, passes took %v and batches %v, %d of them overlapped", all, st.Busy, sum,
			st.Overlapped)
	}
}

// The first batch of a new sequence runs separately and delays decoding sequences. The gap of these sequences is the
// time of that batch plus the time of their own batch.
func TestAGapIncludesTheBatchApart(t *testing.T) {
	e, _, _ := startPaced(t, Config{PlanHistory: 1024})
	for i := range 24 {
		open(t, e, Request{Prompt: tokens(1+i, 4), Sampling: greedy(), MaxTokens: 60, IgnoreEOS: true, Tenant: "a"})
	}
	e.iterations(10)
	for i := range 8 {
		open(t, e, Request{Prompt: tokens(70+i, 4), Sampling: greedy(), MaxTokens: 1, Tenant: string(rune('b' + i))})
		e.tally.gaps = gaps{}
		e.iterations(2)
		list := e.Plans()
		apart, next := list[len(list)-2], list[len(list)-1]
		if _, decodes := rowsOf(apart.Plan); decodes > 0 {
			continue // too few times of prompts have been measured for a good prediction
		}
		if got := e.Stats().LongestGap; got != apart.Took+next.Took || apart.Took == 0 {
			t.Errorf("the separate batch took %v and the next batch %v; the longest gap is %v", apart.Took, next.Took,
				got)
		}
		return
	}
	t.Error("no new sequence ran in a separate batch")
}

// If streams end while they wait for a separate batch of a new sequence, their wait ends. A much later batch reports no
// gap since then.
func TestEndedStreamsDoNotWait(t *testing.T) {
	e, _, clock := startPaced(t, Config{})
	var streams []*Job
	for i := range 24 {
		streams = append(streams, open(t, e, Request{Prompt: tokens(1+i, 4), Sampling: greedy(), MaxTokens: 60,
			IgnoreEOS: true, Tenant: "a"}))
	}
	e.iterations(10)
	for i := 0; e.loop.waiting.IsZero(); i++ {
		if i == 8 {
			t.Fatal("no new sequence ran in a separate batch")
		}
		open(t, e, Request{Prompt: tokens(70+i, 4), Sampling: greedy(), MaxTokens: 1, Tenant: string(rune('b' + i))})
		e.iterations(1)
	}
	for _, s := range streams {
		s.Cancel()
	}
	e.iterations(1)
	e.tally.gaps = gaps{}
	clock.at.Add(int64(time.Second) * 10)
	open(t, e, Request{Prompt: tokens(90, 4), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true, Tenant: "late"})
	e.iterations(6)
	if got := e.Stats(); got.LongestGap <= 0 || got.LongestGap >= 10*time.Second || got.Running != 0 {
		t.Errorf("the longest gap of a stream that came after 10 s is %v; %d sequences run", got.LongestGap,
			got.Running)
	}
}

// A choice waits for its pages for at most the allowed time plus the time that computing the received pages would have
// taken. Saved and lost time are counted relative to the time of computing the pages.
func TestWaitsForPages(t *testing.T) {
	c := tiered("", 8, 64, tier.Options{HostBytes: 1 << 26, Wait: 50 * time.Millisecond})
	e, run, clock := startPaced(t, c)
	run()
	for i := range 3 {
		generate(t, e, Request{Prompt: tokens(i, 400), Sampling: greedy(), MaxTokens: 1})
	}
	job := open(t, e, Request{Prompt: tokens(1, 400), Sampling: greedy(), MaxTokens: 1})
	if _, err := job.whole(); err != nil {
		t.Fatal(err)
	}
	e.Close(t.Context())
	x, before := e.loop.tiers, e.loop.tiers.stats
	now := clock.Now()
	waiting := &choice{job: job, restored: Restored{Tokens: 256}, restore: &restore{next: 5, begun: now}}
	computing := e.loop.sched.PromptTime(256, 64)
	if x.latest <= 0 {
		t.Errorf("the latest batch took %v", x.latest)
	}
	if computing <= 0 || before.Saved <= 0 || before.Restored == 0 {
		t.Fatalf("computing the prompt takes %v: %+v", computing, before)
	}
	if got := x.deadline(waiting).Sub(now); got != 50*time.Millisecond+computing {
		t.Errorf("the choice waits for %v, want 50ms plus %v for computing the pages", got, computing)
	}
}

// swapper counts the experts that it moves. Each move takes 20 ms.
type swapper struct {
	model.Model
	clock *paced
	moved int
}

func (s *swapper) SwapExperts(layer, in, out int) error {
	s.moved++
	s.clock.at.Add(int64(20 * time.Millisecond))
	return nil
}

// Experts are moved according to recent choices, because old counts decay, and for a limited time between two steps.
func TestExpertsMoveByRecentChoices(t *testing.T) {
	clock := &paced{}
	e, _ := prepared(t, testmodel.V32(t), Config{Clock: clock})
	s := *e.setup
	moving := &swapper{Model: s.model, clock: clock}
	s.model = moving
	const layers, all = 2, 8
	x := experts{setup: &s, tally: e.tally, moves: placement.Uniform(layers, all, 0.5)}
	chosen := func(expert int, n uint64) *usage.Table {
		u := usage.New("", layers, all, 1)
		for l := range layers {
			counts := make([]uint64, all)
			counts[expert] = n
			u.Add(l, counts)
		}
		return u
	}
	for range 20 {
		if err := x.move(chosen(0, recentChoices*all)); err != nil {
			t.Fatal(err)
		}
	}
	if n := x.recent.Choices(0); n > 2*recentChoices*all {
		t.Errorf("%v choices of a layer count as recent", n)
	}
	if moving.moved != 0 {
		t.Errorf("%d experts moved although the chosen expert is on the device", moving.moved)
	}
	u := usage.New("", layers, all, 1)
	for l := range layers {
		u.Add(l, []uint64{0, 0, 0, 0, 1 << 20, 1 << 20, 1 << 20, 0})
	}
	if err := x.move(u); err != nil {
		t.Fatal(err)
	}
	if got := e.Stats().Experts.Moved; moving.moved != 2 || got != 2 {
		t.Errorf("%d experts moved in 20 ms each, %d were counted; want 2 within %v", moving.moved, got, movesFor)
	}
}
