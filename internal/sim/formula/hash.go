package formula

import "math"

// mark returns the value that a row stores, which differs for every token and position.
func mark(token int32, position int) uint64 {
	return mix(uint64(uint32(token))<<32 | uint64(uint32(position)))
}

// after returns the hash of a sequence after a row with mark m; h is the hash before the row.
func after(h, m uint64) uint64 { return (h ^ m) * 0x9e3779b97f4a7c15 }

// After returns the hash of a sequence after a token at a position; h is the hash before the token.
func After(h uint64, token int32, position int) uint64 { return after(h, mark(token, position)) }

// mix is a hash function of 64 bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// maxLogit is the maximum logit. The most probable of a hundred tokens then has a probability of about 0.1.
const maxLogit = 8

// fillLogits writes the logits [vocabulary] that follow a sequence with hash h.
func fillLogits(to []float32, h uint64) {
	for v := range to {
		to[v] = float32(mix(h+uint64(v)*0xa0761d6478bd642f)>>40) * (maxLogit / float32(1<<24))
	}
}

// fillOne writes logits with which one token has nearly all the probability.
func fillOne(to []float32, token int32) {
	clear(to)
	to[token] = 4 * maxLogit
}

// best returns the most probable token, its logit, and the log-sum-exp of the logits. If they are NaN it returns the
// first token, as a device without a check for NaN does.
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
