package sched

import (
	"cmp"
	"fmt"
	"slices"
)

// Schedule forms the next batch. The slice is valid until the next call. It is empty only if no sequence runs or waits,
// or while a sequence is being restored or in flight.
func (s *Scheduler) Schedule() []Item {
	for again := s.next.load.apart && !s.next.load.divided; ; {
		s.roster.makeRoom()
		s.next.begin()
		s.next.prompted = s.roster.prompted()
		if again || !s.next.addFirstSequences() {
			s.next.addAll()
		}
		if len(s.next.items) > 0 || len(s.roster.running) == 0 || s.Restoring() || s.roster.flying() {
			s.next.serve()
			s.next.waited = 0
			return s.next.items
		}
		s.roster.preemptYoungest(s.roster.crowded()) // every running sequence is a prompt that finds no free pages
	}
}

// begin begins an empty batch.
func (f *forming) begin() {
	f.items, f.prompts, f.load = f.items[:0], f.prompts[:0], load{}
	f.room = room{f.roster.limits.RecordRows, f.roster.limits.RecordRows}
}

// serve adds the tokens of the batch to the service of their owners.
func (f *forming) serve() {
	for i := range f.items {
		f.items[i].Seq.request.serve(len(f.items[i].Tokens))
	}
}

// addAll adds every decoding sequence, and as many prompt tokens as the batch allows.
func (f *forming) addAll() {
	budget, logits := f.roster.limits.BatchTokens, f.roster.limits.PromptLogits

	// Every decoding sequence gets its one token, oldest first, background sequences last. If more rows are to be
	// recorded than a batch allows, the youngest sequences that record or replay wait. If pages run out, the youngest
	// sequence of the rank is preempted, which has no item yet.
	f.oldest = append(f.oldest[:0], f.roster.running...)
	slices.SortStableFunc(f.oldest, func(a, b *Sequence) int {
		switch {
		case a.Background == b.Background:
			return 0
		case a.Background:
			return 1
		}
		return -1
	})
	for _, q := range f.oldest {
		if q.state == stateRunning && q.decoding() && f.takes(q) && f.room.most(q, q.end(), 1) > 0 &&
			f.roster.reserveToken(q) {
			f.addItem(q, 1, true)
			budget--
		}
	}

	// Drafts have the lowest priority, but they are verified with the token before them: prompts keep at least half of
	// the remaining tokens.
	budget -= f.addDrafts(f.draftBudget(budget))

	// Running prompts and prompts that can be admitted take turns. A preempted sequence is a prompt again until its
	// output is computed again, unless it kept its pages. Each prompt of the batch gets at least Limits.Grain tokens.
	budget = f.choosePrompts(budget)

	// Prompts share the remaining tokens, the shortest prompt first: tokens that a short prompt does not need go to
	// longer prompts.
	slices.SortStableFunc(f.prompts, func(a, b *Sequence) int { return cmp.Compare(a.left(), b.left()) })
	budget = f.promptTokens(budget, logits)
	for i, q := range f.prompts {
		n := f.share(q, budget, logits, len(f.prompts)-i)
		n = f.roster.reserveChunk(q, f.roster.cut(q, f.room.most(q, q.end(), n)), f.prompts[i+1:])
		if n > 0 {
			budget, logits = budget-n, logits-promptLogits(q, n)
			f.load.AddPrompt(n, q.end(), f.roster.limits.Threshold)
			f.addItem(q, n, false)
		}
	}
	if f.load.divided && len(f.items) == 0 { // no prompt has found free pages
		f.addDecodes()
	}
}

// prompted reports whether foreground sequences have prompts to compute.
func (o *roster) prompted() bool {
	for _, q := range o.running {
		if !q.Background && !q.restoring && !q.decoding() && q.left() > 0 {
			return true
		}
	}
	first := o.nextToAdmit()
	return first >= 0 && !o.waiting[first].Background
}

// takes reports whether the batch may include a sequence. Background sequences wait while prompts of other sequences
// are computed, so that those sequences get their first token as soon as on an idle device.
func (f *forming) takes(q *Sequence) bool { return !q.Background || !f.prompted }

// addItem adds the next n tokens of a sequence, for which pages are reserved.
func (f *forming) addItem(q *Sequence, n int, decode bool) {
	at := q.end()
	f.room.take(q, at, n)
	it := Item{Seq: q, Cached: at, Rank: q.rank, Decode: decode, Unknown: at >= len(q.Tokens),
		Logits: q.logitRows(n), Last: at+n == q.length(), Record: q.Record.in(at, n),
		Pages: q.cache.Pages(), Windows: q.cache.Windows()}
	if it.Tokens = f.unknown[:]; !it.Unknown {
		it.Tokens = q.Tokens[at : at+n]
	}
	f.items = append(f.items, it)
}

// reserveToken reserves the page of a decoding sequence's next token and reports whether the sequence still runs. If no
// page is free, it releases pages of drafts, then it preempts the youngest sequence of the rank, which may be this
// sequence.
func (o *roster) reserveToken(q *Sequence) bool {
	for q.state == stateRunning && o.reserve(q, 1) != nil {
		if !o.releaseDraftPages(q.rank) {
			o.preemptYoungest(q.rank)
		}
	}
	return q.state == stateRunning
}

// share returns how many of the next tokens of a prompt a batch takes: an even share of the remaining tokens and rows
// of logits for the given number of prompts, but enough for Limits.Grain tokens. A short prompt gets up to half of the
// tokens and rows.
func (f *forming) share(q *Sequence, tokens, logits, prompts int) int {
	parts, grain := prompts, f.roster.limits.Grain
	if f.short(q.left()) {
		parts = min(prompts, 2)
	}
	n := min(q.left(), (tokens+parts-1)/parts)
	if q.Logits > 1 {
		n = min(n, q.unscored()+max((logits+parts-1)/parts, min(grain, logits)))
	}
	return min(n, tokens-(prompts-1)*grain) // the other prompts also get tokens
}

// promptLogits returns how many of Limits.PromptLogits the next n tokens of a prompt take.
func promptLogits(q *Sequence, n int) int {
	if q.Logits > 1 {
		return q.logitRows(n)
	}
	return 0
}

// cut returns how many of the next n tokens of a prompt a batch can take: all of them if they are the end of the
// prompt, otherwise as many as end at a multiple of Limits.Grain.
func (o *roster) cut(q *Sequence, n int) int {
	if n >= q.left() {
		return n
	}
	return max(n-(q.end()+n)%o.limits.Grain, 0)
}

// reserveChunk reserves pages for the next n tokens of a prompt, or fewer, and returns how many. The chunk is halved
// until it fits in the free pages; the rest of the prompt waits. The smallest chunk takes window pages that other
// prompts need, so that some prompt is computed.
func (o *roster) reserveChunk(q *Sequence, n int, after []*Sequence) int {
	least := o.limits.Grain - q.end()%o.limits.Grain
	for n > 0 && (n > least && !o.leavesWindowPages(q, n, after) || o.reserve(q, n) != nil) {
		if n <= least {
			return 0
		}
		n = max(o.cut(q, n/2), least)
	}
	return n
}

// leavesWindowPages reports whether a chunk of n tokens leaves the window pages that the prompts in after need at
// least. A chunk takes a window page for every page that it spans, and releases most of them when it is computed.
func (o *roster) leavesWindowPages(q *Sequence, n int, after []*Sequence) bool {
	pool := o.pool(q)
	if pool.WindowsPerSequence() == 0 {
		return true
	}
	left := pool.WindowsAvailable() - q.needs(n)
	for _, p := range after {
		if p.rank == q.rank {
			left -= p.cache.WindowsMissing()
		}
	}
	return left >= 0
}

// nextToAdmit returns the position in the queue of the sequence to admit next, or -1. A short sequence does not
// overtake a long sequence that comes before it.
func (o *roster) nextToAdmit() int {
	for _, q := range o.promised {
		if q.state == stateWaiting && !q.waitsForPlace() && o.canAdmit(q) {
			return slices.Index(o.waiting, q)
		}
	}
	i := o.firstWaiting()
	if i >= 0 && !o.canAdmit(o.waiting[i]) {
		return -1
	}
	return i
}

// firstWaiting returns the position in the queue of the sequence that comes first, or -1. It skips sequences that wait
// for another sequence to compute their common prompt, and sequences of tenants that run their maximum number of
// sequences.
func (o *roster) firstWaiting() int {
	return slices.Index(o.waiting, o.firstOf(o.waiting, func(q *Sequence) bool {
		return !q.waitsForPrompt() && !q.waitsForPlace()
	}))
}

// canAdmit reports whether there are a free place in the batch and enough pages for a sequence.
func (o *roster) canAdmit(q *Sequence) bool {
	return len(o.running) < o.limits.MaxRunning && o.findPages(q, nil)
}

// pagesFor returns how many unshared pages a sequence needs, on the rank where it needs the fewest.
func (o *roster) pagesFor(q *Sequence) int {
	least := o.capacity // more than the maximum number of pages that a sequence needs
	for _, pool := range o.pools {
		if need, _, err := o.fit(pool, q); err == nil {
			least = min(least, need)
		}
	}
	return least
}

// space describes how a waiting sequence would fit on a rank, in pages and sequences.
type space struct {
	own int // number of pages that the sequence does not share
	// short is the number of pages or window pages that are missing for the sequence and for running prompts; 0 or less
	// means none.
	short  int
	others int // number of running sequences of the rank
}

// fitOn returns how the tokens of a sequence and one more token fit on a rank, in addition to the pages that running
// prompts will still need. If gone is not nil, the pages of gone count as free. An empty rank accepts any sequence.
func (o *roster) fitOn(rank int, q, gone *Sequence) (f space) {
	pool := o.pools[rank]
	need, available, err := o.fit(pool, q)
	windows, free := pool.WindowsPerSequence(), pool.WindowsAvailable()
	f.own = need
	for _, p := range o.running {
		if p.rank != rank {
			continue
		}
		if p == gone {
			available += p.cache.Unshared()
			free += pool.WindowsPerSequence() - p.cache.WindowsMissing()
			continue
		}
		if f.others++; !p.ready {
			need += p.needs(p.left() + 1)
			windows += p.cache.WindowsMissing()
		}
	}
	switch {
	case f.others == 0:
	case err != nil:
		f.short = o.capacity
	default:
		f.short = max(need-available, windows-free)
	}
	return f
}

// place returns the rank on which a sequence is admitted, and whether there is one. Among the ranks where it fits, it
// prefers the rank with the longest cached prefix, then the rank with the fewest sequences.
func (o *roster) place(q, gone *Sequence) (rank int, ok bool) {
	var best space
	for r := range o.pools {
		f := o.fitOn(r, q, gone)
		if f.short <= 0 && (!ok || f.own < best.own || f.own == best.own && f.others < best.others) {
			rank, best, ok = r, f, true
		}
	}
	return rank, ok
}

// nearest returns the rank with the smallest shortage of pages for a sequence.
func (o *roster) nearest(q *Sequence) (rank int) {
	least := 0
	for r := range o.pools {
		if f := o.fitOn(r, q, nil); r == 0 || f.short < least {
			rank, least = r, f.short
		}
	}
	return rank
}

// hasPagesFor reports whether a sequence fits on some rank, with the pages of gone counted as free if gone is not nil.
func (o *roster) hasPagesFor(q, gone *Sequence) bool {
	_, ok := o.place(q, gone)
	return ok
}

// admit moves a sequence from position at of the queue to the running sequences, and returns it.
func (o *roster) admit(at int) *Sequence {
	q := o.waiting[at]
	q.rank, _ = o.place(q, nil)
	q.state = stateRunning
	o.waiting = slices.Delete(o.waiting, at, at+1)
	o.running = insert(o.running, q)
	q.request.count(1, -1)
	// A reserved place is valid once: if the sequence is suspended again, it waits like other sequences.
	o.promised = slices.DeleteFunc(o.promised, func(p *Sequence) bool { return p == q })
	if i := slices.Index(o.kept, q); i >= 0 {
		o.kept = slices.Delete(o.kept, i, i+1)
		return q
	}
	var err error
	if q.cache, q.Match, err = o.pool(q).Open(q.Tokens, q.Options()); err != nil {
		panic(fmt.Sprintf("sched: opening a sequence that Add accepted: %v", err))
	}
	if o.onAdmit != nil {
		q.restoring = o.onAdmit(q)
	}
	return q
}

// preemptYoungest releases the pages of the youngest running sequence of a rank, preferably a background sequence, and
// queues it again.
func (o *roster) preemptYoungest(rank int) {
	var q *Sequence
	n := 0
	for _, r := range o.running { // running is in order of arrival
		if r.rank != rank {
			continue
		}
		if n++; q == nil || r.Background || !q.Background {
			q = r
		}
	}
	if n == 1 {
		// The sequence is alone and holds every page; the scheduler would admit and preempt it forever.
		panic(fmt.Sprintf("sched: a sequence of %d tokens does not fit a pool of %d tokens", len(q.Tokens), o.capacity))
	}
	o.suspend(q)
	o.giveUp(q)
}

// crowded returns the rank of the youngest sequence that shares its rank with other sequences; if there is none, the
// rank of the youngest sequence.
func (o *roster) crowded() int {
	counts := make([]int, len(o.pools))
	for _, q := range o.running {
		counts[q.rank]++
	}
	for _, q := range slices.Backward(o.running) {
		if counts[q.rank] > 1 {
			return q.rank
		}
	}
	return o.running[len(o.running)-1].rank
}

// insert inserts a sequence into a list in order of arrival.
func insert(list []*Sequence, q *Sequence) []*Sequence {
	at, _ := slices.BinarySearchFunc(list, q.age, func(x *Sequence, age int64) int { return cmp.Compare(x.age, age) })
	return slices.Insert(list, at, q)
}
