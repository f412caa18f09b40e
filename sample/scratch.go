package sample

import (
	"fmt"
	"math"
	"math/bits"
)

// Scratch is the working memory of one worker, sized by the vocabulary. Calls that share one must not overlap.
type Scratch struct {
	x      []float32 // [vocabulary] logits after steps 1 to 4
	weight []float64 // [vocabulary] unnormalised probability; 0 where dropped
	kept   []int32   // ids with a weight, ascending; what is drawn from
	total  float64   // sum of the weights of kept

	bucket []uint16  // [vocabulary] which bucket, by distance from the maximum; buckets if out of reach
	mass   []float64 // [buckets] weight per bucket
	count  []int32   // [buckets] tokens per bucket
	ids    []int32   // tokens of the bucket being cut
	top    []TokenLogprob
}

// NewScratch makes the working memory for rows of that many logits: about 22 bytes per token.
func NewScratch(vocabulary int) (*Scratch, error) {
	if vocabulary < 1 || vocabulary > math.MaxInt32 {
		return nil, fmt.Errorf("sample: scratch for a vocabulary of %d tokens; it must have between 1 and %d", vocabulary, math.MaxInt32)
	}
	return &Scratch{
		x:      make([]float32, vocabulary),
		weight: make([]float64, vocabulary),
		kept:   make([]int32, 0, vocabulary),
		bucket: make([]uint16, vocabulary),
		mass:   make([]float64, buckets),
		count:  make([]int32, buckets),
		ids:    make([]int32, 0, vocabulary),
		top:    make([]TokenLogprob, 0, MaxTopLogprobs),
	}, nil
}

// Vocabulary is the number of logits in a row.
func (w *Scratch) Vocabulary() int { return len(w.x) }

// load copies the logits and rejects what no distribution can be made of.
func (w *Scratch) load(logits []float32) error {
	if len(logits) != len(w.x) {
		return fmt.Errorf("%w: %d values, the vocabulary has %d", ErrLogits, len(logits), len(w.x))
	}
	bad := -1
	for i, v := range logits {
		if !(v <= math.MaxFloat32) { // NaN or +Inf
			bad = i
			break
		}
	}
	if bad >= 0 {
		return fmt.Errorf("%w: %v at token %d", ErrLogits, logits[bad], bad)
	}
	copy(w.x, logits)
	return nil
}

// restrict puts -Inf wherever the mask has no bit.
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

// count is the number of allowed ids below n.
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

// argmax is the lowest id of the largest value.
func argmax(x []float32) int32 {
	best, at := x[0], 0
	for i, v := range x {
		if v > best {
			best, at = v, i
		}
	}
	return int32(at)
}
