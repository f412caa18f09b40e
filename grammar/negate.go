package grammar

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// from returns the origin for schemas derived from a keyword of s. If s itself was derived, its origin is returned, so
// that an origin is always a keyword in the schema's text.
func (s *schema) from(keyword string) *origin {
	if s.origin != nil {
		return s.origin
	}
	return &origin{s.pointer, keyword}
}

// made returns a derived schema, which is not in the schema's text. key identifies it.
func (l *logic) made(o *origin, key string, fill func(s *schema)) *schema {
	s := newSchema(o.pointer)
	s.origin = o
	s.id = l.parser.number("made " + key)
	fill(s)
	l.origins[*o] = true
	return s
}

// all returns a derived schema that requires all schemas of a list.
func (l *logic) all(o *origin, list ...*schema) *schema {
	var key strings.Builder
	for _, s := range list {
		fmt.Fprintf(&key, "&%d", s.id)
	}
	return l.made(o, key.String(), func(s *schema) { s.allOf = list })
}

// negate returns a derived schema that holds for every value for which t does not hold.
func (l *logic) negate(t *schema, o *origin) *schema {
	switch {
	case t.truth != nil:
		truth := !*t.truth
		return l.made(o, fmt.Sprint(truth), func(s *schema) { s.truth = &truth })
	case t.negated != nil:
		return t.negated
	}
	return l.made(o, fmt.Sprintf("!%d", t.id), func(s *schema) { s.negated = t })
}

// absent returns a derived schema that forbids a property of objects and allows all other values.
func (l *logic) absent(o *origin, name string) *schema {
	no := false
	return l.made(o, "absent "+name, func(s *schema) {
		sub := l.made(o, "false", func(s *schema) { s.truth = &no })
		s.propAt[name] = 0
		s.props = []namedSchema{{name, sub}}
	})
}

// conditional returns the two alternatives of a conditional: "if" and "then", or not "if" and "else".
func (l *logic) conditional(s *schema) choice {
	o := s.from("if")
	first, second := []*schema{s.condition.test}, []*schema{l.negate(s.condition.test, o)}
	if s.condition.then != nil {
		first = append(first, s.condition.then)
	}
	if s.condition.otherwise != nil {
		second = append(second, s.condition.otherwise)
	}
	return choice{l.all(o, first...), l.all(o, second...)}
}

// dependency returns the two alternatives of a dependency: the property is absent, or the dependent schema holds.
func (l *logic) dependency(s *schema, d dependent) choice {
	o := s.from(d.keyword)
	return choice{l.absent(o, d.name), l.present(o, d)}
}

func (l *logic) present(o *origin, d dependent) *schema {
	names := append([]string{d.name}, d.required...)
	must := l.made(o, fmt.Sprintf("present %q", names), func(s *schema) {
		s.types, s.required = typeObject, names
	})
	if d.schema == nil {
		return must
	}
	return l.all(o, must, d.schema)
}

// exactlyOne returns each schema of oneOf combined with the negation of the others. No negation is added for schemas
// that exclude each other.
func (l *logic) exactlyOne(s *schema, group []*schema) (choice, error) {
	o := s.from("oneOf")
	if len(group) > MaxAlternatives { // checked here, before all pairs of schemas are compared
		return nil, &SchemaError{s.pointer, "oneOf", fmt.Sprintf("it has %d alternatives, but at most %d are supported",
			len(group), MaxAlternatives), ErrTooLarge}
	}
	var key strings.Builder
	for _, t := range group {
		fmt.Fprintf(&key, " %d", t.id)
	}
	if list, ok := l.ones[key.String()]; ok {
		return list, nil
	}
	var list choice
	for i, t := range group {
		parts := []*schema{t}
		for j, other := range group {
			if i == j {
				continue
			}
			apart, err := l.apart(t, other, maxApart)
			if err != nil {
				return nil, err
			}
			if !apart {
				parts = append(parts, l.negate(other, o))
			}
		}
		if len(parts) == 1 {
			list = append(list, t)
		} else {
			list = append(list, l.all(o, parts...))
		}
	}
	l.ones[key.String()] = list
	return list, nil
}

// negation returns the alternatives in which a schema does not hold: each violates one keyword.
func (l *logic) negation(n *schema) (choice, error) {
	w := &violations{l: l, o: n.origin, id: n.negated.id}
	t := n.negated
	if t.partial {
		w.cannot("a part of the schema is ignored")
	}
	if t.types != allTypes {
		w.add("type", allTypes, func(s *schema) { s.types = allTypes &^ t.types })
	}
	w.values(t)
	w.scalars(t)
	w.objects(t)
	w.arrays(t)
	return w.list, w.others(t)
}

// violations collects the alternatives of a negation.
type violations struct {
	l    *logic
	o    *origin
	id   int
	list choice
	err  error
}

func (w *violations) add(key string, types typeSet, fill func(s *schema)) {
	w.list = append(w.list, w.l.made(w.o, fmt.Sprintf("!%d %s", w.id, key), func(s *schema) {
		s.types = types
		fill(s)
	}))
}

// cannot records that the violation of a keyword cannot be written as a schema. The negation is then not supported.
func (w *violations) cannot(keyword string) {
	if w.err == nil {
		w.err = &SchemaError{w.o.pointer, w.o.keyword,
			fmt.Sprintf("it needs the opposite of %s, which cannot be enforced", keyword), ErrUnsupported}
	}
}

// values adds the alternative that excludes the values of enum and const.
func (w *violations) values(t *schema) {
	if t.enum == nil {
		return
	}
	w.add("enum", allTypes, func(s *schema) {
		for i := range t.enum {
			v := &t.enum[i]
			switch v.kind {
			case arrayValue:
				s.anyOf = append(s.anyOf, w.otherArray(v))
			case objectValue:
				s.anyOf = append(s.anyOf, w.otherObject(v))
			default:
				s.excluded = append(s.excluded, *v)
			}
		}
	})
}

// other returns a derived schema for every value except v.
func (w *violations) other(v *value) *schema {
	return w.l.made(w.o, "other "+string(v.identity(nil)), func(s *schema) {
		switch v.kind {
		case arrayValue:
			s.anyOf = [][]*schema{w.otherArray(v)}
		case objectValue:
			s.anyOf = [][]*schema{w.otherObject(v)}
		default:
			s.excluded = []value{*v}
		}
	})
}

func (w *violations) otherArray(v *value) []*schema {
	key := "other " + string(v.identity(nil))
	n := len(v.list)
	part := func(what string, types typeSet, fill func(s *schema)) *schema {
		return w.l.made(w.o, key+what, func(s *schema) {
			s.types = types
			fill(s)
		})
	}
	list := []*schema{
		part(" type", allTypes&^typeArray, func(*schema) {}),
		part(" long", typeArray, func(s *schema) { s.minItems = n + 1 }),
	}
	if n > 0 {
		list = append(list, part(" short", typeArray, func(s *schema) { s.maxItems = n - 1 }))
	}
	for i := range v.list {
		list = append(list, part(fmt.Sprint(" at ", i), typeArray, func(s *schema) {
			s.minItems, s.maxItems = n, n
			for range i {
				s.prefix = append(s.prefix, w.l.made(w.o, "any", func(*schema) {}))
			}
			s.prefix = append(s.prefix, w.other(&v.list[i]))
		}))
	}
	return list
}

func (w *violations) otherObject(v *value) []*schema {
	key := "other " + string(v.identity(nil))
	part := func(what string, types typeSet, fill func(s *schema)) *schema {
		return w.l.made(w.o, key+what, func(s *schema) {
			s.types = types
			fill(s)
		})
	}
	list := []*schema{
		part(" type", allTypes&^typeObject, func(*schema) {}),
		part(" long", typeObject, func(s *schema) { s.minProps = len(v.members) + 1 }),
	}
	for i := range v.members {
		m := &v.members[i]
		list = append(list, w.l.all(w.o, part(" object", typeObject, func(*schema) {}), w.l.absent(w.o, m.name)),
			part(" at "+m.name, typeObject, func(s *schema) {
				s.required = []string{m.name}
				s.propAt[m.name] = 0
				s.props = []namedSchema{{m.name, w.other(&m.value)}}
			}))
	}
	return list
}

func (w *violations) scalars(t *schema) {
	const number = typeInteger | typeFraction
	if b := t.bounds; b.lo != nil {
		w.add("minimum", number, func(s *schema) { s.bounds.hi, s.bounds.hiOpen = b.lo, !b.loOpen })
	}
	if b := t.bounds; b.hi != nil {
		w.add("maximum", number, func(s *schema) { s.bounds.lo, s.bounds.loOpen = b.hi, !b.hiOpen })
	}
	for _, m := range t.bounds.multiples {
		if m.Cmp(big.NewRat(1, 1)) != 0 {
			w.cannot("multipleOf")
			continue
		}
		w.add("multipleOf", typeFraction, func(*schema) {})
	}
	if t.minLength > 0 {
		w.add("minLength", typeString, func(s *schema) { s.maxLength = t.minLength - 1 })
	}
	if t.maxLength != noLimit {
		w.add("maxLength", typeString, func(s *schema) { s.minLength = t.maxLength + 1 })
	}
	if t.pattern != "" {
		w.add("pattern", typeString, func(s *schema) { s.mismatch = []string{t.pattern} })
	}
	for _, p := range t.mismatch {
		w.add("mismatch "+p, typeString, func(s *schema) { s.pattern = p })
	}
	if t.excluded != nil {
		w.add("excluded", allTypes, func(s *schema) { s.enum = t.excluded })
	}
	if t.format != "" {
		w.cannot("format")
	}
}

func (w *violations) objects(t *schema) {
	object := w.l.made(w.o, "object", func(s *schema) { s.types = typeObject })
	for _, name := range t.required {
		w.list = append(w.list, w.l.all(w.o, object, w.l.absent(w.o, name)))
	}
	for _, p := range t.props {
		if p.schema.truth != nil && *p.schema.truth {
			continue
		}
		w.add("property "+p.name, typeObject, func(s *schema) {
			s.required = []string{p.name}
			s.propAt[p.name] = 0
			s.props = []namedSchema{{p.name, w.l.negate(p.schema, w.o)}}
		})
	}
	if t.additional != nil && (t.additional.truth == nil || !*t.additional.truth) {
		w.cannot("additionalProperties")
	}
	if len(t.patterns) > 0 {
		w.cannot("patternProperties")
	}
	if t.names != nil {
		w.cannot("propertyNames")
	}
	if t.minProps > 0 {
		w.add("minProperties", typeObject, func(s *schema) { s.maxProps = t.minProps - 1 })
	}
	if t.maxProps != noItems {
		w.add("maxProperties", typeObject, func(s *schema) { s.minProps = t.maxProps + 1 })
	}
	for _, d := range t.dependents {
		must := w.l.present(w.o, dependent{name: d.name})
		for _, name := range d.required {
			w.list = append(w.list, w.l.all(w.o, must, w.l.absent(w.o, name)))
		}
		if d.schema != nil {
			w.list = append(w.list, w.l.all(w.o, must, w.l.negate(d.schema, w.o)))
		}
	}
}

func (w *violations) arrays(t *schema) {
	for i, p := range t.prefix {
		w.add(fmt.Sprint("item ", i), typeArray, func(s *schema) {
			s.minItems = i + 1
			for range i {
				s.prefix = append(s.prefix, w.l.made(w.o, "any", func(*schema) {}))
			}
			s.prefix = append(s.prefix, w.l.negate(p, w.o))
		})
	}
	switch {
	case t.items == nil || t.items.truth != nil && *t.items.truth:
	case t.items.truth != nil:
		w.add("items", typeArray, func(s *schema) { s.minItems = len(t.prefix) + 1 })
	case len(t.prefix) == 0:
		w.add("items", typeArray, func(s *schema) {
			s.contains = []containing{{w.l.negate(t.items, w.o), 1, noItems}}
		})
	default:
		w.cannot("items after prefixItems")
	}
	if t.minItems > 0 {
		w.add("minItems", typeArray, func(s *schema) { s.maxItems = t.minItems - 1 })
	}
	if t.maxItems != noItems {
		w.add("maxItems", typeArray, func(s *schema) { s.minItems = t.maxItems + 1 })
	}
	for i, x := range t.contains {
		if x.least > 0 {
			w.add(fmt.Sprint("minContains ", i), typeArray, func(s *schema) {
				s.contains = []containing{{x.schema, 0, x.least - 1}}
			})
		}
		if x.most != noItems {
			w.add(fmt.Sprint("maxContains ", i), typeArray, func(s *schema) {
				s.contains = []containing{{x.schema, x.most + 1, noItems}}
			})
		}
	}
	if t.unique {
		w.cannot("uniqueItems")
	}
}

// others adds the violations of $ref, allOf, anyOf, oneOf and if.
func (w *violations) others(t *schema) error {
	o := w.o
	not := func(s *schema) *schema { return w.l.negate(s, o) }
	if t.ref != "" {
		to, err := w.l.parser.resolve(t)
		if err != nil {
			return err
		}
		w.list = append(w.list, not(to))
	}
	for _, s := range t.allOf {
		w.list = append(w.list, not(s))
	}
	none := func(group []*schema) *schema {
		var list []*schema
		for _, s := range group {
			list = append(list, not(s))
		}
		return w.l.all(o, list...)
	}
	for _, group := range t.anyOf {
		w.list = append(w.list, none(group))
	}
	for _, group := range t.oneOf {
		w.list = append(w.list, none(group))
		for i := range group {
			for j := range i {
				w.list = append(w.list, w.l.all(o, group[j], group[i]))
			}
		}
	}
	if t.not != nil {
		w.list = append(w.list, t.not)
	}
	if x := t.condition; x != nil && x.then != nil {
		w.list = append(w.list, w.l.all(o, x.test, not(x.then)))
	}
	if x := t.condition; x != nil && x.otherwise != nil {
		w.list = append(w.list, w.l.all(o, not(x.test), not(x.otherwise)))
	}
	w.list = slices.DeleteFunc(w.list, func(s *schema) bool { return s.truth != nil && !*s.truth })
	return w.err
}

// maxApart is the maximum depth to which apart compares properties.
const maxApart = 4

// apart reports whether no value satisfies both schemas, by comparing types, listed values and required properties.
// False may also mean that this is unknown.
func (l *logic) apart(a, b *schema, depth int) (bool, error) {
	if depth == 0 {
		return false, nil
	}
	x, err := l.gather(a, nil)
	if err != nil {
		return false, err
	}
	y, err := l.gather(b, nil)
	if err != nil {
		return false, err
	}
	types := typeSet(allTypes)
	for _, s := range slices.Concat(x, y) {
		types &= s.types
	}
	never := func(s *schema) bool { return s.truth != nil && !*s.truth }
	if types == 0 || slices.ContainsFunc(x, never) || slices.ContainsFunc(y, never) {
		return true, nil
	}
	for _, side := range []struct {
		of    []*schema
		other *schema
	}{{x, b}, {y, a}} {
		for _, s := range side.of {
			if s.enum == nil {
				continue
			}
			none := true
			for i := range s.enum {
				ok, err := l.holds(side.other, &s.enum[i], maxHolds)
				if err != nil {
					return false, nil // the error is reported when the schema is compiled
				}
				none = none && !ok
			}
			if none {
				return true, nil
			}
		}
	}
	for _, side := range []struct {
		of    []*schema
		other *schema
	}{{x, b}, {y, a}} {
		for _, s := range side.of {
			for _, group := range slices.Concat(s.anyOf, s.oneOf) {
				every := true
				for _, t := range group {
					is, err := l.apart(t, side.other, depth-1)
					if err != nil {
						return false, err
					}
					if every = is; !every {
						break
					}
				}
				if every {
					return true, nil
				}
			}
		}
	}
	if types != typeObject {
		return false, nil
	}
	for _, s := range slices.Concat(x, y) {
		for _, name := range s.required {
			first, err := l.goalOf(x, name)
			if err != nil {
				return false, err
			}
			second, err := l.goalOf(y, name)
			if err != nil {
				return false, err
			}
			for _, p := range first {
				for _, q := range second {
					if is, err := l.apart(p, q, depth-1); is || err != nil {
						return is, err
					}
				}
			}
		}
	}
	return false, nil
}

// gather appends to list a schema and all schemas that it requires for the same value.
func (l *logic) gather(s *schema, list []*schema) ([]*schema, error) {
	if slices.ContainsFunc(list, func(o *schema) bool { return o.id == s.id }) {
		return list, nil
	}
	list = append(list, s)
	var err error
	if s.ref != "" {
		t, err := l.parser.resolve(s)
		if err != nil {
			return nil, err
		}
		if list, err = l.gather(t, list); err != nil {
			return nil, err
		}
	}
	for _, t := range s.allOf {
		if list, err = l.gather(t, list); err != nil {
			return nil, err
		}
	}
	return list, nil
}
