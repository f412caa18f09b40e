package sparrow

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"sparrow/plan"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/spec"
	"sparrow/step"
)

// Drafting adds two things to a step. Before it is over, the drafting layer reads what the step computed, prompts included, so that its rows lie
// in every page beside the target's, and guesses how sequences go on. The next step then verifies the guesses: it computes several rows of a
// sequence at once, samples from them one after the other exactly as plain decoding would, and goes on for as long as the sampled token is
// the drafted one. So the answer is the same with and without drafts, at any temperature and under any constraint; see spec.

// drafter is what the loop needs to draft.
type drafter struct {
	control *spec.Controller
	works   []step.Draft
	chains  []chain
}

// chain is the drafts of one choice in the making.
type chain struct {
	c    *choice
	want int    // drafts
	at   int    // its work in the latest pass
	mind choice // what limits the choice, as it will be after the drafts
}

// drafting is how a choice that begins to run drafts: as its request says, or as pays.
func (e *Engine) drafting(c *choice) spec.Request {
	switch asked := c.job.request.Draft; {
	case e.drafter == nil || asked != nil && *asked == 0:
		return spec.Request{}
	case asked != nil:
		return e.drafter.control.Exactly(*asked)
	}
	return e.drafter.control.Request()
}

// measure tells the controller what a step cost whose rows all decode or verify.
func (e *Engine) measure(p *plan.Plan, took time.Duration) {
	if e.drafter != nil && decodeLike(p) {
		e.drafter.control.Step(p.Rows, took.Seconds())
	}
}

func decodeLike(p *plan.Plan) bool {
	return !slices.ContainsFunc(p.Segments, func(s plan.Segment) bool { return !s.Row.DecodeLike() })
}

// draftRow is what a row of logits has to do with drafts: place is that of its draft in the chain, from 1, and one more for the row after the last
// draft, whose token is -1. The zero value is a row of plain decoding.
type draftRow struct {
	token int32
	place int
}

func (d draftRow) drafted() bool { return d.place > 0 && d.token >= 0 }

// judge counts a token that came out of a verify, and whether it was the drafted one.
func (s *Stats) judge(d draftRow, token int32) {
	if d.place == 0 {
		return
	}
	s.VerifiedTokens++
	if !d.drafted() {
		return
	}
	s.Drafts[d.place-1].Judged++
	if token == d.token {
		s.Drafts[d.place-1].Right++
		s.Accepted++
	}
}

// verify samples from the rows of an item that holds drafts, and keeps those that are what was sampled.
func (e *Engine) verify(c *choice, it *sched.Item, res step.Result, row int) {
	drafts := it.Tokens[len(it.Tokens)-it.Drafts:]
	c.job.usage.DraftedTokens += len(drafts)
	e.mu.Lock()
	e.stats.Verified++
	e.stats.Drafted += int64(len(drafts))
	e.mu.Unlock()
	judged, right := 0, 0
	for i := 0; ; i++ {
		d := draftRow{token: -1, place: i + 1}
		if i < len(drafts) {
			d.token = drafts[i]
		}
		token := e.next(c, res.Row(row+i), d)
		if d.drafted() && token >= 0 {
			judged++
		}
		if !d.drafted() || token != d.token {
			break
		}
		right++
		if c.ended {
			break
		}
		if err := e.sched.Accept(it); err != nil {
			e.fail(c, err)
			return
		}
	}
	c.draft.Judged(judged, right)
	if err := e.sched.Reject(it); err != nil {
		e.fail(c, err)
	}
}

// draft lets the drafting layer read what the step before computed and guess how its sequences go on.
func (e *Engine) draft(items []sched.Item) {
	d := e.drafter
	if d == nil {
		return
	}
	d.works, d.chains = d.works[:0], d.chains[:0]
	for i := range items {
		if c := items[i].Seq.Owner.(*choice); !c.ended && c.draft.On() {
			e.follow(&items[i], c, i, len(items))
		}
	}
	for chained := false; len(d.works) > 0; chained = true {
		res, err := e.runDraft(d.works, chained)
		if err != nil {
			e.undrafted(items, err)
			return
		}
		d.works = d.works[:0]
		row := 0
		chains := d.chains[:0]
		for i := range d.chains {
			k := &d.chains[i]
			if e.guess(k, res.Row(row)) {
				d.works = append(d.works, k.continued())
				k.at = len(d.works) - 1
				chains = append(chains, *k)
			}
			row++
		}
		d.chains = chains
	}
}

// follow adds the rows of an item to the first pass of the drafting layer. Where the sequence's next token was sampled a chain begins.
func (e *Engine) follow(it *sched.Item, c *choice, from, sequences int) {
	d := e.drafter
	w := step.Draft{Kind: plan.ModeExtend, Tokens: c.seq.Tokens[it.Cached+1 : it.Cached+it.Kept()+1], Cached: it.Cached, State: c.rows, From: from}
	if it.Decode {
		w.Kind = plan.ModeDraft
	}
	if it.Last {
		want := c.draft.Depth(sequences)
		if want == 0 {
			e.unpaid(c)
			return
		}
		// The next token is the target's own; drafts after the last allowed one, or more than a step verifies, would be for nothing.
		want = e.sched.Room(&c.seq, min(want, e.info.Drafts, c.limit-c.made-1))
		if want > 0 {
			w.Logits = true
			d.chains = append(d.chains, chain{c: c, want: want, at: len(d.works), mind: c.imagined()})
		}
	}
	w.Pages = c.seq.Pages()
	d.works = append(d.works, w)
}

// guess drafts the next token of a chain from logits and reports whether the chain goes on.
func (e *Engine) guess(k *chain, logits []float32) bool {
	c := k.c
	mask, err := k.mind.allowed()
	if err != nil {
		return false // nothing can follow
	}
	token, err := c.sampler.Propose(logits, mask, len(c.seq.Drafts))
	if err != nil {
		return false
	}
	c.seq.Drafts = append(c.seq.Drafts, token)
	k.mind.made++
	return len(c.seq.Drafts) < k.want && !slices.Contains(e.eos, token) && !c.stops.Token(token) && k.mind.accept(token) == nil
}

// continued is the row after the latest draft of a chain. It lies where the draft's own row will be; the target's hidden states replace it when
// the draft is accepted.
func (k *chain) continued() step.Draft {
	q := &k.c.seq
	n := len(q.Drafts)
	return step.Draft{Kind: plan.ModeDraft, Tokens: q.Drafts[n-1:], Cached: len(q.Tokens) + n - 2, Pages: q.Pages(), State: k.c.rows, Logits: true, From: k.at}
}

// imagined is a copy of what limits a choice, to be led along its drafts.
func (c *choice) imagined() choice {
	m := choice{job: c.job, think: c.think, noEnd: c.noEnd, inWords: c.inWords, made: c.made, stops: c.stops}
	if c.state != nil {
		m.state = c.state.Clone()
	}
	if c.calls != nil {
		m.calls = c.calls.Clone()
	}
	if c.mask != nil {
		m.mask = make(sample.Mask, len(c.mask))
	}
	return m
}

// runDraft carries out a pass of the drafting layer; a panic below becomes an error of this pass.
func (e *Engine) runDraft(works []step.Draft, chained bool) (res step.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Log.Error("a drafting pass panicked", "value", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	begun := time.Now()
	if res, err = e.runner.Draft(works, chained); err != nil || res.Plan == nil {
		return res, err
	}
	rows, prompts := 0, false
	for i := range works {
		rows += len(works[i].Tokens)
		prompts = prompts || works[i].Kind != plan.ModeDraft
	}
	if !prompts {
		e.drafter.control.Pass(rows, time.Since(begun).Seconds())
	}
	e.mu.Lock()
	for i := range res.Plan.Segments {
		e.stats.count(&res.Plan.Segments[i])
	}
	e.mu.Unlock()
	return res, nil
}

// undrafted goes on without drafts after a pass failed: the sequences lose nothing but speed.
func (e *Engine) undrafted(items []sched.Item, err error) {
	e.cfg.Log.Error("drafting failed; its sequences go on without", "sequences", len(items), "error", err)
	for i := range items {
		c := items[i].Seq.Owner.(*choice)
		if c.draft.On() {
			c.draft.Stop()
			c.seq.Drafts = c.seq.Drafts[:0]
			e.mu.Lock()
			e.stats.DraftsFailed++
			e.mu.Unlock()
		}
	}
}

// unpaid says that a choice no longer drafts. Its later pages lack the drafting layer's rows: who reuses them drafts worse, and answers the same.
func (e *Engine) unpaid(c *choice) {
	u := &c.job.usage
	e.cfg.Log.Info("drafting does not pay and ends", "id", c.job.request.ID, "choice", c.index, "tokens", c.made, "drafted", u.DraftedTokens, "accepted", u.AcceptedTokens)
	e.mu.Lock()
	e.stats.DraftsEnded++
	e.mu.Unlock()
}
