package engine

import (
	"errors"
	"sync"
	"time"

	"sparrow/internal/step"
	"sparrow/plan"
)

// tally holds the engine's counters. Its lock guards the counters; the loop changes them, and any goroutine may read
// them.
type tally struct {
	sync.Mutex
	stats Stats
	gaps  gaps
	plans planRing
	lost  error // reason why the device can no longer be used; nil while it works
}

// add locks the tally and adds n to one of its counters.
func (t *tally) add(counter *int64, n int) {
	t.Lock()
	defer t.Unlock()
	*counter += int64(n)
}

// notePass adds the time of a pass, and counts a fault if the device failed.
func (t *tally) notePass(took time.Duration, err error) {
	t.Lock()
	defer t.Unlock()
	t.stats.Busy += took
	if errors.Is(err, plan.E28) {
		t.stats.Faults++
	}
}

// countDrafts counts the drafts of a verified item. outs holds the outcomes; the first len(outs) drafts were compared
// with their tokens. The caller holds the lock.
func (t *tally) countDrafts(c *choice, drafts []int32, outs []outcome) {
	judged, right := min(len(drafts), len(outs)), 0
	for i := range judged {
		t.stats.Drafts[i].Judged++
		if outs[i].event.Token == drafts[i] {
			t.stats.Drafts[i].Right++
			right++
		}
	}
	c.drafts.Judged(judged, right)
	c.job.traceDrafts(judged, right)
	c.job.usage.DraftedTokens += len(drafts)
	c.job.usage.AcceptedTokens += right
	t.stats.Verified++
	t.stats.VerifiedTokens += int64(len(outs))
	t.stats.Drafted += int64(len(drafts))
	t.stats.Accepted += int64(right)
}

// countSegments counts the segments of a draft pass. Its plan is nil if the pass only stored rows.
func (t *tally) countSegments(p *plan.Plan) {
	if p == nil {
		return
	}
	t.Lock()
	defer t.Unlock()
	for i := range p.Segments {
		t.stats.count(&p.Segments[i])
	}
}

// count adds a segment to the counter of its kind.
func (s *Stats) count(seg *plan.Segment) {
	for i := range s.Plans {
		k := &s.Plans[i]
		if k.Row == seg.Row && k.Form == seg.Form && k.Kernel == seg.Kernel && k.Convert == seg.Convert {
			k.Steps++
			k.Rows += int64(seg.Rows)
			return
		}
	}
	s.Plans = append(s.Plans, PlanCount{Row: seg.Row, Form: seg.Form, Kernel: seg.Kernel, Convert: seg.Convert,
		Steps: 1, Rows: int64(seg.Rows)})
}

// noteHang sets the text in Stats about the operation that hangs on the device; it is empty if none hangs.
func (t *tally) noteHang(text string) {
	t.Lock()
	defer t.Unlock()
	if t.lost == nil {
		t.stats.Device = text
	}
}

// noteGraphs updates the counters of captured graphs from the counters of one of the ranks. It reports whether a
// capture failed for the first time. The caller holds the lock.
func (t *tally) noteGraphs(g step.Graphs, ranks int) (failed bool) {
	failed = g.Failed > 0 && t.stats.Graphs.Failed == 0
	t.stats.Graphs = GraphCount{Captured: g.Captured, Replayed: g.Replayed, Failed: g.Failed, Evicted: g.Evicted,
		Held: g.Held, Bytes: g.Bytes * int64(max(ranks, 1))}
	return failed
}
