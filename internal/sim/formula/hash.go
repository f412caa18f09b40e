package formula

import "math"

// mark returns the value that a row stores for its token: it differs for every token and position.
func mark(token int32, position int) uint64 {
	return mix(uint64(uint32(token))<<32 | uint64(uint32(position)))
}

// after returns the hash of a sequence whose hash so far is h and whose next row stored m.
func after(h, m uint64) uint64 { return (h ^ m) * 0x9e3779b97f4a7c15 }

// After returns the hash of a sequence after another token, h is the hash of the sequence before that token and
// position its number of tokens.
func After(h uint64, token int32, position int) uint64 { return after(h, mark(token, position)) }

// mix spreads every bit of x over all bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// maxLogit is the maximum logit: the most probable of a hundred tokens has about a tenth of the probability.
const maxLogit = 8

// fillLogits writes the logits [vocabulary] after a sequence with the hash h.
func fillLogits(to []float32, h uint64) {
	for v := range to {
		to[v] = float32(mix(h+uint64(v)*0xa0761d6478bd642f)>>40) * (maxLogit / float32(1<<24))
	}
}

// fillOne writes logits that give nearly all probability to one token.
func fillOne(to []float32, token int32) {
	clear(to)
	to[token] = 4 * maxLogit
}

// best returns the most probable token, its logit, and the logarithm of the sum of exponentials. For NaN it returns the
// first token, like a device that does not check for NaN.
func best(logits []float32) (token int32, logit, logSum float32) {
	logit = float32(math.Inf(-1))
	sum := 0.0
	for v, x := range logits {
		if x > logit || x != x {
			token, logit = int32(v), x
		}
		sum += math.Exp(float64(x))
	}
	return token, logit, float32(math.Log(sum))
}
