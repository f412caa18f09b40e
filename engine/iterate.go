package engine

import (
	"fmt"
	"time"

	"sparrow/sched"
)

// iterate runs one batch and hands out what it gave. A batch that fails is run again item by item, so that only the requests that fail
// by themselves are lost.
func (e *Engine) iterate(items []sched.Item) {
	begun := time.Now()
	e.noteAdmitted(items, begun)
	if items = e.attachStates(items); len(items) == 0 {
		return
	}
	rows, took, err := e.forward(items)
	switch {
	case err == nil:
		e.measure(rows.plan(), took)
		e.handOut(items, rows, begun)
	case len(items) == 1:
		e.fail(ownerOf(&items[0]), err)
	default:
		e.cfg.Log.Warn("a batch failed; its sequences run one by one", "sequences", len(items), "error", err)
		e.runOneByOne(items, begun)
	}
	if e.afterIteration != nil {
		e.afterIteration()
	}
}

// runOneByOne runs the items of a failed batch alone.
func (e *Engine) runOneByOne(items []sched.Item, begun time.Time) {
	e.mu.Lock()
	e.stats.Isolated++
	e.mu.Unlock()
	for i := range items {
		if e.restartIfStateLost(&items[i]) {
			continue
		}
		one := items[i : i+1]
		rows, _, err := e.forward(one)
		if err != nil {
			e.fail(ownerOf(&items[i]), err)
			continue
		}
		e.handOut(one, rows, begun)
	}
}

// handOut gives every item its rows of logits, drafts what follows, and records the pass.
func (e *Engine) handOut(items []sched.Item, rows logits, begun time.Time) {
	for i := range items {
		outs, err := e.advance(&items[i], rows)
		e.account(&items[i], rows.plan(), outs, err)
		rows.first += rowsOf(&items[i])
	}
	e.draft(items)
	e.record(rows.plan(), begun, len(items))
}

// advance commits an item and, where its tokens are all computed, samples from its rows of logits one after the other, as plain
// decoding would: the first row continues the sequence, and each further row counts only if the draft before it is the token that was
// sampled. A panic is an error of this choice alone. The outcomes are valid until the next call.
func (e *Engine) advance(it *sched.Item, rows logits) (outs []outcome, err error) {
	e.outcomes = e.outcomes[:0]
	defer func() { outs = e.outcomes }()
	defer e.recoverTo(&err, "sampling panicked")
	c, drafts := ownerOf(it), it.DraftTokens()
	if err := e.sched.Done(it); err != nil || !it.Last {
		return nil, err
	}
	for i := 0; ; i++ {
		out, err := c.advance(rows.row(i))
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

// fail ends a choice that cannot be computed.
func (e *Engine) fail(c *choice, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(c, err)
}

func (e *Engine) failLocked(c *choice, err error) {
	e.cfg.Log.Error("request failed", "id", c.job.request.ID, "choice", c.index, "error", err)
	e.end(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
}
