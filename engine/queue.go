package engine

import "sync"

// queue carries events from the loop to a job's reader. Adding an event never blocks the loop: if the reader is slow,
// the queue grows.
type queue struct {
	mu     sync.Mutex
	ready  sync.Cond
	events []Event
	head   int
}

func (q *queue) init() { q.ready.L = &q.mu }

func (q *queue) push(ev Event) {
	q.mu.Lock()
	q.events = append(q.events, ev)
	q.mu.Unlock()
	q.ready.Signal()
}

// pop waits for the next event and removes it from the queue.
func (q *queue) pop() Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == len(q.events) {
		q.ready.Wait()
	}
	return q.take()
}

// poll returns the next event and true, or false if the queue is empty.
func (q *queue) poll() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.events) {
		return Event{}, false
	}
	return q.take(), true
}

// take removes and returns the next event. The caller holds mu.
func (q *queue) take() Event {
	ev := q.events[q.head]
	q.events[q.head] = Event{}
	q.head++
	if q.head*2 >= len(q.events) {
		// At least half of the events were read: move the remaining events to the front, so that a slow reader does not
		// make the buffer grow.
		n := copy(q.events, q.events[q.head:])
		clear(q.events[n:])
		q.events, q.head = q.events[:n], 0
	}
	return ev
}
