package sample

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits that [Params.Validate] enforces. They bound the time of a step; a server may have lower limits.
const (
	MaxTemperature  = 2.0
	MaxPenalty      = 2.0  // maximum magnitude of frequency_penalty and presence_penalty
	MaxRepetition   = 10.0 // maximum of repetition_penalty; its reciprocal is the minimum
	MaxBias         = 100.0
	MaxBiases       = 1024
	MaxTopLogprobs  = 20
	MaxN            = 128
	MaxStops        = 64
	MaxStopBytes    = 1024 // maximum bytes of a stop string
	MaxStopTokenIDs = 256
)

// GreedyBelow is the temperature, vLLM's, below which the largest logit is chosen without sampling: the probability of
// other tokens is negligible, and a division by a smaller value could overflow.
const GreedyBelow = 1e-5

// Params holds the sampling parameters of one request. Start from [Default]; the zero value is invalid.
type Params struct {
	Temperature       float64
	TopP              float64 // total probability of the kept tokens, in (0, 1]; 1 disables it
	TopK              int     // number of kept tokens; 0 disables it
	MinP              float64 // minimum probability relative to the most likely token, in [0, 1]; 0 disables it
	RepetitionPenalty float64 // factor; 1 disables it
	FrequencyPenalty  float64 // subtracted per occurrence; 0 disables it
	PresencePenalty   float64 // subtracted once; 0 disables it

	LogitBias map[int32]float64

	// Seed is the seed of random numbers. If a request has none, the caller sets a random seed and can report it.
	Seed int64
	// N is the number of choices. The sampler of choice i is New(p, i, ...).
	N int

	Logprobs    bool
	TopLogprobs int // alternatives reported for each token; needs Logprobs

	Stop         []string
	StopTokenIDs []int32
	// IncludeStop keeps the stop string in the text.
	IncludeStop bool
}

// Default returns parameters for plain sampling: temperature 1, and all other parameters disabled.
func Default() Params {
	return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1, N: 1}
}

// Problem is a field that is out of range.
type Problem struct {
	Field   string // OpenAI's name of the field, such as top_p
	Message string
}

// ParamsError lists the problems of a request's parameters. It wraps [ErrParams].
type ParamsError struct {
	Problems []Problem
}

func (e *ParamsError) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.Field + ": " + p.Message
	}
	return ErrParams.Error() + ": " + strings.Join(parts, "; ")
}

func (e *ParamsError) Unwrap() error { return ErrParams }

func (e *ParamsError) add(field, format string, args ...any) {
	e.Problems = append(e.Problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (e *ParamsError) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// Validate returns a [*ParamsError] with all problems, or nil. [New] checks token ids.
func (p *Params) Validate() error {
	e := &ParamsError{}
	e.within("temperature", p.Temperature, 0, MaxTemperature)
	if !(p.TopP > 0 && p.TopP <= 1) {
		e.add("top_p", "%v is not in (0, 1]; 1 turns it off", p.TopP)
	}
	if p.TopK < 0 {
		e.add("top_k", "%d is negative; 0 turns it off", p.TopK)
	}
	e.within("min_p", p.MinP, 0, 1)
	e.within("repetition_penalty", p.RepetitionPenalty, 1/MaxRepetition, MaxRepetition)
	e.within("frequency_penalty", p.FrequencyPenalty, -MaxPenalty, MaxPenalty)
	e.within("presence_penalty", p.PresencePenalty, -MaxPenalty, MaxPenalty)
	p.validateBias(e)
	if p.N < 1 || p.N > MaxN {
		e.add("n", "%d is not in [1, %d]", p.N, MaxN)
	}
	switch {
	case p.TopLogprobs < 0 || p.TopLogprobs > MaxTopLogprobs:
		e.add("top_logprobs", "%d is not in [0, %d]", p.TopLogprobs, MaxTopLogprobs)
	case p.TopLogprobs > 0 && !p.Logprobs:
		e.add("top_logprobs", "%d are requested, but logprobs is not set", p.TopLogprobs)
	}
	validateStops(e, p.Stop)
	if len(p.StopTokenIDs) > MaxStopTokenIDs {
		e.add("stop_token_ids", "%d ids, at most %d are supported", len(p.StopTokenIDs), MaxStopTokenIDs)
	} else if i := slices.IndexFunc(p.StopTokenIDs, func(id int32) bool { return id < 0 }); i >= 0 {
		e.add("stop_token_ids", "id %d is negative", p.StopTokenIDs[i])
	}
	return e.orNil()
}

// within adds a problem if v is outside [lo, hi], infinite or NaN.
func (e *ParamsError) within(field string, v, lo, hi float64) {
	if !(v >= lo && v <= hi) {
		e.add(field, "%v is not in [%v, %v]", v, lo, hi)
	}
}

func (p *Params) validateBias(e *ParamsError) {
	if len(p.LogitBias) > MaxBiases {
		e.add("logit_bias", "%d entries, at most %d are supported", len(p.LogitBias), MaxBiases)
		return
	}
	for _, id := range sortedIDs(p.LogitBias) {
		if id < 0 {
			e.add("logit_bias", "token id %d is negative", id)
		}
		if v := p.LogitBias[id]; !(math.Abs(v) <= MaxBias) {
			e.add("logit_bias", "%v for token %d is not in [-%v, %v]", v, id, MaxBias, MaxBias)
		}
	}
}

func validateStops(e *ParamsError, stops []string) {
	if len(stops) > MaxStops {
		e.add("stop", "%d stop strings, at most %d are supported", len(stops), MaxStops)
		return
	}
	for i, s := range stops {
		switch {
		case s == "":
			e.add("stop", "string %d is empty", i)
		case len(s) > MaxStopBytes:
			e.add("stop", "string %d has %d bytes, at most %d are supported", i, len(s), MaxStopBytes)
		case !utf8.ValidString(s):
			e.add("stop", "string %d is not valid UTF-8, so it could never match", i)
		}
	}
}

// greedy reports whether the most likely token is chosen, without random numbers.
func (p *Params) greedy() bool { return p.Temperature < GreedyBelow }

// sortedIDs returns the ids of a bias map in ascending order.
func sortedIDs(m map[int32]float64) []int32 {
	ids := make([]int32, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
