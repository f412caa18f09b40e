package grammar

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// located is a schema in the document, with its location.
type located struct {
	value   *value
	pointer string
	base    string // base address of the enclosing schema, for references
}

// baseOf returns the base address for references inside a schema. In drafts 3 to 7, $id has no effect next to $ref.
func baseOf(v *value, base string, old bool) string {
	id, ok := v.get("$id")
	if !ok {
		id, ok = v.get("id") // draft 4 calls $id id
	}
	if _, ref := v.get("$ref"); !ok || id.kind != stringValue || old && ref {
		return base
	}
	if address := join(base, id.text); address != "" {
		base, _, _ = strings.Cut(address, "#")
	}
	return base
}

// join resolves a reference against a base. It returns "" if it is not a valid reference.
func join(base, ref string) string {
	b, err := url.Parse(base)
	if err != nil {
		return ""
	}
	r, err := url.Parse(ref)
	if err != nil {
		return ""
	}
	if b.Opaque != "" && !r.IsAbs() { // a urn, such as urn:uuid:..., followed by a fragment
		return base + ref
	}
	return b.ResolveReference(r).String()
}

// locate records every $id and $anchor below a value. It skips the values of enum and const, which are not schemas.
func (p *parser) locate(v *value, pointer, base string) {
	switch v.kind {
	case arrayValue:
		for i := range v.list {
			p.locate(&v.list[i], pointer+"/"+strconv.Itoa(i), base)
		}
	case objectValue:
		inner := baseOf(v, base, p.old)
		here := located{v, pointer, base}
		if inner != base {
			p.note(inner, here)
		}
		for _, name := range []string{"$anchor", "$dynamicAnchor"} {
			if a, ok := v.get(name); ok && a.kind == stringValue {
				p.note(inner+"#"+a.text, here)
			}
		}
		for _, name := range []string{"$id", "id"} { // before draft 2019-09, an $id of the form "#name" is an anchor
			if a, ok := v.get(name); ok && a.kind == stringValue && strings.Contains(a.text, "#") {
				p.note(join(base, a.text), here)
			}
		}
		for i := range v.members {
			m := &v.members[i]
			if m.name != "enum" && m.name != "const" {
				p.locate(&m.value, pointer+"/"+escapePointer(m.name), inner)
			}
		}
	}
}

// note stores a schema by its address, unless the address is already known.
func (p *parser) note(address string, at located) {
	address = strings.TrimSuffix(address, "#")
	if _, ok := p.addresses[address]; !ok && address != "" {
		p.addresses[address] = at
	}
}

// resolve returns the schema in the document to which the $ref of s refers.
func (p *parser) resolve(s *schema) (*schema, error) {
	key := s.base + " " + s.ref
	if t, ok := p.refs[key]; ok {
		return t, nil
	}
	fail := func(kind error, format string, args ...any) (*schema, error) {
		return nil, &SchemaError{s.pointer, "$ref", fmt.Sprintf(format, args...), kind}
	}
	document, fragment, _ := strings.Cut(join(s.base, s.ref), "#")
	fragment, bad := url.PathUnescape(fragment)
	at := located{value: &p.root}
	if document != "" {
		var ok bool
		if at, ok = p.addresses[document]; !ok && document != baseOf(&p.root, "", p.old) {
			return fail(ErrUnsupported,
				"is %q; only references inside the schema, such as #/$defs/name, are supported", s.ref)
		} else if !ok {
			at = located{value: &p.root}
		}
	}
	if bad != nil {
		return fail(ErrSchema, "%q is not a JSON pointer or URI", s.ref)
	}
	if fragment != "" && fragment[0] != '/' {
		named, ok := p.addresses[document+"#"+fragment]
		if !ok {
			return fail(ErrUnsupported, "is %q; only references inside the schema are supported, and it has no "+
				"$anchor %q", s.ref, fragment)
		}
		at = named
	} else if fragment != "" {
		found, missing := at.follow(fragment, p.old)
		if missing != "" && at.value != &p.root { // some schemas have inner ids that are not meant as base addresses
			found, missing = located{value: &p.root}.follow(fragment, p.old)
		}
		if missing != "" {
			return fail(ErrSchema, "%q refers to %s, which does not exist", s.ref, missing)
		}
		at = found
	}
	t, err := p.parse(at.value, at.pointer, at.base)
	if err != nil {
		return nil, err
	}
	p.refs[key] = t
	return t, nil
}

// follow resolves a JSON pointer. missing is the first part of the pointer that does not exist, quoted, or "".
func (l located) follow(pointer string, old bool) (found located, missing string) {
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		next, ok := l.below(part, old)
		if !ok {
			return l, strconv.Quote(part)
		}
		l = next
	}
	return l, ""
}

// below returns a member of an object or an element of an array, by one part of a JSON pointer.
func (l located) below(part string, old bool) (located, bool) {
	next := located{pointer: l.pointer + "/" + escapePointer(part), base: l.base}
	switch l.value.kind {
	case objectValue:
		var ok bool
		next.value, ok = l.value.get(part)
		next.base = baseOf(l.value, l.base, old)
		return next, ok
	case arrayValue:
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n >= len(l.value.list) {
			return next, false
		}
		next.value = &l.value.list[n]
		return next, true
	}
	return next, false
}
