package sched

import (
	"sort"
	"time"
)

// While sequences decode, prompts may not hold them up for longer than Limits.MaxStall: a batch takes as many tokens
// of prompts as its predicted time allows.

// SmallestChunk is how many tokens of prompts a batch takes in any case.
const SmallestChunk = 32

// promptTokens is how many of the tokens that a batch has left go to its prompts. The decodes are in it already, the
// prompts are in order.
func (s *Scheduler) promptTokens(left, logits int) int {
	for i := range s.items {
		s.load.decode.add(len(s.items[i].Tokens), s.items[i].Cached)
	}
	if s.limits.MaxStall <= 0 || len(s.items) == 0 || len(s.prompts) == 0 {
		return left
	}
	limit := s.stallLimit(&s.load) / s.cost.late
	least := min(max(SmallestChunk, len(s.prompts)), left)
	n := least + sort.Search(left-least, func(i int) bool {
		l := s.withPrompts(least+i+1, logits)
		return !s.cost.trusts(&l) || s.cost.of(&l) > limit
	})
	s.load.smallest = n == least && least < left
	return n
}

// stallLimit is the longest time that a batch may take, in seconds: MaxStall, or half of it on top of the decodes where
// these take long by themselves.
func (s *Scheduler) stallLimit(l *load) float64 {
	stall := s.limits.MaxStall.Seconds()
	return max(stall, s.cost.decoding(l)+stall/2)
}

// withPrompts is the batch's load with n tokens of its prompts.
func (s *Scheduler) withPrompts(n, logits int) load {
	l := s.load
	for i, q := range s.prompts {
		part := share(q, n, logits, len(s.prompts)-i)
		n, logits = n-part, logits-promptLogits(q, part)
		l.addPrompt(part, q.end(), s.limits.Threshold)
	}
	return l
}

// Load is what the latest batch computes, for Took.
func (s *Scheduler) Load() Load { return Load{s.load} }

// Load is what a batch computes, as far as its time depends on it.
type Load struct{ load load }

// Apart reports whether sequences that decode were left out of the batch: they had to wait for it and for the next one.
func (l Load) Apart() bool { return l.load.apart }

// Took says how long a batch took, from Schedule or from the end of the batch before it, whichever was later, until its
// tokens were out. Without it every batch is predicted by guesses.
func (s *Scheduler) Took(of Load, d time.Duration) {
	l := &of.load
	s.cost.learn(l, d.Seconds())
	if s.limits.MaxStall > 0 && l.smallest && s.cost.measured >= enoughMeasured {
		if t := s.cost.of(l); t > s.stallLimit(l) {
			s.stall = max(s.stall, time.Duration(t*float64(time.Second)))
		}
	}
}

// enoughMeasured is how many batches with prompts are measured before Stall says anything.
const enoughMeasured = 8

// Stall is the longest that prompts hold up sequences that decode, as far as it is known to be above MaxStall: even the
// smallest chunk takes so long. Otherwise it is 0.
func (s *Scheduler) Stall() time.Duration { return s.stall }
