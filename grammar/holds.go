package grammar

import (
	"errors"
	"slices"
	"unicode/utf8"
)

// maxHolds is the maximum number of nested references for the same value that holds follows.
const maxHolds = 64

var errLoop = errors.New("the schema's references form a cycle")

// holds reports whether a given value satisfies a schema; it filters the values of enum and const.
func (l *logic) holds(s *schema, v *value, left int) (bool, error) {
	if s.truth != nil {
		return *s.truth, nil
	}
	if left == 0 {
		return false, errLoop
	}
	left--
	if s.negated != nil {
		ok, err := l.holds(s.negated, v, left)
		return !ok, err
	}
	if ok, err := l.holdsPlain(s, v); !ok || err != nil {
		return false, err
	}
	all := slices.Clone(s.allOf)
	if s.ref != "" {
		t, err := l.parser.resolve(s)
		if err != nil {
			return false, err
		}
		all = append(all, t)
	}
	if x := s.condition; x != nil {
		ok, err := l.holds(x.test, v, left)
		switch {
		case err != nil:
			return false, err
		case ok && x.then != nil:
			all = append(all, x.then)
		case !ok && x.otherwise != nil:
			all = append(all, x.otherwise)
		}
	}
	for _, d := range s.dependents {
		if _, ok := v.get(d.name); !ok {
			continue
		}
		for _, name := range d.required {
			if _, ok := v.get(name); !ok {
				return false, nil
			}
		}
		if d.schema != nil {
			all = append(all, d.schema)
		}
	}
	if n, err := l.holding(all, v, left); n < len(all) || err != nil {
		return false, err
	}
	for _, group := range s.anyOf {
		if n, err := l.holding(group, v, left); n == 0 || err != nil {
			return false, err
		}
	}
	for _, group := range s.oneOf {
		if n, err := l.holding(group, v, left); n != 1 || err != nil {
			return false, err
		}
	}
	if s.not != nil {
		ok, err := l.holds(s.not, v, left)
		return !ok, err
	}
	return true, nil
}

// holding returns how many schemas of a list a value satisfies.
func (l *logic) holding(list []*schema, v *value, left int) (n int, err error) {
	for _, s := range list {
		ok, err := l.holds(s, v, left)
		if err != nil {
			return 0, err
		}
		if ok {
			n++
		}
	}
	return n, nil
}

// holdsPlain checks the keywords of a schema except $ref, allOf, anyOf, oneOf and others that apply schemas to the same
// value.
func (l *logic) holdsPlain(s *schema, v *value) (bool, error) {
	same := func(o value) bool { return string(o.identity(nil)) == string(v.identity(nil)) }
	if s.types&v.typeOf() == 0 || s.enum != nil && !slices.ContainsFunc(s.enum, same) ||
		slices.ContainsFunc(s.excluded, same) {
		return false, nil
	}
	switch v.kind {
	case stringValue:
		return l.holdsText(s, v.text)
	case numberValue:
		r, err := parseDecimal(v.text)
		if err != nil {
			return false, err
		}
		f, ok := integerFormats[s.format]
		return s.bounds.contains(r) && (!ok || f.contains(r)), nil
	case arrayValue:
		return l.holdsList(s, v.list)
	case objectValue:
		return l.holdsMembers(s, v.members)
	}
	return true, nil
}

func (l *logic) holdsText(s *schema, text string) (bool, error) {
	if n := uint64(utf8.RuneCountInString(text)); n < s.minLength || n > min(s.maxLength, formatLength(s.format)) {
		return false, nil
	}
	for _, p := range []struct {
		keyword, text string
		want          bool
	}{{"pattern", s.pattern, true}, {"format", s.format, true}} {
		if p.text == "" || numericFormat(p.keyword, p.text) {
			continue
		}
		d, err := l.automaton(p.keyword, p.text)
		if err != nil {
			return false, patternError(s.pointer, p.keyword, p.text, err)
		}
		if d == nil || !d.matches(text) {
			return false, nil
		}
	}
	for _, p := range s.mismatch {
		d, err := l.automaton("pattern", p)
		if err != nil {
			return false, patternError(s.pointer, "pattern", p, err)
		}
		if d != nil && d.matches(text) {
			return false, nil
		}
	}
	return true, nil
}

func (l *logic) holdsList(s *schema, list []value) (bool, error) {
	if len(list) < s.minItems || len(list) > s.maxItems {
		return false, nil
	}
	seen := map[string]bool{}
	for i := range list {
		seen[string(list[i].identity(nil))] = true
		sub := s.items
		if i < len(s.prefix) {
			sub = s.prefix[i]
		}
		if sub == nil {
			continue
		}
		if ok, err := l.holds(sub, &list[i], maxHolds); !ok || err != nil {
			return false, err
		}
	}
	for _, x := range s.contains {
		n := 0
		for i := range list {
			ok, err := l.holds(x.schema, &list[i], maxHolds)
			if err != nil {
				return false, err
			}
			if ok {
				n++
			}
		}
		if n < x.least || n > x.most {
			return false, nil
		}
	}
	return !s.unique || len(seen) == len(list), nil
}

func (l *logic) holdsMembers(s *schema, members []member) (bool, error) {
	if len(members) < s.minProps || len(members) > s.maxProps {
		return false, nil
	}
	for _, name := range s.required {
		if !slices.ContainsFunc(members, func(m member) bool { return m.name == name }) {
			return false, nil
		}
	}
	for i := range members {
		m := &members[i]
		goal, err := l.goalOf([]*schema{s}, m.name)
		if err != nil {
			return false, err
		}
		if n, err := l.holding(goal, &m.value, maxHolds); n < len(goal) || err != nil {
			return false, err
		}
		if s.names != nil {
			if ok, err := l.holds(s.names, &value{kind: stringValue, text: m.name}, maxHolds); !ok || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}
