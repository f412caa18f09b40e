package sample

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestDefaultIsValid(t *testing.T) {
	p := Default()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesEveryField(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	cases := []struct {
		name   string
		change func(*Params)
		fields []string
	}{
		{"temperature below zero", func(p *Params) { p.Temperature = -0.1 }, []string{"temperature"}},
		{"temperature NaN", func(p *Params) { p.Temperature = nan }, []string{"temperature"}},
		{"temperature infinite", func(p *Params) { p.Temperature = inf }, []string{"temperature"}},
		{"temperature at its limit", func(p *Params) { p.Temperature = MaxTemperature }, nil},
		{"top_p zero", func(p *Params) { p.TopP = 0 }, []string{"top_p"}},
		{"top_p above one", func(p *Params) { p.TopP = 1.01 }, []string{"top_p"}},
		{"top_p NaN", func(p *Params) { p.TopP = nan }, []string{"top_p"}},
		{"top_k negative", func(p *Params) { p.TopK = -1 }, []string{"top_k"}},
		{"min_p above one", func(p *Params) { p.MinP = 1.5 }, []string{"min_p"}},
		{"min_p NaN", func(p *Params) { p.MinP = nan }, []string{"min_p"}},
		{"repetition_penalty zero", func(p *Params) { p.RepetitionPenalty = 0 }, []string{"repetition_penalty"}},
		{"penalties infinite", func(p *Params) { p.FrequencyPenalty, p.PresencePenalty = -inf, inf },
			[]string{"frequency_penalty", "presence_penalty"}},
		{"logit_bias too large", func(p *Params) { p.LogitBias = map[int32]float64{3: 101} }, []string{"logit_bias"}},
		{"logit_bias NaN", func(p *Params) { p.LogitBias = map[int32]float64{3: nan} }, []string{"logit_bias"}},
		{"logit_bias negative id", func(p *Params) { p.LogitBias = map[int32]float64{-3: 1} }, []string{"logit_bias"}},
		{"n zero", func(p *Params) { p.N = 0 }, []string{"n"}},
		{"n too large", func(p *Params) { p.N = MaxN + 1 }, []string{"n"}},
		{"top_logprobs without logprobs", func(p *Params) { p.TopLogprobs = 1 }, []string{"top_logprobs"}},
		{"top_logprobs too large", func(p *Params) { p.Logprobs, p.TopLogprobs = true, 21 }, []string{"top_logprobs"}},
		{"ten thousand stop strings", func(p *Params) { p.Stop = slices.Repeat([]string{"x"}, 10000) },
			[]string{"stop"}},
		{"as many stop strings as allowed", func(p *Params) { p.Stop = slices.Repeat([]string{"x"}, MaxStops) }, nil},
		{"empty stop string", func(p *Params) { p.Stop = []string{"a", ""} }, []string{"stop"}},
		{"long stop string", func(p *Params) { p.Stop = []string{strings.Repeat("a", MaxStopBytes+1)} },
			[]string{"stop"}},
		{"broken stop string", func(p *Params) { p.Stop = []string{"\xff"} }, []string{"stop"}},
		{"negative stop token", func(p *Params) { p.StopTokenIDs = []int32{1, -1} }, []string{"stop_token_ids"}},
		{"many stop tokens", func(p *Params) { p.StopTokenIDs = make([]int32, MaxStopTokenIDs+1) },
			[]string{"stop_token_ids"}},
		{"several at once", func(p *Params) { p.TopP, p.N, p.MinP = 2, 0, -1 }, []string{"top_p", "min_p", "n"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := Default()
			c.change(&p)
			err := p.Validate()
			var got []string
			var pe *ParamsError
			if errors.As(err, &pe) {
				for _, problem := range pe.Problems {
					got = append(got, problem.Field)
				}
				if !errors.Is(err, ErrParams) {
					t.Errorf("%v does not wrap ErrParams", err)
				}
			} else if err != nil {
				t.Fatalf("not a *ParamsError: %v", err)
			}
			if !slices.Equal(got, c.fields) {
				t.Fatalf("got problems with %v, want %v (%v)", got, c.fields, err)
			}
		})
	}
}

func TestNewRejectsWhatDoesNotFitTheVocabulary(t *testing.T) {
	w := scratch(t, 10)
	for name, change := range map[string]func(*Params){
		"logit_bias":     func(p *Params) { p.LogitBias = map[int32]float64{10: 1} },
		"stop_token_ids": func(p *Params) { p.StopTokenIDs = []int32{10} },
	} {
		p := Default()
		change(&p)
		if _, err := New(p, 0, w); !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := New(Default(), 1, w); err == nil {
		t.Error("choice 1 of n = 1 was accepted")
	}
	if _, err := New(Default(), 0, nil); err == nil {
		t.Error("a sampler without scratch was accepted")
	}
	if _, err := NewScratch(0); err == nil {
		t.Error("an empty vocabulary was accepted")
	}
}

func scratch(t testing.TB, vocabulary int) *Scratch {
	t.Helper()
	w, err := NewScratch(vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
