package grammar

import (
	"fmt"
	"math/big"
	"strings"
)

// schema is one schema object parsed and checked, before schemas are combined.
type schema struct {
	id      int    // equal for schemas with equal meaning
	pointer string // JSON pointer of the schema, for errors
	partial bool   // whether a keyword was ignored, so that the schema cannot be negated
	base    string // base address of references; "" without $id
	truth   *bool  // value of a boolean schema; nil for an object

	types    typeSet
	enum     []value // allowed values from enum or const; nil without them
	excluded []value // excluded null, booleans, numbers and strings

	props              []namedSchema
	propAt             map[string]int // indices in props by name
	required           []string
	additional         *schema
	patterns           []namedSchema // patternProperties; a name is a pattern
	names              *schema       // propertyNames
	minProps, maxProps int

	prefix             []*schema
	items              *schema
	minItems, maxItems int
	contains           []containing
	unique             bool

	bounds          bounds
	minLength       uint64
	maxLength       uint64
	pattern, format string
	mismatch        []string // patterns that must not match

	// Keywords that apply other schemas to the same value, see compiler.inner.
	anyOf      [][]*schema // at least one schema of each list must hold
	oneOf      [][]*schema // exactly one schema of each list must hold
	allOf      []*schema
	not        *schema
	condition  *condition
	dependents []dependent
	ref        string
	negated    *schema // set by compiler.negate: the values of this schema are excluded
	origin     *origin // keyword from which this schema was derived; nil if it is in the text
}

type namedSchema struct {
	name   string
	schema *schema
}

// containing holds contains with minContains and maxContains.
type containing struct {
	schema      *schema
	least, most int // minimum and maximum number of matching elements; most is noItems without a maximum
}

// condition holds if, then and else; absent ones are nil.
type condition struct {
	test, then, otherwise *schema
}

// dependent holds a property and the schema that applies if the property is present.
type dependent struct {
	keyword  string
	name     string
	required []string
	schema   *schema // nil if there is none
}

// bounds holds the keywords for numbers.
type bounds struct {
	lo, hi         *big.Rat // lower and upper bound; nil if there is none
	loOpen, hiOpen bool     // whether the bound itself is excluded
	multiples      []*big.Rat
}

// typeSet is a set of JSON types; integers and other numbers are separate bits, so that integer is a subset of number.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeFraction // numbers that are not integers
	typeString
	typeArray
	typeObject
	allTypes = 1<<iota - 1
)

var typeNames = map[string]typeSet{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeInteger | typeFraction,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// parser converts JSON to schemas. Sub-schemas are parsed immediately, references when they are resolved.
type parser struct {
	root      value
	texts     map[string]int // id of a schema by its text
	refs      map[string]*schema
	addresses map[string]located // schemas by $id and $anchor
	skip      *skipped
	old       bool // whether the draft is 3 to 7, in which $ref replaces the keywords next to it
}

// annotations lists the keywords that do not affect which documents are valid.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "readOnly": true,
	"writeOnly": true, "$comment": true, "$schema": true, "$id": true, "$anchor": true, "$dynamicAnchor": true,
	"$defs": true, "definitions": true, "$vocabulary": true, "contentEncoding": true, "contentMediaType": true,
	"contentSchema": true,
}

func newSchema(pointer string) *schema {
	return &schema{pointer: pointer, types: allTypes, propAt: map[string]int{}, maxItems: noItems, maxLength: noLimit,
		maxProps: noItems}
}

// number returns the id of a schema's text; equal texts have the same id.
func (p *parser) number(text string) int {
	id, ok := p.texts[text]
	if !ok {
		id = len(p.texts)
		p.texts[text] = id
	}
	return id
}

func (p *parser) parse(v *value, pointer, base string) (*schema, error) {
	s := newSchema(pointer)
	switch v.kind {
	case boolValue:
		s.truth = &v.truth
		s.id = p.number(string(v.append(nil)))
		return s, nil
	case objectValue:
	default:
		return nil, &SchemaError{pointer, "", fmt.Sprintf("a schema must be an object or a boolean, not %v", v.kind),
			ErrSchema}
	}
	s.base = baseOf(v, base, p.old)
	key := string(v.append([]byte(s.base)))
	if p.skip.below(pointer) {
		key += " " + pointer // schemas with equal texts can ignore different keywords
	}
	s.id = p.number(key)
	ref, hasRef := v.get("$ref")
	if hasRef && p.old && ref.kind == stringValue && !p.skip.has(pointer, "$ref") {
		s.base = base // $id has no effect next to $ref
		s.ref = ref.text
		return s, nil
	}
	for i := range v.members {
		m := &v.members[i]
		k := keyword{p: p, s: s, name: m.name, v: &m.value, object: v}
		if p.skip.has(pointer, m.name) {
			p.skip.note(pointer, m.name, "it is ignored, as are all keywords of this kind", true)
			s.partial = true
			if m.name != "oneOf" {
				continue
			}
			list, err := k.schemas() // enforced as anyOf: at least one must hold
			if err != nil {
				return nil, err
			}
			s.anyOf = append(s.anyOf, list)
			continue
		}
		if err := k.read(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// oldDraft reports whether $schema names a draft in which $ref replaces the other keywords of its schema.
func oldDraft(root *value) bool {
	v, ok := root.get("$schema")
	if !ok || v.kind != stringValue {
		return false
	}
	for _, draft := range []string{"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"} {
		if strings.Contains(v.text, draft) {
			return true
		}
	}
	return false
}
