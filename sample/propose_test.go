package sample

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A drafter with the target's own logits proposes exactly the tokens that Sample will choose, any number of tokens
// ahead, with any filters and biases; and proposing changes nothing.
func TestProposeIsWhatSampleWillChoose(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 9))
	const vocabulary = 200
	w, err := NewScratch(vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Params){
		func(p *Params) { p.Temperature = 0 },
		func(*Params) {},
		func(p *Params) { p.TopK, p.TopP, p.MinP = 40, 0.9, 0.01 },
		func(p *Params) { p.LogitBias = map[int32]float64{3: 5, 9: -20} },
	} {
		p := Default()
		p.Seed = 77
		change(&p)
		s, err := New(p, 0, w)
		if err != nil {
			t.Fatal(err)
		}
		rows := make([][]float32, 5)
		var mask Mask
		proposed := make([]int32, len(rows))
		for i := range rows {
			rows[i] = make([]float32, vocabulary)
			for j := range rows[i] {
				rows[i][j] = float32(random.NormFloat64() * 3)
			}
			if proposed[i], err = s.Propose(rows[i], mask, i); err != nil {
				t.Fatal(err)
			}
		}
		if s.Step() != 0 {
			t.Errorf("proposing moved the sequence to step %d", s.Step())
		}
		for i := range rows {
			c, err := s.Sample(rows[i], mask)
			if err != nil || c.Token != proposed[i] {
				t.Errorf("%+v: token %d is %d, proposed was %d, %v", p, i, c.Token, proposed[i], err)
			}
			if err := s.Accept(c.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := New(Default(), 0, w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Propose(make([]float32, vocabulary), make(Mask, 4), 0); err == nil {
		t.Error("a token was proposed although none is allowed")
	}
}

// If the drafter's distribution differs from the target's, the share of accepted proposals is at least the overlap of
// the intervals of both distributions, with tokens ordered by id. The target's choices are unchanged.
func TestProposalsOfALikeDrafterAreMostlyRight(t *testing.T) {
	w, err := NewScratch(50)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	right, expected := 0, 0.0
	const draws = 4000
	p, q := make([]float32, 50), make([]float32, 50)
	for seed := range draws {
		target, draft := make([]float32, 50), make([]float32, 50)
		for i := range target {
			target[i] = float32(random.NormFloat64() * 4)
			draft[i] = target[i] + float32(random.NormFloat64()*0.2)
		}
		params := Default()
		params.Seed = int64(seed)
		s, err := New(params, 0, w)
		if err != nil {
			t.Fatal(err)
		}
		guess, err := s.Propose(draft, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Sample(target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if guess == c.Token {
			right++
		}
		if s.Probabilities(p, target, nil) != nil || s.Probabilities(q, draft, nil) != nil {
			t.Fatal("no probabilities")
		}
		// Drafter and target sample with the same number in [0, 1), so they agree where their intervals overlap.
		var a, b float64
		for i := range p {
			low, high := max(a, b), min(a+float64(p[i]), b+float64(q[i]))
			expected += max(0, high-low)
			a, b = a+float64(p[i]), b+float64(q[i])
		}
	}
	if got, want := float64(right)/draws, expected/draws; math.Abs(got-want) > 0.03 || got < 0.8 {
		t.Errorf("%.3f of the proposals are right, the overlap is %.3f", got, want)
	}
}
