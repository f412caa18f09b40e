package grammar

import (
	"fmt"
	"slices"
)

// A goal is a list of schemas that one value must satisfy. It is converted to alternatives: lists of schemas in which
// references, allOf, anyOf and oneOf are resolved, so that only their other keywords are used.

// alternatives resolves $ref, allOf, anyOf and oneOf of a goal. It omits alternatives that contain the schema false.
func (l *logic) alternatives(goal []*schema) ([][]*schema, error) {
	for _, s := range goal {
		if err := l.checkLoop(s); err != nil {
			return nil, err
		}
	}
	pending := make([]choice, len(goal))
	for i, s := range goal {
		pending[i] = choice{s}
	}
	x := &spreading{l: l}
	if err := x.spread(pending, nil); err != nil {
		return nil, err
	}
	return x.out, nil
}

// choice is a list of schemas of which at least one must hold.
type choice []*schema

type spreading struct {
	l    *logic
	out  [][]*schema
	work int
}

// maxSpreading is the maximum number of combinations that are examined, including impossible ones.
const maxSpreading = 100 * MaxAlternatives

// spread adds to out every combination of one schema from each pending choice with the settled schemas.
func (x *spreading) spread(pending []choice, settled []*schema) error {
	x.work++
	x.l.combinations++
	if len(x.out) > MaxAlternatives || x.work > maxSpreading || x.l.combinations > 4*maxSpreading {
		at := settled[0] // choices begin after at least one schema was settled
		return &SchemaError{at.pointer, "anyOf",
			fmt.Sprintf("more than %d combinations of alternatives", MaxAlternatives), ErrTooLarge}
	}
	if len(pending) == 0 {
		x.out = append(x.out, slices.Clone(settled))
		return nil
	}
	if !possible(pending, settled) {
		x.l.drop(settled, "type", "no type is allowed by all parts")
		return nil
	}
	rest := pending[1:]
	for _, s := range pending[0] {
		if s.truth != nil && !*s.truth {
			continue
		}
		if s.truth != nil || slices.ContainsFunc(settled, func(o *schema) bool { return o.id == s.id }) {
			if err := x.spread(rest, settled); err != nil {
				return err
			}
			continue
		}
		more, err := x.l.inner(s)
		if err != nil {
			return err
		}
		next := append(more, rest...)
		if err := x.spread(next, append(settled[:len(settled):len(settled)], s)); err != nil {
			return err
		}
	}
	return nil
}

// possible reports whether a type remains that all schemas allow, and no required property is forbidden. It checks only
// what is certain, to discard most combinations with a negation early.
func possible(pending []choice, settled []*schema) bool {
	types := typeSet(allTypes)
	for _, s := range settled {
		types &= s.types
	}
	for _, group := range pending {
		if len(group) == 1 {
			types &= group[0].types
		}
	}
	if types != typeObject {
		return types != 0
	}
	for _, s := range settled {
		for _, name := range s.required {
			forbids := func(o *schema) bool {
				i, ok := o.propAt[name]
				return ok && o.props[i].schema.truth != nil && !*o.props[i].schema.truth
			}
			if slices.ContainsFunc(settled, forbids) {
				return false
			}
		}
	}
	return true
}

// inner returns the schemas that a schema applies to the same value, through $ref, allOf, anyOf, oneOf, if and
// negation.
func (l *logic) inner(s *schema) ([]choice, error) {
	if s.negated != nil {
		list, err := l.negation(s)
		return []choice{list}, err
	}
	var list []choice
	if s.ref != "" {
		t, err := l.parser.resolve(s)
		if err != nil {
			return nil, err
		}
		list = append(list, choice{t})
	}
	for _, t := range s.allOf {
		list = append(list, choice{t})
	}
	for _, group := range s.anyOf {
		list = append(list, group)
	}
	if s.not != nil {
		list = append(list, choice{l.negate(s.not, s.from("not"))})
	}
	for _, group := range s.oneOf {
		one, err := l.exactlyOne(s, group)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	if s.condition != nil {
		list = append(list, l.conditional(s))
	}
	for _, d := range s.dependents {
		list = append(list, l.dependency(s, d))
	}
	return list, nil
}

// checkLoop rejects schemas that refer to themselves without an object or array in between. Resolving such a schema
// would not end.
func (l *logic) checkLoop(s *schema) error {
	const open, closed = 1, 2
	switch l.visited[s.id] {
	case closed:
		return nil
	case open:
		return &SchemaError{s.pointer, "$ref", "the reference refers to itself, with no object or array " +
			"between", ErrSchema}
	}
	l.visited[s.id] = open
	list, err := l.inner(s)
	if err != nil {
		return err
	}
	for _, group := range list {
		for _, t := range group {
			if err := l.checkLoop(t); err != nil {
				return err
			}
		}
	}
	l.visited[s.id] = closed
	return nil
}
