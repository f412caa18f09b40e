package engine

import (
	"errors"
	"time"

	"sparrow/kernel"
	"sparrow/sched"
	"sparrow/spec"
	"sparrow/step"
)

// Drafting adds two things to an iteration. After the forward pass, the drafting layer reads what it computed, prompts
// included, so that its rows lie in every page beside the target's, and proposes how sequences go on. The next batch
// then verifies the proposals: it computes several rows of a sequence at once, and Engine.sampleItem samples from them
// exactly as plain decoding would. So the answer is the same with and without drafts, at any temperature and under any
// constraint; see package spec.

// drafter is what drafting keeps between passes.
type drafter struct {
	control *spec.Controller
	choices []*choice // whose rows the latest draft pass has
	chains  []chain
	// adapting are the requests of a batch that draft as many tokens as pay, and together how many each of them makes;
	// 0: each as many as pay for it.
	adapting []*spec.Request
	together int
	// unseen is a draft pass whose tokens, one for each of chains, the next batch takes on the device: it is formed and
	// enqueued while the pass runs.
	unseen ahead
}

// chain is the drafts of one choice while they are made.
type chain struct {
	c      *choice
	want   int        // drafts
	work   int        // its number in the latest draft pass
	row    int        // its row of logits there
	limits constraint // of the choice, as it will be after the drafts
}

// ahead is a draft pass that was enqueued right behind a forward pass, before the host has seen what that chose: it
// stores all rows of every item, of which those count that are kept.
type ahead struct {
	on      bool
	pending step.Pending
	begun   time.Time // when the forward pass had ended
	err     error     // of enqueueing it
	places  []place
	rows    int
	prompts bool // some of them are of prompts
}

// place is where an item is in such a pass: the number of its work, negative where it has none, and of its row of
// logits.
type place struct{ work, row int }

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

// draftedFor reports whether the drafting layer reads the rows of an item.
func draftedFor(it *sched.Item) bool {
	c := ownerOf(it)
	return !c.ended && c.drafts.Active() && !c.scoresOnly()
}

// draftAhead enqueues the drafting layer behind a launched batch where the device chooses the tokens of all rows that
// it needs. Models with a state of each sequence wait: the rows that they keep depend on what is accepted.
func (e *Engine) draftAhead(f *flight) {
	if p := f.pending.Plan(); e.drafter == nil || !e.draws || e.stateful != nil || p.Logits > 0 &&
		p.WholeLogits == p.Logits {
		return
	}
	for i := range f.items {
		if it := &f.items[i]; draftedFor(it) && it.Last && ownerOf(it).needsLogits() {
			return
		}
	}
	p, a := f.on, &f.ahead
	p.drafts, a.places = p.drafts[:0], a.places[:0]
	logits, drafts := 0, 0
	for i := range f.items {
		it, at := &f.items[i], place{work: -1}
		if draftedFor(it) {
			at = place{len(p.drafts), drafts}
			p.draftAhead(it, i, logits+1)
			if it.Last {
				drafts++
			}
		}
		a.places = append(a.places, at)
		logits += it.Logits
	}
	if len(p.drafts) == 0 {
		return
	}
	defer e.recoverTo(&a.err, "a draft pass panicked")
	a.on = true
	a.rows, a.prompts = p.draftSize()
	a.pending, a.err = p.runner.StartDraft(p.drafts, false)
}

// waitAhead waits for a draft pass that was enqueued behind a batch. A panic in it is returned as an error.
func (e *Engine) waitAhead(p *passes, a *ahead) (rows logits, err error) {
	defer e.recoverTo(&err, "a draft pass panicked")
	if a.on = false; a.err != nil {
		e.notePass(0, a.err)
		return rows, a.err
	}
	e.watchdog.begin(e.now())
	defer e.watchdog.end()
	rows.result, err = p.runner.Wait(a.pending)
	e.mu.Lock()
	e.stats.DraftsAhead++
	e.mu.Unlock()
	e.noteDraftPass(a.begun, err, rows.plan(), a.rows, a.prompts)
	return rows, err
}

// leaveUnseen lets the next batch be formed while the draft pass runs, where it gives every chain its only draft.
func (e *Engine) leaveUnseen(a *ahead) bool {
	d := e.drafter
	if p := a.pending.Plan(); a.err != nil || len(d.chains) == 0 || p.WholeLogits > 0 {
		return false
	}
	for i := range d.chains {
		if d.chains[i].want > 1 {
			return false
		}
	}
	for i := range d.chains {
		c := d.chains[i].c
		c.seq.Drafts, c.drafted = append(c.seq.Drafts, 0), d.chains[i].row+1
	}
	d.unseen, a.on = *a, false
	return true
}

// runsUnseen reports whether there is such a pass.
func (e *Engine) runsUnseen() bool { return e.drafter != nil && e.drafter.unseen.on }

// seeDrafts waits for that pass and gives the items that verify its tokens their values. Where the pass failed it
// reports false: a batch of these items has to be launched again, with the drafts that they have.
func (e *Engine) seeDrafts(items []sched.Item) bool {
	d := e.drafter
	rows, err := e.waitAhead(e.passes, &d.unseen)
	for i := range items {
		it, c := &items[i], ownerOf(&items[i])
		if err == nil && it.Drafts > 0 && c.drafted > 0 {
			it.DraftTokens()[0] = rows.row(c.drafted - 1).best.Token
		}
	}
	for i := range d.chains {
		d.chains[i].c.drafted = 0
	}
	switch {
	case errors.Is(err, kernel.ErrLost):
		e.lose(err)
	case err != nil:
		e.stopDrafting(err)
	default:
		e.countSegments(rows.plan())
	}
	return err == nil
}

// draft runs the drafting layer over the rows of a batch, unless that was done, then once for each further draft of the
// longest chain.
func (e *Engine) draft(f *flight) {
	d := e.drafter
	if d == nil {
		return
	}
	p := f.on
	p.drafts, d.chains, d.choices = p.drafts[:0], d.chains[:0], d.choices[:0]
	e.agreeOnDrafts(f)
	for i := range f.items {
		if draftedFor(&f.items[i]) {
			d.choices = append(d.choices, ownerOf(&f.items[i]))
			e.addToDraftPass(f, i)
		}
	}
	if f.ahead.on && e.leaveUnseen(&f.ahead) {
		return
	}
	for chained := false; f.ahead.on || len(p.drafts) > 0; chained = true {
		var rows logits
		var err error
		if f.ahead.on {
			rows, err = e.waitAhead(p, &f.ahead)
		} else {
			rows, err = e.draftPass(p, chained)
		}
		if errors.Is(err, kernel.ErrLost) {
			e.lose(err)
			return
		}
		if err != nil {
			e.stopDrafting(err)
			return
		}
		e.countSegments(rows.plan())
		going := d.chains[:0]
		for i := range d.chains {
			k := &d.chains[i]
			if e.propose(k, rows.row(k.row)) {
				p.draftNext(k)
				k.row = len(going)
				going = append(going, *k)
			}
		}
		d.chains = going
	}
}

// agreeOnDrafts lets all requests of a batch that adapt make equally many drafts, on a device that computes beside the
// host: the next batch is then captured and padded, and with one draft enqueued while the drafting layer runs.
func (e *Engine) agreeOnDrafts(f *flight) {
	d := e.drafter
	d.together, d.adapting = 0, d.adapting[:0]
	if !e.overlap {
		return
	}
	for i := range f.items {
		if c := ownerOf(&f.items[i]); draftedFor(&f.items[i]) && f.items[i].Last && c.drafts.Adapts() {
			d.adapting = append(d.adapting, &c.drafts)
		}
	}
	if len(d.adapting) > 0 {
		d.together = d.control.Together(d.adapting)
	}
}

// addToDraftPass adds the rows of an item to the first draft pass, unless that was enqueued. Where the sequence's next
// token was sampled a chain begins.
func (e *Engine) addToDraftPass(f *flight, number int) {
	it, d := &f.items[number], e.drafter
	c := ownerOf(it)
	if !it.Last {
		if !f.ahead.on {
			f.on.draftRows(it, number, false)
		}
		return
	}
	want := c.drafts.Depth(len(f.items))
	if want == 0 {
		e.noteDraftingEnded(c)
		return
	}
	if c.drafts.Adapts() && d.together > 0 {
		want = d.together
	}
	// The next token is the target's own. Drafts behind the last allowed token, or more than a batch verifies, are
	// never used.
	if f.inner { // prompts wait
		want = 0
	}
	want = e.sched.ReserveDrafts(&c.seq, min(want, e.info.Drafts, c.maxTokens-c.limits.made-1))
	k := chain{c: c, want: want, row: len(d.chains)}
	if f.ahead.on {
		at := f.ahead.places[number]
		k.work, k.row = at.work, at.row
	} else {
		k.work = f.on.draftRows(it, number, want > 0)
	}
	if want > 0 {
		k.limits = c.limits.clone()
		d.chains = append(d.chains, k)
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

// stopDrafting ends drafting for the sequences of the latest draft pass, which failed; they go on with plain decoding.
func (e *Engine) stopDrafting(err error) {
	list := e.drafter.choices
	e.cfg.Log.Error("drafting failed; its sequences continue without drafts", "sequences", len(list), "error", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range list {
		if c.drafts.Active() {
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
