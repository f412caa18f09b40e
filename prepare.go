package sparrow

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"sparrow/sample"
	"sparrow/sched"
)

// reservedTokens is for how much output memory is set aside before a choice runs, so that appending its tokens allocates nothing.
const reservedTokens = 4096

// prepare turns a request into a job, or refuses it with the field's name.
func (e *Engine) prepare(r Request) (*job, error) {
	if err := r.Sampling.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Sampling.N > e.cfg.MaxQueue {
		return nil, &RequestError{Field: "n", Reason: fmt.Sprintf("is %d, but at most %d sequences may wait at a time", r.Sampling.N, e.cfg.MaxQueue)}
	}
	if d := r.Draft; d != nil && (*d < 0 || *d > e.info.Drafts) {
		return nil, &RequestError{Field: "draft", Reason: fmt.Sprintf("is %d, and this engine drafts at most %d tokens at a time", *d, e.info.Drafts)}
	}
	if r.ID == "" {
		var id [8]byte
		rand.Read(id[:])
		r.ID = "req-" + hex.EncodeToString(id[:])
	}
	prompt, reasoning, err := e.encode(&r)
	if err != nil {
		return nil, err
	}
	limit, err := e.limit(&r, len(prompt))
	if err != nil {
		return nil, err
	}
	g, err := e.guides(&r, reasoning)
	if err != nil {
		return nil, err
	}
	j := &job{request: r, prompt: prompt, arrived: time.Now(), open: r.Sampling.N, usage: Usage{PromptTokens: len(prompt)}}
	j.queue.init()
	if r.Trace {
		j.trace = &Trace{}
	}
	for i := range r.Sampling.N {
		c, err := e.choice(j, i, limit, g)
		if err != nil {
			return nil, err
		}
		j.choices = append(j.choices, c)
	}
	return j, nil
}

// encode gives the prompt's token ids, and whether it ends inside reasoning.
func (e *Engine) encode(r *Request) (prompt []int32, reasoning bool, err error) {
	switch {
	case r.Chat != nil && r.Prompt == "" && r.Tokens == nil:
		p, ids, err := e.render(r.Chat)
		return ids, p.InReasoning, err
	case r.Tokens != nil && r.Chat == nil && r.Prompt == "":
		for i, id := range r.Tokens {
			if id < 0 || int(id) >= e.info.Vocabulary {
				return nil, false, &RequestError{Field: "prompt", Reason: fmt.Sprintf("token %d is %d, the vocabulary has %d", i, id, e.info.Vocabulary)}
			}
		}
		if len(r.Tokens) == 0 {
			return nil, false, &RequestError{Field: "prompt", Reason: "is empty; at least one token is needed"}
		}
		return r.Tokens, false, nil
	case r.Chat == nil && r.Tokens == nil:
		ids, err := e.Encode(r.Prompt, true)
		if err == nil && len(ids) == 0 {
			err = &RequestError{Field: "prompt", Reason: "is empty; at least one token is needed"}
		}
		return ids, false, err
	}
	return nil, false, &RequestError{Field: "prompt", Reason: "more than one of a chat, a text and token ids was given"}
}

// limit is how many tokens a choice may have.
func (e *Engine) limit(r *Request, prompt int) (int, error) {
	room := e.info.ContextTokens - prompt
	switch {
	case room < 1:
		return 0, outOfContext("prompt", fmt.Sprintf("has %d tokens, the context holds %d with at least one for the answer", prompt, e.info.ContextTokens))
	case r.MaxTokens < 0:
		return 0, &RequestError{Field: "max_tokens", Reason: fmt.Sprintf("is %d, want a positive number", r.MaxTokens)}
	case r.MaxTokens > room:
		return 0, outOfContext("max_tokens", fmt.Sprintf("is %d; after the %d tokens of the prompt the context of %d has room for %d", r.MaxTokens, prompt, e.info.ContextTokens, room))
	case r.MinTokens < 0 || r.MaxTokens > 0 && r.MinTokens > r.MaxTokens:
		return 0, &RequestError{Field: "min_tokens", Reason: fmt.Sprintf("is %d, want 0 to max_tokens (%d)", r.MinTokens, r.MaxTokens)}
	case r.MaxTokens > 0:
		return r.MaxTokens, nil
	}
	return room, nil
}

// outOfContext refuses what does not fit the context.
func outOfContext(field, reason string) error {
	return &RequestError{Field: field, Reason: reason, Err: ErrContext}
}

// choice makes the state of one continuation.
func (e *Engine) choice(j *job, i, limit int, g guides) (*choice, error) {
	c := &choice{job: j, index: i, limit: limit, think: -1}
	var err error
	if c.sampler, err = sample.New(j.request.Sampling, i, e.scratch); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := c.sampler.Prompt(j.prompt); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	room := min(limit, reservedTokens)
	c.sampler.Reserve(room)
	if c.stops, err = sample.NewStopMatcher(&j.request.Sampling); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	g.start(c)
	if j.request.MinTokens > 0 {
		c.noEnd = sample.AllBut(e.info.Vocabulary, e.eos, j.request.Sampling.StopTokenIDs)
		for k, word := range c.inWords {
			c.noEnd[k] &= word
		}
	}
	if e.tok != nil {
		// A chat's markers are part of its reply: the parser reads them.
		c.decoder = e.tok.NewDecoder(j.request.Chat == nil)
	}
	c.seq = sched.Sequence{Tokens: append(make([]int32, 0, len(j.prompt)+room), j.prompt...), Salt: []byte(j.request.Tenant), Owner: c}
	if i > 0 && e.reuse {
		c.seq.After = &j.choices[0].seq
	}
	return c, nil
}
