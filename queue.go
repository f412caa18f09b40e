package sparrow

import (
	"sync"

	"sparrow/sample"
)

// rawEvent is what the loop tells a stream: small, and free of allocations for a plain token.
type rawEvent struct {
	choice  int
	token   int32 // -1 without one
	text    string
	logprob float64
	top     []sample.TokenLogprob
	finish  Finish
	matched string
	err     error
	last    bool // of the whole job
}

// queue carries events from the loop to a stream. It never blocks the loop: a slow reader makes it longer.
type queue struct {
	mu     sync.Mutex
	ready  sync.Cond
	events []rawEvent
	head   int
}

func (q *queue) init() { q.ready.L = &q.mu }

func (q *queue) push(ev rawEvent) {
	q.mu.Lock()
	q.events = append(q.events, ev)
	q.mu.Unlock()
	q.ready.Signal()
}

// pop waits for the next event.
func (q *queue) pop() rawEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == len(q.events) {
		q.ready.Wait()
	}
	ev := q.events[q.head]
	q.events[q.head] = rawEvent{}
	q.head++
	if q.head*2 >= len(q.events) {
		// At least half was read: move the rest to the front, so that a reader who is always a little late does not make it grow.
		n := copy(q.events, q.events[q.head:])
		clear(q.events[n:])
		q.events, q.head = q.events[:n], 0
	}
	return ev
}
