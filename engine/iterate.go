package engine

import (
	"errors"
	"time"

	"sparrow/kernel"
	"sparrow/sched"
)

// iterate runs one batch. A batch that fails is run again item by item, so that only the requests that fail by
// themselves are lost; where the device is lost, all are.
func (e *Engine) iterate(items []sched.Item) {
	begun := e.now()
	e.noteAdmitted(items, begun)
	if items = e.attachStates(items); len(items) == 0 {
		return
	}
	decodes := items[0].Decode // those come first
	switch err := e.run(items, begun); {
	case err == nil:
		e.noteTime(e.since(begun), decodes)
	case errors.Is(err, kernel.ErrLost):
		e.lose(err)
	case len(items) == 1:
		e.fail(ownerOf(&items[0]), err)
	default:
		e.runOneByOne(items, begun, err)
	}
	if e.cfg.Observe != nil {
		e.cfg.Observe()
	}
}

// run computes items in one forward pass, gives each its rows of logits, drafts what follows, and records the pass.
func (e *Engine) run(items []sched.Item, begun time.Time) error {
	rows, err := e.forward(items)
	if err != nil {
		return err
	}
	for i := range items {
		outs, err := e.sampleItem(&items[i], rows.take(&items[i]))
		if err != nil {
			err = e.diagnose(err)
		}
		err = errors.Join(err, e.keep(&items[i], rows.result, i, outs))
		e.account(&items[i], rows.plan(), outs, err)
	}
	e.draft(items)
	e.record(rows.plan(), begun, len(items))
	return nil
}

// runOneByOne runs the items of a failed batch alone.
func (e *Engine) runOneByOne(items []sched.Item, begun time.Time, failed error) {
	e.cfg.Log.Warn("a batch failed; its sequences run one by one", "sequences", len(items), "error", failed)
	e.mu.Lock()
	e.stats.Isolated++
	e.mu.Unlock()
	for i := range items {
		if e.restartIfStateLost(&items[i]) {
			continue
		}
		switch err := e.run(items[i:i+1], begun); {
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
		out, err := c.advance(rows.row(read + i))
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
