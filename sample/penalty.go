package sample

import (
	"fmt"
	"math"
	"slices"
)

// penalties counts the tokens of a sequence for the penalties of its request.
type penalties struct {
	repetition, frequency, presence float32

	output   []int32  // [vocabulary] number of occurrences in the output
	prompt   []uint64 // [vocabulary bits] set if the token is in the prompt
	distinct []int32  // tokens in prompt or output, each once, in the order of their first occurrence
}

// newPenalties returns nil if the request has no penalties, so that tokens are not counted.
func newPenalties(p *Params, vocabulary int) *penalties {
	if p.RepetitionPenalty == 1 && p.FrequencyPenalty == 0 && p.PresencePenalty == 0 {
		return nil
	}
	return &penalties{
		repetition: float32(p.RepetitionPenalty),
		frequency:  float32(p.FrequencyPenalty),
		presence:   float32(p.PresencePenalty),
		output:     make([]int32, vocabulary),
		prompt:     make([]uint64, (vocabulary+63)/64),
	}
}

func (c *penalties) seen(t int32) bool {
	return c.output[t] > 0 || c.prompt[t/64]>>(t%64)&1 != 0
}

func (c *penalties) addPrompt(t int32) {
	if !c.seen(t) {
		c.distinct = append(c.distinct, t)
	}
	c.prompt[t/64] |= 1 << (t % 64)
}

func (c *penalties) addOutput(t int32) {
	if !c.seen(t) {
		c.distinct = append(c.distinct, t)
	}
	c.output[t]++
}

// apply applies the penalties to the logits x [vocabulary]. -Inf is not changed.
func (c *penalties) apply(x []float32) {
	for _, t := range c.distinct {
		v := x[t]
		if v > 0 {
			v /= c.repetition
		} else {
			v *= c.repetition
		}
		if n := c.output[t]; n > 0 {
			v -= c.frequency*float32(n) + c.presence
		}
		x[t] = finite(v)
	}
}

// finite limits a logit to the largest float32, so that differences from the maximum are not NaN.
func finite(v float32) float32 { return min(v, math.MaxFloat32) }

// bias is one entry of logit_bias.
type bias struct {
	token int32
	value float32
}

// newBiases returns the entries of logit_bias in order of ids, after checking the ids.
func newBiases(m map[int32]float64, vocabulary int) ([]bias, error) {
	ids := sortedIDs(m)
	if n := len(ids); n > 0 && int(ids[n-1]) >= vocabulary {
		e := &ParamsError{}
		e.add("logit_bias", "token id %d is not in the vocabulary of %d", ids[n-1], vocabulary)
		return nil, e
	}
	list := make([]bias, 0, len(ids))
	for _, id := range ids {
		list = append(list, bias{id, float32(m[id])})
	}
	return list, nil
}

// checkToken returns an error for a token outside the vocabulary.
func checkToken(t int32, vocabulary int) error {
	if t < 0 || int(t) >= vocabulary {
		return fmt.Errorf("%w: the id is %d and the vocabulary has %d tokens", ErrToken, t, vocabulary)
	}
	return nil
}

// reserve allocates memory for more distinct tokens, so that later steps do not allocate.
func (c *penalties) reserve(tokens int) {
	tokens = min(tokens, len(c.output)-len(c.distinct))
	if tokens > 0 {
		c.distinct = slices.Grow(c.distinct, tokens)
	}
}
