package sample

import (
	"errors"
	"fmt"
	"math"
)

// Mask states which tokens may be chosen: bit id%64 of word id/64. A nil Mask allows everything; ids beyond the end of
// any other Mask are forbidden, so a mask made for a tokenizer also fits logits that are padded past it.
type Mask []uint64

// AllBut allows every token of the vocabulary except those in the lists.
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

// Choice is the outcome of one step.
type Choice struct {
	Token int32
	// Logprob is the token's log probability under the model, without sampling parameters; 0 unless Params.Logprobs.
	Logprob float64
	// Top holds the likeliest tokens under the model, without sampling parameters, at most Params.TopLogprobs of them,
	// likeliest first. Tokens of probability zero are left out. It is overwritten by the next call that uses the same
	// Scratch.
	Top []TokenLogprob
}

// TokenLogprob is a token with its log probability.
type TokenLogprob struct {
	Token   int32
	Logprob float64
}

// Sampler is the state of one sequence: its random numbers and its tokens so far. It has one owner.
type Sampler struct {
	params    Params
	choice    int
	step      int // number of accepted output tokens
	biases    []bias
	penalties *penalties
	scratch   *Scratch
}

// New starts the sequence of one choice, 0 <= choice < p.N. Samplers used by the same goroutine can share a Scratch.
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

// Prompt records the prompt for the penalties. Call it once, before the first Accept; calling it again adds to it.
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

// Reserve allocates space for the given number of output tokens: Accept then does not allocate.
func (s *Sampler) Reserve(tokens int) {
	if s.penalties != nil {
		s.penalties.reserve(tokens)
	}
}

// Step returns the number of output tokens accepted so far, which is the index of the next one.
func (s *Sampler) Step() int { return s.step }

// Accept makes the token part of the output and advances to the next random number.
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

// Sample chooses the next token from logits [vocabulary], which are left unchanged, as is the sequence: the same call
// gives the same token again. It allocates nothing.
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

// Candidate is the best token of a row of logits, or the sampled one, the best logit, and the logarithm of the sum of
// the row's exponentials, which is NaN if a logit is.
type Candidate struct {
	Token         int32
	Logit, LogSum float32
}

// NeedsLogits reports whether the sampler reads whole rows of logits on devices that find the best token of a row
// and, if drawn is set, also sample one. Without biases, penalties and log probabilities it uses their token, unless
// a mask forbids it.
func (s *Sampler) NeedsLogits(drawn bool) bool { return !s.Draws() || !drawn && !s.params.greedy() }

// Take returns the token that Sample or Propose would choose without a mask, for a sampler that does not need logits.
func (s *Sampler) Take(c Candidate) (int32, error) {
	switch {
	case !(c.LogSum <= math.MaxFloat32): // also true for NaN
		return 0, fmt.Errorf("%w: the log-sum-exp is %v, want a finite number", ErrLogits, c.LogSum)
	case c.Logit == float32(math.Inf(-1)):
		return 0, fmt.Errorf("%w: all %d logits are -Inf", ErrNoCandidate, s.scratch.Vocabulary())
	}
	return c.Token, nil
}

// Propose guesses what Sample will choose when ahead more tokens are part of the output, from a drafter's logits: by
// the same steps and with the same random number that Sample will use there, so that a drafter with the target's
// distribution proposes the target's token. Penalties use only the output so far.
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

// Probabilities fills dst [vocabulary] with the distribution from which Sample samples: after all eight steps and
// summing to one. With greedy parameters it is one at the token that Sample would choose. It is the target
// distribution of rejection sampling: accept a drafted token t with probability min(1, dst[t]/q[t]), otherwise draw
// from the positive part of dst - q.
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

// adjust performs steps 1 to 4 in the scratch and returns the best token.
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
