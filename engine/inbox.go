package engine

import (
	"context"
	"fmt"

	"sparrow/internal/unit"
)

// inbox holds new and cancelled jobs that the loop has not received yet. The tally's lock guards it, so that a snapshot
// of the counters includes every request once: in the inbox or in the loop.
type inbox struct {
	tally   *tally
	wake    chan struct{} // wakes the loop; capacity 1
	stopped chan struct{} // closed when the loop has ended

	jobs    []*Job
	cancels []*Job
	settles []chan struct{} // closed at the beginning of the next iteration of the loop
	flushes []chan struct{} // closed when the cache was emptied
	discard bool            // all pages in tiers are dropped when the engine closes
	closing bool            // no new request is accepted
	halt    bool            // the loop ends at once and open requests fail
	gone    bool            // the loop has ended

	// Counters of the jobs that have neither run nor ended.
	queued       backlog
	waits        waits
	records      int64 // sum of the maximum recorded bytes of open jobs
	mostRecorded int64 // maximum recorded bytes of one job
}

func newInbox(c *Config, t *tally) *inbox {
	return &inbox{tally: t, queued: backlog{most: c.MaxQueue}, mostRecorded: c.recordBytes(),
		wake: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// add queues a job for the loop. It returns an error if the engine is closing or lost, or if a limit is exceeded.
func (b *inbox) add(j *Job) error {
	b.tally.Lock()
	defer b.tally.Unlock()
	if b.closing {
		return ErrClosed
	}
	if b.tally.lost != nil {
		return b.tally.lost
	}
	if err := b.admitRecords(j); err != nil {
		b.tally.stats.Refused++
		return err
	}
	if err := b.queued.add(j.turnKey, len(j.choices)); err != nil {
		b.records -= j.records
		b.tally.stats.Refused++
		return err
	}
	b.tally.stats.Requests++
	b.waits.queue(j.turnKey, j.arrived)
	j.inbox = b
	b.jobs = append(b.jobs, j)
	b.signal()
	return nil
}

// cancel queues a job for the loop, which ends it.
func (b *inbox) cancel(j *Job) {
	b.tally.Lock()
	defer b.tally.Unlock()
	if b.gone {
		return // the loop has ended, and every job has ended too
	}
	b.cancels = append(b.cancels, j)
	b.signal()
}

// stop makes the loop end, either at once or after all accepted requests have ended.
func (b *inbox) stop(halt bool) {
	b.tally.Lock()
	b.closing, b.halt = true, b.halt || halt
	b.tally.Unlock()
	b.signal()
}

// await adds a channel to a list and waits until the loop closes it.
func (b *inbox) await(ctx context.Context, list *[]chan struct{}) error {
	done := make(chan struct{})
	b.tally.Lock()
	*list = append(*list, done)
	b.tally.Unlock()
	b.signal()
	select {
	case <-done:
		return nil
	case <-b.stopped:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// leaveQueue removes a choice from the waiting choices of its job, when the choice first runs or when it ends. The
// caller holds the lock.
func (b *inbox) leaveQueue(j *Job) {
	j.queued--
	b.queued.done(j.turnKey, j.queued == 0)
}

// recordFactor is the maximum size of the recorded rows of all open requests, as a multiple of the maximum of one
// request.
const recordFactor = 4

// admitRecords reserves memory for the rows that a job may record. If open jobs have reserved too much, it returns
// ErrQueueFull without an estimated wait, because the time that readers of these jobs need is unknown.
func (b *inbox) admitRecords(j *Job) error {
	if most := recordFactor * b.mostRecorded; j.records > 0 && b.records+j.records > most {
		return fmt.Errorf("%w: requests in flight may record up to %s, and the limit for all requests is %s; retry "+
			"later, or record less", ErrQueueFull, unit.Bytes(b.records), unit.Bytes(most))
	}
	b.records += j.records
	return nil
}
