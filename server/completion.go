package server

import (
	"fmt"
	"net/http"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
	"sparrow/record"
)

// completion handles POST /v1/completions.
func (s openaiAPI) completion(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeCompletion)
	if err != nil {
		return err
	}
	if err := s.admit(&req.Options); err != nil {
		return err
	}
	if all := req.Prompt.Len() * req.Choices(); s.info.MaxQueue > 0 && all > s.info.MaxQueue {
		return wire.NewError(wire.CodeTooMany, "prompt",
			"%d prompts with %d choices each are %d sequences, but at most %d may wait; send fewer at a time",
			req.Prompt.Len(), req.Choices(), all, s.info.MaxQueue)
	}
	x := exchangeOf(r)
	ask := completionRequests(req, func(i int) origin {
		return s.origin(x, promptID(x.id, i, req.Prompt.Len()))
	})
	if err := s.encodePlain(req, ask); err != nil {
		return err
	}
	if err := s.pullFrom(&req.Options, ask); err != nil {
		return err
	}
	shape, err := s.completionShape(req)
	if err != nil {
		return err
	}
	if shape.rollout, err = s.rollout(&req.Options, ask); err != nil {
		return err
	}
	shape.head, shape.usage = s.head("cmpl-"+x.id, openai.ObjectCompletion, req.Model), req.WantsUsage()
	shape.continuous = req.WantsContinuousUsage()
	switch {
	case req.NewTokens() == 0 && ask[0].Score == nil:
		return s.echoOnly(w, r, ask, shape, req.Stream)
	case req.Stream:
		return s.stream(w, r, ask, func(e *sse) sink { return newCompletionStream(e, shape) })
	}
	to := newCompletionAnswer(shape)
	return s.collect(w, r, ask, to, s.flushed(r, shape.transfer, to.response))
}

// promptID returns the id of prompt i of a request with several prompts.
func promptID(id string, i, prompts int) string {
	if prompts == 1 {
		return id
	}
	return fmt.Sprintf("%s-%d", id, i)
}

// encodePlain replaces text prompts by token ids if the request disables special tokens.
func (s openaiAPI) encodePlain(r *openai.CompletionRequest, ask []sparrow.Request) error {
	if !plainPrompts(r) {
		return nil
	}
	for i := range ask {
		ids, err := s.engine.Encode(ask[i].Prompt, false)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return wire.NewError(wire.CodeInvalidValue, "prompt",
				"prompt %d has no tokens other than special ones; send text, or omit add_special_tokens", i)
		}
		ask[i].Prompt, ask[i].Tokens = "", ids
	}
	return nil
}

// completionShape holds the fields of a completion request that affect the format of the response. Choice i of prompt p
// has the index p*n+i.
type completionShape struct {
	head         openai.Head
	usage        bool // whether a stream ends with usage
	continuous   bool // whether every chunk of a stream has usage
	spelling     *spelling
	n            int
	echo         []string // [prompts] text of the prompt if it is part of the answer; otherwise nil
	prompts      int
	logprobs     bool
	alternatives int  // number of alternatives for logprobs
	scored       *int // number of alternatives for prompt_logprobs; nil if not requested
	transfer     *openai.KVTransfer
	rollout      *rollout // fields for training; nil if none is requested
}

// echoes reports whether the log probabilities of an answer begin with those of the prompt.
func (c *completionShape) echoes() bool { return c.logprobs && c.echo != nil }

func (s openaiAPI) completionShape(r *openai.CompletionRequest) (completionShape, error) {
	c := completionShape{spelling: newSpelling(s.engine, r.TokensAsIDs), n: r.Choices(), prompts: r.Prompt.Len(),
		logprobs: r.Logprobs != nil, scored: r.PromptLogprobs, transfer: s.transferOf(&r.Options)}
	if c.logprobs {
		c.alternatives = *r.Logprobs
	}
	if !r.Echo {
		return c, nil
	}
	c.echo = append(c.echo, r.Prompt.Texts...)
	for i, ids := range r.Prompt.Tokens {
		if err := s.checkIDs(fmt.Sprintf("prompt[%d]", i), ids); err != nil {
			return c, err
		}
		text, err := s.engine.Decode(ids)
		if err != nil {
			return c, err
		}
		c.echo = append(c.echo, text)
	}
	return c, nil
}

// choices returns one element per choice, by index.
func (c *completionShape) choices() []completionChoice {
	list := make([]completionChoice, c.prompts*c.n)
	for i := range list {
		list[i].columns = columns{spelling: c.spelling, alternatives: c.alternatives}
		if c.echo != nil {
			list[i].pending = c.echo[i/c.n]
			list[i].columns.start(list[i].pending)
		}
	}
	return list
}

// completionChoice holds the part of a choice that was not sent yet.
type completionChoice struct {
	columns  columns
	pending  string
	logprobs *openai.CompletionLogprobs
	scored   []sparrow.Token // scored prompt tokens; in a stream, only until the text of the prompt is sent
	recorded *record.Rows
	finish   openai.FinishReason
}

// add adds an event to the part that was not sent yet.
func (c *completionChoice) add(ev *sparrow.Event, logprobs bool) {
	c.pending += ev.Text
	if logprobs {
		c.logprobs = c.columns.add(c.logprobs, ev.Tokens)
	}
	c.recorded = c.recorded.With(ev.Recorded)
	c.finish = finishOf(ev.Finish)
}

// wire returns the part of the choice that was not sent yet, and clears it.
func (c *completionChoice) wire(index int, finish openai.FinishReason) openai.CompletionChoice {
	out := openai.CompletionChoice{Index: index, Text: c.pending, Logprobs: c.logprobs, FinishReason: finish,
		Sparrow: c.recorded}
	c.pending, c.logprobs, c.recorded = "", nil, nil
	return out
}
