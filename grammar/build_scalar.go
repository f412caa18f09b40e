package grammar

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// numberKind selects the numbers that a leaf accepts.
type numberKind uint8

const (
	anyNumber numberKind = iota
	integers
	fractions // numbers that are not integers
)

// strings adds the leaf of a string that satisfies all schemas in parts.
func (c *compiler) strings(parts []*schema, kids []int32) ([]int32, error) {
	r, err := c.stringRule(parts)
	if err != nil {
		return nil, err
	}
	switch {
	case r.least > r.most:
		c.logic.drop(parts, "minLength", fmt.Sprintf("%d is above maxLength %d", r.least, r.most))
		return kids, nil
	case r.never:
		c.logic.drop(parts, "pattern", "no string of the allowed length matches")
		return kids, nil
	case r.dfa != nil:
		l := &patternLeaf{dfa: r.dfa, family: c.g.tokens.family(patternKeyOf(parts))}
		if r.most != noLimit && !l.atMost(r.most) {
			c.logic.drop(parts, "maxLength", "every matching string is longer")
			return kids, nil
		}
		return c.addLeaf(kids, l)
	}
	return c.addLeaf(kids, &stringLeaf{r.least, r.most})
}

// patternKeyOf returns a key that identifies the automaton of a string. Compilation is deterministic: equal keys give
// equal automata, with equal state numbers and masks.
func patternKeyOf(parts []*schema) string {
	var key []byte
	for _, s := range parts {
		key = fmt.Appendf(key, "%q %q %q %d %d", s.pattern, s.format, s.mismatch, s.minLength, s.maxLength)
		for i := range s.excluded {
			key = s.excluded[i].append(append(key, ' '))
		}
		key = append(key, '\n')
	}
	return string(key)
}

// source is a pattern or a format of a schema.
type source struct{ keyword, text string }

// stringRule is the constraint that all schemas of a list together put on strings.
type stringRule struct {
	least, most uint64
	dfa         *runeDFA // nil if there is neither pattern nor format; it enforces least, but not most
	never       bool     // whether no string matches
}

func (c *compiler) stringRule(parts []*schema) (stringRule, error) {
	r := stringRule{most: noLimit}
	for _, s := range parts {
		r.least = max(r.least, s.minLength)
		r.most = min(r.most, s.maxLength, formatLength(s.format))
		for _, from := range []source{{"pattern", s.pattern}, {"format", s.format}} {
			if from.text == "" {
				continue
			}
			d, err := c.logic.automaton(from.keyword, from.text)
			if err == nil && d != nil && r.dfa != nil {
				d, err = r.dfa.intersect(d, &c.logic.effort)
			}
			if err != nil {
				return r, s.blame(patternError(s.pointer, from.keyword, from.text, err))
			}
			if d == nil && !numericFormat(from.keyword, from.text) {
				r.never = true
				return r, nil
			}
			if d != nil {
				r.dfa = d
			}
		}
	}
	if err := c.excludeStrings(&r, parts); err != nil || r.never {
		return r, err
	}
	if r.dfa == nil || r.least > r.most {
		return r, nil
	}
	if r.dfa.longest() <= r.most {
		r.most = noLimit
	}
	if r.most != noLimit && r.most > maxCounted {
		return r, failAt(parts, func(s *schema) bool { return s.maxLength == r.most }, "maxLength", ErrUnsupported,
			"with a pattern, lengths are enforced only up to %d characters", maxCounted)
	}
	if r.least == 0 {
		return r, nil
	}
	d, err := r.dfa.limit(r.least, noLimit, &c.logic.effort)
	if err != nil {
		return r, failAt(parts, func(s *schema) bool { return s.minLength == r.least }, "minLength", ErrUnsupported,
			"together with the pattern it needs more than %d states; reduce it or anchor the pattern", MaxPatternStates)
	}
	r.dfa, r.never = d, d == nil
	return r, nil
}

// excludeStrings removes from the rule the strings that negated schemas exclude.
func (c *compiler) excludeStrings(r *stringRule, parts []*schema) error {
	for _, s := range parts {
		var texts []string
		for i := range s.excluded {
			if s.excluded[i].kind == stringValue {
				texts = append(texts, s.excluded[i].text)
			}
		}
		var list []*runeDFA
		if texts != nil {
			list = append(list, listedStrings(texts))
		}
		for _, p := range s.mismatch {
			d, err := c.logic.automaton("pattern", p)
			if err != nil {
				return s.blame(patternError(s.pointer, "pattern", p, err))
			}
			if d != nil {
				list = append(list, d)
			}
		}
		for _, d := range list {
			if r.dfa == nil {
				r.dfa = everyString()
			}
			var err error
			if r.dfa, err = r.dfa.except(d, &c.logic.effort); err != nil {
				return s.blame(patternError(s.pointer, "not", "", err))
			}
			if r.dfa == nil {
				r.never = true
				return nil
			}
		}
	}
	return nil
}

// blame sets the location of an error to the keyword from which the schema was derived. The compiler then ignores this
// keyword in its next attempt.
func (s *schema) blame(e *SchemaError) error {
	if s.origin != nil {
		e.Pointer, e.Keyword, e.Kind = s.origin.pointer, s.origin.keyword, ErrUnsupported
	}
	return e
}

// has reports whether a string satisfies the rule.
func (r *stringRule) has(text string) bool {
	n := uint64(utf8.RuneCountInString(text))
	return !r.never && n >= r.least && n <= r.most && (r.dfa == nil || r.dfa.matches(text))
}

// automaton compiles a pattern or a format. It returns nil if no string matches, and for formats of numbers.
func (l *logic) automaton(keyword, text string) (*runeDFA, error) {
	if numericFormat(keyword, text) {
		return nil, nil
	}
	key := source{keyword, text}
	if d, ok := l.patterns[key]; ok {
		return d, nil
	}
	var d *runeDFA
	var err error
	if keyword != "format" {
		d, err = compilePattern(text, &l.effort)
	} else if f, ok := formats[text]; ok {
		d, err = f.automaton()
	} else {
		err = errFormat
	}
	if err == nil {
		l.patterns[key] = d
	}
	return d, err
}

func patternError(pointer, keyword, text string, err error) *SchemaError {
	e := &SchemaError{Pointer: pointer, Keyword: keyword, Kind: ErrUnsupported}
	switch {
	case errors.Is(err, errFormat):
		e.Problem = fmt.Sprintf("%q is not supported; want one of %s", clip(text, 0), formatNames())
	case errors.Is(err, errPatternStates):
		e.Problem = fmt.Sprintf(
			"%q: %v; automata have at most %d states, and the work for all patterns of a schema is limited",
			clip(text, 0), err, MaxPatternStates)
		e.Kind = ErrTooLarge
	default:
		e.Problem = fmt.Sprintf("%q: %v; patterns use RE2's syntax, without lookaround and backreferences", clip(text,
			0), err)
	}
	return e
}

// numbers adds the leaves of the numbers that satisfy all schemas in parts: one leaf for each interval between excluded
// numbers.
func (c *compiler) numbers(parts []*schema, types typeSet, kids []int32) ([]int32, error) {
	var b bounds
	var holes []*big.Rat
	for _, s := range parts {
		b.merge(&s.bounds)
		if f, ok := integerFormats[s.format]; ok {
			b.merge(&f)
		}
		for i := range s.excluded {
			if v := &s.excluded[i]; v.kind == numberValue {
				r, err := parseDecimal(v.text)
				if err != nil {
					return nil, s.blame(&SchemaError{s.pointer, "enum", err.Error(), ErrUnsupported})
				}
				holes = append(holes, r)
			}
		}
	}
	kind := anyNumber
	switch types & (typeInteger | typeFraction) {
	case typeInteger:
		kind = integers
	case typeFraction:
		kind = fractions
	}
	if kind == anyNumber && b.lo == nil && b.hi == nil && len(b.multiples) == 0 && len(holes) == 0 {
		return c.addLeaf(kids, freeNumber{})
	}
	slices.SortFunc(holes, func(a, b *big.Rat) int { return a.Cmp(b) })
	holes = append(holes, nil)
	any := false
	for i, hi := range holes {
		part := bounds{multiples: b.multiples}
		part.merge(&bounds{lo: b.lo, loOpen: b.loOpen, hi: b.hi, hiOpen: b.hiOpen})
		part.multiples = b.multiples
		if i > 0 {
			part.raise(holes[i-1], true)
		}
		if hi != nil {
			part.lower(hi, true)
		}
		l, err := numberLeaf(parts, &part, kind)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		any = true
		if kids, err = c.addLeaf(kids, l); err != nil {
			return nil, err
		}
	}
	if !any {
		c.logic.drop(parts, "minimum", "no number lies within the bounds")
	}
	return kids, nil
}

func numberLeaf(parts []*schema, b *bounds, kind numberKind) (*numberRange, error) {
	has := func(s *schema) bool {
		return s.bounds.lo != nil || s.bounds.hi != nil || s.bounds.multiples != nil
	}
	fraction, digits := 0, MaxIntegerDigits
	if kind != integers {
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
	if kind == fractions {
		digits = max(1, 15-fraction) // a float64 keeps 15 digits; more could be rounded to an integer
	}
	lo, hi := b.lo, b.hi
	far := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(maxBoundDigits-1), nil))
	if lo != nil && lo.Cmp(new(big.Rat).Neg(far)) < 0 {
		lo = nil // all numbers that can be written are above the bound
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
	if kind == fractions {
		if step != 1 {
			return nil, failAt(parts, has, "multipleOf", ErrUnsupported, "it cannot be combined with the negation of "+
				"integer")
		}
		return newFractions(least, most, fraction, digits), nil
	}
	return newNumberRange(least, most, fraction, digits, step), nil
}

// commonStep returns the least common multiple of the steps, in units of the last digit after the point.
func commonStep(parts []*schema, multiples []*big.Rat, fraction int, has func(*schema) bool) (uint64, error) {
	step := big.NewInt(1)
	if fraction == 0 {
		// An integer is a multiple of p/q, in lowest terms, if and only if it is a multiple of p.
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

// contains reports whether a number satisfies the bounds.
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
