package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var negInf = float32(math.Inf(-1))

func sampler(t testing.TB, p Params, w *Scratch) *Sampler {
	t.Helper()
	s, err := New(p, 0, w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSample(t testing.TB, s *Sampler, logits []float32, mask Mask) Choice {
	t.Helper()
	c, err := s.Sample(logits, mask)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func greedy() Params {
	p := Default()
	p.Temperature = 0
	return p
}

func TestGreedy(t *testing.T) {
	cases := []struct {
		name   string
		logits []float32
		mask   Mask
		change func(*Params)
		want   int32
	}{
		{"largest wins", []float32{1, 5, 3}, nil, nil, 1},
		{"lowest id on ties", []float32{1, 5, 5, 5}, nil, nil, 1},
		{"-Inf is never taken", []float32{negInf, -9, negInf}, nil, nil, 1},
		{"mask removes the largest", []float32{1, 5, 3}, Mask{0b101}, nil, 2},
		{"short mask forbids the rest", append(make([]float32, 64), 9), Mask{0b100}, nil, 2},
		{"bias lifts", []float32{1, 5, 3}, nil, func(p *Params) { p.LogitBias = map[int32]float64{0: 4.5} }, 0},
		{"bias of -100 bans in effect", []float32{1, 5, 3}, nil, func(p *Params) {
			p.LogitBias = map[int32]float64{1: -100}
		}, 2},
		{"largest finite logit with a bias stays finite", []float32{math.MaxFloat32, 1}, nil, func(p *Params) {
			p.LogitBias = map[int32]float64{0: 100}
		}, 0},
		{"tiny temperature is greedy", []float32{1, 5, 3}, nil, func(p *Params) { p.Temperature = 1e-300 }, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := greedy()
			if c.change != nil {
				c.change(&p)
			}
			before := slices.Clone(c.logits)
			if got := mustSample(t, sampler(t, p, scratch(t, len(c.logits))), c.logits, c.mask).Token; got != c.want {
				t.Errorf("got token %d, want %d", got, c.want)
			}
			if !slices.Equal(before, c.logits) {
				t.Error("the logits were changed")
			}
		})
	}
}

func TestUnusableRows(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		name   string
		logits []float32
		mask   Mask
		want   error
	}{
		{"NaN", []float32{1, nan, 2}, nil, ErrLogits},
		{"all NaN", []float32{nan, nan, nan}, nil, ErrLogits},
		{"NaN under the mask", []float32{1, nan, 2}, Mask{0b101}, ErrLogits},
		{"+Inf", []float32{1, inf, 2}, nil, ErrLogits},
		{"wrong length", []float32{1, 2}, nil, ErrLogits},
		{"all -Inf", []float32{negInf, negInf, negInf}, nil, ErrNoCandidate},
		{"empty mask", []float32{1, 2, 3}, Mask{}, ErrNoCandidate},
		{"mask of zeros", []float32{1, 2, 3}, Mask{0}, ErrNoCandidate},
		{"mask meets only -Inf", []float32{1, negInf, 3}, Mask{0b010}, ErrNoCandidate},
	}
	for _, c := range cases {
		for _, temperature := range []float64{0, 1} {
			p := Default()
			p.Temperature, p.TopP, p.Logprobs = temperature, 0.9, true
			s := sampler(t, p, scratch(t, 3))
			if _, err := s.Sample(c.logits, c.mask); !errors.Is(err, c.want) {
				t.Errorf("%s at temperature %v: got %v, want %v", c.name, temperature, err, c.want)
			}
			if err := s.Probabilities(make([]float32, 3), c.logits, c.mask); !errors.Is(err, c.want) {
				t.Errorf("%s at temperature %v: Probabilities gave %v, want %v", c.name, temperature, err, c.want)
			}
		}
	}
	// The mask is longer than the vocabulary.
	_, err := sampler(t, greedy(), scratch(t, 70)).Sample(slices.Repeat([]float32{negInf}, 70),
		Mask{math.MaxUint64, math.MaxUint64, 1})
	if err == nil || !strings.Contains(err.Error(), "allows 70 of 70 tokens") {
		t.Errorf("a mask of every token: %v", err)
	}
	if err := sampler(t, Default(), scratch(t, 3)).Probabilities(make([]float32, 2), []float32{1, 2, 3},
		nil); err == nil {
		t.Error("a short destination was accepted")
	}
}

func TestPenalties(t *testing.T) {
	logits := []float32{2, 1.5, -1, 1}
	cases := []struct {
		name           string
		change         func(*Params)
		prompt, output []int32
		want           []float32 // logits after the penalties
	}{
		{"repetition looks at the prompt and the output", func(p *Params) { p.RepetitionPenalty = 2 }, []int32{0, 0},
			[]int32{2, 2}, []float32{1, 1.5, -2, 1}},
		{"frequency counts the output only", func(p *Params) { p.FrequencyPenalty = 0.5 }, []int32{1, 1},
			[]int32{0, 0, 3}, []float32{1, 1.5, -1, 0.5}},
		{"presence counts once", func(p *Params) { p.PresencePenalty = 0.5 }, []int32{1}, []int32{0, 0, 3},
			[]float32{1.5, 1.5, -1, 0.5}},
		{"negative penalties encourage", func(p *Params) { p.PresencePenalty = -1 }, nil, []int32{3},
			[]float32{2, 1.5, -1, 2}},
		{"repetition comes first", func(p *Params) { p.RepetitionPenalty, p.FrequencyPenalty = 2, 1 }, []int32{0},
			[]int32{0}, []float32{0, 1.5, -1, 1}},
		{"bias comes before repetition", func(p *Params) {
			p.RepetitionPenalty = 2
			p.LogitBias = map[int32]float64{0: 2}
		}, []int32{0}, nil, []float32{2, 1.5, -1, 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := Default()
			c.change(&p)
			s := sampler(t, p, scratch(t, 4))
			if err := s.Prompt(c.prompt); err != nil {
				t.Fatal(err)
			}
			for _, id := range c.output {
				if err := s.Accept(id); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.adjust(logits, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.scratch.x, c.want) {
				t.Errorf("got %v, want %v", s.scratch.x, c.want)
			}
		})
	}
	s := sampler(t, Default(), scratch(t, 4))
	if err := s.Accept(4); !errors.Is(err, ErrToken) {
		t.Errorf("token 4 of 4: got %v", err)
	}
	if err := s.Prompt([]int32{-1}); !errors.Is(err, ErrToken) {
		t.Errorf("token -1: got %v", err)
	}
	if s.Step() != 0 {
		t.Errorf("a rejected token advanced the step to %d", s.Step())
	}
}

// TestSeededTextIsTheSameWhateverRunsBeside runs several sequences alternately on one scratch and compares each with a
// run alone.
func TestSeededTextIsTheSameWhateverRunsBeside(t *testing.T) {
	const vocabulary, steps, sequences = 500, 40, 6
	rows := func(seed, step int) []float32 {
		r := rand.New(rand.NewPCG(uint64(seed), uint64(step)))
		row := make([]float32, vocabulary)
		for i := range row {
			row[i] = float32(r.NormFloat64() * 2)
		}
		return row
	}
	params := func(i int) Params {
		p := Default()
		p.Seed, p.N = int64(i/2), 2
		p.TopP = 0.9
		p.TopK = 50 * (i % 3)
		p.PresencePenalty = 0.3
		return p
	}
	run := func(s *Sampler, i int) int32 {
		c := mustSample(t, s, rows(i, s.Step()), nil)
		again := mustSample(t, s, rows(i, s.Step()), nil)
		if again.Token != c.Token {
			t.Fatalf("the same call gave token %d, then %d", c.Token, again.Token)
		}
		if err := s.Accept(c.Token); err != nil {
			t.Fatal(err)
		}
		return c.Token
	}
	alone := make([][]int32, sequences)
	for i := range alone {
		s, err := New(params(i), i%2, scratch(t, vocabulary))
		if err != nil {
			t.Fatal(err)
		}
		for range steps {
			alone[i] = append(alone[i], run(s, i))
		}
	}
	w := scratch(t, vocabulary)
	beside := make([][]int32, sequences)
	list := make([]*Sampler, sequences)
	for i := range list {
		var err error
		if list[i], err = New(params(i), i%2, w); err != nil {
			t.Fatal(err)
		}
	}
	order := rand.New(rand.NewPCG(1, 2))
	for left := sequences * steps; left > 0; {
		if i := order.IntN(sequences); len(beside[i]) < steps {
			beside[i] = append(beside[i], run(list[i], i))
			left--
		}
	}
	for i := range alone {
		if !slices.Equal(alone[i], beside[i]) {
			t.Errorf("sequence %d: alone %v, beside others %v", i, alone[i], beside[i])
		}
	}
}

func TestChoicesOfOneRequestDiffer(t *testing.T) {
	p := Default()
	p.N, p.Seed = 2, 7
	logits := make([]float32, 1000)
	w := scratch(t, 1000)
	var text [2][]int32
	for i := range text {
		s, err := New(p, i, w)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c := mustSample(t, s, logits, nil)
			text[i] = append(text[i], c.Token)
			if err := s.Accept(c.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	if slices.Equal(text[0], text[1]) {
		t.Fatalf("both choices said %v", text[0])
	}
}

func TestLogprobs(t *testing.T) {
	p := greedy()
	p.Logprobs, p.TopLogprobs = true, 3
	p.LogitBias = map[int32]float64{2: 50} // a bias must not change the log probabilities
	s := sampler(t, p, scratch(t, 5))
	row := []float32{1, 3, 2, 3, negInf}
	c := mustSample(t, s, row, nil)
	norm := math.Log(math.Exp(1) + 2*math.Exp(3) + math.Exp(2))
	if c.Token != 2 || math.Abs(c.Logprob-(2-norm)) > 1e-9 {
		t.Errorf("got token %d with %v, want 2 with %v", c.Token, c.Logprob, 2-norm)
	}
	want := []TokenLogprob{{1, 3 - norm}, {3, 3 - norm}, {2, 2 - norm}}
	if len(c.Top) != len(want) {
		t.Fatalf("got %v, want %v", c.Top, want)
	}
	for i := range want {
		if c.Top[i].Token != want[i].Token || math.Abs(c.Top[i].Logprob-want[i].Logprob) > 1e-9 {
			t.Errorf("place %d: got %v, want %v", i, c.Top[i], want[i])
		}
	}
	p.TopLogprobs = 20
	if c = mustSample(t, sampler(t, p, scratch(t, 5)), row, nil); len(c.Top) != 4 {
		t.Errorf("got %d alternatives, want the 4 that are possible", len(c.Top))
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	const vocabulary = 5000
	p := Default()
	p.TopP, p.TopK, p.MinP, p.PresencePenalty, p.Logprobs, p.TopLogprobs = 0.9, 100, 0.01, 0.5, true, 5
	s := sampler(t, p, scratch(t, vocabulary))
	s.Reserve(200)
	logits := gaussian(vocabulary, 2, 1)
	mask := make(Mask, (vocabulary+63)/64)
	for i := range mask {
		mask[i] = math.MaxUint64 - 5
	}
	allocations := testing.AllocsPerRun(100, func() {
		c, err := s.Sample(logits, mask)
		if err == nil {
			err = s.Accept(c.Token)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations per step", allocations)
	}
}

func gaussian(n int, deviation float64, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64() * deviation)
	}
	return row
}

// With greedy parameters the distribution is one at the token that Sample chooses, the first of the largest logits, and
// zero at all others, also where dst was filled before.
func TestGreedyProbabilities(t *testing.T) {
	for _, logits := range [][]float32{{1, 3, 2, 3}, {5, 1, 1, 1}, {0, 0, 0, 1}} {
		s := sampler(t, greedy(), scratch(t, 4))
		want, err := s.Sample(logits, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := []float32{7, 7, 7, 7}
		if err := s.Probabilities(got, logits, nil); err != nil {
			t.Fatal(err)
		}
		for id, p := range got {
			if one := int32(id) == want.Token; one && p != 1 || !one && p != 0 {
				t.Errorf("logits %v: token %d has probability %v, the choice is %d", logits, id, p, want.Token)
			}
		}
	}
}

// A given token has its rank and log probability; a token outside the vocabulary has none.
func TestScoresOfGivenTokens(t *testing.T) {
	w, logits := scratch(t, 4), []float32{1, 3, 2, 3}
	for token, rank := range []int{4, 1, 3, 1} {
		s, err := w.Score(logits, int32(token), 2)
		if err != nil || s.Rank != rank || s.Token != int32(token) || len(s.Top) != 2 || s.Top[0].Token != 1 ||
			s.Top[1].Token != 3 || math.Abs(s.Logprob-s.Top[0].Logprob-float64(logits[token]-3)) > 1e-6 {
			t.Errorf("token %d: %+v, error %v", token, s, err)
		}
	}
	for _, token := range []int32{-1, 4} {
		if _, err := w.Score(logits, token, 0); !errors.Is(err, ErrToken) {
			t.Errorf("token %d of a vocabulary of 4: error %v", token, err)
		}
	}
}
