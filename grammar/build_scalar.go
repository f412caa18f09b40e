package grammar

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// strings adds the leaf of a string that satisfies all parts.
func (c *compiler) strings(parts []*schema, kids []int32) ([]int32, error) {
	r, err := c.stringRule(parts)
	if err != nil {
		return nil, err
	}
	switch {
	case r.least > r.most:
		c.drop(parts, "minLength", fmt.Sprintf("%d is above maxLength %d", r.least, r.most))
		return kids, nil
	case r.never:
		c.drop(parts, "pattern", "no string of the allowed length matches")
		return kids, nil
	case r.dfa != nil:
		return c.addLeaf(kids, &patternLeaf{r.dfa})
	}
	return c.addLeaf(kids, &stringLeaf{r.least, r.most})
}

// stringRule is what a list of schemas says about strings.
type stringRule struct {
	least, most uint64
	dfa         *runeDFA // nil if there is neither pattern nor format; lengths are part of it
	never       bool     // nothing matches
}

func (c *compiler) stringRule(parts []*schema) (stringRule, error) {
	r := stringRule{most: noLimit}
	for _, s := range parts {
		r.least = max(r.least, s.minLength)
		r.most = min(r.most, s.maxLength)
		for _, source := range []struct{ keyword, text string }{{"pattern", s.pattern}, {"format", s.format}} {
			if source.text == "" {
				continue
			}
			d, err := c.automaton(source.keyword, source.text)
			if err == nil && d != nil && r.dfa != nil {
				d, err = r.dfa.intersect(d, &c.effort)
			}
			if err != nil {
				return r, patternError(s.pointer, source.keyword, source.text, err)
			}
			if d == nil && !numericFormat(source.keyword, source.text) {
				r.never = true
				return r, nil
			}
			if d != nil {
				r.dfa = d
			}
		}
	}
	if r.dfa == nil || r.least > r.most {
		return r, nil
	}
	most := r.most
	if r.dfa.longest() <= most {
		most = noLimit
	}
	if r.least == 0 && most == noLimit {
		return r, nil
	}
	d, err := r.dfa.limit(r.least, most, &c.effort)
	if err != nil {
		at := parts[len(parts)-1].pointer
		return r, &SchemaError{at, "maxLength",
			fmt.Sprintf("together with the pattern it needs more than %d states; lower it or anchor the pattern",
				MaxPatternStates), ErrTooLarge}
	}
	r.dfa, r.never = d, d == nil
	return r, nil
}

// automaton compiles a pattern or a format. It is nil if nothing matches, and for formats of numbers.
func (c *compiler) automaton(keyword, text string) (*runeDFA, error) {
	pattern := text
	if keyword == "format" {
		if numericFormat(keyword, text) {
			return nil, nil
		}
		var ok bool
		if pattern, ok = formats[text]; !ok {
			return nil, errFormat
		}
	}
	key := keyword + " " + pattern
	if d, ok := c.formats[key]; ok {
		return d, nil
	}
	d, err := compilePattern(pattern, &c.effort)
	if err == nil {
		c.formats[key] = d
	}
	return d, err
}

func patternError(pointer, keyword, text string, err error) error {
	e := &SchemaError{Pointer: pointer, Keyword: keyword, Kind: ErrUnsupported}
	switch {
	case errors.Is(err, errFormat):
		e.Problem = fmt.Sprintf("%q; %s are supported", clip(text, 0), formatNames())
	case errors.Is(err, errPatternStates):
		e.Problem = fmt.Sprintf(
			"%q: %v; automata of up to %d states are supported, and only so much work for all patterns of a schema",
			clip(text, 0), err, MaxPatternStates)
		e.Kind = ErrTooLarge
	default:
		e.Problem = fmt.Sprintf("%q: %v; patterns are RE2's, without lookaround and backreferences", clip(text, 0), err)
	}
	return e
}

// numbers adds the leaf of a number, or an integer, that satisfies all parts.
func (c *compiler) numbers(parts []*schema, integer bool, kids []int32) ([]int32, error) {
	var b bounds
	for _, s := range parts {
		b.merge(&s.bounds)
		if s.format == "" {
			continue
		}
		if f, ok := integerFormats[s.format]; ok {
			b.merge(&f)
		} else if _, ok := formats[s.format]; !ok && !floatFormats[s.format] {
			return nil, patternError(s.pointer, "format", s.format, errFormat)
		}
	}
	if !integer && b.lo == nil && b.hi == nil && len(b.multiples) == 0 {
		return c.addLeaf(kids, freeNumber{})
	}
	l, err := c.numberLeaf(parts, &b, integer)
	if err != nil {
		return nil, err
	}
	if l == nil {
		c.drop(parts, "minimum", "no number lies within the bounds")
		return kids, nil
	}
	return c.addLeaf(kids, l)
}

func (c *compiler) numberLeaf(parts []*schema, b *bounds, integer bool) (*numberRange, error) {
	has := func(s *schema) bool {
		return s.bounds.lo != nil || s.bounds.hi != nil || s.bounds.multiples != nil
	}
	fraction, digits := 0, MaxIntegerDigits
	if !integer {
		fraction = boundedFraction
		for _, r := range []*big.Rat{b.lo, b.hi} {
			if r != nil {
				fraction = max(fraction, fractionDigits(r))
			}
		}
		if len(b.multiples) > 0 {
			fraction = 0
			for _, r := range b.multiples {
				fraction = max(fraction, fractionDigits(r))
			}
		}
	}
	lo, hi := b.lo, b.hi
	far := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(maxBoundDigits-1), nil))
	if lo != nil && lo.Cmp(new(big.Rat).Neg(far)) < 0 {
		lo = nil // below every number that is written anyway
	}
	if hi != nil && hi.Cmp(far) > 0 {
		hi = nil
	}
	for _, r := range []*big.Rat{lo, hi} {
		if r != nil {
			digits = max(digits, integerDigits(r))
		}
	}
	if fraction > maxBoundDigits || digits > maxBoundDigits {
		return nil, failAt(parts, has, "minimum", ErrUnsupported,
			"a bound with more than %d digits before or after the point", maxBoundDigits)
	}
	step, err := commonStep(parts, b.multiples, fraction, has)
	if err != nil {
		return nil, err
	}
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits+fraction)), nil)
	most.Sub(most, big.NewInt(1))
	least := new(big.Int).Neg(most)
	if lo != nil {
		n, exact := scaled(lo, fraction, true)
		if exact && b.loOpen {
			n.Add(n, big.NewInt(1))
		}
		least = n
	}
	if hi != nil {
		n, exact := scaled(hi, fraction, false)
		if exact && b.hiOpen {
			n.Sub(n, big.NewInt(1))
		}
		most = n
	}
	return newNumberRange(least, most, fraction, digits, step), nil
}

// commonStep is the least common multiple of the steps, in units of the last decimal.
func commonStep(parts []*schema, multiples []*big.Rat, fraction int, has func(*schema) bool) (uint64, error) {
	step := big.NewInt(1)
	if fraction == 0 {
		// An integer is a multiple of p/q, in lowest terms, if and only if it is one of p.
		for _, r := range multiples {
			step = leastCommon(step, r.Num())
		}
	} else {
		for i, r := range multiples {
			n, _ := scaled(r, fraction, false)
			if i == 0 {
				step = n
			} else {
				step = leastCommon(step, n)
			}
		}
	}
	if step.Cmp(big.NewInt(MaxMultiple)) >= 0 {
		return 0, failAt(parts, has, "multipleOf", ErrTooLarge,
			"%v in units of the last digit; less than %d is supported", step, int64(MaxMultiple))
	}
	return step.Uint64(), nil
}

func leastCommon(a, b *big.Int) *big.Int {
	g := new(big.Int).GCD(nil, nil, a, b)
	return new(big.Int).Mul(a, new(big.Int).Quo(b, g))
}

// contains says whether a number satisfies the bounds.
func (b *bounds) contains(r *big.Rat) bool {
	if b.lo != nil && (r.Cmp(b.lo) < 0 || b.loOpen && r.Cmp(b.lo) == 0) {
		return false
	}
	if b.hi != nil && (r.Cmp(b.hi) > 0 || b.hiOpen && r.Cmp(b.hi) == 0) {
		return false
	}
	for _, m := range b.multiples {
		if !new(big.Rat).Quo(r, m).IsInt() {
			return false
		}
	}
	return true
}

func formatNames() string { return strings.Join(sortedFormats(), ", ") }
