package engine

import (
	"errors"

	"sparrow/internal/spec"
	"sparrow/kernel"
)

// block returns how many tokens the drafting layers propose in one pass, 0 where they propose one.
func (d *drafter) block() int { return d.info.Config.Model.Block }

// draftBlocks drafts a block after every sequence of a committed batch whose next token was sampled, and keeps of each
// as many drafts as are worth verifying. An error means that the device is lost.
func (d *drafter) draftBlocks(b *batch) error {
	p := b.passes
	for i := range b.items {
		if it := &b.items[i]; draftedFor(it) && it.Last {
			d.choices = append(d.choices, ownerOf(it))
			d.addBlock(b, i)
		}
	}
	if len(p.drafts) == 0 {
		return nil
	}
	rows, err := d.run(p, false)
	switch {
	case errors.Is(err, kernel.ErrLost):
		return err
	case err != nil:
		d.stop(err)
		return nil
	}
	d.tally.countSegments(rows.plan())
	d.keep(rows)
	return nil
}

// addBlock adds the block of an item to the draft pass.
func (d *drafter) addBlock(b *batch, number int) {
	it := &b.items[number]
	c := ownerOf(it)
	want := c.drafts.Depth(len(b.items))
	if want == 0 {
		d.noteEnded(c)
		return
	}
	if c.drafts.Adapts() { // all of them are drafted; how many are verified is decided by the drafter's confidence
		want = d.block()
	}
	if b.between || len(c.seq.Tokens)+d.block() > d.model.Config().MaxPositions { // prompts wait; or the context ends
		return
	}
	want = d.sched.ReserveDrafts(&c.seq, min(want, d.info.Drafts, c.maxTokens-c.limits.made-1))
	if want > 0 {
		k := chain{c: c, want: want, work: len(b.passes.drafts), limits: c.limits.clone()}
		d.chains = append(d.chains, k)
		b.passes.draftBlock(it, number, d.block())
	}
}

// keep takes the drafts of all blocks.
func (d *drafter) keep(rows logits) {
	d.sure = d.sure[:0]
	for i := range d.chains {
		k := &d.chains[i]
		proposal := spec.Proposal{Request: &k.c.drafts}
		for place := range k.want {
			row, confidence := rows.result.Drafted(k.work, place)
			if !k.follow(rows.row(row)) {
				break
			}
			proposal.Confidence[place], proposal.Drafts = confidence, place+1
		}
		d.sure = append(d.sure, proposal)
	}
	d.control.Cut(d.sure, d.overlap)
	for i := range d.chains {
		c := d.chains[i].c
		c.seq.Drafts = c.seq.Drafts[:d.sure[i].Drafts]
	}
}

// follow appends the next draft of a block and reports whether there is one: a token that cannot follow ends it, and so
// does one after which the answer ends.
func (k *chain) follow(row logitRow) bool {
	c := k.c
	if n := len(c.seq.Drafts); n > 0 {
		if last := c.seq.Drafts[n-1]; k.limits.endsAt(last) || c.stops.Token(last) {
			return false
		}
	}
	token, err := k.propose(row)
	if err != nil || k.limits.accept(token) != nil {
		return false
	}
	c.seq.Drafts = append(c.seq.Drafts, token)
	return true
}
