package model

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"sparrow"
)

// script is a model that answers with prepared tokens: each token takes one second without drafts and half a second
// with drafts.
type script struct {
	tokens [][]int32
	damage bool // if true, drafts change the answer
	err    error
	calls  int
}

func (s *script) Generate(_ context.Context, r sparrow.Request) (*sparrow.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	ids := s.tokens[s.calls/2]
	s.calls++
	out := &sparrow.Response{Choices: make([]sparrow.Answer, 1),
		Trace: &sparrow.Trace{Decode: time.Duration(len(ids)-1) * time.Second}}
	for _, id := range ids {
		out.Choices[0].Tokens = append(out.Choices[0].Tokens, sparrow.Token{ID: id})
	}
	if r.Draft == nil {
		out.Trace.Decode /= 2
		out.Usage.DraftedTokens, out.Usage.AcceptedTokens = 4, 3
		if s.damage {
			out.Choices[0].Tokens[0].ID++
		}
	}
	return out, nil
}

func TestDraft(t *testing.T) {
	requests := make([]sparrow.Request, 3)
	d, err := Draft(context.Background(), &script{tokens: [][]int32{{1, 2, 3}, {7}, {4, 5}}}, "2", requests)
	if err != nil {
		t.Fatal(err)
	}
	if d.Answers != 2 || d.Tokens != 5 || math.Abs(d.Ratio-2) > 1e-9 || math.Abs(d.Plain-1) > 1e-9 || d.Proposed != 8 ||
		d.Accepted != 6 {
		t.Errorf("%+v", d)
	}
	if s := d.String(); !strings.Contains(s, "2.00 x") || !strings.Contains(s, "6 of 8") {
		t.Error(s)
	}
	broken := errors.New("broken")
	for want, s := range map[string]*script{
		"must not change the answer": {tokens: [][]int32{{1, 2}, {1, 2}, {1, 2}}, damage: true},
		"nothing to":                 {tokens: [][]int32{{1}, {1}, {1}}},
		"broken":                     {err: broken},
	} {
		if _, err := Draft(context.Background(), s, "2", requests); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
