package sched

import (
	"slices"
	"sort"
	"time"

	"sparrow/internal/cost"
)

// While sequences decode, prompts may not delay them for longer than Limits.MaxStall: a batch takes as many prompt
// tokens as its predicted time allows.

// SmallestChunk is the minimum number of prompt tokens in a batch.
const SmallestChunk = 32

// backgroundPart divides Limits.MaxStall for a batch of only background sequences: new requests wait for its end, which
// should delay their first token only a little compared with an idle device.
const backgroundPart = 4

// promptTokens returns how many of the remaining tokens of a batch its prompts get. The decodes have already been
// added, and the prompts are in order. A short prompt in a batch with long prompts is delayed by the long prompts like
// a decoding sequence.
func (f *forming) promptTokens(left, logits int) int {
	f.countDecodes()
	if f.roster.limits.MaxStall <= 0 || len(f.prompts) == 0 {
		return left
	}
	if f.background() {
		stall := f.roster.limits.MaxStall.Seconds() / backgroundPart
		return f.tokensWithin(max(stall, f.cost.Decoding(&f.load.Work)+stall/2)/f.cost.Late(), left, logits)
	}
	if len(f.items) == 0 {
		if f.short(f.prompts[0].left()) && !f.short(f.prompts[len(f.prompts)-1].left()) {
			return f.tokensWithin(f.roster.limits.MaxStall.Seconds()/f.cost.Late(), left, logits)
		}
		return left
	}
	limit := (f.stallLimit(&f.load.Work) - f.waited.Seconds()) / f.cost.Late()
	n := f.tokensWithin(limit, left, logits)
	w := f.withPrompts(n, logits)
	if f.roster.limits.Divides && (n < min(left, f.promptsLeft()) || f.cost.Predict(&w) > limit) {
		f.leaveDecodesOut()
		return f.tokensWithin(f.roster.limits.MaxStall.Seconds(), f.roster.limits.BatchTokens, logits)
	}
	f.load.smallest = n == f.leastTokens(left) && n < left
	return n
}

// background reports whether the batch has only background sequences.
func (f *forming) background() bool {
	for i := range f.items {
		if !f.items[i].Seq.Background {
			return false
		}
	}
	return !slices.ContainsFunc(f.prompts, func(q *Sequence) bool { return !q.Background })
}

// Waited sets how long decoding sequences have been left out of batches at the next call of Schedule.
func (s *Scheduler) Waited(d time.Duration) { s.next.waited = d }

// countDecodes adds the items of decoding sequences to the load.
func (f *forming) countDecodes() {
	for i := range f.items {
		f.load.Decode.Add(len(f.items[i].Tokens), f.items[i].Cached)
	}
}

// tokensWithin returns how many prompt tokens, up to a maximum, a batch can take within a number of seconds.
func (f *forming) tokensWithin(limit float64, most, logits int) int {
	least := f.leastTokens(most)
	return least + sort.Search(most-least, func(i int) bool {
		w := f.withPrompts(least+i+1, logits)
		return !f.cost.Trusts(&w, SmallestChunk) || f.cost.Predict(&w) > limit
	})
}

// leastTokens returns the minimum number of prompt tokens of a batch, up to the given number.
func (f *forming) leastTokens(most int) int {
	return min(max(SmallestChunk, len(f.prompts)*f.roster.limits.Grain), most)
}

// promptsLeft returns the number of tokens left in the prompts of the batch.
func (f *forming) promptsLeft() (n int) {
	for _, q := range f.prompts {
		n += q.left()
	}
	return n
}

// leaveDecodesOut removes the decoding sequences from the batch; their pages stay reserved for Between. A batch of
// prompts alone that takes about MaxStall is long enough to be computed efficiently, and short enough for new requests,
// which wait for its end.
func (f *forming) leaveDecodesOut() {
	prompts := f.prompts
	f.begin()
	f.prompts, f.load = prompts, load{apart: true, divided: true}
}

// Between forms a batch of the decoding sequences while a divided batch is computed, and returns its load. The batch
// has no drafts, because prompts wait, and takes no page from a running sequence: sequences that need a page and find
// none wait for the end of the divided batch. The slice is valid until the next call, or Schedule.
func (s *Scheduler) Between() ([]Item, Load) {
	divided := s.next.load
	s.next.addDecodes()
	s.next.serve()
	load := s.Load()
	s.next.load = divided
	return s.next.items, load
}

// addDecodes fills the batch with decoding sequences that need no page of another running sequence.
func (f *forming) addDecodes() {
	f.begin()
	for _, q := range f.roster.running {
		if q.decoding() && f.takes(q) && f.room.most(q, q.end(), 1) > 0 && f.roster.reserve(q, 1) == nil {
			f.addItem(q, 1, true)
		}
	}
	f.countDecodes()
}

// Decoding reports whether any sequence decodes.
func (s *Scheduler) Decoding() bool {
	return slices.ContainsFunc(s.roster.running, (*Sequence).decoding)
}

// stallLimit returns the maximum time of a batch in seconds: MaxStall, or the time of the decodes plus half of MaxStall
// if the decodes are slow by themselves.
func (f *forming) stallLimit(w *cost.Work) float64 {
	stall := f.roster.limits.MaxStall.Seconds()
	return max(stall, f.cost.Decoding(w)+stall/2)
}

// withPrompts returns the batch's work with n tokens of its prompts.
func (f *forming) withPrompts(n, logits int) cost.Work {
	w := f.load.Work
	for i, q := range f.prompts {
		part := f.share(q, n, logits, len(f.prompts)-i)
		n, logits = n-part, logits-promptLogits(q, part)
		w.AddPrompt(part, q.end(), f.roster.limits.Threshold)
	}
	return w
}

// Load returns the load of the latest batch, as the argument of Took.
func (s *Scheduler) Load() Load { return Load{s.next.load} }

// Load describes the properties of a batch that determine its time.
type Load struct{ load load }

type load struct {
	cost.Work
	smallest bool // the prompts were cut to the smallest chunk
	apart    bool // decoding sequences were left out of the batch
	divided  bool // decoding sequences were left out and may run between the operations of the batch
}

// Divided reports whether decoding sequences may run while the batch is computed.
func (l Load) Divided() bool { return l.load.divided }

// Apart reports whether decoding sequences were left out of the batch: they wait for this batch and the next batch.
func (l Load) Apart() bool { return l.load.apart }

// Took records how long a batch took: from Schedule, or from the end of the previous batch if that was later, until its
// tokens were delivered. Without calls of Took, the predicted times of batches are guesses.
func (s *Scheduler) Took(of Load, d time.Duration) {
	l := &of.load
	s.next.cost.Observe(&l.Work, d.Seconds())
	if s.roster.limits.MaxStall > 0 && l.smallest && s.next.cost.Prompts() >= enoughMeasured {
		if t := s.next.cost.Predict(&l.Work); t > s.next.stallLimit(&l.Work) {
			s.next.stall = max(s.next.stall, time.Duration(t*float64(time.Second)))
		}
	}
}

// PromptTime predicts the time to compute n tokens of a prompt after cached tokens; 0 before any prompt was measured.
func (s *Scheduler) PromptTime(n, cached int) time.Duration {
	var w cost.Work
	if w.AddPrompt(n, cached, s.roster.limits.Threshold); n == 0 || s.next.cost.Prompts() == 0 {
		return 0
	}
	return time.Duration(s.next.cost.Predict(&w) * float64(time.Second))
}

// enoughMeasured is the number of measured batches with prompts before Stall returns a time.
const enoughMeasured = 8

// Stall returns the longest delay of decoding sequences by prompts, if it is known to exceed MaxStall because even the
// smallest chunk takes that long. Otherwise it returns 0.
func (s *Scheduler) Stall() time.Duration { return s.next.stall }
