package server

import (
	"net/http"
	"strings"

	"sparrow"
	"sparrow/api/openai"
)

// completionAnswer collects the events for a response without streaming.
type completionAnswer struct {
	completionShape
	list   []completionChoice
	texts  []strings.Builder
	scored [][]sparrow.Token // [prompts] scored tokens
}

func newCompletionAnswer(shape completionShape) *completionAnswer {
	list := shape.choices()
	return &completionAnswer{shape, list, make([]strings.Builder, len(list)), make([][]sparrow.Token, shape.prompts)}
}

func (a *completionAnswer) event(prompt int, ev *sparrow.Event) error {
	i := prompt*a.n + ev.Choice
	c := &a.list[i]
	c.add(ev, a.logprobs)
	a.rollout.take(i, ev)
	a.texts[i].WriteString(c.pending)
	c.pending = ""
	a.scored[prompt] = append(a.scored[prompt], ev.Scored...)
	return nil
}

func (a *completionAnswer) response(res *result) (any, error) {
	trace, err := traceJSON(res.traces)
	if err != nil {
		return nil, err
	}
	out := &openai.CompletionResponse{Head: a.head, Usage: usageOf(&res.usage), Sparrow: trace,
		Choices: make([]openai.CompletionChoice, len(a.list)), KVTransfer: a.transfer}
	for i := range a.list {
		c := &a.list[i]
		c.pending = a.texts[i].String() + c.pending
		scored := a.scored[i/a.n]
		if a.echoes() {
			c.logprobs = joined(c.columns.echoed(scored, a.echo[i/a.n]), c.logprobs)
		}
		out.Choices[i] = c.wire(i, c.finish)
		one := &out.Choices[i]
		if one.Rollout, one.Sparrow, err = a.rollout.of(i, i/a.n, one.Sparrow); err != nil {
			return nil, err
		}
		one.PromptTokenIDs = a.rollout.prompt(i / a.n)
		if len(out.Choices) == 1 {
			out.SGLExt = sglext(&one.Rollout)
		}
		if a.completionShape.scored != nil {
			out.Choices[i].PromptLogprobs = a.spelling.prompt(scored, *a.completionShape.scored)
		}
	}
	return out, nil
}

// completionStream streams the texts.
type completionStream struct {
	*sse
	completionShape
	wire *openai.CompletionStream
	list []completionChoice
	running
}

func newCompletionStream(e *sse, shape completionShape) *completionStream {
	return &completionStream{e, shape, openai.NewCompletionStream(shape.head, shape.usage), shape.choices(),
		running{on: shape.continuous}}
}

func (s *completionStream) event(prompt int, ev *sparrow.Event) error {
	i := prompt*s.n + ev.Choice
	c := &s.list[i]
	if ev.Recorded != nil && len(ev.Tokens) == 0 { // rows of a prompt are sent immediately
		s.chunk(openai.CompletionChoice{Index: i, Sparrow: ev.Recorded})
		return s.flush()
	}
	if len(ev.Scored) > 0 {
		c.scored = append(c.scored, ev.Scored...) // sent with the text of the prompt
		return s.flush()
	}
	if c.scored != nil {
		c.logprobs = c.columns.echoed(c.scored, s.echo[prompt])
		c.scored = nil
	}
	c.add(ev, s.logprobs)
	s.count(ev)
	if c.pending != "" || s.on && len(ev.Tokens) > 0 {
		s.chunk(c.wire(i, ""))
	}
	if c.finish != "" {
		s.chunk(c.wire(i, c.finish))
	}
	return s.flush()
}

func (s *completionStream) chunk(c openai.CompletionChoice) { s.buf = s.wire.Append(s.buf, &c, s.so()) }

func (s *completionStream) end(r *result) error { return s.finish(s.wire.AppendClosing, s.usage, r) }

// echoOnly handles a request with max_tokens 0: it returns the prompts and their token counts without a forward pass.
func (s openaiAPI) echoOnly(w http.ResponseWriter, r *http.Request, ask []sparrow.Request, shape completionShape,
	stream bool) error {
	res := &result{}
	for i := range ask {
		ids := ask[i].Tokens
		if ids == nil {
			var err error
			if ids, err = s.engine.Encode(ask[i].Prompt, true); err != nil {
				return err
			}
		}
		res.usage.PromptTokens += len(ids)
	}
	exchangeOf(r).usage = res.usage
	if stream {
		e, err := newSSE(w, s.options.WriteTimeout)
		if err != nil {
			return err
		}
		return endAll(newCompletionStream(e, shape), shape, res)
	}
	a := newCompletionAnswer(shape)
	if err := endAll(&kept{collector: a}, shape, res); err != nil {
		return err
	}
	out, err := a.response(res)
	if err != nil {
		return err
	}
	return s.respond(w, http.StatusOK, out)
}

// endAll ends every choice after 0 tokens.
func endAll(to sink, shape completionShape, res *result) error {
	for p := range shape.prompts {
		for c := range shape.n {
			if err := to.event(p, &sparrow.Event{Choice: c, Finish: sparrow.FinishLength}); err != nil {
				return err
			}
		}
	}
	return to.end(res)
}
