// Package sched decides which sequences run in a step and how many of their tokens: queue, admission, chunked prefill, preemption.
//
// Sequences flow in through Add, the parts of the next step flow out of Next; pages are taken from and given back to package kv. It knows no
// model, no text and no clock. One goroutine owns a Scheduler and everything it hands out.
//
// The rules, in order: every sequence that decodes gets its one token, oldest first, whatever prompts wait; what is left of the step's tokens
// is shared evenly among the prompts being computed, so that a long one does not hold up a short one; new sequences are admitted in order of
// arrival while pages for their whole prompt are there. When a decode finds no page, the youngest sequence gives up its own and waits at the
// head of the queue; it is computed again later and loses nothing but time.
package sched

import (
	"errors"
	"fmt"
	"slices"

	"sparrow/kv"
)

// ErrQueueFull means that as many sequences wait as the limits allow.
var ErrQueueFull = errors.New("sched: the queue is full")

// Limits bound a step and the queue.
type Limits struct {
	StepTokens int // new tokens of one step
	MaxRunning int // sequences in a batch
	MaxQueue   int // sequences that wait; preempted ones do not count
	MaxPrompts int // prompts computed side by side; 0 means 4
}

// Scheduler holds the sequences that wait and those that run.
type Scheduler struct {
	pool    *kv.Pool
	limits  Limits
	waiting []*Sequence // in order of arrival; preempted ones are older than all others
	running []*Sequence // in order of arrival
	next    int64
	items   []Item
	prompts []*Sequence // being computed in this step

	// Preemptions counts sequences that gave up their pages.
	Preemptions int64
}

// Sequence is one sequence from submission to its end. Its exported fields belong to the caller, who appends to Tokens what was sampled.
type Sequence struct {
	Tokens []int32 // prompt, then output
	Salt   []byte
	// After, when set, is a sequence with the same prompt: this one waits until that one's prompt is computed and then shares its pages.
	After *Sequence
	// Compute is how many of the last tokens must be computed although they may be cached; 0 means one.
	Compute int
	Owner   any

	Match     kv.Match // what was found in the cache at the latest admission
	Preempted int      // times it gave up its pages

	age   int64
	state state
	cache kv.Sequence
	ready bool // all tokens it arrived with were computed once
}

type state uint8

const (
	stateNew state = iota
	stateWaiting
	stateRunning
	stateGone
)

// Item is one sequence's part of a step.
type Item struct {
	Seq    *Sequence
	Tokens []int32 // to be computed: a part of Seq.Tokens
	Cached int     // tokens before them that are in the cache
	Decode bool    // one token that continues computed output
	Last   bool    // afterwards all tokens are computed, and the next one can be sampled
	Pages  []int32
}

// New makes a scheduler over a pool.
func New(pool *kv.Pool, l Limits) *Scheduler {
	if l.MaxPrompts <= 0 {
		l.MaxPrompts = 4
	}
	return &Scheduler{pool: pool, limits: l}
}

// Running and Waiting count sequences.
func (s *Scheduler) Running() int { return len(s.running) }

// Waiting is the number of sequences in the queue.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Add puts a sequence at the end of the queue.
func (s *Scheduler) Add(q *Sequence) error {
	if q.state != stateNew || len(q.Tokens) == 0 {
		return fmt.Errorf("sched: a sequence is added once, with at least one token")
	}
	if n := s.queued(); n >= s.limits.MaxQueue {
		return fmt.Errorf("%w: %d sequences wait, at most %d may", ErrQueueFull, n, s.limits.MaxQueue)
	}
	s.next++
	q.age, q.state = s.next, stateWaiting
	s.waiting = append(s.waiting, q)
	return nil
}

// queued counts waiting sequences that never ran.
func (s *Scheduler) queued() int {
	n := 0
	for _, q := range s.waiting {
		if q.Preempted == 0 {
			n++
		}
	}
	return n
}

// Room reports whether n more sequences may be added.
func (s *Scheduler) Room(n int) bool { return s.queued()+n <= s.limits.MaxQueue }

// Remove ends a sequence wherever it is and gives its pages back.
func (s *Scheduler) Remove(q *Sequence) {
	switch q.state {
	case stateWaiting:
		s.waiting = slices.DeleteFunc(s.waiting, func(x *Sequence) bool { return x == q })
	case stateRunning:
		s.running = slices.DeleteFunc(s.running, func(x *Sequence) bool { return x == q })
		q.cache.Close()
	}
	q.state = stateGone
}

// Next forms the next step. The slice is valid until the next call. It is empty only when nothing runs and nothing waits.
func (s *Scheduler) Next() []Item {
	for {
		s.items = s.items[:0]
		s.decodes()
		s.prefills(s.limits.StepTokens - len(s.items))
		if len(s.items) > 0 || len(s.running) == 0 {
			return s.items
		}
		// Every running sequence is a prompt without pages; the youngest makes way for the others.
		s.preempt(len(s.running) - 1)
	}
}

// left is how many tokens of a running sequence are not computed yet.
func (q *Sequence) left() int { return len(q.Tokens) - q.cache.Len() }

// decodes gives every decoding sequence its token, oldest first.
func (s *Scheduler) decodes() {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		if !q.ready || q.left() != 1 {
			continue
		}
		for q.state == stateRunning && q.cache.Reserve(1) != nil {
			s.preempt(len(s.running) - 1)
		}
		if q.state == stateRunning {
			s.item(q, 1, true)
		}
	}
}

// item adds the next n tokens of a sequence, for which pages are reserved.
func (s *Scheduler) item(q *Sequence, n int, decode bool) {
	at := q.cache.Len()
	s.items = append(s.items, Item{Seq: q, Tokens: q.Tokens[at : at+n], Cached: at, Decode: decode, Last: at+n == len(q.Tokens), Pages: q.cache.Pages()})
}

// preempt takes the pages of the i-th running sequence and puts it at its place among those that wait.
func (s *Scheduler) preempt(i int) {
	q := s.running[i]
	s.running = slices.Delete(s.running, i, i+1)
	q.cache.Close()
	q.state = stateWaiting
	q.Preempted++
	s.Preemptions++
	at, _ := slices.BinarySearchFunc(s.waiting, q.age, func(x *Sequence, age int64) int {
		if x.age < age {
			return -1
		}
		return 1
	})
	s.waiting = slices.Insert(s.waiting, at, q)
}

// prefills shares budget new tokens among prompts: those that run, then those that can be admitted.
func (s *Scheduler) prefills(budget int) {
	if budget <= 0 {
		return
	}
	s.prompts = s.prompts[:0]
	for _, q := range s.running {
		if len(s.prompts) < s.limits.MaxPrompts && !(q.ready && q.left() == 1) {
			s.prompts = append(s.prompts, q)
		}
	}
	s.admit(budget)
	for i, q := range s.prompts {
		// An even share of what is left; what the older ones do not need goes to the younger.
		share := (budget + len(s.prompts) - i - 1) / (len(s.prompts) - i)
		n := min(q.left(), share)
		for n > 0 && q.cache.Reserve(n) != nil {
			n /= 2 // what the free pages hold; the rest waits
		}
		if n > 0 {
			s.item(q, n, false)
			budget -= n
		}
	}
}

// admit moves sequences from the queue to the running ones while pages for their whole prompts are there.
func (s *Scheduler) admit(budget int) {
	for i := 0; i < len(s.waiting) && len(s.running) < s.limits.MaxRunning && len(s.prompts) < min(s.limits.MaxPrompts, budget); {
		q := s.waiting[i]
		if q.After != nil && !q.After.ready && q.After.state != stateGone {
			i++
			continue
		}
		if !s.open(q) {
			return // the order of arrival is kept: nobody overtakes for being small
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		at := len(s.running)
		for at > 0 && s.running[at-1].age > q.age {
			at--
		}
		s.running = slices.Insert(s.running, at, q)
		s.prompts = append(s.prompts, q)
	}
}

// open starts a sequence in the cache if its prompt and one more token fit beside what running prompts will still need.
func (s *Scheduler) open(q *Sequence) bool {
	c, match, err := s.pool.Open(q.Tokens, kv.OpenOptions{Salt: q.Salt, Compute: q.Compute})
	if err != nil {
		return false
	}
	need := c.Needs(len(q.Tokens) - c.Len() + 1)
	for _, p := range s.running {
		if !p.ready {
			need += p.cache.Needs(p.left() + 1)
		}
	}
	if need > s.pool.Available() && len(s.running) > 0 {
		c.Close()
		return false
	}
	q.cache, q.Match, q.state = c, match, stateRunning
	// A preempted sequence has output of its own to recompute: until then it is a prompt again.
	q.ready = false
	return true
}

// Done says that an item's tokens are in the cache.
func (s *Scheduler) Done(it *Item) error {
	if it.Seq.state != stateRunning {
		return nil
	}
	if it.Last {
		it.Seq.ready = true
	}
	return it.Seq.cache.Commit(it.Tokens)
}

// All lists every sequence that runs or waits.
func (s *Scheduler) All() []*Sequence { return append(slices.Clone(s.running), s.waiting...) }
