package engine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/sample"
)

// intake turns requests into jobs, or refuses them with an error that names the field. Any goroutine may use it.
type intake struct {
	*setup
	drafts *spec.Controller // nil if drafting is disabled
}

// reservedTokens is the number of output tokens for which memory is allocated before a choice runs, so that appending
// its tokens allocates nothing.
const reservedTokens = 4096

// prepare turns a request into a job, or refuses it with an error that names the field.
func (in *intake) prepare(r Request) (*Job, error) {
	if err := in.checkScore(&r); err != nil {
		return nil, err
	}
	if err := r.Sampling.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if strings.Contains(r.Tenant, "\x00") {
		return nil, &RequestError{Field: "tenant", Reason: "contains a NUL character; remove it"}
	}
	if r.Sampling.N > in.cfg.MaxQueue {
		return nil, &RequestError{Field: "n",
			Reason: fmt.Sprintf("is %d, but at most %d sequences may wait at the same time", r.Sampling.N,
				in.cfg.MaxQueue)}
	}
	if d := r.Draft; d != nil && (*d < 0 || *d > in.info.Drafts) {
		return nil, &RequestError{Field: "draft",
			Reason: fmt.Sprintf("is %d, but this engine drafts at most %d tokens at a time", *d, in.info.Drafts)}
	}
	if err := in.checkPrompt(r.Prompt); err != nil {
		return nil, err
	}
	maxTokens, err := in.maxTokens(&r)
	if err != nil {
		return nil, err
	}
	if r.ID == "" {
		var id [8]byte
		rand.Read(id[:])
		r.ID = "req-" + hex.EncodeToString(id[:])
	}
	replay, err := in.checkRecord(&r, maxTokens)
	if err != nil {
		return nil, err
	}
	r.Replay = nil // j.replay holds the replayed rows
	j := &Job{setup: in.setup, request: r, arrived: in.now(), open: r.Sampling.N, queued: r.Sampling.N,
		usage: Usage{PromptTokens: r.givenTokens()}, replay: replay, salt: r.salt(),
		turnKey: turnKey(r.Tenant, r.Source, r.Background)}
	if replay != nil {
		j.salt = replaySalt()
	}
	if r.Record != nil {
		j.records = in.recordedBytes(&r, maxTokens)
	}
	j.queue.init()
	if r.Trace {
		j.trace = &Trace{}
	}
	for range r.Sampling.N {
		if err := in.addChoice(j, maxTokens); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (in *intake) checkPrompt(prompt []int32) error {
	image := in.model.Config().Image
	for i, id := range prompt {
		if image != nil && int(id) == *image {
			return &RequestError{Field: "prompt", Reason: fmt.Sprintf("token %d is %d, a placeholder for a part "+
				"of an image: images are not supported, send text", i, id)}
		}
		if id < 0 || int(id) >= in.info.Vocabulary {
			return &RequestError{Field: "prompt",
				Reason: fmt.Sprintf("token %d is %d, but the vocabulary has %d tokens", i, id, in.info.Vocabulary)}
		}
	}
	if len(prompt) == 0 {
		return &RequestError{Field: "prompt", Reason: "is empty; send at least one token"}
	}
	return nil
}

// maxTokens returns the maximum number of tokens of a choice.
func (in *intake) maxTokens(r *Request) (int, error) {
	context, prompt := in.info.ContextTokens, len(r.Prompt)
	left := context - prompt
	if r.Score != nil && r.Score.Only {
		return 0, in.checkScored(r)
	}
	limit := r.MaxTokens
	if r.FitContext {
		limit = min(limit, max(left, 0))
	}
	tooLong := func(field, reason string) error { return &RequestError{Field: field, Reason: reason, Err: ErrContext} }
	switch {
	case left < 1:
		return 0, tooLong("prompt",
			fmt.Sprintf("has %d tokens, but the context holds %d with at least one for the answer; send fewer, or "+
				"open the model with a larger --context if it allows that", prompt, context))
	case r.MaxTokens < 0:
		return 0, &RequestError{Field: "max_tokens", Reason: fmt.Sprintf("is %d, want a positive number", r.MaxTokens)}
	case limit > left:
		return 0, tooLong("max_tokens",
			fmt.Sprintf("is %d; the prompt has %d tokens, and the context of %d tokens has space for %d more",
				r.MaxTokens, prompt, context, left))
	case r.MinTokens < 0 || limit > 0 && r.MinTokens > limit:
		return 0, &RequestError{Field: "min_tokens",
			Reason: fmt.Sprintf("is %d, want 0 to max_tokens (%d)", r.MinTokens, limit)}
	case limit > 0:
		return limit, nil
	}
	return left, nil
}

// addChoice creates the job's next choice.
func (in *intake) addChoice(j *Job, maxTokens int) (err error) {
	r := &j.request
	c := &choice{job: j, index: len(j.choices), maxTokens: maxTokens, drafts: in.draftsFor(r),
		recording: in.newRecording(r.Record)}
	if c.sampler, err = sample.New(r.Sampling, c.index, in.scratch); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := c.sampler.Prompt(r.Prompt); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	reserve := min(maxTokens, reservedTokens)
	c.sampler.Reserve(reserve)
	if c.stops, err = sample.NewStopMatcher(&r.Sampling); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	c.limits = r.Guide.start(r, in.info.Vocabulary, in.cfg.EOS)
	if r.Decoder != nil {
		c.decoder = r.Decoder()
	}
	given := r.given(c.index)
	tokens := append(append(make([]int32, 0, len(r.Prompt)+len(given)+reserve), r.Prompt...), given...)
	c.seq = sched.Sequence{Tokens: tokens, Salt: j.salt, Owner: c, Tenant: j.turnKey, Flow: r.Flow,
		Priority: r.Priority, Background: r.Background, Request: j, Places: r.Places}
	if s := r.Score; s != nil && (c.index == 0 || s.Continuations != nil) {
		// The score of a token is computed from the row of the token before it. The last row is needed for sampling.
		c.seq.Logits = min(len(tokens)-max(s.From, 1)+1, len(tokens))
	}
	if r.Record != nil {
		c.seq.Record = r.Record.span(len(tokens))
	}
	if j.replay != nil {
		c.seq.Replay = sched.Span{From: j.replay.First, To: j.replay.First + j.replay.Len()}
	}
	if c.index > 0 && in.reuse {
		c.seq.After = &j.choices[0].seq
	}
	j.choices = append(j.choices, c)
	return nil
}

// draftsFor returns the drafting mode of a request's choices: a fixed number of tokens, or an adaptive number.
func (in *intake) draftsFor(r *Request) spec.Request {
	switch asked := r.Draft; {
	case in.drafts == nil || asked != nil && *asked == 0:
		return spec.Request{}
	case asked != nil:
		return in.drafts.Exactly(*asked)
	}
	return in.drafts.Request()
}
