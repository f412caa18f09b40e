package engine

import "sparrow/internal/spec"

// block returns how many tokens the drafting layers propose in one pass; 0 if a pass proposes only the next token.
func (d *drafter) block() int { return d.info.Config.Model.Block }

// keep appends drafts of each block to its sequence: as many as save time when verified, by the controller's estimate.
func (d *drafter) keep(rows logits) {
	d.sure = d.sure[:0]
	for i := range d.chains {
		k := &d.chains[i]
		for place := 0; place < k.want; place++ {
			if row, _ := rows.result.Drafted(k.work, place); !k.follow(rows.row(row)) {
				break
			}
		}
		d.sure = append(d.sure, k.proposal(rows, len(k.c.seq.Drafts)))
	}
	d.control.Cut(d.sure, d.overlap)
	for i := range d.chains {
		c := d.chains[i].c
		c.seq.Drafts = c.seq.Drafts[:d.sure[i].Drafts]
	}
}

// seen passes the drafter's confidences in the blocks to the controller, which compares them with the results of
// verification.
func (d *drafter) seen(rows logits) {
	d.sure = d.sure[:0]
	for i := range d.chains {
		d.sure = append(d.sure, d.chains[i].proposal(rows, d.block()))
	}
	d.control.Seen(d.sure)
}

// proposal returns the first n drafts of a chain's block, with the drafter's confidence in each draft.
func (k *chain) proposal(rows logits, n int) spec.Proposal {
	p := spec.Proposal{Request: &k.c.drafts, Drafts: n}
	for place := range n {
		_, p.Confidence[place] = rows.result.Drafted(k.work, place)
	}
	return p
}

// follow appends the next draft of a block and reports whether there is one. A block ends before a token that is not
// allowed, and after a token that ends the answer.
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
