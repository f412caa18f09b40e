package engine

import (
	"time"

	"sparrow/internal/sched"
	"sparrow/plan"
)

// publish copies the counters of the scheduler and of the cache to Stats. The caller holds the lock of the tally.
func (l *loop) publish() {
	s := &l.tally.stats
	s.Running, s.Waiting, s.Preempted = l.sched.Running(), l.sched.Waiting(), l.sched.Preemptions()
	s.KV = poolStats(l.pools)
	if l.tiers != nil {
		s.Tiers = l.tiers.stats
	}
}

// noteAdmitted records when choices and jobs first ran and how many tokens they reuse from the prefix cache.
func (l *loop) noteAdmitted(items []sched.Item, now time.Time) {
	l.tally.Lock()
	defer l.tally.Unlock()
	l.publish() // the scheduler's counters have changed since the last publish
	for i := range items {
		c := ownerOf(&items[i])
		if t := c.job.trace; t != nil {
			if c.seq.Preempted > c.suspended {
				t.Suspended = append(t.Suspended, Period{c.latest, now})
			}
			c.suspended, c.latest = c.seq.Preempted, now
		}
		if c.ran {
			continue
		}
		c.ran, c.match = true, c.seq.Match
		l.inbox.leaveQueue(c.job)
		if j := c.job; j.admitted.IsZero() {
			j.admitted = now
			l.inbox.waits.admit(j.turnKey, now)
			j.usage.CachedTokens = c.match.Tokens + c.restored.Tokens
			j.computed = j.usage.CachedTokens
			l.tally.stats.PromptTokens += int64(j.usage.PromptTokens)
			l.tally.stats.CachedTokens += int64(j.usage.CachedTokens)
		}
	}
}

// account updates the counters for one item of a forward pass, sends the item's events, and ends the item's choice if
// it has finished. Counters are updated first, so that a reader of the last event finds counters that include that
// event.
func (l *loop) account(it *sched.Item, p *plan.Plan, outs []outcome, err error) {
	l.tally.Lock()
	defer l.tally.Unlock()
	c := ownerOf(it)
	j := c.job
	if len(outs) > 0 && j.first.IsZero() {
		j.first = l.now()
	}
	j.usage.CompletionTokens += len(outs)
	j.computed = max(j.computed, c.seq.Cached())
	l.tally.stats.OutputTokens += int64(len(outs))
	if it.Drafts > 0 {
		l.tally.countDrafts(c, it.DraftTokens(), outs)
	}
	j.tracePlan(p)
	if n := len(c.scored); n > 0 {
		l.tally.stats.ScoredTokens += int64(n)
		j.queue.push(c.takeScores())
	}
	for i := range outs {
		j.queue.push(outs[i].event)
	}
	if err != nil {
		l.failLocked(c, err)
	} else if it.Last && c.scoresOnly() {
		l.end(c, FinishLength, nil)
	} else if n := len(outs); n > 0 && outs[n-1].finish != "" {
		l.end(c, outs[n-1].finish, nil)
	}
}

// record stores the plan of a forward pass and updates the counters of the operations that ran.
func (l *loop) record(b *batch, p *plan.Plan, took time.Duration) {
	l.tally.Lock()
	defer l.tally.Unlock()
	s := &l.tally.stats
	s.Steps++
	if b.behind != stageFormed {
		s.Overlapped++
	}
	if b.between {
		s.Between++
	}
	r := PlanRecord{Step: s.Steps, At: b.begun, Plan: p, Took: took, Requests: len(b.items)}
	l.tally.plans.add(r)
	l.publish()
	if l.tally.noteGraphs(b.passes.runner.Graphs(), l.info.Config.Model.Ranks) {
		l.cfg.Log.Warn("capturing a CUDA graph failed; passes of this shape run with plain launches", "error",
			b.passes.runner.Graphs().Failure)
	}
	for i := range p.Segments {
		seg := &p.Segments[i]
		s.count(seg)
		s.Slices += int64(len(seg.Launches) - 1)
		if seg.Convert != plan.ConvertNone {
			s.Conversions++
		}
	}
}
