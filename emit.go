package sparrow

import (
	"fmt"
	"slices"
	"time"

	"sparrow/sample"
)

// next samples a token of a choice, tells the stream and returns it; -1 when there is none. What is counted of it, its draft included, is counted
// before the stream can tell that it was the last.
func (e *Engine) next(c *choice, logits []float32, d draftRow) int32 {
	got, err := c.sample(logits)
	if err != nil {
		e.finish(c, FinishError, fmt.Errorf("%w: %w", ErrStep, err))
		return -1
	}
	if c.job.first.IsZero() {
		c.job.first = time.Now()
	}
	c.made++
	c.job.usage.CompletionTokens++
	if d.drafted() && d.token == got.Token {
		c.job.usage.AcceptedTokens++
	}
	e.mu.Lock()
	e.stats.OutputTokens++
	e.stats.judge(d, got.Token)
	e.mu.Unlock()
	e.emit(c, got)
	return got.Token
}

// sample chooses the next token and makes it part of the choice's history.
func (c *choice) sample(logits []float32) (sample.Choice, error) {
	mask, err := c.allowed()
	if err != nil {
		return sample.Choice{}, err
	}
	got, err := c.sampler.Sample(logits, mask)
	if err != nil {
		return sample.Choice{}, err
	}
	if err := c.sampler.Accept(got.Token); err != nil {
		return sample.Choice{}, err
	}
	return got, c.accept(got.Token)
}

// accept tells the guides which token came.
func (c *choice) accept(token int32) error {
	if c.calls != nil {
		if err := c.calls.Accept(token); err != nil {
			return err
		}
	}
	switch {
	case c.think == token:
		c.think = -1
	case c.think < 0 && c.state != nil:
		return c.state.Accept(token)
	}
	return nil
}

// early tells whether the choice is still shorter than MinTokens.
func (c *choice) early() bool { return c.made < c.job.request.MinTokens }

// allowed says which tokens may come next; nil means all.
func (c *choice) allowed() (sample.Mask, error) {
	limited, err := c.limits()
	switch {
	case err != nil:
		return nil, err
	case limited && c.early():
		c.goOn()
		return c.mask, nil
	case limited:
		return c.mask, nil
	case c.early():
		return c.noEnd, nil
	}
	return c.inWords, nil
}

// limits asks the guides and reports whether one of them filled the mask.
func (c *choice) limits() (bool, error) {
	if c.state != nil && c.think < 0 {
		return true, c.state.Mask(c.mask)
	}
	if c.calls != nil {
		return c.calls.Mask(c.mask)
	}
	return false, nil
}

// goOn takes the tokens that end the choice out of its mask, unless nothing else is allowed: a format is stronger than MinTokens.
func (c *choice) goOn() {
	left := uint64(0)
	for i, word := range c.mask {
		left |= word & c.noEnd[i]
	}
	if left == 0 {
		return
	}
	for i := range c.mask {
		c.mask[i] &= c.noEnd[i]
	}
}

// emit turns a token into text and decides whether the choice has ended.
func (e *Engine) emit(c *choice, got sample.Choice) {
	ev := rawEvent{choice: c.index, token: got.Token, logprob: got.Logprob}
	if len(got.Top) > 0 {
		ev.top = append(ev.top, got.Top...)
	}
	c.seq.Tokens = append(c.seq.Tokens, got.Token)
	end := slices.Contains(e.eos, got.Token)
	var why Finish
	switch {
	case end && (!c.job.request.IgnoreEOS || c.state != nil), c.stops.Token(got.Token):
		why = FinishStop
	case !end && c.read(&ev), e.complete(c):
		why = FinishStop
	case c.made >= c.limit:
		why = FinishLength
	}
	if why != "" && c.rest(&ev) {
		why = FinishStop
	}
	c.matched, _ = c.stops.Matched()
	c.job.queue.push(ev)
	if why != "" {
		e.finish(c, why, nil)
	}
}

// complete tells whether a constrained choice holds its whole document, so that nothing but the end can follow. Where the model has no token for the end, the
// first complete document is the answer.
func (e *Engine) complete(c *choice) bool {
	return c.state != nil && c.think < 0 && (c.state.Final() || len(e.eos) == 0 && c.state.Done())
}

// read adds a token's text to its event and reports whether a stop string was found. Stop strings are not looked for before MinTokens.
func (c *choice) read(ev *rawEvent) (stopped bool) {
	if c.decoder == nil {
		return false
	}
	ev.text = c.decoder.Next(ev.token)
	if !c.early() {
		ev.text, stopped = c.stops.Push(ev.text)
	}
	return stopped
}

// rest adds what was held back: the beginning of a character that nothing completes any more, as U+FFFD, and of a stop string. It reports whether that
// completed a stop string. After one was found before, nothing is left.
func (c *choice) rest(ev *rawEvent) (stopped bool) {
	if c.decoder == nil {
		return false
	}
	text, stopped := c.stops.Push(c.decoder.Flush())
	ev.text += text + c.stops.Flush()
	return stopped
}
