package engine

import (
	"log/slog"
	"time"

	"sparrow/internal/step"
	"sparrow/kernel"
)

// This file limits how long prompts delay decoding sequences on a synchronous device, whose calls return when the
// computation has ended. Between two operations of a batch of prompts, the loop runs whole batches of decoding
// sequences in a second workspace, once these sequences have waited for as long as Config.MaxStall allows. The longest
// time between two tokens then depends on the longest operation of a batch, not on a predicted time of the batch.
//
// Batches that run in between take no pages from the sequences of the batch in progress: sched.Scheduler.Between does
// not preempt, and arrivals and cancellations are processed after the batch in progress.

// innerPasses runs batches between the operations of another batch. The field passes is nil if batches are not divided.
type innerPasses struct {
	passes *passes   // passes with their own workspace, for use while another pass is in progress
	batch  batch     // memory for the batches that run in passes
	at     time.Time // time when the operation in progress began
	// took and tookBefore are the times of the latest two batches that only decode. most is a slowly decaying maximum
	// of such times.
	took, tookBefore, most time.Duration
	// longest is the longest operation of the batch in progress, before is the longest operation of the previous batch,
	// and usual is the average of longest over many batches.
	longest, before, usual time.Duration
	batches                int
}

// divides reports whether batches of prompts are divided. Batches are divided on a single synchronous device.
func (s *setup) divides() bool {
	_, one := s.model.Device().(kernel.Device)
	return one && s.cfg.MaxStall > 0 && !kernel.IsAsynchronous(s.model.Device())
}

// innerLimits returns the limits of passes that run between the operations of another pass.
func (z *sizing) innerLimits(context int) step.Limits {
	l := z.limits(context)
	l.Rows, l.Decodes = l.Requests, true
	return l
}

// runDivided enqueues the operations of a batch of prompts one by one, and runs decoding sequences between them.
func (l *loop) runDivided(b *batch) error {
	i := &l.inner
	// If l.waiting is set, decoding sequences have waited since an operation of the previous batch; that time is
	// included.
	if l.waiting.IsZero() {
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
	if left > 0 { // otherwise no part is left, or err is set
		err = b.started.Run()
	}
	return left > 1, err
}

// between runs decoding sequences between two operations of b, if they have waited for at least waitLimit.
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

// note records the time of a batch that only decodes. The field most decays slowly, because slow batches come in
// groups, while other programs use the machine.
func (i *innerPasses) note(took time.Duration) {
	i.took, i.tookBefore = took, i.took
	i.most = max(took, i.most-(i.most-took)/4)
}

// waitLimit returns how long decoding sequences wait before they run: the bound, minus the time of their batch, minus
// the time of one operation, which may have just begun. The result is at least half of the bound, and at least the time
// of a decode batch, so that prompts get half of the time. That time is the smaller one of the latest two batches, so a
// single slow batch does not raise the result.
func (i *innerPasses) waitLimit(bound, operation time.Duration) time.Duration {
	return max(bound-i.most-operation, bound/2, min(i.took, i.tookBefore))
}

// stall returns the usual maximum wait of decoding sequences, if it exceeds both the bound and half of the bound plus
// the time of a decode batch; otherwise 0.
func (i *innerPasses) stall(bound time.Duration) time.Duration {
	took := min(i.took, i.tookBefore)
	gap := i.waitLimit(bound, i.usual) + i.usual + took
	if i.batches < 8 || gap <= max(bound, took+bound/2) {
		return 0
	}
	return gap
}
