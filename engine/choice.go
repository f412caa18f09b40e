package engine

import (
	"math"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/model"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/sample"
	"sparrow/tokenizer"
)

// choice is one of the continuations that a job generates for its prompt.
type choice struct {
	job       *Job
	index     int
	seq       sched.Sequence
	sampler   *sample.Sampler
	limits    constraint
	decoder   *tokenizer.Decoder // nil if the checkpoint has no tokenizer
	decoded   int                // bytes of text decoded so far
	stops     *sample.StopMatcher
	maxTokens int
	drafts    spec.Request    // drafting state: counters from which the draft length is chosen
	recording *step.Recording // recorded rows; nil if nothing is recorded

	state  model.State     // sequence state of a stateful model while the sequence holds pages; else nil
	scored []sample.Scored // prompt tokens with their log probabilities, not sent to the reader yet
	// restarts is the number of times that the sequence was computed again because a failed pass left its state
	// unusable.
	restarts int
	match    kv.Match      // result of the prompt's lookup in the prefix cache
	restore  *restore      // transfer of pages from tiers; nil if there is none
	restored Restored      // pages restored from tiers since the latest admission
	matched  string        // stop string that ended the choice
	draws    []sample.Draw // reused memory for the sampling parameters of a forward pass
	guesses  []sample.Draw // reused memory for the sampling parameters of a draft pass
	// drafted is the number of the row, from 1, of the draft pass in progress that produces the sequence's next draft;
	// 0 if none.
	drafted int
	follow  []int32      // reused memory for token ids of a draft pass whose values are still on the device
	right   []step.Range // reused memory for the result of rightDrafts
	sampled int          // number of the row, from 1, of the pass in progress from which the next token is sampled
	ran     bool         // the choice was part of a batch
	// Fields for the trace: the time of the choice's latest batch, and how often the choice was preempted before that
	// batch.
	latest    time.Time
	suspended int
	ended     bool
}

// scoresOnly reports whether the request only scores its prompt, so that the choice ends when the prompt is computed.
func (c *choice) scoresOnly() bool { return c.job.request.Score != nil && c.job.request.Score.Only }

// ownerOf returns the choice that an item belongs to.
func ownerOf(it *sched.Item) *choice { return it.Seq.Owner.(*choice) }

// outcome is the result of one row of logits for a choice.
type outcome struct {
	event  Event
	finish Finish // empty while the choice continues
}

// needsLogits reports whether the choice needs whole rows of logits: for sampling on the host, for a mask of allowed
// tokens, or to score its prompt.
func (c *choice) needsLogits() bool {
	return c.sampler.NeedsLogits(c.job.setup.draws) || !c.limits.free() || c.scores()
}

// draw returns the parameters with which the device samples tokens from n rows of logits. At the first of these rows,
// the answer has ahead more tokens on the device than on the host. The result is nil for greedy sampling, or if the
// host samples. It is stored in to, so the next call with the same to overwrites it.
func (c *choice) draw(to *[]sample.Draw, ahead, n int) []sample.Draw {
	if c.needsLogits() || !c.sampler.NeedsLogits(false) {
		return nil
	}
	*to = (*to)[:0]
	for i := range n {
		*to = append(*to, c.sampler.Draw(ahead+i))
	}
	return *to
}

// drawBlock returns the parameters with which the device samples n drafts of a block. At the first draft, the answer
// has ahead more tokens on the device than on the host; each draft uses the random number of its position. The result
// is nil for greedy sampling. Biases, penalties and masks are applied when drafts are verified.
func (c *choice) drawBlock(ahead, n int) []sample.Draw {
	if !c.sampler.Draws() || !c.sampler.NeedsLogits(false) || c.job.setup.info.Vocabulary > sample.MaxVocabulary {
		return nil
	}
	c.guesses = c.guesses[:0]
	for i := range n {
		c.guesses = append(c.guesses, c.sampler.Draw(ahead+i))
	}
	return c.guesses
}

// ahead returns how many tokens of the sequence the host does not have yet when the first row of logits of its latest
// item is sampled on the device.
func (c *choice) ahead(it *sched.Item) int {
	return it.Cached + len(it.Tokens) - it.Drafts - len(c.seq.Tokens)
}

// sample chooses the next token from a row of logits.
func (c *choice) sample(row logitRow) (sample.Choice, error) {
	if row.whole == nil {
		token, err := c.sampler.Take(row.best)
		return sample.Choice{Token: token}, err
	}
	mask, err := c.limits.allowed()
	if err != nil {
		return sample.Choice{}, err
	}
	return c.sampler.Sample(row.whole, mask)
}

// advance chooses the next token of a choice from a row of logits, adds it to the sequence, turns it into text, and
// decides whether the choice has ended. draft is the token that was drafted for this position, or negative if there was
// none. Only the choice itself is changed.
func (c *choice) advance(row logitRow, draft int32) (outcome, error) {
	got, err := c.sample(row)
	if err != nil {
		return outcome{}, err
	}
	if p := c.job.setup.cfg.DraftAccept; p > 0 && draft >= 0 {
		got.Token = c.pretend(got.Token, draft, p)
	}
	if err := c.sampler.Accept(got.Token); err != nil {
		return outcome{}, err
	}
	if err := c.limits.accept(got.Token); err != nil {
		return outcome{}, err
	}
	c.seq.Tokens = append(c.seq.Tokens, got.Token)
	out := outcome{event: Event{Choice: c.index, Token: got.Token, Logprob: got.Logprob}}
	if len(got.Top) > 0 {
		out.event.Top = append(out.event.Top, got.Top...) // the sampler overwrites its own memory at the next token
	}
	switch {
	case c.limits.endsAt(got.Token), c.stops.Token(got.Token):
		out.finish = FinishStop
	case !c.limits.eosToken(got.Token) && c.addText(&out.event), c.limits.complete():
		out.finish = FinishStop
	case c.limits.made >= c.maxTokens:
		out.finish = FinishLength
	}
	if out.finish != "" && c.flushText(&out.event) {
		out.finish = FinishStop
	}
	c.matched, _ = c.stops.Matched()
	return out, nil
}

// rightDrafts returns, for each draft of an item, the range of target tokens that accept it, before the host has the
// target's tokens.
func (c *choice) rightDrafts(it *sched.Item) []step.Range {
	c.right = c.right[:0]
	for i, draft := range it.DraftTokens() {
		r := step.Range{Least: draft, Most: draft}
		if p := c.job.setup.cfg.DraftAccept; p > 0 {
			// Least is 1 and the maximum is 0: the range is empty, so that no target token accepts the draft.
			r = step.Range{Least: 1}
			if c.pretends(c.limits.made+c.ahead(it)+i, p) {
				r = step.Range{Most: math.MaxInt32}
			}
		}
		c.right = append(c.right, r)
	}
	return c.right
}

// pretends simulates verification for benchmarks: it returns true, the draft counts as accepted, with probability p.
// The result depends only on the seed, the choice's index and the index of the output token.
func (c *choice) pretends(token int, p float64) bool {
	return sample.Uniform(c.job.request.Sampling.Seed, c.index, token, sample.StreamAccept) < p
}

// pretend returns, for benchmarks, the draft with probability p, otherwise a token other than the draft.
func (c *choice) pretend(sampled, draft int32, p float64) int32 {
	switch {
	case c.pretends(c.limits.made, p):
		return draft
	case sampled == draft:
		return max(draft-1, 0)
	}
	return sampled
}

// addText adds a token's text to its event and reports whether a stop string was found. The search for stop strings
// begins after MinTokens tokens.
func (c *choice) addText(ev *Event) (stopped bool) {
	if c.decoder == nil {
		return false
	}
	ev.Text = c.decoder.Next(ev.Token)
	c.decoded += len(ev.Text)
	ev.Decoded = c.decoded
	if !c.limits.early() {
		ev.Text, stopped = c.stops.Push(ev.Text)
	}
	return stopped
}

// flushText adds text that earlier events did not send: an incomplete character, as U+FFFD, and text that may begin a
// stop string. It reports whether a stop string is complete now. After a stop string was found, there is no such text.
func (c *choice) flushText(ev *Event) (stopped bool) {
	if c.decoder == nil {
		return false
	}
	text, stopped := c.stops.Push(c.decoder.Flush())
	ev.Text += text + c.stops.Flush()
	return stopped
}
