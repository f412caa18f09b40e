package sched

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"sparrow/internal/kv"
)

// fake is a model that computes nothing but records what each slot of its cache holds: a hash of the sequence up to the
// token of the slot. It checks the invariants of every step:
//
//   - a step has at most BatchTokens tokens and MaxRunning sequences, none of them twice;
//   - an item is the next part of its sequence, and its pages hold exactly the tokens before it, whether they are
//     reused, shared or recomputed;
//   - if the pool has window pages, they hold exactly the tokens in the window of the item's first token;
//   - no two sequences write the same slot in a step, not even with rejected drafts;
//   - a decoding sequence gets its token in every step, whatever else runs, unless it is preempted; a prompt gets at
//     least one token unless pages are missing or as many prompts were chosen as can each get Limits.Grain tokens, at
//     most the maximum number of prompts; sequences that record or replay may wait for free rows in a batch, and all
//     may wait for a step of first sequences alone, of which no two follow each other; background sequences wait while
//     prompts of others are computed;
//   - prompts are cut only at multiples of Limits.Grain;
//   - no batch records or replays more rows than Limits.RecordRows, and rows are recorded in order;
//   - sequences wait, run and are admitted in order of arrival, including preempted sequences;
//   - rows of logits are those of the last requested tokens of a sequence, each once, and no batch has more of them
//     than Limits.PromptLogits in addition to one for each sequence and draft;
//   - if ranks have pools of their own, a sequence has all its pages in one pool from its admission on;
//   - kv.Check holds after Schedule and after the step.
type fake struct {
	pool  *kv.Pool   // first pool; fakes without ranks have only this pool
	pools []*kv.Pool // pool of each rank
	sched *Scheduler
	size  int      // page size in tokens
	slots []uint64 // hash in each slot, [pages*size]
	sight int      // number of tokens that a window row attends to
	seen  []uint64 // hash in each window slot, [window pages*size]
	goals map[*Sequence]int
	order []*Sequence // sequences in the order of their first admission
	// loose holds prompts whose order is not checked: short prompts overtake other prompts, and prompts that request
	// rows of logits are never scheduled alone, so that later requests overtake them.
	loose map[*Sequence]bool
	steps int
	apart bool // the latest step had only first sequences
	// guess returns the number of drafts to try after a step, some of them wrong; nil means no drafts.
	guess func(q *Sequence) int
	right int // number of accepted drafts
	wrong int
	// scored counts the rows of logits of sequences that request more than one row.
	scored map[*Sequence]int
	// recorded counts the recorded rows of each sequence.
	recorded map[*Sequence]int
}

func newFake(pages, size int, l Limits) (*fake, error) {
	return newWindowed(pages, size, kv.Window{}, l)
}

// newWindowed returns a fake whose pool has window pages.
func newWindowed(pages, size int, w kv.Window, l Limits) (*fake, error) {
	return newRanked(1, pages, size, w, l)
}

// newRanked returns a fake with equal pools for several ranks.
func newRanked(ranks, pages, size int, w kv.Window, l Limits) (*fake, error) {
	var pools []*kv.Pool
	for r := range ranks {
		own := w
		own.First = r * w.Pages
		pool, err := kv.New(kv.Config{FirstPage: r * pages, Pages: (r + 1) * pages, PageTokens: size, Window: own,
			Reuse: true, Main: "rows", Index: "keys"})
		if err != nil {
			return nil, err
		}
		pools = append(pools, pool)
	}
	s, err := New(pools, l)
	return &fake{pool: pools[0], pools: pools, sched: s, size: size, slots: make([]uint64, ranks*pages*size),
		sight: w.Tokens, seen: make([]uint64, ranks*w.Pages*size), goals: map[*Sequence]int{},
		loose:  map[*Sequence]bool{},
		scored: map[*Sequence]int{}, recorded: map[*Sequence]int{}}, err
}

// check checks every pool.
func (f *fake) check() error {
	for _, p := range f.pools {
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// add submits a sequence that ends when it has goal tokens.
func (f *fake) add(q *Sequence, goal int) error {
	f.goals[q], f.loose[q] = goal, f.sched.next.short(len(q.Tokens)) || q.Logits > 1
	return f.sched.Add(q)
}

// step runs one step and returns its items, or none if all sequences have ended.
func (f *fake) step() ([]Item, error) {
	decoding := map[*Sequence]int{} // number of preemptions of each sequence that decodes before the step
	for _, q := range f.sched.roster.running {
		if q.decoding() {
			decoding[q] = q.Preempted
		}
	}
	items := f.sched.Schedule()
	f.steps++
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("after Schedule: %w", err)
	}
	if err := f.checkStep(items, decoding); err != nil {
		return nil, err
	}
	for i := range items {
		if q := items[i].Seq; !f.sched.next.takes(q) {
			return nil, fmt.Errorf("background sequence %d is in a step with prompts of other sequences", q.age)
		}
	}
	for i := range items {
		if err := f.run(&items[i]); err != nil {
			return nil, err
		}
	}
	for i := range items {
		if err := f.settle(&items[i]); err != nil {
			return nil, err
		}
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("after the step: %w", err)
	}
	return items, nil
}

func (f *fake) checkStep(items []Item, decoding map[*Sequence]int) error {
	older := func(a, b *Sequence) int { return cmp.Compare(a.age, b.age) }
	tokens, logits, seen, known := 0, 0, map[*Sequence]bool{}, len(f.order)
	recorded, replayed, prompts := 0, 0, 0
	grain, left := f.sched.Limits().Grain, f.sched.Limits().BatchTokens // left: tokens that decodes leave to prompts
	for i := range items {
		it := &items[i]
		if !it.Decode {
			prompts++
		}
		if end := it.Cached + len(it.Tokens); !it.Decode && !it.Last && end%grain != 0 {
			return fmt.Errorf("sequence %d: a prompt is cut after %d tokens, want a multiple of %d", it.Seq.age, end,
				grain)
		}
		if it.Decode {
			left -= len(it.Tokens)
		}
		tokens += len(it.Tokens)
		logits += max(it.Logits-1-it.Drafts, 0)
		recorded += it.Record.len()
		replayed += it.Seq.Replay.in(it.Cached, len(it.Tokens)).len()
		if want := it.Seq.Record.in(it.Cached, len(it.Tokens)); it.Record != want {
			return fmt.Errorf("sequence %d: an item records the rows %v, want %v", it.Seq.age, it.Record, want)
		}
		if seen[it.Seq] {
			return fmt.Errorf("a sequence is twice in a step")
		}
		seen[it.Seq] = true
		if !slices.Contains(f.order, it.Seq) {
			f.order = append(f.order, it.Seq)
		}
	}
	slices.SortFunc(f.order[known:], older)
	if l := f.sched.Limits(); tokens > l.BatchTokens || len(items) > l.MaxRunning {
		return fmt.Errorf("a step has %d tokens of %d sequences, limits %+v", tokens, len(items), l)
	}
	if most := f.sched.Limits().MaxPrompts; prompts > most {
		return fmt.Errorf("a step has %d prompts, want at most %d", prompts, most)
	}
	if most := f.sched.Limits().PromptLogits; logits > most {
		return fmt.Errorf("a step has %d prompt rows with logits, want at most %d", logits, most)
	}
	if most := f.sched.Limits().RecordRows; recorded > most || replayed > most {
		return fmt.Errorf("a step records %d rows and replays %d rows, want at most %d each", recorded, replayed, most)
	}
	if !slices.IsSortedFunc(f.sched.roster.waiting, older) || !slices.IsSortedFunc(f.sched.roster.running, older) {
		return fmt.Errorf("sequences are not in order of arrival")
	}
	twice := f.apart
	if f.apart = f.sched.Load().Apart(); f.apart {
		return checkFirst(items, twice)
	}
	for _, q := range f.sched.roster.running {
		pool := f.pools[q.Rank()]
		chosen := slices.Contains(f.sched.next.prompts, q)
		if !q.ready && !chosen && len(f.sched.next.prompts) >= min(f.sched.Limits().MaxPrompts, left/grain) {
			continue
		}
		if !q.ready && grain > 1 && q.Logits > 1 { // it may wait for rows of logits
			continue
		}
		if !seen[q] && free(q) && f.sched.next.takes(q) && pool.Available() > 0 &&
			(f.sight == 0 || pool.WindowsAvailable() > 0) {
			return fmt.Errorf("sequence %d runs but is not in the step although %d pages are available", q.age,
				pool.Available())
		}
	}
	for q, times := range decoding {
		if !seen[q] && free(q) && f.sched.next.takes(q) && q.Preempted == times {
			return fmt.Errorf("sequence %d decodes but is not in the step", q.age)
		}
	}
	return nil
}

// checkFirst checks a step that contains only first sequences of tenants or flows.
func checkFirst(items []Item, twice bool) error {
	if twice {
		return fmt.Errorf("two steps without decodes follow each other")
	}
	for i := range items {
		own := items[i].Seq.tenant()
		if len(own.parent.members) == 1 { // a single tenant: its flows take turns
			own = items[i].Seq.flow()
		}
		if it := &items[i]; it.Decode || !it.Last || own.running != 1 {
			return fmt.Errorf("sequence %d, of a tenant with %d running sequences, is in a step of first sequences "+
				"with %d tokens after %d",
				it.Seq.age, it.Seq.tenant().running, len(it.Tokens), it.Cached)
		}
	}
	return nil
}

// free reports whether a sequence records no rows, replays no rows and is not being restored.
func free(q *Sequence) bool { return q.Record == Span{} && q.Replay == Span{} && !q.restoring }

// run checks the cached data of an item and writes its rows.
func (f *fake) run(it *Item) error {
	q := it.Seq
	own := len(it.Tokens) - it.Drafts
	if own < 1 || !slices.Equal(it.Tokens[:own], q.Tokens[it.Cached:it.Cached+own]) {
		return fmt.Errorf("sequence %d: an item of %d tokens after %d cached tokens is not a part of the sequence",
			q.age, own, it.Cached)
	}
	if it.Last != (it.Cached+own == len(q.Tokens)) || it.Decode && own != 1 || it.Drafts > 0 && !it.Decode {
		return fmt.Errorf("sequence %d: the item has last %v, decode %v for tokens %d to %d of %d and %d drafts", q.age,
			it.Last,
			it.Decode, it.Cached, it.Cached+own, len(q.Tokens), it.Drafts)
	}
	first := max(len(q.Tokens)-max(q.Logits, 1), it.Cached) // position of the first token whose logits are requested
	if want := max(it.Cached+own-first, 0) + it.Drafts; it.Logits != want {
		return fmt.Errorf("sequence %d: %d rows of logits for tokens %d to %d and %d drafts, want %d", q.age, it.Logits,
			it.Cached, it.Cached+own, it.Drafts, want)
	}
	if len(q.Drafts) > 0 {
		return fmt.Errorf("sequence %d: %d drafts remain after the step", q.age, len(q.Drafts))
	}
	each := len(f.slots) / f.size / len(f.pools)
	for _, page := range it.Pages {
		if it.Rank != q.Rank() || int(page)/each != it.Rank {
			return fmt.Errorf("sequence %d of rank %d has page %d, but each rank has %d pages", q.age, it.Rank, page,
				each)
		}
	}
	for p, h := range hashes(it) {
		slot := f.slot(it, p)
		if p >= it.Cached {
			f.slots[slot] = h
		} else if f.slots[slot] != h {
			return fmt.Errorf("sequence %d: the cache has a wrong hash at token %d of %d", q.age, p, it.Cached)
		}
		if f.sight == 0 || p <= it.Cached-f.sight {
			continue
		}
		if at := it.Windows[p/f.size]; at < 0 {
			return fmt.Errorf("sequence %d: token %d has no window page, %d tokens are cached", q.age, p, it.Cached)
		} else if slot := int(at)*f.size + p%f.size; p >= it.Cached {
			f.seen[slot] = h
		} else if f.seen[slot] != h {
			return fmt.Errorf("sequence %d: the window has a wrong hash at token %d of %d", q.age, p, it.Cached)
		}
	}
	return nil
}

func (f *fake) slot(it *Item, p int) int { return int(it.Pages[p/f.size])*f.size + p%f.size }

// hashes yields, for each token up to the end of an item, the hash of the sequence up to and including that token.
func hashes(it *Item) iter.Seq2[int, uint64] {
	q := it.Seq
	return func(yield func(int, uint64) bool) {
		h := uint64(len(q.Salt))
		for _, b := range q.Salt {
			h = h*31 + uint64(b)
		}
		for p, token := range slices.Concat(q.Tokens[:it.Cached], it.Tokens) {
			h = (h ^ uint64(token)) * 1099511628211
			if !yield(p, h) {
				return
			}
		}
	}
}

// following returns the token that the fake's model chooses after n.
func following(n int) int32 { return int32(n * 7 % 5) }

// settle commits an item, whose rows no other item of the step may have overwritten. It samples and accepts the drafts
// that equal the sampled tokens.
func (f *fake) settle(it *Item) error {
	q := it.Seq
	for p, h := range hashes(it) {
		if f.slots[f.slot(it, p)] != h {
			return fmt.Errorf("sequence %d: row %d was overwritten in the step that wrote it", q.age, p)
		}
	}
	if q.Logits > 0 {
		q.Logits -= it.Logits
		f.scored[q] += it.Logits
	}
	plain := it.Record.in(0, len(it.Tokens)-it.Drafts)
	f.keep(q, it.Cached, plain)
	if err := f.sched.Done(it); err != nil || !it.Last {
		return err
	}
	drafts := it.Tokens[len(it.Tokens)-it.Drafts:]
	for i := 0; ; i++ {
		if len(q.Tokens) == f.goals[q] {
			f.remove(q)
			return nil
		}
		q.Tokens = append(q.Tokens, following(len(q.Tokens)))
		if i == len(drafts) || drafts[i] != q.Tokens[len(q.Tokens)-1] {
			f.wrong += len(drafts) - i
			break
		}
		f.right++
		f.keep(q, it.Cached, it.Record.in(0, len(it.Tokens)-it.Drafts+i+1))
		if err := f.sched.Accept(it); err != nil {
			return err
		}
	}
	if err := f.sched.Reject(it); err != nil {
		return err
	}
	if got := it.Cached + it.Kept(); got != len(q.Tokens)-1 || got != q.cache.Len() {
		return fmt.Errorf("sequence %d: %d tokens are kept and %d are in the cache, want all but the last of %d tokens",
			q.age,
			got, q.cache.Len(), len(q.Tokens))
	}
	if have, need := len(q.Pages()), (q.cache.Len()+f.size-1)/f.size; it.Drafts > 0 && have != need {
		return fmt.Errorf("sequence %d: %d pages after a verification, but %d tokens need %d pages", q.age, have,
			q.cache.Len(),
			need)
	}
	if f.guess != nil {
		f.draft(q, f.guess(q))
	}
	return nil
}

// keep counts the rows of a span, from position at on, that the sequence has not recorded yet.
func (f *fake) keep(q *Sequence, at int, s Span) {
	if end := at + s.To; s.len() > 0 && end > q.Record.From {
		f.recorded[q] += end - max(at+s.From, q.Record.From)
		q.Record.From = end
	}
}

// draft guesses the next tokens of a sequence; every third guess is wrong.
func (f *fake) draft(q *Sequence, n int) {
	for i := range f.sched.ReserveDrafts(q, min(n, f.goals[q]-len(q.Tokens))) {
		at := len(q.Tokens) + i
		token := following(at)
		if at%3 == 0 {
			token++
		}
		q.Drafts = append(q.Drafts, token)
	}
}

func (f *fake) remove(q *Sequence) {
	f.sched.Remove(q)
	delete(f.goals, q)
}
