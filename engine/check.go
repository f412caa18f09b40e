package engine

import (
	"fmt"
	"maps"
	"slices"
)

// Check returns the first violated invariant of pages, sequences and counters. Its time is proportional to the size of
// the cache; call it in simulations and tests only. The loop may call it through Config.Observe. After the loop has
// ended, any goroutine may call it; then no page may be in use.
func (e *Engine) Check() error {
	for _, p := range e.loop.pools {
		if err := p.Check(); err != nil {
			return err
		}
	}
	e.tally.Lock()
	defer e.tally.Unlock()
	kv, held := poolStats(e.loop.pools), 0
	if kv.Sequences != e.loop.sched.Running()+e.loop.sched.Kept() {
		return fmt.Errorf("engine: %d sequences have pages, but %d run and %d were suspended with their pages",
			kv.Sequences, e.loop.sched.Running(), e.loop.sched.Kept())
	}
	if b := e.loop.last; b != nil && b.stage != stageRunning && b.stage != stageDrafting {
		return fmt.Errorf("engine: a batch of %d items is still %v while the next one is formed", len(b.items), b.stage)
	}
	for _, q := range e.loop.sched.All() {
		c := q.Owner.(*choice)
		if c.ended {
			return fmt.Errorf("engine: choice %d of %s has ended but is still scheduled", c.index, c.job.request.ID)
		}
		if c.state != nil {
			held++
		}
	}
	if m, ok := e.model.(interface{ States() int }); ok && m.States() != held {
		return fmt.Errorf("engine: the model has %d sequence states, but %d running sequences use a state", m.States(),
			held)
	}
	if s := &e.tally.stats; e.inbox.gone && (kv.Used != 0 || s.Running+s.Waiting != 0) {
		return fmt.Errorf("engine: closed with %d pages in use, %d running, %d waiting", kv.Used, s.Running, s.Waiting)
	}
	if err := e.checkCounts(); err != nil {
		return err
	}
	return e.loop.tiers.check()
}

// openCounts holds the counts that the inbox and the tally keep for requests that have not ended.
type openCounts struct {
	Requests int64
	Records  int64 // maximum size of the requests' recorded rows, in bytes
	Queued   int   // sequences that were in no batch yet
	Tenants  map[string]queued
	Begun    int            // requests of which no choice was in a batch yet
	Waits    map[string]int // number of waiting requests by turn key
}

// checkCounts compares the counters of the inbox and the tally with the requests that have not ended. The caller holds
// the lock.
func (e *Engine) checkCounts() error {
	open := map[*Job]bool{}
	for _, j := range e.inbox.jobs {
		open[j] = true
	}
	for _, q := range e.loop.sched.All() {
		open[q.Owner.(*choice).job] = true
	}
	b, s := e.inbox, &e.tally.stats
	want := openCounts{Requests: int64(len(open)), Tenants: map[string]queued{}, Waits: map[string]int{}}
	for j := range open {
		want.Records += j.records
		n := 0
		for _, c := range j.choices {
			if !c.ran && !c.ended {
				n++
			}
		}
		if want.Queued += n; n > 0 {
			own := want.Tenants[j.turnKey]
			want.Tenants[j.turnKey] = queued{own.sequences + n, own.requests + 1}
		}
		if j.admitted.IsZero() {
			want.Begun++
			want.Waits[j.turnKey]++
		}
	}
	got := openCounts{s.Requests - s.Finished - s.Aborted - s.Failed, b.records, b.queued.waiting, b.queued.tenants,
		b.waits.jobs, b.waits.tenants}
	if got.Requests != want.Requests || got.Records != want.Records || got.Queued != want.Queued ||
		got.Begun != want.Begun || !maps.Equal(got.Tenants, want.Tenants) || !maps.Equal(got.Waits, want.Waits) {
		return fmt.Errorf("engine: the counters of open requests are %+v, want %+v", got, want)
	}
	return nil
}

// check compares the counters of sequences that fetch pages from tiers with the sequences of the scheduler.
func (t *tiers) check() error {
	if t == nil {
		return nil
	}
	seeking, restoring := 0, 0
	for _, q := range t.sched.All() {
		switch c := q.Owner.(*choice); {
		case c.restore == nil:
		case !c.restore.admit:
			seeking++
		case !slices.Contains(t.restoring, c):
			return fmt.Errorf("engine: choice %d of %s waits for pages that no transfer delivers", c.index,
				c.job.request.ID)
		default:
			restoring++
		}
	}
	if seeking != t.seeking || restoring != len(t.restoring) {
		return fmt.Errorf("engine: %d waiting and %d admitted sequences are fetching pages, but the counters are %d "+
			"and %d", seeking, restoring, t.seeking, len(t.restoring))
	}
	return nil
}
