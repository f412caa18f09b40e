package grammar

import (
	"fmt"
	"math"
	"slices"
)

// array adds the node of an array that satisfies all schemas in parts.
func (c *compiler) array(parts []*schema, kids []int32) ([]int32, error) {
	e := &elements{rest: -1, most: noItems}
	length := 0
	for _, s := range parts {
		length = max(length, len(s.prefix))
		e.least = max(e.least, s.minItems)
		e.most = min(e.most, s.maxItems)
	}
	if e.least > e.most {
		c.logic.drop(parts, "minItems", fmt.Sprintf("%d is above maxItems %d", e.least, e.most))
		return kids, nil
	}
	if err := c.charge(parts, length); err != nil {
		return nil, err
	}
	if err := e.countContains(parts); err != nil {
		return nil, err
	}
	unique := func(s *schema) bool { return s.unique }
	if e.most > 1 && slices.ContainsFunc(parts, unique) {
		return c.uniqueArray(e, parts, kids)
	}
	id, err := c.add(node{kind: arrayNode, items: e})
	if err != nil {
		return nil, err
	}
	if e.contains != nil {
		return append(kids, id), c.kinds(e, parts, length)
	}
	for i := range length {
		element, err := c.node(elementGoal(parts, i))
		if err != nil {
			return nil, err
		}
		e.prefix = append(e.prefix, element)
	}
	if e.most > length {
		if e.rest, err = c.node(elementGoal(parts, length)); err != nil {
			return nil, err
		}
	}
	return append(kids, id), nil
}

// uniqueArray adds the node of an array whose elements differ. This is enforced only if the elements are limited to a
// list of values.
func (c *compiler) uniqueArray(e *elements, parts []*schema, kids []int32) ([]int32, error) {
	values, ok, err := c.finite(elementGoal(parts, 0))
	if err != nil {
		return nil, err
	}
	tuple := slices.ContainsFunc(parts, func(s *schema) bool { return len(s.prefix) > 0 })
	if !ok || tuple || e.contains != nil || len(values) > maxUnique {
		return nil, failAt(parts, func(s *schema) bool { return s.unique }, "uniqueItems", ErrUnsupported,
			"enforced only for elements from a list of up to %d values, without prefixItems and contains; "+
				"others cannot be compared while generating", maxUnique)
	}
	e.most = min(e.most, len(values))
	if e.least > e.most {
		c.logic.drop(parts, "uniqueItems", fmt.Sprintf("%d different elements are required, but the schema allows "+
			"only %d", e.least, e.most))
		return kids, nil
	}
	e.values = []int32{}
	for i := range values {
		n, err := c.constant(&values[i])
		if err != nil {
			return nil, err
		}
		e.values = append(e.values, n)
	}
	id, err := c.add(node{kind: arrayNode, items: e})
	return append(kids, id), err
}

// finite returns the values that satisfy a goal, a list of schemas; ok is false if enum, const or type do not list
// them.
func (c *compiler) finite(goal []*schema) (list []value, ok bool, err error) {
	ways, err := c.logic.alternatives(goal)
	if err != nil {
		return nil, false, err
	}
	seen := map[string]bool{}
	for _, parts := range ways {
		types := typeSet(allTypes)
		from := []value{{kind: nullValue}, {kind: boolValue, truth: true}, {kind: boolValue}}
		limited := false
		for _, s := range parts {
			types &= s.types
			if s.enum != nil {
				from, limited = s.enum, true
			}
		}
		if !limited && types&^(typeNull|typeBoolean) != 0 {
			return nil, false, nil
		}
		for i := range from {
			v := &from[i]
			key := string(v.identity(nil))
			ok := types&v.typeOf() != 0 && !seen[key]
			for _, s := range parts {
				if !ok {
					break
				}
				if ok, err = c.logic.holdsPlain(s, v); err != nil {
					return nil, false, err
				}
			}
			if ok {
				seen[key] = true
				list = append(list, *v)
			}
		}
	}
	return list, true, nil
}

// countContains collects the contains keywords of all parts.
func (e *elements) countContains(parts []*schema) error {
	const longest = math.MaxUint8 - 1
	steps := e.least + 1 // number of different counter values
	for _, s := range parts {
		keyword := "contains"
		at := s.pointer
		if s.origin != nil {
			at, keyword = s.origin.pointer, s.origin.keyword
		}
		for _, x := range s.contains {
			bound := x.least
			if x.most != noItems {
				bound = x.most
			}
			steps *= min(bound, longest) + 1
			if len(e.contains) == maxContains || bound > longest || steps > maxContained {
				return &SchemaError{at, keyword, fmt.Sprintf("at most %d of them per array are enforced, each up to "+
					"%d elements, with products of their bounds up to %d", maxContains, longest, maxContained),
					ErrUnsupported}
			}
			e.contains = append(e.contains, x)
		}
	}
	return nil
}

// kinds fills the kinds of elements of an array with contains. An element that counts for contains must satisfy its
// schema. Another element must violate it only if there is a maximum.
func (c *compiler) kinds(e *elements, parts []*schema, length int) error {
	for i := range length + 1 {
		var kinds []int32
		for kind := range 1 << len(e.contains) {
			goal := elementGoal(parts, i)
			for j, x := range e.contains {
				switch {
				case kind>>j&1 == 1:
					goal = append(goal, x.schema)
				case x.most != noItems:
					goal = append(goal, c.logic.negate(x.schema, &origin{parts[0].pointer, "contains"}))
				}
			}
			id, err := c.node(goal)
			if err != nil {
				return err
			}
			kinds = append(kinds, id)
		}
		e.kinds = append(e.kinds, kinds)
		if i < length {
			e.prefix = append(e.prefix, kinds[0])
		}
	}
	return nil
}

func elementGoal(parts []*schema, i int) []*schema {
	var goal []*schema
	for _, s := range parts {
		switch {
		case i < len(s.prefix):
			goal = append(goal, s.prefix[i])
		case s.items != nil:
			goal = append(goal, s.items)
		}
	}
	return goal
}
