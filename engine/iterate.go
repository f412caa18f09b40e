package engine

import (
	"errors"

	"sparrow/kernel"
	"sparrow/sched"
)

// iterate runs one batch. A batch that fails is run again item by item, so that only the requests that fail by
// themselves are lost; where the device is lost, all are.
func (e *Engine) iterate(items []sched.Item) { e.carryOut(e.form(items)) }

// carryOut runs a batch that was formed.
func (e *Engine) carryOut(f *flight) {
	e.noteAdmitted(f.items, f.begun)
	if f.items = e.attachStates(f.items); len(f.items) > 0 {
		e.carry(f)
	}
	e.observe(f.inner)
}

// carry launches a batch, finishes the one in flight, and leaves the new one in flight where the next can be formed
// meanwhile; else it is finished too.
func (e *Engine) carry(f *flight) {
	failed := e.launch(f)
	if e.runsUnseen() {
		switch seen := e.seeDrafts(f.items); {
		case failed != nil: // it is launched again, item by item
		case seen: // the pass begins now
			f.launched = e.now()
			e.watchdog.begin(f.launched)
		default:
			e.giveUp(f)
			failed = e.launch(f)
		}
	}
	if before := e.flight; before != nil {
		e.flight = nil
		ended := e.finish(before)
		switch {
		case ended != nil && failed == nil:
			e.giveUp(f)
			fallthrough
		case ended != nil:
			e.isolate(before, ended)
			return
		case failed != nil && !errors.Is(failed, kernel.ErrLost):
			return // it is formed again, and alone shows what is wrong with it
		}
		for i := range f.items {
			if !ownerOf(&f.items[i]).ended {
				f.items[i].Resolve()
			}
		}
		e.watchdog.begin(e.now())
	}
	if failed == nil && e.canOverlap(f) {
		e.leaveInFlight(f)
		return
	}
	if failed == nil {
		e.draftAhead(f)
		failed = e.finish(f)
	}
	if failed != nil {
		e.isolate(f, failed)
	}
}

// finishFlight finishes the batch in flight where no other can be formed.
func (e *Engine) finishFlight() {
	f := e.flight
	e.flight = nil
	if err := e.finish(f); err != nil {
		e.isolate(f, err)
	}
	e.observe(false)
}

// observe tells the observer, if there is one.
func (e *Engine) observe(inner bool) {
	if e.cfg.Observe != nil {
		e.cfg.Observe(inner)
	}
}

// finish waits for the pass of a batch, gives each item its rows of logits, drafts what follows, and records the pass.
func (e *Engine) finish(f *flight) error {
	rows, err := e.wait(f)
	if err != nil {
		if f.ahead.on {
			_, _ = e.waitAhead(f.on, &f.ahead) // it continued what failed
		}
		return err
	}
	f.ahead.begun = e.now()
	decodes := f.items[0].Decode // those come first
	for i := range f.items {
		it := &f.items[i]
		own := rows.take(it)
		if ownerOf(it).ended { // since it was launched
			e.noteUnused(it)
			continue
		}
		outs, err := e.sampleItem(it, own)
		if err != nil {
			err = e.diagnose(err)
		}
		err = errors.Join(err, e.keep(it, rows.result, i, outs))
		e.account(it, rows.plan(), outs, err)
	}
	e.draft(f)
	took := e.took(f, f.begun)
	f.on.finished = e.now()
	e.record(f, rows.plan(), took)
	if !f.repeats {
		e.noteTime(f, took, decodes)
	}
	return nil
}

// isolate runs the items of a failed batch alone. Those that have ended since, or lost their pages, are left out.
func (e *Engine) isolate(f *flight, failed error) {
	if errors.Is(failed, kernel.ErrLost) {
		e.lose(failed)
		return
	}
	several := len(f.items) > 1
	items := f.items[:0]
	for i := range f.items {
		it := &f.items[i]
		if e.sched.Drop(it); !ownerOf(it).ended && !it.Stale() {
			items = append(items, *it)
		}
	}
	if !several {
		for i := range items {
			e.fail(ownerOf(&items[i]), failed)
		}
		return
	}
	e.cfg.Log.Warn("a batch failed; its sequences run one by one", "sequences", len(items), "error", failed)
	e.mu.Lock()
	e.stats.Isolated++
	e.mu.Unlock()
	for i := range items {
		if e.restartIfStateLost(&items[i]) {
			continue
		}
		alone := &flight{on: f.on, inner: f.inner, items: items[i : i+1], begun: e.now(), repeats: true}
		err := e.launch(alone)
		if err == nil {
			err = e.finish(alone)
		}
		switch {
		case errors.Is(err, kernel.ErrLost):
			e.lose(err)
			return
		case err != nil:
			e.fail(ownerOf(&items[i]), err)
		}
	}
}

// sampleItem commits an item, scores tokens of its prompt where asked for and, where its tokens are all computed,
// samples from its rows of logits one after the other, as plain decoding would: the first row continues the sequence,
// and each further row counts only if the draft before it is the token that was sampled. A panic is an error of this
// choice alone. The outcomes are valid until the next call.
func (e *Engine) sampleItem(it *sched.Item, rows logits) (outs []outcome, err error) {
	e.outcomes = e.outcomes[:0]
	defer func() { outs = e.outcomes }()
	defer e.recoverTo(&err, "sampling panicked")
	c, drafts := ownerOf(it), it.DraftTokens()
	if err := e.sched.Done(it); err != nil {
		return nil, err
	}
	read, err := e.score(c, it, rows)
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
		e.outcomes = append(e.outcomes, out)
		if i == len(drafts) || out.event.Token != drafts[i] || out.finish != "" {
			break
		}
		if err := e.sched.Accept(it); err != nil {
			return nil, err
		}
	}
	if len(drafts) == 0 {
		return nil, nil
	}
	return nil, e.sched.Reject(it)
}
