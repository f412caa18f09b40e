package engine

import (
	"fmt"
	"slices"
	"time"

	"sparrow/internal/sched"
	"sparrow/internal/step"
)

// stage is the progress of a batch. The state after each stage:
//
//	formed     Scheduler.Schedule has reserved pages and admitted the choices. Nothing else has changed.
//	enqueued   the pass of the batch is enqueued on the device.
//	running    Scheduler.Started was called: the next batch may be formed and enqueued after it. Tokens that it
//	           samples stay on the device for the next pass. Pages of sequences that end or are preempted now
//	           are free at once, because the device runs passes in order.
//	committed  its pass has ended: tokens are committed, events sent, choices ended. Rows of choices that had ended
//	           before are not used.
//	drafting   it is committed, and the pass of the drafting layer after it runs: the next batch is formed with drafts
//	           whose values are still on the device.
//	failed     its pass was not enqueued, or has ended with an error. Nothing of it is committed.
//	ended      nothing is left to do.
//
// At most one batch is running or drafting: loop.last. Some batches never have the stage running, because the host
// needs their results before it forms the next batch: batches with drafts, masks, records, or logits that the host
// reads. On synchronous devices no batch has this stage. If the device samples tokens, the draft pass after such a
// batch is enqueued before the batch is committed (drafter.enqueue). If one draft pass makes all drafts, the batch then
// has the stage drafting.
//
// If a pass fails, its items run one by one. A batch that was enqueued after it is dropped and formed again.
type stage uint8

const (
	stageFormed stage = iota
	stageEnqueued
	stageRunning
	stageCommitted
	stageDrafting
	stageFailed
	stageEnded
)

var stageNames = [...]string{"formed", "enqueued", "running", "committed", "drafting", "failed", "ended"}

func (s stage) String() string { return stageNames[s] }

// transitions lists the stages that may follow each stage.
var transitions = [...][]stage{
	stageFormed:    {stageEnqueued, stageFailed},
	stageEnqueued:  {stageRunning, stageCommitted, stageFailed, stageEnded},
	stageRunning:   {stageCommitted, stageFailed, stageEnded},
	stageCommitted: {stageDrafting, stageEnded},
	stageDrafting:  {stageEnded},
	stageFailed:    {stageEnded},
	stageEnded:     {},
}

// batch holds the items and the state of one pass, from the time when the items are chosen.
type batch struct {
	stage  stage
	err    error   // error that made the batch fail
	passes *passes // passes that run the batch

	items    []sched.Item
	load     sched.Load
	begun    time.Time // time when the batch was formed
	launched time.Time // time when the pass of the batch was enqueued
	started  step.Started
	pending  step.Pending
	ahead    ahead

	// behind is the stage (running or drafting) of the batch that was in progress when this one was enqueued;
	// stageFormed if there was none.
	behind  stage
	repeats bool // the batch reruns one item of a failed batch
	between bool // the batch runs between two operations of another batch
	// interrupted is the total time of the other batches that ran between the operations of this batch.
	interrupted time.Duration
}

// to moves a batch to its next stage. It panics if transitions does not allow that.
func (b *batch) to(next stage) {
	if !slices.Contains(transitions[b.stage], next) {
		panic(fmt.Sprintf("engine: a batch of %d items that is %v cannot be %v", len(b.items), b.stage, next))
	}
	b.stage = next
}

// fail records an error and moves the batch to the stage failed.
func (b *batch) fail(err error) {
	b.to(stageFailed)
	b.err = err
}

// mayRun reports whether the next batch may be formed before the host has the results of this batch. The pass of this
// batch is enqueued.
func (b *batch) mayRun() bool {
	p := b.pending.Plan()
	if p.Logits > 0 && p.WholeLogits == p.Logits { // the device has sampled no token
		return false
	}
	for i := range b.items {
		it, c := &b.items[i], ownerOf(&b.items[i])
		if c.ended {
			continue
		}
		if it.Drafts > 0 || c.drafts.Active() || c.recording != nil || c.scores() || it.Last && c.needsLogits() {
			return false
		}
	}
	return true
}

// resolve sets the tokens that were unknown when the items were formed to the values sampled by the previous batch.
func (b *batch) resolve() {
	for i := range b.items {
		if !ownerOf(&b.items[i]).ended {
			b.items[i].Resolve()
		}
	}
}
