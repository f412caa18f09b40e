package sparrow

import (
	"sync"
	"time"

	"sparrow/grammar"
	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/tokenizer"
)

// job is one request inside the engine. The loop owns it once it is submitted; its queue is shared with the stream.
type job struct {
	request Request
	prompt  []int32
	choices []*choice
	queue   queue

	open              int // choices that have not ended
	cancelled, failed bool
	usage             Usage
	arrived, admitted time.Time
	first             time.Time // of the first token
	trace             *Trace    // nil unless asked for
}

// choice is one of a job's n continuations.
type choice struct {
	job     *job
	index   int
	seq     sched.Sequence
	sampler *sample.Sampler
	state   *grammar.State // nil for free text
	mask    sample.Mask
	decoder *tokenizer.Decoder // nil without a tokenizer
	stops   *sample.StopMatcher
	made    int // tokens generated
	limit   int
	matched string
	ended   bool
}

// finish completes the books of a job.
func (j *job) finish(now time.Time) {
	if j.trace == nil {
		return
	}
	j.trace.ID = j.request.ID
	j.trace.Match = j.choices[0].seq.Match
	for _, c := range j.choices {
		j.trace.Preempted += c.seq.Preempted
	}
	if !j.admitted.IsZero() {
		j.trace.Queued = j.admitted.Sub(j.arrived)
	}
	if !j.first.IsZero() {
		j.trace.Prefill, j.trace.Decode = j.first.Sub(j.admitted), now.Sub(j.first)
	}
}

// ran notes that a plan carried the job for one step.
func (j *job) ran(p *plan.Plan) {
	if j.trace == nil {
		return
	}
	j.trace.Steps++
	for i := range j.trace.Plans {
		if j.trace.Plans[i].Plan == p {
			j.trace.Plans[i].Steps++
			return
		}
	}
	j.trace.Plans = append(j.trace.Plans, PlanUse{Plan: p, Steps: 1})
}

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
	if q.head++; q.head == len(q.events) {
		q.events, q.head = q.events[:0], 0
	}
	return ev
}
