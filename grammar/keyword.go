package grammar

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// keyword is one member of a schema object being read.
type keyword struct {
	p    *parser
	s    *schema
	name string
	v    *value
}

func (k *keyword) fail(kind error, format string, args ...any) error {
	return &SchemaError{k.s.pointer, k.name, fmt.Sprintf(format, args...), kind}
}

func (k *keyword) read() (err error) {
	s := k.s
	switch k.name {
	case "type":
		return k.types()
	case "enum", "const":
		return k.values()
	case "properties":
		s.hasObject = true
		return k.properties()
	case "required":
		s.hasObject = true
		s.required, err = k.names()
	case "additionalProperties":
		s.hasObject = true
		s.additional, err = k.schema(k.v, "")
	case "items":
		s.hasList = true
		if k.v.kind == arrayValue {
			return k.fail(ErrUnsupported, "an array; write prefixItems for a tuple")
		}
		s.items, err = k.schema(k.v, "")
	case "prefixItems":
		s.hasList = true
		s.prefix, err = k.schemas()
	case "minItems":
		s.hasList = true
		s.minItems, err = k.count(noItems)
	case "maxItems":
		s.hasList = true
		s.maxItems, err = k.count(noItems)
	case "minLength", "maxLength":
		var n int
		n, err = k.count(1 << 30)
		if k.name == "minLength" {
			s.minLength = uint64(n)
		} else {
			s.maxLength = uint64(n)
		}
	case "pattern":
		s.pattern, err = k.text()
	case "format":
		s.format, err = k.text()
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return k.bound()
	case "anyOf", "oneOf":
		var list []*schema
		list, err = k.schemas()
		s.anyOf = append(s.anyOf, list)
	case "allOf":
		s.allOf, err = k.schemas()
	case "$ref":
		s.ref, err = k.text()
	case "uniqueItems":
		if k.v.kind != boolValue || k.v.truth {
			return k.fail(ErrUnsupported, "cannot be enforced while generating; only false is supported")
		}
	default:
		if !annotations[k.name] {
			return k.fail(ErrUnsupported, "this keyword cannot be enforced; %s supported", supportedKeywords)
		}
	}
	return err
}

func (k *keyword) types() error {
	list := []value{*k.v}
	if k.v.kind == arrayValue {
		list = k.v.list
	}
	k.s.types = 0
	for i := range list {
		t, ok := typeNames[list[i].text]
		if list[i].kind != stringValue || !ok {
			return k.fail(ErrSchema, "%s is not a type; null, boolean, integer, number, string, array and object are",
				list[i].append(nil))
		}
		k.s.types |= t
	}
	if len(list) == 0 {
		return k.fail(ErrSchema, "an empty list of types")
	}
	return nil
}

func (k *keyword) values() error {
	list := []value{*k.v}
	if k.name == "enum" {
		if k.v.kind != arrayValue || len(k.v.list) == 0 {
			return k.fail(ErrSchema, "must be an array with at least one value")
		}
		list = k.v.list
	}
	if len(list) > MaxEnumValues {
		return k.fail(ErrTooLarge, "%d values; at most %d are supported", len(list), MaxEnumValues)
	}
	for i := range list {
		if err := k.checkNumbers(&list[i]); err != nil {
			return err
		}
	}
	if k.s.enum != nil { // both enum and const
		list = intersectValues(k.s.enum, list)
	}
	k.s.enum = list
	return nil
}

// checkNumbers makes sure that a literal can be read back: documents must parse.
func (k *keyword) checkNumbers(v *value) error {
	switch v.kind {
	case numberValue:
		if _, err := strconv.ParseFloat(v.text, 64); err != nil {
			return k.fail(ErrUnsupported, "the number %s is beyond a float64", clip(v.text, 0))
		}
		if _, err := parseDecimal(v.text); err != nil {
			return k.fail(ErrUnsupported, "%v", err)
		}
	case arrayValue:
		for i := range v.list {
			if err := k.checkNumbers(&v.list[i]); err != nil {
				return err
			}
		}
	case objectValue:
		for i := range v.members {
			if err := k.checkNumbers(&v.members[i].value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *keyword) properties() error {
	if k.v.kind != objectValue {
		return k.fail(ErrSchema, "must be an object, not %v", k.v.kind)
	}
	if len(k.v.members) > MaxProperties {
		return k.fail(ErrTooLarge, "%d properties; at most %d are supported", len(k.v.members), MaxProperties)
	}
	for i := range k.v.members {
		m := &k.v.members[i]
		sub, err := k.schema(&m.value, "/"+escapePointer(m.name))
		if err != nil {
			return err
		}
		k.s.propAt[m.name] = len(k.s.props)
		k.s.props = append(k.s.props, namedSchema{m.name, sub})
	}
	return nil
}

func escapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

func (k *keyword) schema(v *value, below string) (*schema, error) {
	return k.p.parse(v, k.s.pointer+"/"+escapePointer(k.name)+below)
}

func (k *keyword) schemas() ([]*schema, error) {
	if k.v.kind != arrayValue || len(k.v.list) == 0 {
		return nil, k.fail(ErrSchema, "must be an array with at least one schema")
	}
	if len(k.v.list) > MaxProperties {
		return nil, k.fail(ErrTooLarge, "%d schemas; at most %d are supported", len(k.v.list), MaxProperties)
	}
	var list []*schema
	for i := range k.v.list {
		sub, err := k.schema(&k.v.list[i], "/"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		list = append(list, sub)
	}
	return list, nil
}

func (k *keyword) names() ([]string, error) {
	if k.v.kind != arrayValue {
		return nil, k.fail(ErrSchema, "must be an array of strings, not %v", k.v.kind)
	}
	if len(k.v.list) > MaxProperties {
		return nil, k.fail(ErrTooLarge, "%d names; at most %d are supported", len(k.v.list), MaxProperties)
	}
	var list []string
	for i := range k.v.list {
		if k.v.list[i].kind != stringValue {
			return nil, k.fail(ErrSchema, "must be an array of strings; entry %d is %v", i, k.v.list[i].kind)
		}
		list = append(list, k.v.list[i].text)
	}
	return list, nil
}

func (k *keyword) text() (string, error) {
	if k.v.kind != stringValue {
		return "", k.fail(ErrSchema, "must be a string, not %v", k.v.kind)
	}
	return k.v.text, nil
}

// count reads a number of things. Above the limit, which no document reaches, a maximum means nothing and a minimum
// cannot be met: both are reported rather than guessed at.
func (k *keyword) count(limit int) (int, error) {
	r, err := k.number()
	if err != nil {
		return 0, err
	}
	if !r.IsInt() || r.Sign() < 0 {
		return 0, k.fail(ErrSchema, "%s is not a non-negative integer", k.v.text)
	}
	if r.Cmp(big.NewRat(int64(limit), 1)) >= 0 {
		return 0, k.fail(ErrTooLarge, "%s; numbers below %d are supported", clip(k.v.text, 0), limit)
	}
	return int(r.Num().Int64()), nil
}

func (k *keyword) number() (*big.Rat, error) {
	if k.v.kind != numberValue {
		return nil, k.fail(ErrSchema, "must be a number, not %v", k.v.kind)
	}
	r, err := parseDecimal(k.v.text)
	if err != nil {
		return nil, k.fail(ErrUnsupported, "%v", err)
	}
	return r, nil
}

func (k *keyword) bound() error {
	if k.v.kind == boolValue {
		return k.fail(ErrUnsupported, "a boolean, as in draft 4; since draft 6 it is the bound itself")
	}
	r, err := k.number()
	if err != nil {
		return err
	}
	b := &k.s.bounds
	switch k.name {
	case "minimum", "exclusiveMinimum":
		b.raise(r, k.name == "exclusiveMinimum")
	case "maximum", "exclusiveMaximum":
		b.lower(r, k.name == "exclusiveMaximum")
	default:
		if r.Sign() <= 0 {
			return k.fail(ErrSchema, "%s is not greater than zero", k.v.text)
		}
		b.multiples = append(b.multiples, r)
	}
	return nil
}

// raise keeps the tighter of two lower bounds.
func (b *bounds) raise(r *big.Rat, open bool) {
	if b.lo == nil || r.Cmp(b.lo) > 0 {
		b.lo, b.loOpen = r, open
	} else if r.Cmp(b.lo) == 0 {
		b.loOpen = b.loOpen || open
	}
}

// lower keeps the tighter of two upper bounds.
func (b *bounds) lower(r *big.Rat, open bool) {
	if b.hi == nil || r.Cmp(b.hi) < 0 {
		b.hi, b.hiOpen = r, open
	} else if r.Cmp(b.hi) == 0 {
		b.hiOpen = b.hiOpen || open
	}
}

// merge adds another schema's bounds.
func (b *bounds) merge(o *bounds) {
	if o.lo != nil {
		b.raise(o.lo, o.loOpen)
	}
	if o.hi != nil {
		b.lower(o.hi, o.hiOpen)
	}
	b.multiples = append(b.multiples, o.multiples...)
}
