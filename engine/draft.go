package engine

import (
	"errors"

	"sparrow/kernel"
	"sparrow/sched"
	"sparrow/spec"
)

// Drafting adds two things to an iteration. After the forward pass, the drafting layer reads what it computed, prompts
// included, so that its rows lie in every page beside the target's, and proposes how sequences go on. The next batch
// then verifies the proposals: it computes several rows of a sequence at once, and Engine.sampleItem samples from them
// exactly as plain decoding would. So the answer is the same with and without drafts, at any temperature and under any
// constraint; see package spec.

// drafter is what drafting keeps between passes.
type drafter struct {
	control *spec.Controller
	chains  []chain
}

// chain is the drafts of one choice while they are made.
type chain struct {
	c      *choice
	want   int        // drafts
	work   int        // its number in the latest draft pass
	limits constraint // of the choice, as it will be after the drafts
}

// draftsFor is how the choices of a request draft: as many tokens as it asks for, or as many as pay.
func (e *Engine) draftsFor(r *Request) spec.Request {
	switch asked := r.Draft; {
	case e.drafter == nil || asked != nil && *asked == 0:
		return spec.Request{}
	case asked != nil:
		return e.drafter.control.Exactly(*asked)
	}
	return e.drafter.control.Request()
}

// draft runs the drafting layer over the rows of a batch, then once for each further draft of the longest chain.
func (e *Engine) draft(items []sched.Item) {
	d := e.drafter
	if d == nil {
		return
	}
	e.passes.drafts, d.chains = e.passes.drafts[:0], d.chains[:0]
	for i := range items {
		if c := ownerOf(&items[i]); !c.ended && c.drafts.Active() && !c.scoresOnly() {
			e.addToDraftPass(&items[i], i, len(items))
		}
	}
	for chained := false; len(e.passes.drafts) > 0; chained = true {
		rows, err := e.draftPass(chained)
		if errors.Is(err, kernel.ErrLost) {
			e.lose(err)
			return
		}
		if err != nil {
			e.stopDrafting(items, err)
			return
		}
		e.countSegments(rows.plan())
		going := d.chains[:0]
		for i := range d.chains {
			k := &d.chains[i]
			if e.propose(k, rows.row(i)) {
				k.work = e.passes.draftNext(k.c, k.work)
				going = append(going, *k)
			}
		}
		d.chains = going
	}
}

// addToDraftPass adds the rows of an item to the first draft pass. Where the sequence's next token was sampled a chain
// begins.
func (e *Engine) addToDraftPass(it *sched.Item, from, sequences int) {
	c := ownerOf(it)
	if !it.Last {
		e.passes.draftRows(it, from, false)
		return
	}
	want := c.drafts.Depth(sequences)
	if want == 0 {
		e.noteDraftingEnded(c)
		return
	}
	// The next token is the target's own. Drafts behind the last allowed token, or more than a batch verifies, are
	// never used.
	want = e.sched.ReserveDrafts(&c.seq, min(want, e.info.Drafts, c.maxTokens-c.limits.made-1))
	work := e.passes.draftRows(it, from, want > 0)
	if want > 0 {
		e.drafter.chains = append(e.drafter.chains, chain{c: c, want: want, work: work, limits: c.limits.clone()})
	}
}

// propose drafts the next token of a chain from a row of logits and reports whether the chain continues.
func (e *Engine) propose(k *chain, row logitRow) bool {
	c := k.c
	token, err := k.propose(row)
	if err != nil {
		return false
	}
	c.seq.Drafts = append(c.seq.Drafts, token)
	return len(c.seq.Drafts) < k.want && !k.limits.eosToken(token) && !c.stops.Token(token) &&
		k.limits.accept(token) == nil
}

// propose chooses a draft from a row of logits. An error means that no token can follow.
func (k *chain) propose(row logitRow) (int32, error) {
	if row.whole == nil {
		return k.c.sampler.Take(row.best)
	}
	mask, err := k.limits.allowed()
	if err != nil {
		return 0, err
	}
	return k.c.sampler.Propose(row.whole, mask, len(k.c.seq.Drafts))
}

// stopDrafting ends drafting for the sequences of a batch after a draft pass failed; they go on with plain decoding.
func (e *Engine) stopDrafting(items []sched.Item, err error) {
	e.cfg.Log.Error("drafting failed; its sequences continue without drafts", "sequences", len(items), "error", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range items {
		if c := ownerOf(&items[i]); c.drafts.Active() {
			c.drafts.Stop()
			c.seq.Drafts = c.seq.Drafts[:0]
			e.stats.DraftsFailed++
		}
	}
}

// noteDraftingEnded logs and counts a choice that no longer drafts because it does not pay. Its later pages lack the
// drafting layer's rows: requests that reuse these pages get fewer accepted drafts; output is unchanged.
func (e *Engine) noteDraftingEnded(c *choice) {
	u := &c.job.usage
	e.cfg.Log.Info("drafting does not pay and ends", "id", c.job.request.ID, "choice", c.index, "tokens", c.limits.made,
		"drafted", u.DraftedTokens, "accepted", u.AcceptedTokens)
	e.mu.Lock()
	e.stats.DraftsEnded++
	e.mu.Unlock()
}
