package grammar

import (
	"fmt"
	"math/big"
)

// numberRange accepts decimal numbers without exponent between two bounds. With a step, it accepts only multiples of
// the step.
//
// All arithmetic is in units of the last digit: with F digits after the point a number is an integer N = value * 10^F.
// For each number of digits, the completions of a prefix are an interval of integers. A prefix is allowed if one of
// these intervals contains a multiple of the step within the range. If all completions of a prefix are within the
// range, its state holds only its digit counts and remainder (a steady state). The few prefixes that equal the
// beginning of a bound are stored completely (tight states).
type numberRange struct {
	fraction int       // F; 0 for integers
	digits   int       // maximum number of digits before the point
	step10   uint64    // step in units of the last digit; 1 if there is none
	broken   bool      // whether integers are excluded
	positive interval  // range of N
	negative interval  // range of -N, for texts that begin with a minus
	power    []big.Int // 10^i
	tight    []prefix
	index    map[string]uint64 // index in tight, by the text of a prefix
}

// interval is a closed interval of non-negative integers, empty if lo > hi.
type interval struct{ lo, hi big.Int }

// prefix is the part of a number that has been read.
type prefix struct {
	negative bool
	value    big.Int // value of all digits so far, without sign and point
	before   int     // number of digits before the point
	after    int     // number of digits after the point
	point    bool    // whether the point has been read
}

// newNumberRange returns the automaton for lo <= N <= hi, or nil if it accepts no number.
func newNumberRange(lo, hi *big.Int, fraction, digits int, step uint64) *numberRange {
	return (&numberRange{fraction: fraction, digits: digits, step10: step}).between(lo, hi)
}

// newFractions returns the automaton for the numbers of the range that are not integers, or nil if there are none.
func newFractions(lo, hi *big.Int, fraction, digits int) *numberRange {
	return (&numberRange{fraction: fraction, digits: digits, step10: 1, broken: true}).between(lo, hi)
}

func (r *numberRange) between(lo, hi *big.Int) *numberRange {
	fraction, digits := r.fraction, r.digits
	r.index = map[string]uint64{}
	r.power = make([]big.Int, fraction+digits+2)
	r.power[0].SetInt64(1)
	for i := 1; i < len(r.power); i++ {
		r.power[i].Mul(&r.power[i-1], big.NewInt(10))
	}
	zero := big.NewInt(0)
	r.positive.lo.Set(maxInt(lo, zero))
	r.positive.hi.Set(hi)
	least := zero
	if fraction == 0 {
		least = big.NewInt(1) // -0 is not allowed
	}
	r.negative.lo.Set(maxInt(new(big.Int).Neg(hi), least))
	r.negative.hi.Neg(lo)
	if !r.meets(&r.positive.lo, &r.positive.hi, &r.positive) && !r.meets(&r.negative.lo, &r.negative.hi, &r.negative) {
		return nil
	}
	return r
}

func maxInt(a, b *big.Int) *big.Int {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

// Packed states. Bits 0-2 are the mode. In a tight state the other bits are its index in tight. In a steady state,
// fields of six bits follow from bit 3: digits before the point, the minimum and maximum number of these digits, digits
// after the point. The remaining bits are the remainder.
const (
	rangeStart = iota
	rangeMinus
	rangeTight
	rangeInteger // steady state before the point
	rangePoint   // steady state directly after the point
	rangeFraction
)

type steady struct {
	mode                       uint64
	before, least, most, after int
	remainder                  uint64 // value of the digits so far, modulo the step
}

func (s steady) pack() uint64 {
	return s.mode | uint64(s.before)<<3 | uint64(s.least)<<9 | uint64(s.most)<<15 | uint64(s.after)<<21 |
		s.remainder<<27
}

func unpackSteady(q uint64) steady {
	field := func(at uint) int { return int(q >> at & 63) }
	return steady{mode: q & 7, before: field(3), least: field(9), most: field(15), after: field(21), remainder: q >> 27}
}

func (r *numberRange) start() uint64 { return rangeStart }

func (r *numberRange) step(q uint64, b byte) (uint64, bool) {
	switch q & 7 {
	case rangeStart:
		if b == '-' {
			return rangeMinus, r.meets(&r.negative.lo, &r.negative.hi, &r.negative)
		}
		return r.first(false, b)
	case rangeMinus:
		return r.first(true, b)
	case rangeTight:
		p, ok := r.extend(r.tight[q>>3], b)
		if !ok {
			return 0, false
		}
		return r.settle(p)
	}
	s, ok := r.extendSteady(unpackSteady(q), b)
	return s.pack(), ok && r.alive(s)
}

func (r *numberRange) first(negative bool, b byte) (uint64, bool) {
	if b < '0' || b > '9' {
		return 0, false
	}
	p := prefix{negative: negative, before: 1}
	p.value.SetInt64(int64(b - '0'))
	return r.settle(p)
}

// extend adds a byte to a prefix; ok is false if the syntax of numbers does not allow it.
func (r *numberRange) extend(p prefix, b byte) (prefix, bool) {
	next := p
	if b == '.' {
		next.point = true
		return next, !p.point && r.fraction > 0
	}
	if b < '0' || b > '9' {
		return p, false
	}
	switch {
	case p.point:
		next.after++
		if next.after > r.fraction {
			return p, false
		}
	case p.value.Sign() == 0 || p.before == r.digits: // no digit may follow a leading zero
		return p, false
	default:
		next.before++
	}
	next.value = big.Int{}
	next.value.Mul(&p.value, big.NewInt(10))
	next.value.Add(&next.value, big.NewInt(int64(b-'0')))
	return next, true
}

// settle returns the state of a prefix, steady or tight; ok is false if the prefix has no completion.
func (r *numberRange) settle(p prefix) (uint64, bool) {
	s := steady{mode: rangeInteger, before: p.before, after: p.after, least: 63}
	if p.point {
		s.mode = rangeFraction
		if p.after == 0 {
			s.mode = rangePoint
		}
	}
	s.remainder = new(big.Int).Mod(&p.value, new(big.Int).SetUint64(r.step10)).Uint64()
	tight, alive := false, false
	for total := p.before; total <= r.lastLength(p); total++ {
		lo, hi := r.completions(p, total)
		in := r.side(p.negative)
		if hi.Cmp(&in.lo) < 0 || lo.Cmp(&in.hi) > 0 {
			continue
		}
		alive = alive || r.meets(lo, hi, in)
		if lo.Cmp(&in.lo) < 0 || hi.Cmp(&in.hi) > 0 {
			tight = true
			continue
		}
		s.least = min(s.least, total)
		s.most = max(s.most, total)
	}
	switch {
	case !alive:
		return 0, false
	case tight || r.broken: // a prefix in full shows whether a digit after the point is not zero
		return r.intern(p), true
	}
	return s.pack(), true
}

// lastLength returns the maximum number of digits before the point of numbers that begin with this prefix.
func (r *numberRange) lastLength(p prefix) int {
	if p.point || p.value.Sign() == 0 {
		return p.before
	}
	return r.digits
}

// completions returns the interval of N for numbers that begin with this prefix and have total digits before the point.
func (r *numberRange) completions(p prefix, total int) (lo, hi *big.Int) {
	scale := &r.power[total-p.before+r.fraction-p.after]
	lo = new(big.Int).Mul(&p.value, scale)
	hi = new(big.Int).Add(lo, scale)
	return lo, hi.Sub(hi, big.NewInt(1))
}

// meets reports whether a multiple of the step is both in [lo, hi] and in the interval.
func (r *numberRange) meets(lo, hi *big.Int, in *interval) bool {
	a := maxInt(lo, &in.lo)
	b := hi
	if b.Cmp(&in.hi) > 0 {
		b = &in.hi
	}
	if a.Cmp(b) > 0 {
		return false
	}
	if r.broken && a.Cmp(b) == 0 {
		return new(big.Int).Mod(a, &r.power[r.fraction]).Sign() != 0
	}
	last := new(big.Int).SetUint64(r.step10)
	last.Sub(b, new(big.Int).Mod(b, last)) // largest multiple up to b
	return last.Cmp(a) >= 0
}

func (r *numberRange) side(negative bool) *interval {
	if negative {
		return &r.negative
	}
	return &r.positive
}

func (r *numberRange) intern(p prefix) uint64 {
	key := fmt.Sprintf("%t %v %d %d %t", p.negative, &p.value, p.before, p.after, p.point)
	at, ok := r.index[key]
	if !ok {
		at = uint64(len(r.tight))
		r.tight = append(r.tight, p)
		r.index[key] = at
	}
	return rangeTight | at<<3
}

func (r *numberRange) extendSteady(s steady, b byte) (steady, bool) {
	if b == '.' {
		ok := s.mode == rangeInteger && r.fraction > 0 && s.before >= s.least && s.before <= s.most
		s.mode = rangePoint
		return s, ok
	}
	if b < '0' || b > '9' {
		return s, false
	}
	s.remainder = (s.remainder*10 + uint64(b-'0')) % r.step10
	if s.mode == rangeInteger {
		s.before++
		return s, s.before <= s.most
	}
	s.mode = rangeFraction
	s.after++
	return s, s.after <= r.fraction
}

// alive reports whether a steady state has a completion that is a multiple of the step.
func (r *numberRange) alive(s steady) bool {
	if s.mode != rangeInteger {
		return r.reaches(s.remainder, r.fraction-s.after)
	}
	for total := max(s.before, s.least); total <= s.most; total++ {
		if r.reaches(s.remainder, total-s.before+r.fraction) {
			return true
		}
	}
	return false
}

// reaches reports whether the given number of further digits can make the remainder zero. The step is below 10^10, so
// ten digits always can.
func (r *numberRange) reaches(remainder uint64, digits int) bool {
	if r.step10 == 1 || digits >= 10 {
		return true
	}
	scale := uint64(1)
	for range digits {
		scale *= 10
	}
	missing := (r.step10 - remainder*scale%r.step10) % r.step10
	return missing < scale
}

func (r *numberRange) accepts(q uint64) bool {
	switch q & 7 {
	case rangeTight:
		p := r.tight[q>>3]
		if p.point && p.after == 0 {
			return false
		}
		n := new(big.Int).Mul(&p.value, &r.power[r.fraction-p.after])
		return r.meets(n, n, r.side(p.negative))
	case rangeInteger, rangeFraction:
		s := unpackSteady(q)
		if s.mode == rangeInteger && (s.before < s.least || s.before > s.most) {
			return false
		}
		n := s.remainder
		for range r.fraction - s.after {
			n = n * 10 % r.step10
		}
		return n == 0
	}
	return false
}

func (r *numberRange) open(q uint64) bool {
	for b := byte('-'); b <= '9'; b++ { // all characters of numbers, and '/'
		if _, ok := r.step(q, b); ok {
			return true
		}
	}
	return false
}

func (r *numberRange) class(q uint64, _ int) maskKey { return maskKey{familyNone, q} }
