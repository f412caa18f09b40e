package sample

import (
	"errors"
	"math"
	"testing"
)

// A device may draw the tokens of a request without bias, penalties and log probabilities, but not of other requests,
// which need whole rows of logits.
func TestWhatADeviceMayDraw(t *testing.T) {
	w, err := NewScratch(100)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(p *Params)
		want   bool
	}{
		"plain":       {func(*Params) {}, true},
		"top_k":       {func(p *Params) { p.TopK, p.TopP, p.MinP = 5, 0.5, 0.1 }, true},
		"greedy":      {func(p *Params) { p.Temperature = 0 }, true},
		"logprobs":    {func(p *Params) { p.Logprobs = true }, false},
		"bias":        {func(p *Params) { p.LogitBias = map[int32]float64{3: 1} }, false},
		"repetition":  {func(p *Params) { p.RepetitionPenalty = 1.5 }, false},
		"frequency":   {func(p *Params) { p.FrequencyPenalty = 0.5 }, false},
		"presence":    {func(p *Params) { p.PresencePenalty = 0.5 }, false},
		"stop tokens": {func(p *Params) { p.StopTokenIDs = []int32{4} }, true},
	} {
		p := Default()
		c.change(&p)
		s, err := New(p, 0, w)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Draws(); got != c.want || s.NeedsLogits(true) == c.want {
			t.Errorf("%s: a device may draw %v, needs logits %v", name, got, s.NeedsLogits(true))
		}
		if got, want := s.NeedsLogits(false), !c.want || p.Temperature > 0; got != want {
			t.Errorf("%s: without draws of a device logits are needed %v", name, got)
		}
	}
}

// A token that a device chose is used unless the row of logits has NaN or +Inf, or allows no token.
func TestTokensOfADeviceAreTakenFromUsableRows(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s := sampler(t, greedy(), scratch(t, 9))
	for _, c := range []struct {
		name string
		row  Candidate
		want error
	}{
		{"a usable row", Candidate{Token: 7, Logit: 3, LogSum: 4}, nil},
		{"the largest finite numbers", Candidate{Token: 7, Logit: math.MaxFloat32, LogSum: math.MaxFloat32}, nil},
		{"only one token that is allowed", Candidate{Token: 7, Logit: -1, LogSum: -1}, nil},
		{"NaN", Candidate{Token: 7, Logit: 3, LogSum: nan}, ErrLogits},
		{"+Inf", Candidate{Token: 7, Logit: inf, LogSum: inf}, ErrLogits},
		{"all -Inf", Candidate{Logit: -inf, LogSum: -inf}, ErrNoCandidate},
	} {
		got, err := s.Take(c.row)
		if !errors.Is(err, c.want) || err == nil && got != c.row.Token {
			t.Errorf("%s: token %d, error %v, want %v", c.name, got, err, c.want)
		}
	}
}
