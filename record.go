package sparrow

import (
	"time"

	"sparrow/plan"
)

// publish refreshes what Stats shows of the scheduler and the cache. The caller holds mu.
func (e *Engine) publish() {
	s := &e.stats
	s.Running, s.Waiting, s.Preempted, s.KV = e.sched.Running(), e.sched.Waiting(), e.sched.Preemptions(), e.pool.Stats()
}

// record keeps the plan and counts what ran.
func (e *Engine) record(p *plan.Plan, begun time.Time, requests int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps++
	r := PlanRecord{Step: e.steps, At: begun, Plan: p, Took: time.Since(begun), Requests: requests}
	if len(e.plans) < e.cfg.PlanHistory {
		e.plans = append(e.plans, r)
	} else {
		e.plans[e.planAt] = r
		e.planAt = (e.planAt + 1) % len(e.plans)
	}
	s := &e.stats
	s.Steps = e.steps
	e.publish()
	for i := range p.Segments {
		seg := &p.Segments[i]
		s.count(seg)
		s.Slices += int64(len(seg.Launches) - 1)
		if seg.Convert != plan.ConvertNone {
			s.Conversions++
		}
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
	s.Plans = append(s.Plans, PlanCount{Row: seg.Row, Form: seg.Form, Kernel: seg.Kernel, Convert: seg.Convert, Steps: 1, Rows: int64(seg.Rows)})
}
