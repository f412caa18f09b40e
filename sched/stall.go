package sched

import (
	"slices"
	"sort"
	"time"

	"sparrow/cost"
)

// While sequences decode, prompts may not hold them up for longer than Limits.MaxStall: a batch takes as many tokens
// of prompts as its predicted time allows.

// SmallestChunk is how many tokens of prompts a batch takes in any case.
const SmallestChunk = 32

// promptTokens is how many of the tokens that a batch has left go to its prompts. The decodes are in it already, the
// prompts are in order. A short prompt beside long ones is held up by them like a sequence that decodes.
func (s *Scheduler) promptTokens(left, logits int) int {
	s.countDecodes()
	if s.limits.MaxStall <= 0 || len(s.prompts) == 0 {
		return left
	}
	if len(s.items) == 0 {
		if s.short(s.prompts[0].left()) && !s.short(s.prompts[len(s.prompts)-1].left()) {
			return s.tokensWithin(s.limits.MaxStall.Seconds()/s.cost.Late(), left, logits)
		}
		return left
	}
	limit := (s.stallLimit(&s.load.Work) - s.waited.Seconds()) / s.cost.Late()
	n := s.tokensWithin(limit, left, logits)
	w := s.withPrompts(n, logits)
	if s.limits.Divides && (n < min(left, s.promptsLeft()) || s.cost.Predict(&w) > limit) {
		s.leaveDecodesOut()
		return s.tokensWithin(s.limits.MaxStall.Seconds(), s.limits.BatchTokens, logits)
	}
	s.load.smallest = n == s.leastTokens(left) && n < left
	return n
}

// Waited says for how long sequences that decode have been left out when Schedule is called next.
func (s *Scheduler) Waited(d time.Duration) { s.waited = d }

// countDecodes adds the items of sequences that decode to the load.
func (s *Scheduler) countDecodes() {
	for i := range s.items {
		s.load.Decode.Add(len(s.items[i].Tokens), s.items[i].Cached)
	}
}

// tokensWithin is how many tokens of the prompts a batch can take in a number of seconds, at most so many.
func (s *Scheduler) tokensWithin(limit float64, most, logits int) int {
	least := s.leastTokens(most)
	return least + sort.Search(most-least, func(i int) bool {
		w := s.withPrompts(least+i+1, logits)
		return !s.cost.Trusts(&w, SmallestChunk) || s.cost.Predict(&w) > limit
	})
}

// leastTokens is how many of at most so many tokens a batch takes in any case.
func (s *Scheduler) leastTokens(most int) int { return min(max(SmallestChunk, len(s.prompts)), most) }

// promptsLeft is how many tokens the prompts of the batch have.
func (s *Scheduler) promptsLeft() (n int) {
	for _, q := range s.prompts {
		n += q.left()
	}
	return n
}

// leaveDecodesOut takes the sequences that decode out of the batch; their pages stay for Between. A batch of prompts
// alone that takes about MaxStall is long enough to be computed well, and short enough for those who come meanwhile and
// wait for its end.
func (s *Scheduler) leaveDecodesOut() {
	prompts := s.prompts
	s.begin()
	s.prompts, s.load = prompts, load{apart: true, divided: true}
}

// Between forms a batch of the sequences that decode while a divided batch is computed, and says what it computes. It
// has no drafts, since prompts wait, and takes no page from a sequence that runs: those that need one and find none
// wait for the end of the divided batch. The slice is valid until the next call, or Schedule.
func (s *Scheduler) Between() ([]Item, Load) {
	divided := s.load
	s.addDecodes()
	s.serve()
	load := s.Load()
	s.load = divided
	return s.items, load
}

// addDecodes makes the batch one of sequences that decode and need no page of another that runs.
func (s *Scheduler) addDecodes() {
	s.begin()
	for _, q := range s.running {
		if q.decoding() && s.room.most(q, q.end(), 1) > 0 && s.reserve(q, 1) == nil {
			s.addItem(q, 1, true)
		}
	}
	s.countDecodes()
}

// Decoding reports whether a sequence decodes.
func (s *Scheduler) Decoding() bool { return slices.ContainsFunc(s.running, (*Sequence).decoding) }

// stallLimit is the longest time that a batch may take, in seconds: MaxStall, or half of it on top of the decodes where
// these take long by themselves.
func (s *Scheduler) stallLimit(w *cost.Work) float64 {
	stall := s.limits.MaxStall.Seconds()
	return max(stall, s.cost.Decoding(w)+stall/2)
}

// withPrompts is the batch's work with n tokens of its prompts.
func (s *Scheduler) withPrompts(n, logits int) cost.Work {
	w := s.load.Work
	for i, q := range s.prompts {
		part := s.share(q, n, logits, len(s.prompts)-i)
		n, logits = n-part, logits-promptLogits(q, part)
		w.AddPrompt(part, q.end(), s.limits.Threshold)
	}
	return w
}

// Load is what the latest batch computes, for Took.
func (s *Scheduler) Load() Load { return Load{s.load} }

// Load is what a batch computes, as far as its time depends on it.
type Load struct{ load load }

type load struct {
	cost.Work
	smallest bool // prompts were cut to the smallest chunk
	apart    bool // sequences that decode are left out
	divided  bool // the same, and they may run meanwhile
}

// Divided reports whether sequences that decode may run while the batch is computed.
func (l Load) Divided() bool { return l.load.divided }

// Apart reports whether sequences that decode were left out of the batch: they had to wait for it and for the next one.
func (l Load) Apart() bool { return l.load.apart }

// Took says how long a batch took, from Schedule or from the end of the batch before it, whichever was later, until its
// tokens were out. Without it every batch is predicted by guesses.
func (s *Scheduler) Took(of Load, d time.Duration) {
	l := &of.load
	s.cost.Observe(&l.Work, d.Seconds())
	if s.limits.MaxStall > 0 && l.smallest && s.cost.Prompts() >= enoughMeasured {
		if t := s.cost.Predict(&l.Work); t > s.stallLimit(&l.Work) {
			s.stall = max(s.stall, time.Duration(t*float64(time.Second)))
		}
	}
}

// PromptTime predicts the time of computing n tokens of a prompt behind cached ones, 0 before any prompt was measured.
func (s *Scheduler) PromptTime(n, cached int) time.Duration {
	var w cost.Work
	if w.AddPrompt(n, cached, s.limits.Threshold); n == 0 || s.cost.Prompts() == 0 {
		return 0
	}
	return time.Duration(s.cost.Predict(&w) * float64(time.Second))
}

// enoughMeasured is how many batches with prompts are measured before Stall says anything.
const enoughMeasured = 8

// Stall is the longest that prompts hold up sequences that decode, as far as it is known to be above MaxStall: even the
// smallest chunk takes so long. Otherwise it is 0.
func (s *Scheduler) Stall() time.Duration { return s.stall }
