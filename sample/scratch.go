package sample

import (
	"fmt"
	"math"
	"math/bits"
)

// Scratch is working memory for one goroutine, for a vocabulary of fixed size.
type Scratch struct {
	// x is [vocabulary]: the logits after steps 1 to 4, in the caller's slice if no step changed them, otherwise in
	// buffer.
	x      []float32
	buffer []float32 // [vocabulary] modified logits
	weight []uint64  // [vocabulary] unnormalised probabilities, valid for the tokens in kept
	kept   []int32   // tokens to sample from
	total  uint64    // sum of the weights of the tokens in kept

	mass  []uint64 // [buckets] sum of the weights of the tokens in the bucket
	count []int32  // [buckets] number of tokens in the bucket
	ids   []int32  // tokens of the bucket in which top_k or top_p ends
	top   []TokenLogprob
}

// NewScratch allocates working memory for a vocabulary, about 20 bytes per token.
func NewScratch(vocabulary int) (*Scratch, error) {
	if vocabulary < 1 || vocabulary > MaxVocabulary {
		return nil, fmt.Errorf("sample: the vocabulary has %d tokens; want 1 to %d",
			vocabulary, MaxVocabulary)
	}
	return &Scratch{
		buffer: make([]float32, vocabulary),
		weight: make([]uint64, vocabulary),
		kept:   make([]int32, 0, vocabulary),
		mass:   make([]uint64, buckets),
		count:  make([]int32, buckets),
		ids:    make([]int32, 0, vocabulary),
		top:    make([]TokenLogprob, 0, MaxTopLogprobs),
	}, nil
}

// Vocabulary returns the number of logits in a row.
func (w *Scratch) Vocabulary() int { return len(w.buffer) }

// load checks a row of logits, sets x, and returns the token with the largest logit. It returns an error for NaN, +Inf,
// or if all are -Inf.
func (w *Scratch) load(logits []float32) (best int32, err error) {
	if len(logits) != w.Vocabulary() {
		return 0, fmt.Errorf("%w: there are %d logits, but the vocabulary has %d tokens", ErrLogits, len(logits),
			w.Vocabulary())
	}
	top, at := float32(math.Inf(-1)), 0
	for i, v := range logits {
		if v <= top {
			continue
		}
		if !(v <= math.MaxFloat32) { // NaN or +Inf, which argmax does not detect
			return 0, fmt.Errorf("%w: the logit is %v at token %d", ErrLogits, v, i)
		}
		top, at = v, i
	}
	w.x = logits
	return int32(at), nil
}

// change copies x to buffer, so that it can be modified.
func (w *Scratch) change() {
	copy(w.buffer, w.x)
	w.x = w.buffer
}

// restrict sets the logits of tokens that the mask forbids to -Inf.
func (w *Scratch) restrict(mask Mask) {
	if mask == nil {
		return
	}
	gone := float32(math.Inf(-1))
	for base := 0; base < len(w.x); base += 64 {
		word := uint64(0)
		if base/64 < len(mask) {
			word = mask[base/64]
		}
		if word == math.MaxUint64 {
			continue
		}
		row := w.x[base:min(base+64, len(w.x))]
		for i := range row {
			if word>>i&1 == 0 {
				row[i] = gone
			}
		}
	}
}

// count returns the number of allowed ids below n.
func (m Mask) count(n int) int {
	total := 0
	for i, word := range m {
		if left := n - i*64; left < 64 {
			if left <= 0 {
				break
			}
			word &= 1<<left - 1
		}
		total += bits.OnesCount64(word)
	}
	return total
}

// argmax returns the lowest id of the largest value.
func argmax(x []float32) int32 {
	best, at := x[0], 0
	for i, v := range x {
		if v > best {
			best, at = v, i
		}
	}
	return int32(at)
}
