package engine

import (
	"errors"

	"sparrow/internal/sched"
	"sparrow/kernel"
)

// turn performs one iteration of the loop. It launches the next batch after the last batch, processes the results of
// the last batch while the next batch runs, and stores the next batch as the last batch. It reports whether there was
// any work.
func (l *loop) turn() bool {
	l.noteWaiting()
	last, next := l.last, l.form()
	if last == nil && next == nil {
		return false
	}
	l.last = nil
	if next != nil {
		l.launch(next, last)
	}
	if last != nil {
		l.process(last, next)
	}
	if next != nil && next.stage != stageEnded {
		l.follow(next)
	}
	l.observe(false)
	return true
}

// form returns the next batch, or nil if no sequence can run now.
func (l *loop) form() *batch {
	for {
		items := l.sched.Schedule()
		if len(items) == 0 {
			return nil
		}
		b := &l.batches[0]
		if l.last == b {
			b = &l.batches[1]
		}
		*b = batch{passes: l.passes, items: append(b.items[:0], items...), load: l.sched.Load(), begun: l.now(),
			ahead: ahead{places: b.ahead.places[:0]}}
		if l.admit(b) {
			return b
		}
	}
}

// admit counts the choices of a batch that run for the first time, and sets the sequence state that every item
// continues from. Items for which no state is free are removed. It reports whether the batch still has items.
func (l *loop) admit(b *batch) bool {
	l.noteAdmitted(b.items, b.begun)
	b.items = l.attachStates(b.items)
	return len(b.items) > 0
}

// process handles the results of the last batch. The next batch, unless nil, was launched after it.
func (l *loop) process(last, next *batch) {
	if last.stage == stageDrafting {
		l.seeDrafts(last, next)
		return
	}
	l.commit(last)
	switch {
	case last.stage == stageFailed:
		if next != nil {
			l.drop(next)
		}
		l.isolate(last)
	case next == nil:
	case next.stage == stageEnqueued:
		next.resolve()
		l.watchdog.begin(l.now())
	case !errors.Is(next.err, kernel.ErrLost):
		next.to(stageEnded) // the next batch is formed again; an item that then fails alone gets its own error
	}
}

// follow leaves a launched batch running if the next batch can be formed before it ends. Otherwise it processes the
// batch at once.
func (l *loop) follow(b *batch) {
	if b.stage == stageEnqueued && l.overlap && b.mayRun() {
		l.leaveRunning(b)
		return
	}
	if b.stage == stageEnqueued {
		l.drafter.enqueue(b)
		l.commit(b)
	}
	switch b.stage {
	case stageFailed:
		l.isolate(b)
	case stageDrafting:
		l.last = b
	}
}

// leaveRunning moves an enqueued batch to the stage running and updates its sequences, so that the next batch can be
// formed before this one ends.
func (l *loop) leaveRunning(b *batch) {
	row := 0
	for i := range b.items {
		it, c := &b.items[i], ownerOf(&b.items[i])
		if row += it.Logits; !c.ended {
			c.sampled = row
			l.sched.Started(it, c.limits.made+1 < c.maxTokens)
		}
	}
	b.to(stageRunning)
	l.last = b
}

// seeDrafts reads the drafts that the last batch left on the device. The next batch, if it is not nil, was launched
// with these drafts; if drafting failed, it is dropped and formed again without drafts.
func (l *loop) seeDrafts(last, next *batch) {
	var items []sched.Item
	if next != nil {
		items = next.items
	}
	err := l.drafter.see(last, items)
	if errors.Is(err, kernel.ErrLost) {
		l.lose(err)
	}
	switch {
	case next == nil || next.stage == stageFailed: // a failed batch is launched again, item by item
	case err == nil: // the device begins the pass of the next batch now
		next.launched = l.now()
		l.watchdog.begin(next.launched)
	default:
		l.drop(next)
	}
}

// drop waits for the pass of a batch that was launched after a failed batch, and moves the batch to the stage ended.
// The results are not used.
func (l *loop) drop(b *batch) {
	if b.stage == stageEnqueued {
		_, _ = l.wait(b)
		for i := range b.items {
			if !ownerOf(&b.items[i]).ended {
				l.restartIfStateLost(&b.items[i])
			}
		}
	}
	b.to(stageEnded)
}

// observe calls Config.Observe, if it is set.
func (l *loop) observe(between bool) {
	if l.cfg.Observe != nil {
		l.cfg.Observe(between)
	}
}

// commit waits for the pass of a batch, commits the rows of logits of each item, runs the drafting layer after the
// batch, and records the pass.
func (l *loop) commit(b *batch) {
	rows, err := l.wait(b)
	if err != nil {
		l.drafter.forget(b) // the draft pass used results of the failed batch
		b.fail(err)
		return
	}
	b.to(stageCommitted)
	b.ahead.begun = l.now()
	decodes := b.items[0].Decode // decoding items come first in a batch
	for i := range b.items {
		it := &b.items[i]
		own := rows.take(it)
		if ownerOf(it).ended { // the choice ended after the batch was launched
			l.tally.add(&l.tally.stats.Unused, len(it.Tokens))
			continue
		}
		outs, err := l.sampleItem(it, own)
		if err != nil {
			err = l.cfg.diagnose(err)
		}
		err = errors.Join(err, ownerOf(it).keep(it, rows.result, i, outs))
		l.account(it, rows.plan(), outs, err)
	}
	if err := l.drafter.draft(b); err != nil {
		l.lose(err)
	}
	took := l.took(b, b.begun)
	b.passes.finished = l.now()
	l.record(b, rows.plan(), took)
	if !b.repeats {
		l.noteTime(b, took, decodes)
	}
	if b.stage == stageCommitted {
		b.to(stageEnded)
	}
}

// isolate runs the items of a failed batch one by one. It skips items that were preempted, or whose choice ended, after
// the batch was formed.
func (l *loop) isolate(b *batch) {
	cause := b.err
	b.to(stageEnded)
	if errors.Is(cause, kernel.ErrLost) {
		l.lose(cause)
		return
	}
	several := len(b.items) > 1
	items := b.items[:0]
	for i := range b.items {
		it := &b.items[i]
		if l.sched.Drop(it); !ownerOf(it).ended && !it.Stale() {
			items = append(items, *it)
		}
	}
	if !several {
		for i := range items {
			l.fail(ownerOf(&items[i]), cause)
		}
		return
	}
	l.cfg.Log.Warn("a batch failed; its sequences run one by one", "sequences", len(items), "error", cause)
	l.tally.add(&l.tally.stats.Isolated, 1)
	for i := range items {
		if l.restartIfStateLost(&items[i]) {
			continue
		}
		alone := &batch{passes: b.passes, items: items[i : i+1], begun: l.now(), repeats: true, between: b.between}
		if l.launch(alone, nil); alone.stage == stageEnqueued {
			l.commit(alone)
		}
		switch {
		case alone.stage != stageFailed:
		case errors.Is(alone.err, kernel.ErrLost):
			l.lose(alone.err)
			return
		default:
			l.fail(ownerOf(&items[i]), alone.err)
		}
	}
}

// sampleItem commits an item and scores tokens of its prompt if that was requested. If all tokens of the sequence are
// computed, it samples one row of logits after another, as plain decoding would. The first row gives the next token;
// each further row is used only if the draft before it equals the sampled token. A panic is returned as an error of
// this choice only. The outcomes are valid until the next call.
func (l *loop) sampleItem(it *sched.Item, rows logits) (outs []outcome, err error) {
	l.outcomes = l.outcomes[:0]
	defer func() { outs = l.outcomes }()
	defer recoverTo(&err, l.cfg.Log, "sampling panicked")
	c, drafts := ownerOf(it), it.DraftTokens()
	if err := l.sched.Done(it); err != nil {
		return nil, err
	}
	read, err := c.score(it, rows)
	if err != nil || !it.Last || c.scoresOnly() {
		return nil, err
	}
	for i := 0; ; i++ {
		draft := int32(-1)
		if i < len(drafts) {
			draft = drafts[i]
		}
		out, err := c.advance(rows.row(read+i), draft)
		if err != nil {
			return nil, err
		}
		l.outcomes = append(l.outcomes, out)
		if i == len(drafts) || out.event.Token != drafts[i] || out.finish != "" {
			break
		}
		if err := l.sched.Accept(it); err != nil {
			return nil, err
		}
	}
	if len(drafts) == 0 {
		return nil, nil
	}
	return nil, l.sched.Reject(it)
}
