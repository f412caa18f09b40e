// Package sched decides which sequences run in a batch and how many of their tokens: queue, admission, chunked prefill,
// preemption.
//
// Sequences flow in through Add, the items of the next batch flow out of Schedule; pages are taken from and released to
// package kv. It knows no model, no text and no clock: the caller states how long batches took. It sets no bound on the
// queue. One goroutine owns a Scheduler and everything it hands out.
//
// The rules, in order: the short prompt of a tenant that has nothing else running is computed in its own batch, where
// that gives its first token much earlier; after such a batch, and in all others, every sequence that decodes gets its
// one token, oldest first, whatever prompts wait (only where more rows are recorded or replayed than a batch has room
// for do the youngest of those wait); the rest of the batch's tokens is shared among up to Limits.MaxPrompts prompts,
// which take turns by tenants, with one place for a short one (turns.go), so that a long one does not delay a short
// one, and while sequences decode it is no more than Limits.MaxStall allows (with Limits.Divides prompts that take
// longer have batches of their own, during which Between forms those of the others); new sequences are admitted while
// there are pages for their whole prompt: the tenant that was served least first, inside a tenant the highest priority,
// then the flow that was served least, and inside a flow requests take turns, in order of arrival. When a decode finds
// no page, drafts lose theirs; then the youngest sequence is preempted: it loses its pages, waits at its place by
// arrival and is computed again later.
//
// No owner keeps more places or pages than others that wait: of the tenant, the flow of a tenant, or the request of a
// flow, that has the most, the youngest sequences are suspended, but never its oldest. A single owner has everything.
// Where only places are short, suspended sequences keep their pages and continue as if nothing had happened. Inside a
// tenant a sequence that waits also suspends those of a lower priority.
package sched

import (
	"fmt"
	"slices"
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/kv"
)

// Limits bound a batch.
type Limits struct {
	BatchTokens int // new tokens of one batch
	MaxRunning  int // sequences in a batch; at most BatchTokens, so that each of them gets a token in every batch
	MaxPrompts  int // prompts in a batch; 0 means 4
	// PromptLogits is the number of rows of logits of prompts in one batch, in addition to one for the last token of
	// each.
	PromptLogits int
	// MaxStall is the longest time that prompts may delay decoding sequences; 0 means no bound. Took has to be called
	// then.
	MaxStall time.Duration
	// Divides reports that batches of decodes can run while a batch of prompts is computed: the caller requests them
	// with Between, as often as MaxStall demands.
	Divides bool
	// Threshold is the number of tokens of a prompt that are computed in another form, with another time; 0 means none.
	Threshold int
	// RecordRows is how many rows of one batch may be recorded, and how many may be replayed.
	RecordRows int
	// KeepSuspended lets sequences that are suspended for others keep their pages while nothing needs them. Whatever
	// else is kept for those pages (OnFree) stays then, too.
	KeepSuspended bool
}

// DefaultMaxPrompts is how many prompts a batch computes.
const DefaultMaxPrompts = 4

// Scheduler forms batches of the sequences that it was given.
type Scheduler struct {
	roster *roster
	next   *forming
}

// New makes a scheduler over the pool of a model, or over equal pools of its ranks: each sequence has its pages in one
// of them from its admission on.
func New(pools []*kv.Pool, l Limits) (*Scheduler, error) {
	if l.MaxPrompts == 0 {
		l.MaxPrompts = DefaultMaxPrompts
	}
	if l.BatchTokens < 1 || l.MaxRunning < 1 || l.MaxPrompts < 1 || len(pools) < 1 {
		return nil, fmt.Errorf("%w: the limits are %+v and there are %d pools; want at least 1 of each", ErrLimits, l,
			len(pools))
	}
	l.MaxRunning = min(l.MaxRunning, l.BatchTokens)
	o := &roster{pools: pools, limits: l, capacity: pools[0].Stats().Pages * pools[0].Tag().PageTokens}
	return &Scheduler{o, &forming{roster: o, cost: cost.NewModel()}}, nil
}

// pool returns where a running sequence has its pages.
func (o *roster) pool(q *Sequence) *kv.Pool { return o.pools[q.rank] }

// Limits are the bounds in force.
func (s *Scheduler) Limits() Limits { return s.roster.limits }

// Running counts the sequences that hold pages.
func (s *Scheduler) Running() int { return len(s.roster.running) }

// Waiting counts the sequences in the queue, preempted ones included.
func (s *Scheduler) Waiting() int { return len(s.roster.waiting) }

// Preemptions counts how often a sequence was suspended.
func (s *Scheduler) Preemptions() int64 { return s.roster.preemptions }

// All lists every sequence that runs or waits.
func (s *Scheduler) All() []*Sequence {
	return append(slices.Clone(s.roster.running), s.roster.waiting...)
}

// Add puts a sequence at the end of the queue.
func (s *Scheduler) Add(q *Sequence) error {
	switch {
	case q.state != stateNew:
		return fmt.Errorf("%w: it was added before", ErrSequence)
	case len(q.Tokens) == 0:
		return fmt.Errorf("%w: it has no tokens", ErrSequence)
	case len(q.Tokens) > s.roster.capacity:
		return fmt.Errorf("%w: it has %d tokens, and a pool holds %d", ErrSequence, len(q.Tokens), s.roster.capacity)
	case q.Logits < 0 || q.Logits > len(q.Tokens):
		return fmt.Errorf("%w: logits were asked for the last %d of its %d tokens", ErrSequence, q.Logits,
			len(q.Tokens))
	case q.Logits > 1 && s.roster.limits.PromptLogits < 1:
		return fmt.Errorf("%w: logits were asked for its last %d tokens, but batches have no room for prompt logits",
			ErrSequence, q.Logits)
	case q.Record.bad() || q.Replay.bad():
		return fmt.Errorf("%w: it records positions %v and replays %v, which are not valid ranges", ErrSequence,
			q.Record, q.Replay)
	case (q.Record != Span{} || q.Replay != Span{}) && s.roster.limits.RecordRows < 1:
		return fmt.Errorf("%w: it records or replays rows, but batches have no room for recorded rows", ErrSequence)
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

// Remove ends a sequence wherever it is and gives its pages back.
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

// Restart takes the pages of a running sequence, whose rows can no longer be trusted or continued, and queues it again
// at its place by arrival.
func (s *Scheduler) Restart(q *Sequence) {
	if q.state == stateRunning {
		s.roster.suspend(q)
		s.roster.giveUp(q)
	}
}

// OnFree sets a function that is called with every sequence that gives its pages back, suspended or removed, so that
// whatever else was kept for those pages can be released.
func (s *Scheduler) OnFree(f func(*Sequence)) { s.roster.onFree = f }

// free gives the pages of a sequence back.
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
