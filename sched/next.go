package sched

import (
	"cmp"
	"fmt"
	"slices"

	"sparrow/kv"
)

// Next forms the next step. The slice is valid until the next call. It is empty only when nothing runs and nothing waits.
func (s *Scheduler) Next() []Item {
	for {
		s.items = s.items[:0]
		s.decodes()
		s.prefills(s.limits.StepTokens - s.drafts(s.limits.StepTokens-len(s.items)) - len(s.items))
		if len(s.items) > 0 || len(s.running) == 0 {
			return s.items
		}
		// Every running sequence is a prompt without pages; the youngest makes way for the others.
		s.preempt()
	}
}

// decodes gives every decoding sequence its token, oldest first. The youngest is preempted for want of pages, so it has no item yet.
func (s *Scheduler) decodes() {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		if !q.decoding() {
			continue
		}
		for q.state == stateRunning && q.cache.Reserve(1) != nil {
			if !s.withdraw() {
				s.preempt()
			}
		}
		if q.state == stateRunning {
			s.item(q, 1, true)
		}
	}
}

// item adds the next n tokens of a sequence, for which pages are reserved.
func (s *Scheduler) item(q *Sequence, n int, decode bool) {
	at := q.cache.Len()
	s.items = append(s.items, Item{Seq: q, Tokens: q.Tokens[at : at+n], Cached: at, Decode: decode, Last: at+n == len(q.Tokens), Pages: q.cache.Pages(),
		Windows: q.cache.Windows()})
}

// preempt suspends the youngest running sequence.
func (s *Scheduler) preempt() {
	last := len(s.running) - 1
	q := s.running[last]
	if last == 0 {
		// Alone it has every page; going on would admit and preempt it forever.
		panic(fmt.Sprintf("sched: a sequence of %d tokens outgrew a pool of %d", len(q.Tokens), s.capacity))
	}
	s.suspend(q)
}

// suspend takes the pages of a running sequence and puts it at its place among those that wait.
func (s *Scheduler) suspend(q *Sequence) {
	s.running = without(s.running, q)
	s.free(q)
	q.state, q.ready, q.Drafts = stateWaiting, false, q.Drafts[:0]
	q.Preempted++
	s.preemptions++
	s.waiting = insert(s.waiting, q)
}

// insert keeps a list in order of arrival.
func insert(list []*Sequence, q *Sequence) []*Sequence {
	at, _ := slices.BinarySearchFunc(list, q.age, func(x *Sequence, age int64) int { return cmp.Compare(x.age, age) })
	return slices.Insert(list, at, q)
}

// prefills shares budget new tokens among prompts: those that run, then those that can be admitted. A preempted sequence is a prompt again
// until its output is computed anew.
func (s *Scheduler) prefills(budget int) {
	if budget <= 0 {
		return
	}
	s.prompts = s.prompts[:0]
	for _, q := range s.running {
		if len(s.prompts) < s.limits.MaxPrompts && !q.decoding() {
			s.prompts = append(s.prompts, q)
		}
	}
	s.admit(min(s.limits.MaxPrompts, budget))
	// An even share of what is left, the shortest first: what it does not need goes to the longer ones.
	slices.SortStableFunc(s.prompts, func(a, b *Sequence) int { return cmp.Compare(a.left(), b.left()) })
	for i, q := range s.prompts {
		prompts := len(s.prompts) - i
		share := (budget + prompts - 1) / prompts
		n := min(q.left(), share)
		for n > 0 && (n > 1 && s.crowds(q, n, s.prompts[i+1:]) || q.cache.Reserve(n) != nil) {
			n /= 2 // what the free pages hold; the rest waits
		}
		if n > 0 {
			s.item(q, n, false)
			budget -= n
		}
	}
}

// crowds tells whether n new tokens of a prompt would take window pages that the prompts after it need to run at all. A chunk writes window rows
// of every page it spans and gives most of them back when it is done; beside others it is cut so that nobody has to wait for that.
func (s *Scheduler) crowds(q *Sequence, n int, after []*Sequence) bool {
	if s.pool.WindowsPerSequence() == 0 {
		return false
	}
	left := s.pool.WindowsAvailable() - q.cache.Needs(n)
	for _, p := range after {
		left -= p.cache.WindowsMissing()
	}
	return left < 0
}

// admit moves sequences from the queue to the running ones while there are fewer than most prompts and pages for their whole prompts. Nobody overtakes
// for being small; only those that wait for a common prompt let others pass.
func (s *Scheduler) admit(most int) {
	for i := 0; i < len(s.waiting) && len(s.running) < s.limits.MaxRunning && len(s.prompts) < most; {
		q := s.waiting[i]
		if q.blocked() {
			i++
			continue
		}
		if !s.fits(q) {
			return
		}
		c, match, err := s.pool.Open(q.Tokens, q.options())
		if err != nil {
			panic(fmt.Sprintf("sched: opening a sequence that Add accepted: %v", err))
		}
		q.cache, q.Match, q.state = c, match, stateRunning
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.running = insert(s.running, q)
		s.prompts = append(s.prompts, q)
	}
}

// fits tells whether a sequence's tokens and one more fit beside what running prompts will still need. An empty engine takes any.
func (s *Scheduler) fits(q *Sequence) bool {
	if len(s.running) == 0 {
		return true
	}
	need, available, err := s.pool.Fit(q.Tokens, 1, q.options())
	windows := s.pool.WindowsPerSequence()
	for _, p := range s.running {
		if !p.ready {
			need += p.cache.Needs(p.left() + 1)
			windows += p.cache.WindowsMissing()
		}
	}
	return err == nil && need <= available && windows <= s.pool.WindowsAvailable()
}

func (q *Sequence) options() kv.OpenOptions { return kv.OpenOptions{Salt: q.Salt, Compute: q.Compute} }
