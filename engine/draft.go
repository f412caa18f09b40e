package engine

import (
	"errors"
	"time"

	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

// Drafting adds two stages to an iteration. After the forward pass, the drafting layer reads the hidden states of all
// rows, including prompt rows. So every page holds the cache rows of the drafting layer together with those of the
// target. It then proposes the next tokens of each sequence: one token with each pass, or a block of tokens with one
// pass (plan.Model.Block; the forward pass has stored what the block's stages need). The next batch then verifies the
// proposals: it computes several rows of a sequence at once, and loop.sampleItem samples from them exactly as plain
// decoding would. Therefore the answer is the same with and without drafts, for any sampling parameters and
// constraints; see package spec.

// drafter runs the drafting layer after a batch. A nil *drafter drafts nothing. Only the loop uses it.
type drafter struct {
	*setup
	tally    *tally
	watchdog *watchdog
	sched    *sched.Scheduler
	control  *spec.Controller

	choices []*choice // choices with rows in the latest draft pass, in order
	chains  []chain
	// adapting holds the requests of a batch whose draft length is adaptive. together is the draft length of all of
	// them; 0 means that each request has its own.
	adapting []*spec.Request
	together int
	sure     []spec.Proposal // proposals of the latest blocks, with confidences
	// blind is true if the number of drafts to verify is chosen before the host has the next blocks and their
	// confidences.
	blind bool
	saw   time.Time // time when the host received the latest blocks, if the device was idle then; else zero
}

// chain holds the state of one choice while tokens are drafted for it.
type chain struct {
	c      *choice
	want   int        // number of drafts to make
	work   int        // index of the choice in the works of the latest draft pass
	row    int        // index of the choice's row of logits in the latest draft pass
	limits constraint // copy of the choice's constraint, advanced by the drafts
}

// ahead is a draft pass that was enqueued right after a forward pass, before the host has the tokens of that pass. The
// draft pass stores all rows of every item in the cache; rows of rejected tokens are overwritten later.
type ahead struct {
	on      bool
	pending step.Pending
	begun   time.Time // time when the forward pass ended
	err     error     // error from enqueueing the draft pass
	places  []place
	rows    int
	prompts bool // some rows belong to prompts
}

// place is the position of an item in a draft pass: its index in the list of works, negative if the pass does not
// contain the item, and the index of its row of logits.
type place struct{ work, row int }

// reads reports whether the drafting layer reads the rows of an item. Layers that draft blocks read only the item's
// last row, and the block must have positions in the context.
func (d *drafter) reads(it *sched.Item) bool {
	c, n := ownerOf(it), d.block()
	return !c.ended && c.drafts.Active() && !c.scoresOnly() &&
		(n == 0 || it.Last && it.Cached+len(it.Tokens)+1+n <= d.model.Config().MaxPositions)
}

// enqueue enqueues the drafting layer after an enqueued batch, if the device samples the tokens of all rows that the
// layer needs. A drafting layer whose rows are part of a sequence's state must wait for the host, because these rows
// depend on the accepted tokens; layers that draft blocks have no such rows.
func (d *drafter) enqueue(b *batch) {
	if p := b.pending.Plan(); d == nil || !d.draws || d.stateful != nil && d.block() == 0 ||
		p.Logits > 0 && p.WholeLogits == p.Logits {
		return
	}
	for i := range b.items {
		if it := &b.items[i]; d.reads(it) && it.Last && ownerOf(it).needsLogits() {
			return
		}
	}
	p, a := b.passes, &b.ahead
	p.drafts, a.places = p.drafts[:0], a.places[:0]
	logits, drafts := 0, 0
	for i := range b.items {
		it, at := &b.items[i], place{work: -1}
		if d.reads(it) {
			at = place{len(p.drafts), drafts}
			p.draftAhead(it, i, logits+1, d.block())
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
	defer recoverTo(&a.err, d.cfg.Log, "a draft pass panicked")
	a.on = true
	a.rows, a.prompts = d.size(p)
	a.pending, a.err = p.runner.StartDraft(p.drafts, false)
}

// wait returns the rows of logits of the draft pass that was enqueued after a batch, when the pass has ended. A panic
// in it is returned as an error.
func (d *drafter) wait(b *batch) (rows logits, err error) {
	defer recoverTo(&err, d.cfg.Log, "a draft pass panicked")
	a := &b.ahead
	if a.on = false; a.err != nil {
		d.tally.notePass(0, a.err)
		return rows, a.err
	}
	looked := d.now()
	d.watchdog.begin(looked)
	defer d.watchdog.end()
	rows.result, err = b.passes.runner.Wait(a.pending)
	d.tally.add(&d.tally.stats.DraftsAhead, 1)
	late := 8*d.since(looked) < d.since(a.begun) // the host had other work, such as enqueueing a prompt
	d.notePass(a.begun, late, err, rows.plan(), a.rows, a.prompts)
	return rows, err
}

// forget waits for a draft pass that was enqueued after a batch, if there is one. Its drafts are discarded.
func (d *drafter) forget(b *batch) {
	if d != nil && b.ahead.on {
		_, _ = d.wait(b)
	}
}

// leave moves a batch to the stage drafting if one draft pass gives every chain all its drafts: a single draft, or a
// block. It reports whether it did. The next batch reads the drafts on the device.
func (d *drafter) leave(b *batch) bool {
	a := &b.ahead
	if p := a.pending.Plan(); a.err != nil || len(d.chains) == 0 || p.WholeLogits > 0 || d.block() > 0 && !d.blind {
		return false
	}
	for i := range d.chains {
		if d.chains[i].want > max(d.block(), 1) {
			return false
		}
	}
	for i := range d.chains {
		k := &d.chains[i]
		k.c.seq.Drafts, k.c.drafted = append(k.c.seq.Drafts, make([]int32, k.want)...), k.row+1
	}
	b.to(stageDrafting)
	return true
}

// see waits for the draft pass of a batch and gives its tokens to the items of the next batch that verify them. If the
// draft pass failed, its sequences continue without drafts.
func (d *drafter) see(last *batch, items []sched.Item) error {
	rows, err := d.wait(last)
	last.to(stageEnded)
	for i := range items {
		it, c := &items[i], ownerOf(&items[i])
		if err != nil || c.drafted == 0 {
			continue
		}
		for place := range it.DraftTokens() {
			row := c.drafted - 1
			if d.block() > 0 {
				row, _ = rows.result.Drafted(row, place)
			}
			it.DraftTokens()[place] = rows.row(row).best.Token
		}
	}
	if err == nil && d.block() > 0 {
		d.seen(rows)
	}
	for i := range d.chains {
		d.chains[i].c.drafted = 0
	}
	switch {
	case errors.Is(err, kernel.ErrLost):
	case err != nil:
		d.stop(err)
	default:
		d.tally.countSegments(rows.plan())
	}
	return err
}

// draft runs the drafting layer over the rows of a committed batch, unless that draft pass is already enqueued, and
// then once more for each further draft of the longest chain. An error means that the device is lost.
func (d *drafter) draft(b *batch) error {
	if d == nil {
		return nil
	}
	p := b.passes
	p.drafts, d.chains, d.choices = p.drafts[:0], d.chains[:0], d.choices[:0]
	d.agree(b)
	for i := range b.items {
		if d.reads(&b.items[i]) {
			d.choices = append(d.choices, ownerOf(&b.items[i]))
			d.add(b, i)
		}
	}
	if b.ahead.on && d.leave(b) {
		return nil
	}
	for chained := false; b.ahead.on || len(p.drafts) > 0; chained = true {
		var rows logits
		var err error
		if b.ahead.on {
			rows, err = d.wait(b)
			d.saw = d.now()
		} else {
			rows, err = d.run(p, chained)
		}
		if errors.Is(err, kernel.ErrLost) {
			return err
		}
		if err != nil {
			d.stop(err)
			return nil
		}
		d.tally.countSegments(rows.plan())
		if d.block() > 0 {
			d.keep(rows)
			return nil
		}
		going := d.chains[:0]
		for i := range d.chains {
			k := &d.chains[i]
			if k.extend(rows.row(k.row)) {
				p.draftNext(k)
				k.row = len(going)
				going = append(going, *k)
			}
		}
		d.chains = going
	}
	return nil
}

// run runs the drafting layer over the rows that were added. A panic in it is returned as an error.
func (d *drafter) run(p *passes, chained bool) (rows logits, err error) {
	defer recoverTo(&err, d.cfg.Log, "a draft pass panicked")
	n, prompts := d.size(p)
	begun := d.now()
	d.watchdog.begin(begun)
	defer d.watchdog.end()
	rows.result, err = p.runner.Draft(p.drafts, chained)
	d.notePass(begun, false, err, rows.plan(), n, prompts)
	p.drafts = p.drafts[:0]
	return rows, err
}

// size returns the number of rows of the next draft pass, or the number of rows of one block, and whether some rows
// belong to prompts.
func (d *drafter) size(p *passes) (rows int, prompts bool) {
	if n := d.block(); n > 0 {
		return n * len(p.drafts), false
	}
	return p.draftSize()
}

// launched records how long the device was idle before it got a batch that verifies drafts that the host had to see
// first. Batches with prompts are not counted, because they take longer to enqueue.
func (d *drafter) launched(b *batch) {
	if d == nil || d.saw.IsZero() {
		return
	}
	if b.items[0].Drafts > 0 && b.items[len(b.items)-1].Decode { // drafted items come first in a batch, prompts last
		d.control.Waited(d.since(d.saw).Seconds())
	}
	d.saw = time.Time{}
}

// notePass records a draft pass. The time since begun is taken as the time of the pass; late means that the pass has
// ended earlier than now.
func (d *drafter) notePass(begun time.Time, late bool, err error, p *plan.Plan, rows int, prompts bool) {
	d.tally.notePass(d.since(begun), err)
	if err == nil && p != nil && !prompts {
		d.control.DraftPass(rows, d.since(begun).Seconds(), late)
	}
}

// noteForward records the time of a forward pass, for comparison with draft passes.
func (d *drafter) noteForward(p *plan.Plan, took time.Duration) {
	if d != nil && decodesOnly(p) {
		d.control.ForwardPass(p.Rows, took.Seconds())
	}
}

// agree sets one draft length for all adaptive requests of a batch, on an asynchronous device. The next batch then has
// a shape that can be captured and padded. With one draft for each sequence, it can also be enqueued while the drafting
// layer runs. The same holds for blocks if the draft length does not depend on the drafter's confidence; otherwise
// whole blocks are drafted, and keep chooses how many drafts are verified.
func (d *drafter) agree(b *batch) {
	d.together, d.adapting, d.blind = d.block(), d.adapting[:0], false
	if !d.overlap {
		return
	}
	for i := range b.items {
		if c := ownerOf(&b.items[i]); d.reads(&b.items[i]) && b.items[i].Last && c.drafts.Adapts() {
			d.adapting = append(d.adapting, &c.drafts)
		}
	}
	d.blind = b.ahead.on && (len(d.adapting) == 0 || d.control.Blind())
	if len(d.adapting) > 0 && (d.block() == 0 || d.blind) {
		d.together = d.control.Together(d.adapting)
	}
}

// add adds the rows of an item, or a block after these rows, to the first draft pass, unless that draft pass is already
// enqueued. If the sequence's next token was sampled, add also begins a chain of drafts after it.
func (d *drafter) add(b *batch, number int) {
	it := &b.items[number]
	c := ownerOf(it)
	if !it.Last {
		if !b.ahead.on {
			b.passes.draftRows(it, number, false)
		}
		return
	}
	want := c.drafts.Depth(len(b.items))
	if want == 0 {
		d.noteEnded(c)
		return
	}
	if c.drafts.Adapts() && d.together > 0 {
		want = d.together
	}
	// One of the remaining tokens comes from the target. More drafts than the choice may still generate, or than a
	// batch verifies, would not be used.
	if b.between { // prompts wait while a batch runs between the operations of another batch
		want = 0
	}
	want = d.sched.ReserveDrafts(&c.seq, min(want, d.info.Drafts, c.maxTokens-c.limits.made-1))
	k := chain{c: c, want: want, row: len(d.chains)}
	switch {
	case b.ahead.on:
		at := b.ahead.places[number]
		k.work, k.row = at.work, at.row
	case d.block() == 0:
		k.work = b.passes.draftRows(it, number, want > 0)
	case want > 0:
		k.work = b.passes.draftBlock(it, number, d.block())
	}
	if want > 0 {
		k.limits = c.limits.clone()
		d.chains = append(d.chains, k)
	}
}

// extend drafts the next token of a chain from a row of logits and reports whether the chain continues.
func (k *chain) extend(row logitRow) bool {
	c := k.c
	token, err := k.propose(row)
	if err != nil {
		return false
	}
	c.seq.Drafts = append(c.seq.Drafts, token)
	return len(c.seq.Drafts) < k.want && !k.limits.eosToken(token) && !c.stops.Token(token) &&
		k.limits.accept(token) == nil
}

// propose chooses a draft from a row of logits. An error means that no token is allowed next.
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

// stop ends drafting for the sequences of the latest draft pass, which failed; they continue with plain decoding.
func (d *drafter) stop(err error) {
	d.cfg.Log.Error("drafting failed; the sequences of the pass continue without drafts", "sequences", len(d.choices),
		"error", err)
	d.tally.Lock()
	defer d.tally.Unlock()
	for _, c := range d.choices {
		if c.drafts.Active() {
			c.drafts.Stop()
			c.seq.Drafts = c.seq.Drafts[:0]
			d.tally.stats.DraftsFailed++
		}
	}
}

// noteEnded logs and counts a choice whose drafting was stopped because drafts cost more time than they save. Its later
// pages lack the drafting layer's rows: requests that reuse these pages get fewer accepted drafts; output is unchanged.
func (d *drafter) noteEnded(c *choice) {
	u := &c.job.usage
	d.cfg.Log.Info("drafting takes more time than it saves and is stopped", "id", c.job.request.ID, "choice",
		c.index, "tokens", c.limits.made, "drafted", u.DraftedTokens, "accepted", u.AcceptedTokens)
	d.tally.add(&d.tally.stats.DraftsEnded, 1)
}
