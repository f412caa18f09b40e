package engine

import (
	"errors"
	"time"

	"sparrow/kv"
	"sparrow/plan"
	"sparrow/sched"
	"sparrow/spec"
)

// Stats is a snapshot of an engine. Counters only grow.
type Stats struct {
	Running, Waiting int
	Asleep           bool // the engine has given its memory back and accepts nothing
	KV               kv.Stats
	// Device is why the device cannot be used now: it failed, or a pass on it does not end. Empty while it works.
	Device string

	Requests                                 int64 // accepted
	Finished                                 int64
	Aborted                                  int64 // cancelled by their callers
	Failed                                   int64
	Refused                                  int64 // queue full
	Steps                                    int64 // forward passes that succeeded
	Overlapped                               int64 // of them enqueued while the one before ran
	Between                                  int64 // of them between the operations of another
	Unused                                   int64 // tokens that were computed for choices that had ended before
	Isolated                                 int64 // batches that failed and whose sequences were run one by one
	Preempted                                int64
	PromptTokens, CachedTokens, OutputTokens int64
	ScoredTokens                             int64 // of prompts, that got log probabilities
	Drafted, Accepted                        int64 // tokens
	Verified                                 int64 // items whose drafts a forward pass verified
	VerifiedTokens                           int64 // tokens that came out of those
	// Drafts counts drafts by their place in the chain, the first at 0.
	Drafts [spec.MaxDrafts]DraftCount
	// DraftsAhead counts passes of the drafting layer that were enqueued before the host had seen what the target
	// chose.
	DraftsAhead int64
	// DraftsEnded counts sequences that stopped drafting because it did not pay, DraftsFailed those whose draft pass
	// failed.
	DraftsEnded, DraftsFailed int64

	// Plans counts segments that ran, by what they were.
	Plans []PlanCount
	// Conversions and Slices count segments whose rows were converted, and extra launches because a limit was met.
	Conversions, Slices int64
	// Busy is the time that passes took, from their preparation until their results were there. Faults counts passes
	// that the device failed.
	Busy   time.Duration
	Faults int64
	// LongestGap is the longest batch of the last minute or two that sequences which decode were part of: the longest
	// time between two of their tokens.
	LongestGap time.Duration
	// Graphs counts captured graphs; all zero on devices without them.
	Graphs GraphCount
	// Tiers is what the prefix cache keeps outside the device.
	Tiers TierStats
	// Experts is how experts were chosen; zero where choices are not counted.
	Experts ExpertCount
}

// ExpertCount is how many choices of experts were counted, and the shares of them that the most chosen tenth, quarter
// and half of each layer's experts got, in the mean over layers; and how many experts have moved.
type ExpertCount struct {
	Choices              float64
	Tenth, Quarter, Half float64
	Moved                int64 // experts that came to the device in the place of others
}

// GraphCount is how many passes were captured, ran from a captured graph, could not be captured, and lost their graph
// to another; how many graphs there are now, and the device memory that they take.
type GraphCount struct {
	Captured, Replayed, Failed, Evicted int64
	Held                                int
	Bytes                               int64
}

// DraftCount is how many drafts at one place of their chains were compared with the target's choice, and how many were
// it.
type DraftCount struct{ Judged, Right int64 }

// PlanCount is how many rows one kind of segment has carried.
type PlanCount struct {
	Row     plan.RowKind
	Form    plan.Form
	Kernel  plan.Kernel
	Convert plan.Convert
	Steps   int64 // passes
	Rows    int64
}

// PlanRecord is one forward pass of the recent past.
type PlanRecord struct {
	Step     int64 // its number, from 1
	At       time.Time
	Plan     *plan.Plan
	Took     time.Duration // planning, model, sampling and drafting
	Requests int
}

// notePass counts what a pass took and whether the device failed it.
func (e *Engine) notePass(took time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Busy += took
	if errors.Is(err, plan.E28) {
		e.stats.Faults++
	}
}

// publish refreshes what Stats shows of the scheduler and the cache. The caller holds mu.
func (e *Engine) publish() {
	s := &e.stats
	s.Running, s.Waiting, s.Preempted = e.sched.Running(), e.sched.Waiting(), e.sched.Preemptions()
	s.KV = poolStats(e.pools)
	if e.tiers != nil {
		s.Tiers = e.tiers.stats
	}
}

// noteAdmitted notes when choices and jobs first ran and what the prefix cache gave them.
func (e *Engine) noteAdmitted(items []sched.Item, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish() // the scheduler has moved sequences since
	for i := range items {
		c := ownerOf(&items[i])
		if c.ran {
			continue
		}
		c.ran, c.match = true, c.seq.Match
		e.leaveQueue(c.job)
		if j := c.job; j.admitted.IsZero() {
			j.admitted = now
			e.waits.admit(j.party, now)
			j.usage.CachedTokens = c.match.Tokens + c.restored.Tokens
			e.stats.PromptTokens += int64(j.usage.PromptTokens)
			e.stats.CachedTokens += int64(j.usage.CachedTokens)
		}
	}
}

// account updates the counters for one item of a forward pass, then sends its events and ends its choice where it
// ended: a reader who saw the last event sees counters that include it.
func (e *Engine) account(it *sched.Item, p *plan.Plan, outs []outcome, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := ownerOf(it)
	j := c.job
	if len(outs) > 0 && j.first.IsZero() {
		j.first = e.now()
	}
	j.usage.CompletionTokens += len(outs)
	e.stats.OutputTokens += int64(len(outs))
	if it.Drafts > 0 {
		e.countDrafts(c, it.DraftTokens(), outs)
	}
	j.tracePlan(p)
	if n := len(c.scored); n > 0 {
		e.stats.ScoredTokens += int64(n)
		j.queue.push(c.takeScores())
	}
	for i := range outs {
		j.queue.push(outs[i].event)
	}
	if err != nil {
		e.failLocked(c, err)
	} else if it.Last && c.scoresOnly() {
		e.end(c, FinishLength, nil)
	} else if n := len(outs); n > 0 && outs[n-1].finish != "" {
		e.end(c, outs[n-1].finish, nil)
	}
}

// countDrafts counts the drafts of a verified item: the first of them were compared with the tokens of outs. The caller
// holds mu.
func (e *Engine) countDrafts(c *choice, drafts []int32, outs []outcome) {
	judged, right := min(len(drafts), len(outs)), 0
	for i := range judged {
		e.stats.Drafts[i].Judged++
		if outs[i].event.Token == drafts[i] {
			e.stats.Drafts[i].Right++
			right++
		}
	}
	c.drafts.Judged(judged, right)
	c.job.usage.DraftedTokens += len(drafts)
	c.job.usage.AcceptedTokens += right
	e.stats.Verified++
	e.stats.VerifiedTokens += int64(len(outs))
	e.stats.Drafted += int64(len(drafts))
	e.stats.Accepted += int64(right)
}

// record keeps the plan of a forward pass and counts what ran.
func (e *Engine) record(f *flight, p *plan.Plan, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.stats
	s.Steps++
	if f.behind || f.drafts {
		s.Overlapped++
	}
	if f.inner {
		s.Between++
	}
	r := PlanRecord{Step: s.Steps, At: f.begun, Plan: p, Took: took, Requests: len(f.items)}
	if len(e.plans) < e.cfg.PlanHistory {
		e.plans = append(e.plans, r)
	} else {
		e.plans[e.planAt] = r
		e.planAt = (e.planAt + 1) % len(e.plans)
	}
	e.publish()
	e.noteGraphs()
	for i := range p.Segments {
		seg := &p.Segments[i]
		s.count(seg)
		s.Slices += int64(len(seg.Launches) - 1)
		if seg.Convert != plan.ConvertNone {
			s.Conversions++
		}
	}
}

// countSegments counts what a draft pass ran; its plan is nil where it only stored rows.
func (e *Engine) countSegments(p *plan.Plan) {
	if p == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range p.Segments {
		e.stats.count(&p.Segments[i])
	}
}

// count adds a segment to the kind it belongs to.
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
