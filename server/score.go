package server

import (
	"fmt"
	"net/http"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/api/wire"
	"sparrow/sample"
)

// score answers POST /v1/score: the log probabilities of continuations of a prompt. All of them are choices of one
// engine request, so that the prompt is computed once.
func (s *Server) score(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s, w, r, openai.DecodeScore)
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
			"%d continuations are as many sequences, and at most %d may wait here; send fewer at a time", n,
			s.info.MaxQueue)
	}
	to, err := s.scoring(req)
	if err != nil {
		return err
	}
	x := exchangeOf(r)
	to.head = s.head("score-"+x.id, openai.ObjectScore)
	ask := sparrow.Request{Tokens: to.prompt, Sampling: sample.Default(), ID: x.id,
		Tenant: x.tenant, Salt: req.CacheSalt,
		Score: &sparrow.Score{From: len(to.prompt), Top: max(to.columns.alternatives, 1), Continuations: to.rest}}
	return s.collect(w, r, []sparrow.Request{ask}, to, to.response)
}

// scoreAnswer collects the scores of continuations.
type scoreAnswer struct {
	head    openai.Head
	columns columns
	prompt  []int32   // tokens that every continuation follows
	rest    [][]int32 // what follows them in each continuation
	skip    []int     // how many of rest still belong to the prompt
	scored  [][]sparrow.Token
}

// scoring encodes a request. A text may be encoded otherwise behind a prompt than alone: a continuation is the tokens
// in which the encoded prompt and both texts, encoded as one, differ.
func (s *Server) scoring(r *openai.ScoreRequest) (*scoreAnswer, error) {
	a := &scoreAnswer{columns: columns{spelling: newSpelling(s.engine, r.TokensAsIDs)}}
	setIf(&a.columns.alternatives, r.Logprobs)
	whole, prompt, err := s.joinedTokens(r)
	if err != nil {
		return nil, err
	}
	shared := len(prompt)
	for i, ids := range whole {
		n := sharedTokens(prompt, ids)
		if n == len(ids) {
			return nil, wire.NewError(wire.CodeInvalidValue, fmt.Sprintf("continuations[%d]", i),
				"adds no token to the prompt; send text that does")
		}
		a.skip = append(a.skip, n)
		shared = min(shared, n)
	}
	if shared == 0 {
		return nil, wire.NewError(wire.CodeInvalidValue, "prompt", "at least one token must precede a continuation; "+
			"send a longer prompt, or one with the token that begins a text")
	}
	a.prompt = prompt[:shared]
	for i, ids := range whole {
		a.rest = append(a.rest, ids[shared:])
		a.skip[i] -= shared
	}
	a.scored = make([][]sparrow.Token, len(whole))
	for i, id := range a.prompt {
		text := a.columns.spelling.of(id)
		if i == 0 && len(r.Prompt.Texts) > 0 && !strings.HasPrefix(r.Prompt.Texts[0], text) {
			continue // the tokenizer has added it
		}
		a.columns.start(text)
	}
	return a, nil
}

// joinedTokens are the tokens of the prompt with each continuation, and those of the prompt alone.
func (s *Server) joinedTokens(r *openai.ScoreRequest) (whole [][]int32, prompt []int32, err error) {
	if len(r.Prompt.Tokens) > 0 {
		prompt = r.Prompt.Tokens[0]
		if err := s.checkIDs("prompt", prompt); err != nil {
			return nil, nil, err
		}
		for i, ids := range r.Continuations.Tokens {
			if err := s.checkIDs(fmt.Sprintf("continuations[%d]", i), ids); err != nil {
				return nil, nil, err
			}
			whole = append(whole, append(prompt[:len(prompt):len(prompt)], ids...))
		}
		return whole, prompt, nil
	}
	special := r.AddSpecialTokens == nil || *r.AddSpecialTokens
	if prompt, err = s.engine.Encode(r.Prompt.Texts[0], special); err != nil {
		return nil, nil, err
	}
	for _, text := range r.Continuations.Texts {
		ids, err := s.engine.Encode(r.Prompt.Texts[0]+text, special)
		if err != nil {
			return nil, nil, err
		}
		whole = append(whole, ids)
	}
	return whole, prompt, nil
}

// sharedTokens is the number of first tokens that two lists share.
func sharedTokens(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (a *scoreAnswer) event(_ int, ev *sparrow.Event) error {
	a.scored[ev.Choice] = append(a.scored[ev.Choice], ev.Scored...)
	return nil
}

func (a *scoreAnswer) response(res *result) (any, error) {
	out := &openai.ScoreResponse{Head: a.head, Usage: usageOf(&res.usage)}
	for i, all := range a.scored {
		c := a.columns
		for _, t := range all[:a.skip[i]] {
			c.start(t.Text)
		}
		list := all[a.skip[i]:]
		one := openai.ScoredContinuation{Index: i, Greedy: true, Logprobs: c.add(nil, list)}
		for j := range list {
			one.Logprob += openai.Logprob(list[j].Logprob)
			one.Greedy = one.Greedy && list[j].Top[0].Token == list[j].ID
		}
		out.Data = append(out.Data, one)
	}
	return out, nil
}
