package grammar

import (
	"slices"
	"unicode/utf8"
)

// enum adds the nodes of the listed values that all parts allow. Scalars are written exactly as in the schema;
// objects and arrays member by member, so that whitespace is as free as elsewhere.
func (c *compiler) enum(parts []*schema, types typeSet, kids []int32) ([]int32, error) {
	var list []value
	first := true
	for _, s := range parts {
		switch {
		case s.enum == nil:
		case first:
			list, first = s.enum, false
		default:
			list = intersectValues(list, s.enum)
		}
	}
	if err := c.charge(parts, len(list)); err != nil {
		return nil, err
	}
	check, err := c.newScalarCheck(parts, types)
	if err != nil {
		return nil, err
	}
	var scalars []literal
	for i := range list {
		v := &list[i]
		if types&v.typeOf() == 0 {
			continue
		}
		switch v.kind {
		case objectValue, arrayValue:
			has := func(s *schema) bool {
				return v.kind == objectValue && s.hasObject || v.kind == arrayValue && s.hasList
			}
			if slices.ContainsFunc(parts, has) {
				return nil, failAt(parts, has, "enum", ErrUnsupported,
					"%v as a value beside keywords about its members; leave the keywords out", v.kind)
			}
			id, err := c.constant(v)
			if err != nil {
				return nil, err
			}
			kids = append(kids, id)
		default:
			if check.allows(v) {
				scalars = append(scalars, literal{text: v.append(nil)})
			}
		}
	}
	if len(scalars) == 0 {
		c.drop(parts, "enum", "no listed value satisfies the other keywords")
		return kids, nil
	}
	return c.addLeaf(kids, newLiterals(scalars))
}

// typeOf is the smallest type that holds the value.
func (v *value) typeOf() typeSet {
	switch v.kind {
	case nullValue:
		return typeNull
	case boolValue:
		return typeBoolean
	case stringValue:
		return typeString
	case arrayValue:
		return typeArray
	case objectValue:
		return typeObject
	}
	if r, err := parseDecimal(v.text); err == nil && !r.IsInt() {
		return typeFraction
	}
	return typeInteger
}

// constant is the node of one given value.
func (c *compiler) constant(v *value) (int32, error) {
	switch v.kind {
	case arrayValue:
		e := &elements{rest: -1, least: len(v.list), most: len(v.list)}
		for i := range v.list {
			id, err := c.constant(&v.list[i])
			if err != nil {
				return 0, err
			}
			e.prefix = append(e.prefix, id)
		}
		return c.add(node{kind: arrayNode, items: e})
	case objectValue:
		o := &properties{}
		for i := range v.members {
			id, err := c.constant(&v.members[i].value)
			if err != nil {
				return 0, err
			}
			o.list = append(o.list, property{v.members[i].name, id})
			o.required = append(o.required, true)
		}
		o.listed = c.listedKey(o)
		return c.add(node{kind: objectNode, props: o})
	}
	return c.add(node{kind: leafNode, leaf: c.g.addLeaf(newLiterals([]literal{{text: v.append(nil)}}))})
}

// scalarCheck decides about listed strings and numbers.
type scalarCheck struct {
	rule   stringRule
	bounds bounds
}

func (c *compiler) newScalarCheck(parts []*schema, types typeSet) (check scalarCheck, err error) {
	if types&typeString != 0 {
		check.rule, err = c.stringRule(parts)
	}
	for _, s := range parts {
		check.bounds.merge(&s.bounds)
		if f, ok := integerFormats[s.format]; ok {
			check.bounds.merge(&f)
		}
	}
	return check, err
}

func (k *scalarCheck) allows(v *value) bool {
	switch v.kind {
	case stringValue:
		n := uint64(utf8.RuneCountInString(v.text))
		return !k.rule.never && n >= k.rule.least && n <= k.rule.most &&
			(k.rule.dfa == nil || k.rule.dfa.matches(v.text))
	case numberValue:
		r, err := parseDecimal(v.text)
		return err == nil && k.bounds.contains(r)
	}
	return true
}
