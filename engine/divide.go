package engine

import (
	"log/slog"
	"time"

	"sparrow/internal/step"
	"sparrow/kernel"
)

// Where the device computes while the host waits, a batch of prompts need not hold up sequences that decode until it
// ends: between two of its operations the loop runs whole batches of those, in a workspace of their own, whenever they
// have waited for as long as Config.MaxStall allows. So the longest gap of a stream does not depend on how well the
// time of a batch was predicted, but on its longest operation alone.
//
// The batch in progress continues to write the pages of its sequences. Nothing that happens between takes pages from
// them: sched.Scheduler.Between does not preempt, and arrivals and cancellations wait for the end.

// innerPasses runs batches between the operations of another batch. Where batches are not divided its passes are nil.
type innerPasses struct {
	passes *passes   // whose workspace is free while another pass is in progress
	batch  batch     // memory of the batches that run there
	at     time.Time // when the operation in progress began
	// took is the time of the latest batch that only decodes, tookBefore that of the one before it, most the maximum of
	// recent ones.
	took, tookBefore, most time.Duration
	// longest is the longest operation of the batch in progress, before of the one before it, usual of many.
	longest, before, usual time.Duration
	batches                int
}

// divides reports whether batches of prompts are divided: on one device, which computes while the host waits.
func (s *setup) divides() bool {
	_, one := s.model.Device().(kernel.Device)
	return one && s.cfg.MaxStall > 0 && !kernel.IsAsynchronous(s.model.Device())
}

// innerLimits bound the passes between the operations of others.
func (z *sizing) innerLimits(context int) step.Limits {
	l := z.limits(context)
	l.Rows, l.Decodes = l.Requests, true
	return l
}

// runDivided enqueues the operations of a batch of prompts one by one, and between them runs sequences that decode.
func (l *loop) runDivided(b *batch) error {
	i := &l.inner
	if l.waiting.IsZero() { // else the time since the last operation of the batch before counts, too
		l.waiting, i.at = b.begun, l.now()
	}
	i.before, i.longest = i.longest, 0
	var err error
	for more := true; more && err == nil; {
		if l.between(b); l.tally.lost != nil {
			err = b.started.Stop(l.tally.lost)
		} else {
			more, err = b.operate(l.cfg.Log)
		}
	}
	i.batches++
	i.usual += (i.longest - i.usual) / 8
	return err
}

// operate enqueues the next operation of a batch and reports whether more are left. A panic in it is returned as an
// error.
func (b *batch) operate(log *slog.Logger) (more bool, err error) {
	defer recoverTo(&err, log, "a forward pass panicked")
	left, err := b.started.Left()
	if err == nil && left > 0 {
		err = b.started.Run()
	}
	return left > 1, err
}

// between runs sequences that decode between two operations of a batch, where they have waited for long enough.
func (l *loop) between(b *batch) {
	i := &l.inner
	if l.waiting.IsZero() {
		return
	}
	now := l.now()
	i.longest, i.at = max(i.longest, now.Sub(i.at)), now
	if now.Sub(l.waiting) < i.waitLimit(l.cfg.MaxStall, max(i.longest, i.before)) {
		return
	}
	items, load := l.sched.Between()
	if len(items) == 0 { // no page is free
		l.waiting = now
		return
	}
	i.batch = batch{passes: i.passes, between: true, items: append(i.batch.items[:0], items...), load: load, begun: now}
	l.runNow(&i.batch)
	i.at = l.now()
	b.interrupted += i.at.Sub(now)
	if l.waiting = i.at; !l.sched.Decoding() {
		l.waiting = time.Time{}
	}
	l.watchdog.begin(i.at)
}

// runNow runs a batch to its end.
func (l *loop) runNow(b *batch) {
	if l.admit(b) {
		l.launch(b, nil)
		l.follow(b)
	}
	l.observe(b.between)
}

// note records the time of a batch that only decodes. Slow ones come in groups, when the machine does something else:
// most decays slowly.
func (i *innerPasses) note(took time.Duration) {
	i.took, i.tookBefore = took, i.took
	i.most = max(took, i.most-(i.most-took)/4)
}

// waitLimit returns how long decoding sequences wait until they run: the bound less their own time and less the
// operation that may just begin. Where that is little, prompts have half of the bound, and half of the time; a single
// very slow batch does not count for that.
func (i *innerPasses) waitLimit(bound, operation time.Duration) time.Duration {
	return max(bound-i.most-operation, bound/2, min(i.took, i.tookBefore))
}

// stall returns how long decoding sequences usually wait at most, where that is above the bound or, where they are slow
// by themselves, above half of it plus their own time. Otherwise it is 0.
func (i *innerPasses) stall(bound time.Duration) time.Duration {
	took := min(i.took, i.tookBefore)
	gap := i.waitLimit(bound, i.usual) + i.usual + took
	if i.batches < 8 || gap <= max(bound, took+bound/2) {
		return 0
	}
	return gap
}
