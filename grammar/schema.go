package grammar

import (
	"fmt"
	"math/big"
	"net/url"
	"strconv"
	"strings"
)

// schema is one schema object with its keywords checked and typed, but nothing combined yet.
type schema struct {
	id      int    // equal for schemas with the same text
	pointer string // JSON pointer, for errors
	truth   *bool  // the boolean schemas true and false

	types typeSet
	enum  []value // const is an enum of one; nil if there is neither

	props      []namedSchema
	propAt     map[string]int // name to its place in props
	required   []string
	additional *schema

	prefix             []*schema
	items              *schema
	minItems, maxItems int

	bounds             bounds
	minLength          uint64
	maxLength          uint64
	pattern, format    string
	anyOf              [][]*schema // anyOf and oneOf: one of each list must hold
	allOf              []*schema
	ref                string
	hasObject, hasList bool // keywords about objects, about arrays
}

type namedSchema struct {
	name   string
	schema *schema
}

// bounds are the keywords about numbers.
type bounds struct {
	lo, hi         *big.Rat // nil if there is none
	loOpen, hiOpen bool     // the bound itself is excluded
	multiples      []*big.Rat
}

// typeSet is a set of JSON types; numbers are split so that integer is a subset of number.
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

// parser turns JSON into schemas. Sub-schemas are parsed at once, references only when they are followed.
type parser struct {
	root  value
	texts map[string]int // text of a schema to its id
	refs  map[string]*schema
}

// annotations are keywords that say nothing about which documents are valid.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "readOnly": true,
	"writeOnly": true, "$comment": true, "$schema": true, "$id": true, "$defs": true, "definitions": true,
}

const supportedKeywords = "type, properties, required, additionalProperties, items, prefixItems, minItems, " +
	"maxItems, enum, const, anyOf, oneOf, allOf, " +
	"$ref, minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum and " +
	"multipleOf are"

func (p *parser) parse(v *value, pointer string) (*schema, error) {
	s := &schema{pointer: pointer, types: allTypes, propAt: map[string]int{}, maxItems: noItems, maxLength: noLimit}
	text := string(v.append(nil))
	id, ok := p.texts[text]
	if !ok {
		id = len(p.texts)
		p.texts[text] = id
	}
	s.id = id
	switch v.kind {
	case boolValue:
		s.truth = &v.truth
		return s, nil
	case objectValue:
	default:
		return nil, &SchemaError{pointer, "", fmt.Sprintf("a schema must be an object or a boolean, not %v", v.kind),
			ErrSchema}
	}
	for i := range v.members {
		m := &v.members[i]
		k := keyword{p: p, s: s, name: m.name, v: &m.value}
		if err := k.read(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// resolve follows a reference inside the document.
func (p *parser) resolve(s *schema) (*schema, error) {
	if t, ok := p.refs[s.ref]; ok {
		return t, nil
	}
	fail := func(kind error, format string, args ...any) (*schema, error) {
		return nil, &SchemaError{s.pointer, "$ref", fmt.Sprintf(format, args...), kind}
	}
	path, ok := strings.CutPrefix(s.ref, "#")
	path, bad := url.PathUnescape(path)
	if !ok || bad != nil || path != "" && path[0] != '/' {
		return fail(ErrUnsupported, "%q; only references inside the schema, such as #/$defs/name, are supported", s.ref)
	}
	at := &p.root
	if path != "" {
		for _, part := range strings.Split(path[1:], "/") {
			part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
			switch at.kind {
			case objectValue:
				at, ok = at.get(part)
			case arrayValue:
				n, err := strconv.Atoi(part)
				if ok = err == nil && n >= 0 && n < len(at.list); ok {
					at = &at.list[n]
				}
			default:
				ok = false
			}
			if !ok {
				return fail(ErrSchema, "%q points to nothing: there is no %q", s.ref, part)
			}
		}
	}
	t, err := p.parse(at, path)
	if err != nil {
		return nil, err
	}
	p.refs[s.ref] = t
	return t, nil
}
