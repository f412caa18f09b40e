package sparrow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"

	"sparrow/chat"
	"sparrow/grammar"
	"sparrow/sample"
	"sparrow/sched"
	"sparrow/tokenizer"
)

// Stream is the answer to one request as it is generated. One goroutine reads it.
type Stream struct {
	engine  *Engine
	job     *job
	parsers []chat.Parser // one for each choice of a chat
	calls   []bool        // choices that called a tool
	stop    func() bool   // detaches the caller's context
	done    bool
	reason  int // tokens inside reasoning
}

// Stream starts a request. Cancelling ctx, or Close, ends it and gives its pages back.
func (e *Engine) Stream(ctx context.Context, r Request) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	j, err := e.prepare(r)
	if err != nil {
		return nil, err
	}
	s := &Stream{engine: e, job: j}
	if r.Chat != nil {
		for range j.choices {
			s.parsers = append(s.parsers, e.format.Parser(*r.Chat))
		}
		s.calls = make([]bool, len(j.choices))
	}
	if err := e.submit(j); err != nil {
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, func() { e.cancel(j) })
	return s, nil
}

// Next waits for the next event; false after the last one.
func (s *Stream) Next() (Event, bool) {
	if s.done {
		return Event{}, false
	}
	raw := s.job.queue.pop()
	ev := Event{Choice: raw.choice, Text: raw.text, Finish: raw.finish, Matched: raw.matched, Err: raw.err}
	if raw.token >= 0 {
		ev.Tokens = []Token{{ID: raw.token, Logprob: raw.logprob, Top: raw.top}}
		if t := s.engine.tok; t != nil && int(raw.token) < t.VocabSize() {
			ev.Tokens[0].Text = t.Text(raw.token)
		}
	}
	if s.parsers != nil {
		s.parse(&ev)
	}
	if raw.last {
		s.done = true
		s.stop()
		u := s.job.usage
		u.ReasoningTokens = s.reason
		ev.Usage, ev.TraceLog = &u, s.job.trace
	}
	return ev, true
}

// parse reads a chat's text.
func (s *Stream) parse(ev *Event) {
	p := s.parsers[ev.Choice]
	if ev.Text != "" {
		ev.Deltas = p.Feed(ev.Text)
	}
	if ev.Finish != "" {
		rest, err := p.Close()
		ev.Deltas = append(ev.Deltas, rest...)
		if err != nil && ev.Finish == FinishStop {
			s.engine.cfg.Log.Info("the reply's tool calls are incomplete", "id", s.job.request.ID, "error", err)
		}
	}
	for i := range ev.Deltas {
		switch ev.Deltas[i].Kind {
		case chat.DeltaToolCall:
			s.calls[ev.Choice] = true
		case chat.DeltaReasoning:
			s.reason += len(ev.Tokens)
		}
	}
	if ev.Finish == FinishStop && s.calls[ev.Choice] {
		ev.Finish = FinishToolCalls
	}
}

// All ranges over the events that are left.
func (s *Stream) All() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			if !yield(ev) {
				return
			}
		}
	}
}

// Close ends the request if it still runs. Events that were not read are lost.
func (s *Stream) Close() {
	if !s.done {
		s.engine.cancel(s.job)
	}
}

// prepare turns a request into a job, or refuses it with the field's name.
func (e *Engine) prepare(r Request) (*job, error) {
	if err := r.Sampling.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.ID == "" {
		var id [8]byte
		rand.Read(id[:])
		r.ID = "req-" + hex.EncodeToString(id[:])
	}
	prompt, special, err := e.encode(&r)
	if err != nil {
		return nil, err
	}
	limit, err := e.limit(&r, len(prompt))
	if err != nil {
		return nil, err
	}
	g, err := e.constraint(&r)
	if err != nil {
		return nil, err
	}
	j := &job{request: r, prompt: prompt, arrived: time.Now(), open: r.Sampling.N}
	j.queue.init()
	if r.Trace {
		j.trace = &Trace{}
	}
	for i := range r.Sampling.N {
		c, err := e.choice(j, i, limit, g, special)
		if err != nil {
			return nil, err
		}
		j.choices = append(j.choices, c)
	}
	return j, nil
}

// encode gives the prompt's token ids, and whether the text of special tokens is part of the reply.
func (e *Engine) encode(r *Request) (prompt []int32, special bool, err error) {
	switch {
	case r.Chat != nil && r.Prompt == "" && r.Tokens == nil:
		text, ids, err := e.Render(r.Chat)
		_ = text
		return ids, true, err
	case r.Tokens != nil && r.Chat == nil && r.Prompt == "":
		for i, id := range r.Tokens {
			if id < 0 || int(id) >= e.info.Vocabulary {
				return nil, false, &RequestError{"prompt", fmt.Sprintf("token %d is %d, the vocabulary has %d", i, id, e.info.Vocabulary)}
			}
		}
		if len(r.Tokens) == 0 {
			return nil, false, &RequestError{"prompt", "is empty; at least one token is needed"}
		}
		return r.Tokens, false, nil
	case r.Chat == nil && r.Tokens == nil:
		ids, err := e.Encode(r.Prompt, true)
		if err == nil && len(ids) == 0 {
			err = &RequestError{"prompt", "is empty; at least one token is needed"}
		}
		return ids, false, err
	}
	return nil, false, &RequestError{"prompt", "more than one of a chat, a text and token ids was given"}
}

// limit is how many tokens a choice may have.
func (e *Engine) limit(r *Request, prompt int) (int, error) {
	room := e.info.ContextTokens - prompt
	switch {
	case room < 1:
		return 0, &RequestError{"prompt", fmt.Sprintf("has %d tokens, the context holds %d with at least one for the answer", prompt, e.info.ContextTokens)}
	case r.MaxTokens < 0:
		return 0, &RequestError{"max_tokens", fmt.Sprintf("is %d, want a positive number", r.MaxTokens)}
	case r.MaxTokens > room:
		return 0, &RequestError{"max_tokens", fmt.Sprintf("is %d; after the %d tokens of the prompt the context of %d has room for %d", r.MaxTokens, prompt, e.info.ContextTokens, room)}
	case r.MinTokens < 0 || r.MaxTokens > 0 && r.MinTokens > r.MaxTokens:
		return 0, &RequestError{"min_tokens", fmt.Sprintf("is %d, want 0 to max_tokens (%d)", r.MinTokens, r.MaxTokens)}
	case r.MaxTokens > 0:
		return r.MaxTokens, nil
	}
	return room, nil
}

// constraint compiles the request's format.
func (e *Engine) constraint(r *Request) (*grammar.Grammar, error) {
	if r.Format.Kind == FormatFree {
		return nil, nil
	}
	if e.grammar == nil {
		return nil, &RequestError{"response_format", "constrained output needs a tokenizer whose tokens spell JSON; this checkpoint has none"}
	}
	var g *grammar.Grammar
	var err error
	if r.Format.Kind == FormatJSON {
		g, err = grammar.JSONObject(e.grammar)
	} else {
		g, err = grammar.Compile(r.Format.Schema, e.grammar)
	}
	if err != nil {
		return nil, &RequestError{"response_format", err.Error()}
	}
	return g, nil
}

// choice makes the state of one continuation.
func (e *Engine) choice(j *job, i, limit int, g *grammar.Grammar, special bool) (*choice, error) {
	c := &choice{job: j, index: i, limit: limit}
	var err error
	if c.sampler, err = sample.New(j.request.Sampling, i, e.scratch); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := c.sampler.Prompt(j.prompt); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if c.stops, err = sample.NewStopMatcher(&j.request.Sampling); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if g != nil {
		c.state, c.mask = g.Start(), make(sample.Mask, e.grammar.MaskWords())
	}
	if e.tok != nil {
		c.decoder = e.tok.NewDecoder(!special)
	}
	c.seq = sched.Sequence{Tokens: append(make([]int32, 0, len(j.prompt)+min(limit, 4096)), j.prompt...), Salt: []byte(j.request.Tenant), Owner: c}
	if i > 0 && !e.cfg.NoReuse {
		c.seq.After = &j.choices[0].seq
	}
	return c, nil
}

// Encode gives the token ids of a text, with the beginning-of-sequence token where the tokenizer says so.
func (e *Engine) Encode(text string, addSpecial bool) ([]int32, error) {
	if e.tok == nil {
		return nil, ErrNoTokenizer
	}
	ids, err := e.tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: true})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return ids, nil
}

// Decode gives the text of token ids, special tokens included.
func (e *Engine) Decode(ids []int32) (string, error) {
	if e.tok == nil {
		return "", ErrNoTokenizer
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.info.Vocabulary {
			return "", &RequestError{"tokens", fmt.Sprintf("token %d is %d, the vocabulary has %d", i, id, e.info.Vocabulary)}
		}
	}
	return e.tok.Decode(ids, false), nil
}

// Render writes a conversation as the model reads it.
func (e *Engine) Render(c *chat.Request) (string, []int32, error) {
	if e.tok == nil {
		return "", nil, ErrNoTokenizer
	}
	if e.format == nil {
		return "", nil, &RequestError{"messages", "this checkpoint has no chat format; use completions"}
	}
	p, err := e.format.Render(*c)
	if err != nil {
		if errors.Is(err, chat.ErrRequest) || errors.Is(err, chat.ErrUnsupported) {
			err = fmt.Errorf("%w: %w", ErrRequest, err)
		}
		return "", nil, err
	}
	ids, err := e.Encode(p.Text, !p.HasBOS)
	return p.Text, ids, err
}

// Response is a whole answer.
type Response struct {
	Choices []Answer
	Usage   Usage
	Trace   *Trace
}

// Answer is one choice.
type Answer struct {
	Text    string
	Message chat.Message // of a chat
	Tokens  []Token
	Finish  Finish
	Matched string
}

// Generate runs a request to its end. An error of any choice is the error of the whole.
func (e *Engine) Generate(ctx context.Context, r Request) (*Response, error) {
	s, err := e.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &Response{Choices: make([]Answer, len(s.job.choices))}
	messages := make([]chat.Collector, len(s.job.choices))
	for ev := range s.All() {
		a := &out.Choices[ev.Choice]
		a.Text += ev.Text
		a.Tokens = append(a.Tokens, ev.Tokens...)
		messages[ev.Choice].Add(ev.Deltas...)
		if ev.Finish != "" {
			a.Finish, a.Matched = ev.Finish, ev.Matched
		}
		if ev.Err != nil {
			err = errors.Join(err, ev.Err)
		}
		if ev.Usage != nil {
			out.Usage, out.Trace = *ev.Usage, ev.TraceLog
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if r.Chat != nil {
		for i := range out.Choices {
			out.Choices[i].Message = messages[i].Message()
		}
	}
	return out, nil
}
