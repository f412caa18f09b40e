package grammar

import (
	"bytes"
	"math/big"
)

// enum adds the nodes of the listed values that all parts allow. Scalars are written as in the schema, numbers also in
// their shortest form. Objects and arrays are nodes with members, so that the usual whitespace is allowed in them.
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
	var scalars []literal
	found := false
	for i := range list {
		v := &list[i]
		ok := types&v.typeOf() != 0
		for _, s := range parts {
			if !ok {
				break
			}
			plain := *s
			plain.enum = nil // the listed values are handled above
			var err error
			if ok, err = c.logic.holdsPlain(&plain, v); err != nil {
				return nil, err
			}
		}
		if !ok {
			continue
		}
		found = true
		switch v.kind {
		case objectValue, arrayValue:
			id, err := c.constant(v)
			if err != nil {
				return nil, err
			}
			kids = append(kids, id)
		default:
			scalars = append(scalars, literal{text: v.append(nil)})
			if short := v.shortest(); short != nil && !bytes.Equal(short, scalars[len(scalars)-1].text) {
				scalars = append(scalars, literal{text: short})
			}
		}
	}
	if !found {
		c.logic.drop(parts, "enum", "no listed value satisfies the other keywords")
	}
	if len(scalars) == 0 {
		return kids, nil
	}
	return c.addLeaf(kids, newLiterals(scalars))
}

// shortest returns an integer without point and exponent; nil for other values or if it has many digits.
func (v *value) shortest() []byte {
	if v.kind != numberValue {
		return nil
	}
	r, err := parseDecimal(v.text)
	if err != nil {
		return nil
	}
	far := new(big.Int).Exp(big.NewInt(10), big.NewInt(MaxIntegerDigits), nil)
	if !r.IsInt() || r.Num().CmpAbs(far) >= 0 {
		return nil
	}
	return r.Num().Append(nil, 10)
}

// typeOf returns the smallest type that contains the value.
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

// constant returns the node of one given value.
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
		o := &properties{most: noItems}
		for i := range v.members {
			id, err := c.constant(&v.members[i].value)
			if err != nil {
				return 0, err
			}
			o.list = append(o.list, property{v.members[i].name, id})
			o.required = append(o.required, true)
		}
		o.listed = c.listedKey(o, noItems)
		return c.add(node{kind: objectNode, props: o})
	}
	texts := []literal{{text: v.append(nil)}}
	if short := v.shortest(); short != nil {
		texts = append(texts, literal{text: short})
	}
	return c.add(node{kind: leafNode, leaf: c.g.addLeaf(newLiterals(texts))})
}
