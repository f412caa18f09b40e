package sample

import "math"

// Draw has the inputs of steps 5 to 8 and of the sampling itself other than the logits, for devices that sample:
// their choice from a row equals that of [Scratch.Choose], to the bit.
type Draw struct {
	Inverse float64 // inverse of the temperature; 0 takes the best token
	TopP    float64 // share of probability that top_p keeps; 1 turns it off
	Least   uint64  // minimum weight that min_p keeps
	Random  uint64  // random number, as a share of 1 << 64
	TopK    int     // number of candidates that top_k keeps; 0 turns it off
}

// DrawWords is how many words of 32 bits [Draw.Put] writes.
const DrawWords = 10

// Draw returns the parameters for sampling the token after ahead more tokens of output. They are the whole state of a
// sampler for which Draws is true.
func (s *Sampler) Draw(ahead int) Draw {
	if s.params.greedy() {
		return Draw{}
	}
	return Draw{Inverse: 1 / s.params.Temperature, TopP: s.params.TopP, Least: least(s.params.MinP),
		Random: randomBits(s.params.Seed, s.choice, s.step+ahead, StreamToken), TopK: s.params.TopK}
}

// Draws reports whether a [Draw] is all that the sampler needs: it has no biases, penalties and log probabilities.
func (s *Sampler) Draws() bool { return len(s.biases) == 0 && s.penalties == nil && !s.params.Logprobs }

// Put writes the parameters in the format of devices: words of 32 bits, the lower half of each number first.
func (d *Draw) Put(words []int32) {
	for i, v := range [...]uint64{math.Float64bits(d.Inverse), math.Float64bits(d.TopP), d.Least, d.Random,
		uint64(min(d.TopK, math.MaxInt32))} {
		words[2*i], words[2*i+1] = int32(uint32(v)), int32(uint32(v>>32))
	}
}

// Drawn returns the draw that Put wrote.
func Drawn(words []int32) Draw {
	number := func(i int) uint64 { return uint64(uint32(words[2*i])) | uint64(uint32(words[2*i+1]))<<32 }
	return Draw{math.Float64frombits(number(0)), math.Float64frombits(number(1)), number(2), number(3),
		int(number(4))}
}

// Choose returns the token that is sampled from a row of logits [vocabulary] whose best token is known. A row whose
// best logit is infinite keeps its best token. NaN is never sampled.
func (w *Scratch) Choose(logits []float32, best int32, d Draw) int32 {
	top := logits[best]
	if d.Inverse == 0 || math.IsInf(float64(top), 0) || top != top {
		return best
	}
	w.x = logits
	w.distribute(&d, top)
	return w.draw(d.Random)
}
