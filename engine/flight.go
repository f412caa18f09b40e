package engine

import (
	"time"

	"sparrow/sched"
	"sparrow/step"
)

// On a device that computes beside the host, the loop forms and enqueues the next batch while a pass runs. The states
// of a batch and what is committed when:
//
//	formed    Scheduler.Schedule reserved pages. Nothing else has changed.
//	launched  its pass is enqueued. The batch before it, if it still runs, is finished now: Engine.finish waits for it,
//	          commits its tokens, sends its events and ends its choices. Rows of choices that ended there are computed
//	          in vain.
//	in flight Scheduler.Started: the next batch may be formed behind it. Tokens that it samples stay on the device,
//	          where the next pass reads them. Pages of sequences that end or are preempted meanwhile are free at once:
//	          the device works in the order of passes, so that whoever gets them writes later.
//	finished  as above.
//
// At most one batch is in flight. A batch whose results the host must see before the next one is formed (drafts, masks,
// logits that are read here, records) is finished as soon as it was launched: that is the order of devices that compute
// while the host waits, too. Where a pass fails, what was launched behind it is discarded and formed again.
//
// Where the device draws tokens, the drafting layer runs behind a batch before that is finished (Engine.draftAhead),
// and with one draft for each sequence the next batch is launched while the drafting layer runs (Engine.leaveUnseen):
// its drafts have no values here until Engine.seeDrafts.

// flight is a batch from the moment it is formed.
type flight struct {
	on       *passes // that run it
	inner    bool    // it runs between the operations of another
	items    []sched.Item
	load     sched.Load
	begun    time.Time // when it was formed
	launched time.Time
	started  step.Started
	pending  step.Pending
	ahead    ahead
	behind   bool // it was launched while another ran
	drafts   bool // it was launched while the draft pass ran that gives its drafts
	repeats  bool // it is an item of a batch that failed
	// interrupted is how long other batches ran between its operations.
	interrupted time.Duration
}

// form keeps a batch that the scheduler made.
func (e *Engine) form(items []sched.Item) *flight {
	f := &e.flights[0]
	if e.flight == f {
		f = &e.flights[1]
	}
	*f = flight{on: e.passes, items: append(f.items[:0], items...), load: e.sched.Load(), begun: e.now(),
		ahead: ahead{places: f.ahead.places[:0]}}
	return f
}

// canOverlap reports whether the next batch may be formed before the results of this one are known here.
func (e *Engine) canOverlap(f *flight) bool {
	p := f.pending.Plan()
	if !e.overlap || p.Logits > 0 && p.WholeLogits == p.Logits { // the device has sampled nothing
		return false
	}
	for i := range f.items {
		it, c := &f.items[i], ownerOf(&f.items[i])
		if c.ended {
			continue
		}
		if it.Drafts > 0 || c.drafts.Active() || c.recording != nil || c.scores() || it.Last && c.needsLogits() {
			return false
		}
	}
	return true
}

// leaveInFlight lets the next batch be formed while a launched one runs.
func (e *Engine) leaveInFlight(f *flight) {
	row := 0
	for i := range f.items {
		it, c := &f.items[i], ownerOf(&f.items[i])
		if row += it.Logits; !c.ended {
			c.sampled = row
			e.sched.Started(it, c.limits.made+1 < c.maxTokens)
		}
	}
	e.flight = f
}

// giveUp gives up a batch that was launched behind one that failed.
func (e *Engine) giveUp(f *flight) {
	_, _ = e.wait(f) // whatever it computed is not used
	for i := range f.items {
		if !ownerOf(&f.items[i]).ended {
			e.restartIfStateLost(&f.items[i])
		}
	}
}

// noteUnused counts the tokens of an item whose choice has ended.
func (e *Engine) noteUnused(it *sched.Item) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Unused += int64(len(it.Tokens))
}

// took is how long a batch that has just ended kept the device: since it was formed or the one before it ended.
func (e *Engine) took(f *flight, since time.Time) time.Duration {
	if f.on.finished.After(since) {
		since = f.on.finished
	}
	return e.since(since) - f.interrupted
}
