// Package engram turns the tokens of a sequence into rows of DeepSeek-V4.1's n-gram tables (v41 spec, 3.2 and 3.3):
// token ids flow in, row numbers flow out. Nothing of it runs on a device: rows depend on tokens alone.
package engram

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
)

// Shape is what config.json says of the tables.
type Shape struct {
	Layers     []int // that have one, ascending
	Rows       []int // of each table
	Orders     int   // longest n-gram: 4
	Heads      int   // hashes of each length
	Dim        int   // values of a row
	Base       int   // every hash is reduced by a prime of at least this
	Compressed int   // keys of the token map
	Pad        int   // the token before the start of a sequence
}

// Columns returns how many rows of a table a token has.
func (s *Shape) Columns() int { return (s.Orders - 1) * s.Heads }

// Words returns how many row numbers a token has, of all tables.
func (s *Shape) Words() int { return len(s.Layers) * s.Columns() }

// Before returns how many tokens before its own a row depends on.
func (s *Shape) Before() int { return max(s.Orders-1, 0) }

// Hash maps tokens to rows.
type Hash struct {
	shape       Shape
	multipliers [][]int64 // [layers][orders]
	moduli      [][]int64 // [layers][columns]: those of pairs first
	tokens      []int32   // [vocabulary]: the map
	pad         int64
}

// Check reports what is wrong with a shape, nil where its primes add up to its rows.
func (s *Shape) Check() error {
	if len(s.Layers) != len(s.Rows) {
		return fmt.Errorf("%d engram layers and %d sizes of tables, want one for each", len(s.Layers), len(s.Rows))
	}
	for i, list := range s.Moduli() {
		sum := 0
		for _, p := range list {
			sum += int(p)
		}
		if sum != s.Rows[i] {
			return fmt.Errorf("the primes of the table of layer %d add up to %d rows, config.json says %d", s.Layers[i],
				sum, s.Rows[i])
		}
		if sum > math.MaxInt32 {
			return fmt.Errorf("the table of layer %d has %d rows, supported are at most %d", s.Layers[i], sum,
				math.MaxInt32)
		}
	}
	return nil
}

// Moduli are the primes of every table: those from Base on, in order, each used once.
func (s *Shape) Moduli() [][]int64 {
	out := make([][]int64, len(s.Layers))
	next := int64(s.Base)
	for i := range out {
		for range s.Columns() {
			for !big.NewInt(next).ProbablyPrime(0) { // exact below 2^64
				next++
			}
			out[i] = append(out[i], next)
			next++
		}
	}
	return out
}

// Multipliers are the odd factors of a layer's hash, one for each token of an n-gram: 2r+1 with r drawn by NumPy's
// default_rng(10007*layer).integers(0, (2^63-1)/Compressed/2), PCG64.
func (s *Shape) Multipliers(layer int) []int64 {
	high := uint64(math.MaxInt64) / uint64(max(s.Compressed, 1)) / 2
	r := newPCG64(uint32(10007 * layer))
	out := make([]int64, s.Orders)
	for i := range out {
		out[i] = 2*int64(r.below(high)) + 1
	}
	return out
}

// New checks a token map, one key for each token of the vocabulary, and makes the hash of a shape.
func New(s Shape, tokens []int32) (*Hash, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("engram: %w", err)
	}
	if s.Pad < 0 || s.Pad >= len(tokens) {
		return nil, fmt.Errorf("engram: padding token %d is outside the vocabulary of %d", s.Pad, len(tokens))
	}
	if n := int(slices.Max(tokens)) + 1; n != s.Compressed || slices.Min(tokens) < 0 {
		return nil, fmt.Errorf("engram: the token map has %d keys, config.json says %d: another tokenizer would "+
			"look up other rows; take tokenizer.json of the same release", n, s.Compressed)
	}
	h := &Hash{shape: s, moduli: s.Moduli(), tokens: tokens, pad: int64(tokens[s.Pad])}
	for _, l := range s.Layers {
		h.multipliers = append(h.multipliers, s.Multipliers(l))
	}
	return h, nil
}

// Shape returns what the hash was made of.
func (h *Hash) Shape() *Shape { return &h.shape }

// Rows writes the row numbers of one token: those of the first table, then of the next. before are the tokens in front
// of it, the nearest last; what is in front of the sequence counts as padding.
func (h *Hash) Rows(to []int32, before []int32, token int32) {
	var gram [16]int64
	gram[0] = int64(h.tokens[token])
	for i := 1; i < h.shape.Orders; i++ {
		gram[i] = h.pad
		if n := len(before) - i; n >= 0 {
			gram[i] = int64(h.tokens[before[n]])
		}
	}
	at := 0
	for l, m := range h.multipliers {
		hash, base := gram[0]*m[0], int64(0)
		for o := 1; o < h.shape.Orders; o++ {
			hash ^= gram[o] * m[o]
			for j := range h.shape.Heads {
				p := h.moduli[l][(o-1)*h.shape.Heads+j]
				to[at] = int32(base + hash%p)
				base += p
				at++
			}
		}
	}
}

// pcg64 is NumPy's default generator.
type pcg64 struct{ hi, lo, incHi, incLo uint64 }

// newPCG64 seeds it as numpy.random.default_rng(seed) does: by SeedSequence, with a pool of four words.
func newPCG64(seed uint32) *pcg64 {
	var pool [4]uint32
	by := uint32(0x43b0d7e5)
	hash := func(v uint32) uint32 {
		v ^= by
		by *= 0x931e8875
		v *= by
		return v ^ v>>16
	}
	pool[0] = hash(seed)
	for i := 1; i < len(pool); i++ {
		pool[i] = hash(0)
	}
	for from := range pool {
		for to := range pool {
			if from != to {
				v := 0xca01f9dd*pool[to] - 0x4973f715*hash(pool[from])
				pool[to] = v ^ v>>16
			}
		}
	}
	var words [8]uint32
	by = 0x8b51f9dd
	for i := range words {
		v := pool[i%len(pool)] ^ by
		by *= 0x58f38ded
		v *= by
		words[i] = v ^ v>>16
	}
	word := func(i int) uint64 { return uint64(words[2*i]) | uint64(words[2*i+1])<<32 }
	r := &pcg64{incHi: word(2)<<1 | word(3)>>63, incLo: word(3)<<1 | 1}
	r.step()
	var carry uint64
	r.lo, carry = bits.Add64(r.lo, word(1), 0)
	r.hi, _ = bits.Add64(r.hi, word(0), carry)
	r.step()
	return r
}

// step multiplies the state, 128 bits, and adds the increment.
func (r *pcg64) step() {
	const mulHi, mulLo = 0x2360ed051fc65da4, 0x4385df649fccf645
	hi, lo := bits.Mul64(r.lo, mulLo)
	hi += r.hi*mulLo + r.lo*mulHi
	var carry uint64
	r.lo, carry = bits.Add64(lo, r.incLo, 0)
	r.hi, _ = bits.Add64(hi, r.incHi, carry)
}

func (r *pcg64) next() uint64 {
	r.step()
	return bits.RotateLeft64(r.hi^r.lo, -int(r.hi>>58))
}

// below draws a number below n by Lemire's method, as integers does for ranges of more than 32 bits.
func (r *pcg64) below(n uint64) uint64 {
	hi, lo := bits.Mul64(r.next(), n)
	if lo < n {
		for least := -n % n; lo < least; {
			hi, lo = bits.Mul64(r.next(), n)
		}
	}
	return hi
}
