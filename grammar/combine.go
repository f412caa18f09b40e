package grammar

import (
	"fmt"
	"slices"
)

// A goal is a list of schemas that must all hold for one value. Combining turns it into alternatives: lists of
// schemas without references and choices left to follow, of which only the plain keywords still count.

// alternatives resolves $ref, allOf, anyOf and oneOf of a goal. Alternatives that contain the schema false are left
// out.
func (c *compiler) alternatives(goal []*schema) ([][]*schema, error) {
	for _, s := range goal {
		if err := c.checkLoop(s); err != nil {
			return nil, err
		}
	}
	pending := make([]choice, len(goal))
	for i, s := range goal {
		pending[i] = choice{s}
	}
	x := &spreading{c: c}
	if err := x.spread(pending, nil); err != nil {
		return nil, err
	}
	return x.out, nil
}

// choice is a list of schemas of which one must hold.
type choice []*schema

type spreading struct {
	c    *compiler
	out  [][]*schema
	work int
}

// maxSpreading bounds the combinations looked at, dead ends included.
const maxSpreading = 100 * MaxAlternatives

// spread adds to out every way to satisfy what is pending, together with what is settled.
func (x *spreading) spread(pending []choice, settled []*schema) error {
	x.work++
	if len(x.out) > MaxAlternatives || x.work > maxSpreading {
		at := settled[0] // something was settled before a choice could multiply
		return &SchemaError{at.pointer, "anyOf",
			fmt.Sprintf("more than %d combinations of alternatives", MaxAlternatives), ErrTooLarge}
	}
	if len(pending) == 0 {
		x.out = append(x.out, slices.Clone(settled))
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
		more, err := x.c.inner(s)
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

// inner is what a schema says about the same value by way of other schemas.
func (c *compiler) inner(s *schema) ([]choice, error) {
	var list []choice
	if s.ref != "" {
		t, err := c.parser.resolve(s)
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
	return list, nil
}

// checkLoop rejects schemas that refer to themselves without an object or array between: they say nothing and would
// never end.
func (c *compiler) checkLoop(s *schema) error {
	const open, closed = 1, 2
	switch c.visited[s.id] {
	case closed:
		return nil
	case open:
		return &SchemaError{s.pointer, "$ref", "the reference leads back to itself without an object or array between",
			ErrSchema}
	}
	c.visited[s.id] = open
	list, err := c.inner(s)
	if err != nil {
		return err
	}
	for _, group := range list {
		for _, t := range group {
			if err := c.checkLoop(t); err != nil {
				return err
			}
		}
	}
	c.visited[s.id] = closed
	return nil
}
