// Package sched decides which sequences run in a batch and how many of their tokens: queue, admission, chunked prefill,
// preemption.
//
// Sequences come in through Add, and Schedule returns the items of the next batch; pages are allocated from and
// released to package kv. The package does not depend on a model, on text or on a clock: the caller reports how long
// batches took. It sets no limit on the queue. One goroutine owns a Scheduler and everything that it returns.
//
// The rules, in order. (1) The short prompt of a tenant that has no running sequences is computed in its own batch, if
// that gives its first token much earlier. (2) After such a batch, and in all other batches, every decoding sequence
// gets its one token, oldest first, whatever prompts wait. The only exception: if more rows are to be recorded or
// replayed than a batch allows, the youngest sequences that record or replay wait. (3) The remaining tokens of the
// batch are shared among up to Limits.MaxPrompts prompts. These take turns by tenant, with one place for a short prompt
// (turns.go), so that a long prompt does not delay a short one. While sequences decode, prompts get no more than
// Limits.MaxStall allows; with Limits.Divides, prompts that take longer have batches of their own, during which Between
// forms the batches of the other sequences. (4) New sequences are admitted while there are pages for their whole
// prompt: first the tenant that was served least, inside a tenant the highest priority, then the flow that was served
// least; inside a flow requests take turns, in order of arrival. (5) If a decode finds no free page, the pages of
// drafts are released. If that is not enough, the youngest sequence is preempted: it loses its pages, waits at its
// place by arrival and is computed again later.
//
// While other owners wait, no tenant, flow of a tenant or request of a flow keeps more places or pages than the waiting
// owners have: the youngest sequences of the owner with the most are suspended, but never its oldest. A single owner
// may use everything. If only places are short, suspended sequences keep their pages and continue without
// recomputation. Inside a tenant, a waiting sequence also causes the suspension of sequences of a lower priority.
package sched

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/kv"
)

// Limits holds the limits of a batch.
type Limits struct {
	BatchTokens int // maximum number of new tokens in one batch
	// MaxRunning is the maximum number of sequences in a batch. It is at most BatchTokens - Grain + 1, so that each
	// decoding sequence gets a token in every batch, and some prompt gets at least Grain tokens.
	MaxRunning int
	MaxPrompts int // maximum number of prompts in a batch; 0 means 4
	// Grain is the number of tokens at whose multiples prompts are cut; 0 means 1. The number of tokens of a page is a
	// multiple of it.
	Grain int
	// PromptLogits is the maximum number of rows of prompt logits in one batch, in addition to the row of the last
	// token of each prompt.
	PromptLogits int
	// MaxStall is the maximum time that prompts may delay decoding sequences; 0 means no limit. With a limit, Took must
	// be called.
	MaxStall time.Duration
	// Divides reports that batches of decodes can run while a batch of prompts is computed: the caller requests them
	// with Between, as often as MaxStall requires.
	Divides bool
	// Threshold is the number of prompt tokens that use dense attention, whose time is predicted separately; 0
	// means none.
	Threshold int
	// RecordRows is the maximum number of recorded rows of one batch, and also of replayed rows.
	RecordRows int
	// KeepSuspended lets suspended sequences keep their pages while no other sequence needs these pages. The data that
	// OnFree would release is then also kept.
	KeepSuspended bool
}

// DefaultMaxPrompts is the default maximum number of prompts in a batch.
const DefaultMaxPrompts = 4

// Scheduler forms batches of the sequences that were added to it.
type Scheduler struct {
	roster *roster
	next   *forming
}

// New makes a scheduler for the pool of a model, or for equal pools of its ranks. Each sequence has its pages in one
// pool from its admission on.
func New(pools []*kv.Pool, l Limits) (*Scheduler, error) {
	if l.MaxPrompts == 0 {
		l.MaxPrompts = DefaultMaxPrompts
	}
	if l.BatchTokens < 1 || l.MaxRunning < 1 || l.MaxPrompts < 1 || len(pools) < 1 {
		return nil, fmt.Errorf("%w: limits %+v with %d pools; want at least 1 of each", ErrLimits, l,
			len(pools))
	}
	l.Grain = cmp.Or(l.Grain, 1)
	page := pools[0].Tag().PageTokens
	if l.Grain < 1 || page%l.Grain != 0 {
		return nil, fmt.Errorf("%w: prompts are cut at multiples of %d tokens, want a divisor of the %d tokens of a "+
			"page", ErrLimits, l.Grain, page)
	}
	for _, x := range [...]struct {
		rows string
		most int
	}{{"new tokens", l.BatchTokens}, {"prompt logits", cmp.Or(l.PromptLogits, l.Grain)},
		{"recorded rows", cmp.Or(l.RecordRows, l.Grain)}} {
		if x.most < l.Grain {
			return nil, fmt.Errorf("%w: a batch has at most %d %s, want at least %d, because prompts are cut at "+
				"multiples of %d tokens", ErrLimits, x.most, x.rows, l.Grain, l.Grain)
		}
	}
	l.MaxRunning = min(l.MaxRunning, l.BatchTokens-l.Grain+1)
	o := &roster{pools: pools, limits: l, capacity: pools[0].Stats().Pages * page}
	return &Scheduler{o, &forming{roster: o, cost: cost.NewModel()}}, nil
}

// pool returns the pool with the pages of a running sequence.
func (o *roster) pool(q *Sequence) *kv.Pool { return o.pools[q.rank] }

// Limits returns the limits in force.
func (s *Scheduler) Limits() Limits { return s.roster.limits }

// Running returns the number of sequences that hold pages.
func (s *Scheduler) Running() int { return len(s.roster.running) }

// Waiting returns the number of sequences in the queue, including preempted sequences.
func (s *Scheduler) Waiting() int { return len(s.roster.waiting) }

// Preemptions returns the number of times that sequences were suspended.
func (s *Scheduler) Preemptions() int64 { return s.roster.preemptions }

// All returns every running and waiting sequence.
func (s *Scheduler) All() []*Sequence {
	return append(slices.Clone(s.roster.running), s.roster.waiting...)
}

// Add adds a sequence to the end of the queue.
func (s *Scheduler) Add(q *Sequence) error {
	switch {
	case q.state != stateNew:
		return fmt.Errorf("%w: the sequence was already added", ErrSequence)
	case len(q.Tokens) == 0:
		return fmt.Errorf("%w: the sequence has no tokens", ErrSequence)
	case len(q.Tokens) > s.roster.capacity:
		return fmt.Errorf("%w: the sequence has %d tokens, but a pool holds %d", ErrSequence, len(q.Tokens),
			s.roster.capacity)
	case q.Logits < 0 || q.Logits > len(q.Tokens):
		return fmt.Errorf("%w: the sequence requests logits for the last %d of its %d tokens", ErrSequence, q.Logits,
			len(q.Tokens))
	case q.Logits > 1 && s.roster.limits.PromptLogits < 1:
		return fmt.Errorf("%w: the sequence requests logits for its last %d tokens, but the limit of prompt logits "+
			"per batch "+
			"is 0", ErrSequence, q.Logits)
	case q.Record.bad() || q.Replay.bad():
		return fmt.Errorf("%w: the sequence records positions %v and replays %v, which are not valid ranges",
			ErrSequence,
			q.Record, q.Replay)
	case (q.Record != Span{} || q.Replay != Span{}) && s.roster.limits.RecordRows < 1:
		return fmt.Errorf("%w: the sequence records or replays rows, but the limit of recorded rows per batch is 0",
			ErrSequence)
	}
	s.roster.arrivals++
	q.age, q.state = s.roster.arrivals, stateWaiting
	s.roster.waiting = append(s.roster.waiting, q)
	request := q.Request
	if request == nil {
		request = q
	}
	q.request = s.roster.all.member(q.Tenant).member(q.Flow).member(request)
	q.request.count(0, 1)
	q.turn, q.request.turns = q.request.turns, q.request.turns+1
	return nil
}

// Remove ends a sequence in any state and releases its pages.
func (s *Scheduler) Remove(q *Sequence) {
	switch q.state {
	case stateWaiting:
		s.roster.giveUp(q)
		s.roster.waiting = without(s.roster.waiting, q)
		q.request.count(0, -1)
	case stateRunning:
		s.roster.running = without(s.roster.running, q)
		q.request.count(-1, 0)
		s.roster.free(q)
	}
	q.state = stateGone
}

// Restart releases the pages of a running sequence, whose rows are invalid or cannot be continued, and queues it again
// at its place by arrival.
func (s *Scheduler) Restart(q *Sequence) {
	if q.state == stateRunning {
		s.roster.suspend(q)
		s.roster.giveUp(q)
	}
}

// OnFree sets a function that is called for every sequence that releases its pages, when it is suspended or removed, so
// that other data of those pages can be released.
func (s *Scheduler) OnFree(f func(*Sequence)) { s.roster.onFree = f }

// free releases the pages of a sequence.
func (o *roster) free(q *Sequence) {
	q.cache.Close()
	if o.onFree != nil {
		o.onFree(q)
	}
}

func without(list []*Sequence, q *Sequence) []*Sequence {
	i := slices.Index(list, q)
	return slices.Delete(list, i, i+1)
}

// Done commits an item's tokens, without its drafts: their rows are in the cache. After the last item of a sequence the
// caller appends a token to it or removes it before the next Schedule.
func (s *Scheduler) Done(it *Item) error {
	s.arrived(it)
	q := it.Seq
	if q.state != stateRunning {
		return nil
	}
	if it.Last {
		q.ready, q.computed = true, true
	}
	return q.cache.Commit(it.Tokens[:it.Kept()])
}
