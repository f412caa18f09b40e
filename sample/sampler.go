package sample

import (
	"errors"
	"fmt"
	"math"
)

// Mask has a bit for each token that may be chosen: bit id%64 of word id/64. A nil Mask allows all tokens. Ids beyond
// the end of another Mask are forbidden, so that logits may be longer than the tokenizer's vocabulary.
type Mask []uint64

// AllBut returns a mask of all tokens of the vocabulary except those in the lists.
func AllBut(vocabulary int, lists ...[]int32) Mask {
	m := make(Mask, (vocabulary+63)/64)
	for i := range m {
		m[i] = math.MaxUint64
	}
	for _, list := range lists {
		for _, id := range list {
			m[id/64] &^= 1 << (id % 64)
		}
	}
	return m
}

// Choice is the result of sampling a token.
type Choice struct {
	Token int32
	// Logprob is the token's log probability under the model, before sampling parameters are applied; 0 unless
	// Params.Logprobs is set.
	Logprob float64
	// Top holds the most likely tokens under the model, at most Params.TopLogprobs, in descending order. Tokens with
	// probability zero are omitted. The next call with the same Scratch overwrites it.
	Top []TokenLogprob
}

// TokenLogprob is a token with its log probability.
type TokenLogprob struct {
	Token   int32
	Logprob float64
}

// Sampler is the sampling state of one sequence: its parameters, the number of output tokens, and counts for penalties.
// Only one goroutine at a time may use it.
type Sampler struct {
	params    Params
	choice    int
	step      int // number of accepted output tokens
	biases    []bias
	penalties *penalties
	scratch   *Scratch
}

// New returns the sampler of one choice, 0 <= choice < p.N. Samplers of one goroutine can share a Scratch.
func New(p Params, choice int, w *Scratch) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if w == nil {
		return nil, errors.New("sample: a sampler needs a scratch; make one with NewScratch")
	}
	if choice < 0 || choice >= p.N {
		return nil, fmt.Errorf("sample: choice %d does not exist in a request with n = %d", choice, p.N)
	}
	for _, id := range p.StopTokenIDs {
		if err := checkToken(id, w.Vocabulary()); err != nil {
			return nil, fmt.Errorf("%w: stop_token_ids: %w", ErrParams, err)
		}
	}
	biases, err := newBiases(p.LogitBias, w.Vocabulary())
	if err != nil {
		return nil, err
	}
	return &Sampler{
		params:    p,
		choice:    choice,
		biases:    biases,
		penalties: newPenalties(&p, w.Vocabulary()),
		scratch:   w,
	}, nil
}

// Prompt counts the prompt's tokens for penalties. It must be called before Accept; a second call adds tokens.
func (s *Sampler) Prompt(tokens []int32) error {
	for _, t := range tokens {
		if err := checkToken(t, s.scratch.Vocabulary()); err != nil {
			return fmt.Errorf("prompt: %w", err)
		}
	}
	if s.penalties != nil {
		for _, t := range tokens {
			s.penalties.addPrompt(t)
		}
	}
	return nil
}

// Reserve allocates memory for the given number of output tokens, so that Accept does not allocate.
func (s *Sampler) Reserve(tokens int) {
	if s.penalties != nil {
		s.penalties.reserve(tokens)
	}
}

// Step returns the number of accepted output tokens, which is the index of the next one.
func (s *Sampler) Step() int { return s.step }

// Accept appends the token to the output.
func (s *Sampler) Accept(token int32) error {
	if err := checkToken(token, s.scratch.Vocabulary()); err != nil {
		return fmt.Errorf("output token %d: %w", s.step, err)
	}
	if s.penalties != nil {
		s.penalties.addOutput(token)
	}
	s.step++
	return nil
}

// Uniform returns a random number in [0, 1) for the next output token: see [Uniform].
func (s *Sampler) Uniform(stream Stream) float64 {
	return Uniform(s.params.Seed, s.choice, s.step, stream)
}

// Sample chooses the next token from logits [vocabulary]. It changes neither the logits nor the state, so that a second
// call returns the same token. It does not allocate.
func (s *Sampler) Sample(logits []float32, mask Mask) (Choice, error) {
	w := s.scratch
	best, err := s.adjust(logits, mask)
	if err != nil {
		return Choice{}, err
	}
	c := Choice{Token: best}
	if !s.params.greedy() {
		d := s.Draw(0)
		w.distribute(&d, w.x[best])
		c.Token = w.draw(d.Random)
	}
	if s.params.Logprobs {
		c.Logprob, c.Top = w.logprobs(logits, c.Token, s.params.TopLogprobs)
	}
	return c, nil
}

// Candidate is what a device computes from a row of logits: the most likely or the sampled token, the largest logit,
// and the log-sum-exp, which is NaN if a logit is NaN.
type Candidate struct {
	Token         int32
	Logit, LogSum float32
}

// NeedsLogits reports whether the sampler needs whole rows of logits from a device that returns a Candidate. drawn
// states that the device can sample; otherwise it returns only the most likely token.
func (s *Sampler) NeedsLogits(drawn bool) bool { return !s.Draws() || !drawn && !s.params.greedy() }

// Take returns the token of a Candidate, for a sampler that does not need logits. It is the token that Sample chooses
// without a mask.
func (s *Sampler) Take(c Candidate) (int32, error) {
	switch {
	case !(c.LogSum <= math.MaxFloat32): // or NaN
		return 0, fmt.Errorf("%w: the log-sum-exp is %v, want a finite number", ErrLogits, c.LogSum)
	case c.Logit == float32(math.Inf(-1)):
		return 0, fmt.Errorf("%w: all %d logits are -Inf", ErrNoCandidate, s.scratch.Vocabulary())
	}
	return c.Token, nil
}

// Propose drafts the output token that follows ahead more tokens, from a drafter's logits. It uses the same steps and
// the same random number as Sample will use there, so that equal logits give equal tokens. Penalties count only the
// output so far.
func (s *Sampler) Propose(logits []float32, mask Mask, ahead int) (int32, error) {
	w := s.scratch
	best, err := s.adjust(logits, mask)
	if err != nil || s.params.greedy() {
		return best, err
	}
	d := s.Draw(ahead)
	w.distribute(&d, w.x[best])
	return w.draw(d.Random), nil
}

// Probabilities fills dst [vocabulary] with the distribution from which Sample samples, after all eight steps and
// normalised to one. With greedy parameters it is one at the token that Sample chooses. Rejection sampling accepts a
// draft t with probability min(1, dst[t]/q[t]), and otherwise samples from the positive part of dst - q.
func (s *Sampler) Probabilities(dst []float32, logits []float32, mask Mask) error {
	w := s.scratch
	if len(dst) != w.Vocabulary() {
		return fmt.Errorf("sample: probabilities of %d tokens were requested, but the vocabulary has %d", len(dst),
			w.Vocabulary())
	}
	best, err := s.adjust(logits, mask)
	if err != nil {
		return err
	}
	clear(dst)
	if s.params.greedy() {
		dst[best] = 1
		return nil
	}
	d := s.Draw(0)
	w.distribute(&d, w.x[best])
	for _, id := range w.kept {
		dst[id] = float32(float64(w.weight[id]) / float64(w.total))
	}
	return nil
}

// adjust performs steps 1 to 4 in the scratch memory and returns the token with the largest logit.
func (s *Sampler) adjust(logits []float32, mask Mask) (best int32, err error) {
	w := s.scratch
	if best, err = w.load(logits); err != nil {
		return 0, err
	}
	if len(s.biases) > 0 || s.penalties != nil || mask != nil {
		w.change()
		for _, b := range s.biases {
			w.x[b.token] = finite(w.x[b.token] + b.value)
		}
		if s.penalties != nil {
			s.penalties.apply(w.x)
		}
		w.restrict(mask)
		best = argmax(w.x)
	}
	if w.x[best] == float32(math.Inf(-1)) {
		if mask == nil {
			return 0, fmt.Errorf("%w: all %d logits are -Inf", ErrNoCandidate, len(logits))
		}
		return 0, fmt.Errorf("%w: the mask allows %d of %d tokens, all with logit -Inf", ErrNoCandidate,
			mask.count(len(logits)), len(logits))
	}
	return best, nil
}
