package grammar

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// keyword is one member of the schema object that is being parsed.
type keyword struct {
	p      *parser
	s      *schema
	name   string
	v      *value
	object *value // schema that contains the keyword
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
		return k.properties()
	case "patternProperties":
		s.patterns, err = k.named()
	case "required":
		if k.v.kind == boolValue {
			return k.ignore("is a boolean, as in draft 3; since draft 4 it must be a list of names")
		}
		s.required, err = k.names()
	case "additionalProperties":
		s.additional, err = k.schema(k.v, "")
	case "propertyNames":
		s.names, err = k.schema(k.v, "")
	case "minProperties":
		s.minProps, err = k.count(noItems)
	case "maxProperties":
		s.maxProps, err = k.count(noItems)
	case "dependentRequired", "dependentSchemas", "dependencies":
		return k.dependents()
	case "items":
		if k.v.kind == arrayValue {
			return k.tuple()
		}
		s.items, err = k.schema(k.v, "")
	case "additionalItems":
		if items, ok := k.object.get("items"); ok && items.kind == arrayValue {
			s.items, err = k.schema(k.v, "")
		}
	case "prefixItems":
		return k.tuple()
	case "minItems":
		s.minItems, err = k.count(noItems)
	case "maxItems":
		s.maxItems, err = k.count(noItems)
	case "contains":
		return k.contains()
	case "uniqueItems":
		if k.v.kind != boolValue {
			return k.fail(ErrSchema, "must be a boolean, not %v", k.v.kind)
		}
		s.unique = k.v.truth
	case "minLength", "maxLength":
		return k.length()
	case "pattern":
		s.pattern, err = k.text()
	case "format":
		return k.format()
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return k.bound()
	case "anyOf":
		var list []*schema
		list, err = k.schemas()
		s.anyOf = append(s.anyOf, list)
	case "oneOf":
		var list []*schema
		list, err = k.schemas()
		s.oneOf = append(s.oneOf, list)
	case "allOf":
		s.allOf, err = k.schemas()
	case "not":
		s.not, err = k.schema(k.v, "")
	case "if":
		return k.condition()
	case "then", "else", "minContains", "maxContains": // parsed together with if and contains
	case "$ref":
		s.ref, err = k.text()
	case "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef":
		if k.v.kind != boolValue || !k.v.truth {
			return k.fail(ErrUnsupported, "this keyword cannot be enforced")
		}
	default:
		if !annotations[k.name] {
			return k.ignore("the keyword is unknown")
		}
	}
	return err
}

// ignore records that the keyword is not enforced here; with Options.Strict it returns an error.
func (k *keyword) ignore(reason string) error {
	if k.p.skip.strict {
		return k.fail(ErrUnsupported, "%s; %s supported", reason, supportedKeywords)
	}
	k.p.skip.note(k.s.pointer, k.name, reason, false)
	return nil
}

const supportedKeywords = "type, enum, const, properties, patternProperties, additionalProperties, required, " +
	"propertyNames, minProperties, maxProperties, dependentRequired, dependentSchemas, dependencies, items, " +
	"prefixItems, additionalItems, minItems, maxItems, contains, minContains, maxContains, minLength, maxLength, " +
	"pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, anyOf, oneOf, allOf, not, " +
	"if, then, else and $ref are"

func (k *keyword) types() error {
	list := []value{*k.v}
	if k.v.kind == arrayValue {
		list = k.v.list
	}
	k.s.types = 0
	for i := range list {
		t, ok := typeNames[list[i].text]
		if list[i].kind != stringValue || !ok {
			return k.fail(ErrSchema, "%s is not a type; want null, boolean, integer, number, string, array or object",
				list[i].append(nil))
		}
		k.s.types |= t
	}
	if len(list) == 0 {
		return k.fail(ErrSchema, "is an empty list; want at least one type")
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
		return k.fail(ErrTooLarge, "has %d values; at most %d are supported", len(list), MaxEnumValues)
	}
	for i := range list {
		if err := k.checkNumbers(&list[i]); err != nil {
			return err
		}
	}
	if k.s.enum != nil { // the schema has both enum and const
		list = intersectValues(k.s.enum, list)
	}
	k.s.enum = list
	return nil
}

// checkNumbers checks that the numbers of a literal fit a float64, because documents with other numbers could not be
// parsed.
func (k *keyword) checkNumbers(v *value) error {
	switch v.kind {
	case numberValue:
		if _, err := strconv.ParseFloat(v.text, 64); err != nil {
			return k.fail(ErrUnsupported, "the number %s is outside the range of a float64", clip(v.text, 0))
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

func (k *keyword) properties() (err error) {
	k.s.props, err = k.named()
	for i, p := range k.s.props {
		k.s.propAt[p.name] = i
	}
	return err
}

// named reads an object whose members are schemas.
func (k *keyword) named() ([]namedSchema, error) {
	if k.v.kind != objectValue {
		return nil, k.fail(ErrSchema, "must be an object, not %v", k.v.kind)
	}
	if len(k.v.members) > MaxProperties {
		return nil, k.fail(ErrTooLarge, "has %d properties; at most %d are supported", len(k.v.members), MaxProperties)
	}
	var list []namedSchema
	for i := range k.v.members {
		m := &k.v.members[i]
		sub, err := k.schema(&m.value, "/"+escapePointer(m.name))
		if err != nil {
			return nil, err
		}
		list = append(list, namedSchema{m.name, sub})
	}
	return list, nil
}

// dependents reads dependentRequired, dependentSchemas and dependencies, which combines both.
func (k *keyword) dependents() error {
	if k.v.kind != objectValue {
		return k.fail(ErrSchema, "must be an object, not %v", k.v.kind)
	}
	if len(k.v.members) > MaxProperties {
		return k.fail(ErrTooLarge, "has %d names; at most %d are supported", len(k.v.members), MaxProperties)
	}
	for i := range k.v.members {
		m := &k.v.members[i]
		d := dependent{keyword: k.name, name: m.name}
		var err error
		switch {
		case k.name == "dependencies" && m.value.kind == stringValue: // draft 3
			d.required = []string{m.value.text}
		case k.name != "dependentSchemas" && m.value.kind == arrayValue:
			d.required, err = (&keyword{p: k.p, s: k.s, name: k.name, v: &m.value}).names()
		default:
			d.schema, err = k.schema(&m.value, "/"+escapePointer(m.name))
		}
		if err != nil {
			return err
		}
		k.s.dependents = append(k.s.dependents, d)
	}
	return nil
}

// tuple reads prefixItems, or items as an array.
func (k *keyword) tuple() (err error) {
	if k.v.kind == arrayValue && len(k.v.list) == 0 {
		return nil
	}
	k.s.prefix, err = k.schemas()
	return err
}

// sibling returns another keyword of the same schema, or nil if it is absent or ignored.
func (k *keyword) sibling(name string) *keyword {
	v, ok := k.object.get(name)
	if !ok || k.p.skip.has(k.s.pointer, name) {
		return nil
	}
	return &keyword{p: k.p, s: k.s, name: name, v: v, object: k.object}
}

func (k *keyword) contains() error {
	sub, err := k.schema(k.v, "")
	if err != nil {
		return err
	}
	c := containing{sub, 1, noItems}
	if n := k.sibling("minContains"); n != nil {
		if c.least, err = n.count(noItems); err != nil {
			return err
		}
	}
	if n := k.sibling("maxContains"); n != nil {
		if c.most, err = n.count(noItems); err != nil {
			return err
		}
	}
	if c.least > 0 || c.most < noItems {
		k.s.contains = append(k.s.contains, c)
	}
	return nil
}

func (k *keyword) condition() (err error) {
	c := &condition{}
	if c.test, err = k.schema(k.v, ""); err != nil {
		return err
	}
	if n := k.sibling("then"); n != nil {
		if c.then, err = n.schema(n.v, ""); err != nil {
			return err
		}
	}
	if n := k.sibling("else"); n != nil {
		if c.otherwise, err = n.schema(n.v, ""); err != nil {
			return err
		}
	}
	if c.then != nil || c.otherwise != nil {
		k.s.condition = c
	}
	return nil
}

func (k *keyword) length() error {
	const longest = 1 << 30
	n, err := k.count(longest)
	if k.name == "minLength" {
		k.s.minLength = uint64(n)
	} else if n < longest {
		k.s.maxLength = uint64(n)
	}
	return err
}

// format stores a known format. Unknown formats do not constrain strings.
func (k *keyword) format() error {
	text, err := k.text()
	if err != nil {
		return err
	}
	if _, ok := formats[text]; ok || numericFormat("format", text) {
		k.s.format = text
		return nil
	}
	if k.p.skip.strict {
		return patternError(k.s.pointer, "format", text, errFormat)
	}
	k.p.skip.note(k.s.pointer, "format", fmt.Sprintf("%q is unknown; any string is allowed", clip(text, 0)), false)
	return nil
}

func escapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

func (k *keyword) schema(v *value, below string) (*schema, error) {
	return k.p.parse(v, k.s.pointer+"/"+escapePointer(k.name)+below, k.s.base)
}

func (k *keyword) schemas() ([]*schema, error) {
	if k.v.kind != arrayValue || len(k.v.list) == 0 {
		return nil, k.fail(ErrSchema, "must be an array with at least one schema")
	}
	if len(k.v.list) > MaxProperties {
		return nil, k.fail(ErrTooLarge, "has %d schemas; at most %d are supported", len(k.v.list), MaxProperties)
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
		return nil, k.fail(ErrTooLarge, "has %d names; at most %d are supported", len(k.v.list), MaxProperties)
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

// count parses a number of members or characters. A maximum above the limit has no effect, because no document reaches
// it. A minimum above the limit is an error.
func (k *keyword) count(limit int) (int, error) {
	r, err := k.number()
	if err != nil {
		return 0, err
	}
	if !r.IsInt() || r.Sign() < 0 {
		return 0, k.fail(ErrSchema, "%s is not valid; want a whole number, 0 or more", k.v.text)
	}
	if r.Cmp(big.NewRat(int64(limit), 1)) >= 0 {
		if strings.HasPrefix(k.name, "max") {
			return limit, nil
		}
		return 0, k.fail(ErrTooLarge, "is %s; only numbers below %d are supported", clip(k.v.text, 0), limit)
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
	b := &k.s.bounds
	if k.v.kind == boolValue && strings.HasPrefix(k.name, "exclusive") { // draft 4: modifies minimum or maximum
		n := k.sibling("m" + strings.TrimPrefix(k.name, "exclusiveM"))
		if !k.v.truth || n == nil {
			return nil
		}
		r, err := n.number()
		if err != nil {
			return err
		}
		if k.name == "exclusiveMinimum" {
			b.raise(r, true)
		} else {
			b.lower(r, true)
		}
		return nil
	}
	r, err := k.number()
	if err != nil {
		return err
	}
	switch k.name {
	case "minimum", "exclusiveMinimum":
		b.raise(r, k.name == "exclusiveMinimum")
	case "maximum", "exclusiveMaximum":
		b.lower(r, k.name == "exclusiveMaximum")
	default:
		if r.Sign() <= 0 {
			return k.fail(ErrSchema, "%s is not valid; want a number above 0", k.v.text)
		}
		b.multiples = append(b.multiples, r)
	}
	return nil
}

// raise replaces the lower bound by r if r is tighter.
func (b *bounds) raise(r *big.Rat, open bool) {
	if b.lo == nil || r.Cmp(b.lo) > 0 {
		b.lo, b.loOpen = r, open
	} else if r.Cmp(b.lo) == 0 {
		b.loOpen = b.loOpen || open
	}
}

// lower replaces the upper bound by r if r is tighter.
func (b *bounds) lower(r *big.Rat, open bool) {
	if b.hi == nil || r.Cmp(b.hi) < 0 {
		b.hi, b.hiOpen = r, open
	} else if r.Cmp(b.hi) == 0 {
		b.hiOpen = b.hiOpen || open
	}
}

// merge tightens the bounds by those of another schema.
func (b *bounds) merge(o *bounds) {
	if o.lo != nil {
		b.raise(o.lo, o.loOpen)
	}
	if o.hi != nil {
		b.lower(o.hi, o.hiOpen)
	}
	b.multiples = append(b.multiples, o.multiples...)
}
