package sample

import "math"

// Draw holds the inputs of steps 5 to 8 and of sampling, except the logits, for devices that sample. A device chooses
// the same token as [Scratch.Choose].
type Draw struct {
	Inverse float64 // 1 / temperature; 0 chooses the most likely token
	TopP    float64 // probability that top_p keeps; 1 disables it
	Least   uint64  // minimum weight of a token, from min_p
	Random  uint64  // random number as a fraction of 1 << 64
	TopK    int     // number of tokens that top_k keeps; 0 disables it
}

// DrawWords is the number of 32-bit words that [Draw.Put] writes.
const DrawWords = 10

// Draw returns the parameters for sampling the output token that follows ahead more tokens. If Draws is true, sampling
// depends on nothing else.
func (s *Sampler) Draw(ahead int) Draw {
	if s.params.greedy() {
		return Draw{}
	}
	return Draw{Inverse: 1 / s.params.Temperature, TopP: s.params.TopP, Least: least(s.params.MinP),
		Random: randomBits(s.params.Seed, s.choice, s.step+ahead, StreamToken), TopK: s.params.TopK}
}

// Draws reports whether sampling needs only a [Draw]: the sampler has no biases, penalties and log probabilities.
func (s *Sampler) Draws() bool { return len(s.biases) == 0 && s.penalties == nil && !s.params.Logprobs }

// Put writes the parameters as devices read them: 32-bit words, the lower half of each number first.
func (d *Draw) Put(words []int32) {
	for i, v := range [...]uint64{math.Float64bits(d.Inverse), math.Float64bits(d.TopP), d.Least, d.Random,
		uint64(min(d.TopK, math.MaxInt32))} {
		words[2*i], words[2*i+1] = int32(uint32(v)), int32(uint32(v>>32))
	}
}

// Drawn returns the parameters that Put has written.
func Drawn(words []int32) Draw {
	number := func(i int) uint64 { return uint64(uint32(words[2*i])) | uint64(uint32(words[2*i+1]))<<32 }
	return Draw{math.Float64frombits(number(0)), math.Float64frombits(number(1)), number(2), number(3),
		int(number(4))}
}

// Choose samples a token from a row of logits [vocabulary]; best is the index of the largest logit. If that logit is
// infinite, best is returned. A NaN is never sampled.
func (w *Scratch) Choose(logits []float32, best int32, d Draw) int32 {
	top := logits[best]
	if d.Inverse == 0 || math.IsInf(float64(top), 0) || top != top {
		return best
	}
	w.x = logits
	w.distribute(&d, top)
	return w.draw(d.Random)
}
