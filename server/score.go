package server

import (
	"fmt"
	"net/http"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// score handles POST /v1/score: it returns the log probabilities of continuations of a prompt.
func (s openaiAPI) score(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeScore)
	if err != nil {
		return err
	}
	if s.draining() {
		return ErrDraining
	}
	if err := s.checkModel(req.Model); err != nil {
		return err
	}
	if n := req.Continuations.Len(); s.info.MaxQueue > 0 && n > s.info.MaxQueue {
		return wire.NewError(wire.CodeTooMany, "continuations",
			"has %d continuations, one sequence each, but at most %d sequences may wait; send fewer at a time", n,
			s.info.MaxQueue)
	}
	to, err := s.scoring(req)
	if err != nil {
		return err
	}
	x := exchangeOf(r)
	to.head = s.head("score-"+x.id, openai.ObjectScore, req.Model)
	ask := to.given.Request(to.columns.alternatives)
	ask.ID, ask.Tenant, ask.Salt, ask.Source, ask.Flow = x.id, x.tenant, req.CacheSalt, x.source, x.flow
	return s.collect(w, r, []sparrow.Request{ask}, to, to.response)
}

// scoreAnswer collects the scores of continuations.
type scoreAnswer struct {
	head    openai.Head
	columns columns
	given   *sparrow.Continuations
	scored  [][]sparrow.Token
}

// scoring encodes prompt and continuations.
func (s openaiAPI) scoring(r *openai.ScoreRequest) (*scoreAnswer, error) {
	a := &scoreAnswer{columns: columns{spelling: newSpelling(s.engine, r.TokensAsIDs)}}
	setIf(&a.columns.alternatives, r.Logprobs)
	var err error
	if a.given, err = s.continuations(r); err != nil {
		return nil, err
	}
	a.scored = make([][]sparrow.Token, len(a.given.Rest))
	for i, id := range a.given.Prompt {
		text := a.columns.spelling.of(id)
		if i == 0 && len(r.Prompt.Texts) > 0 && !strings.HasPrefix(r.Prompt.Texts[0], text) {
			continue // the tokenizer has added the token, so it has no text
		}
		a.columns.start(text)
	}
	return a, nil
}

// continuations returns the request's continuations, given as tokens or as texts.
func (s openaiAPI) continuations(r *openai.ScoreRequest) (*sparrow.Continuations, error) {
	if len(r.Prompt.Tokens) == 0 {
		special := r.AddSpecialTokens == nil || *r.AddSpecialTokens
		encode := func(text string) ([]int32, error) { return s.engine.Encode(text, special) }
		return sparrow.EncodeContinuations(encode, r.Prompt.Texts[0], r.Continuations.Texts)
	}
	prompt := r.Prompt.Tokens[0]
	if err := s.checkIDs("prompt", prompt); err != nil {
		return nil, err
	}
	var whole [][]int32
	for i, ids := range r.Continuations.Tokens {
		if err := s.checkIDs(fmt.Sprintf("continuations[%d]", i), ids); err != nil {
			return nil, err
		}
		whole = append(whole, append(prompt[:len(prompt):len(prompt)], ids...))
	}
	return sparrow.NewContinuations(prompt, whole)
}

func (a *scoreAnswer) event(_ int, ev *sparrow.Event) error {
	a.scored[ev.Choice] = append(a.scored[ev.Choice], ev.Scored...)
	return nil
}

func (a *scoreAnswer) response(res *result) (any, error) {
	out := &openai.ScoreResponse{Head: a.head, Usage: usageOf(&res.usage)}
	for i, all := range a.scored {
		c := a.columns
		for _, t := range all[:a.given.Skip[i]] {
			c.start(t.Text)
		}
		list, logprob, greedy := a.given.Scored(i, all)
		one := openai.ScoredContinuation{Index: i, Logprob: openai.Logprob(logprob), Greedy: greedy,
			Logprobs: c.add(nil, list)}
		out.Data = append(out.Data, one)
	}
	return out, nil
}
