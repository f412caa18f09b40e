package grammar

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// object adds the node of an object that satisfies all schemas in parts. Properties are written in the order of the
// schemas, then required names that no schema lists, then other names.
func (c *compiler) object(parts []*schema, kids []int32) ([]int32, error) {
	names, required := propertyNames(parts)
	if len(names) > MaxProperties {
		return nil, failAt(parts, func(s *schema) bool { return len(s.props)+len(s.required) > 0 }, "properties",
			ErrTooLarge, "%d properties after combining; at most %d are supported", len(names), MaxProperties)
	}
	if err := c.charge(parts, len(names)); err != nil {
		return nil, err
	}
	o := &properties{most: noItems}
	for _, s := range parts {
		o.least = max(o.least, s.minProps)
		o.most = min(o.most, s.maxProps)
	}
	if o.least > o.most {
		c.logic.drop(parts, "minProperties", fmt.Sprintf("%d is above maxProperties %d", o.least, o.most))
		return kids, nil
	}
	allowed, err := c.allowedNames(parts)
	if err != nil {
		return nil, err
	}
	id, err := c.add(node{kind: objectNode, props: o})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		goal, err := c.logic.goalOf(parts, name)
		if err != nil {
			return nil, err
		}
		if !allowed.has(name) {
			goal = []*schema{c.logic.never()}
		}
		value, err := c.node(goal)
		if err != nil {
			return nil, err
		}
		o.list = append(o.list, property{name, value})
		o.required = append(o.required, required[name])
	}
	o.listed = c.listedKey(o, noItems)
	if c.closed(parts) {
		return append(kids, id), nil
	}
	return append(kids, id), c.freeNames(parts, o, names, allowed)
}

// never returns the schema false.
func (l *logic) never() *schema {
	no := false
	s := newSchema("")
	s.truth = &no
	s.id = l.parser.number("false")
	return s
}

// nameRule is the set of names that propertyNames allows.
type nameRule struct {
	limited bool
	dfa     *runeDFA // automaton of the allowed names; nil if no name is allowed or limited is false
}

func (r nameRule) has(name string) bool { return !r.limited || r.dfa != nil && r.dfa.matches(name) }

// allowedNames returns the combined propertyNames of all parts.
func (c *compiler) allowedNames(parts []*schema) (nameRule, error) {
	var goal []*schema
	for _, s := range parts {
		if s.names != nil {
			goal = append(goal, s.names)
		}
	}
	if goal == nil {
		return nameRule{}, nil
	}
	list, err := c.logic.alternatives(goal)
	if err != nil {
		return nameRule{}, err
	}
	rule := nameRule{limited: true}
	for _, alternative := range list {
		d, err := c.stringsOf(alternative)
		if err == nil {
			rule.dfa, err = rule.dfa.union(d, &c.logic.effort)
		}
		if errors.Is(err, errPatternStates) {
			err = failAt(parts, func(s *schema) bool { return s.names != nil }, "propertyNames", ErrUnsupported,
				"the names need an automaton of more than %d states", MaxPatternStates)
		}
		if err != nil {
			return rule, err
		}
	}
	return rule, nil
}

// stringsOf returns the automaton of the strings that satisfy all schemas in parts, or nil if there are none.
func (c *compiler) stringsOf(parts []*schema) (*runeDFA, error) {
	types := typeSet(allTypes)
	var listed []value
	limited := false
	for _, s := range parts {
		types &= s.types
		if s.enum != nil {
			if limited {
				listed = intersectValues(listed, s.enum)
			} else {
				listed, limited = s.enum, true
			}
		}
	}
	if types&typeString == 0 {
		return nil, nil
	}
	r, err := c.stringRule(parts)
	if err != nil || r.never || r.least > r.most {
		return nil, err
	}
	if limited {
		var texts []string
		for i := range listed {
			if v := &listed[i]; v.kind == stringValue && r.has(v.text) {
				texts = append(texts, v.text)
			}
		}
		return listedStrings(texts), nil
	}
	if r.dfa == nil {
		return everyString().limit(r.least, r.most, &c.logic.effort)
	}
	if r.most == noLimit {
		return r.dfa, nil
	}
	return r.dfa.limit(0, r.most, &c.logic.effort)
}

// freeNames fills the values that are allowed for names that no schema lists. With patternProperties, names that match
// the same patterns form a class; each class has its own schema for values.
func (c *compiler) freeNames(parts []*schema, o *properties, names []string, allowed nameRule) error {
	patterns := map[string]bool{}
	for _, s := range parts {
		for _, p := range s.patterns {
			patterns[p.name] = true
		}
	}
	if len(patterns) == 0 && !allowed.limited {
		value, err := c.node(freeGoal(parts))
		o.free = []freeProperty{{c.g.addLeaf(newFreeKey(names)), value}}
		return err
	}
	classes, err := c.nameClasses(parts, names, allowed)
	if errors.Is(err, errPatternStates) {
		keyword := "patternProperties"
		has := func(s *schema) bool { return len(s.patterns) > 0 }
		if !slices.ContainsFunc(parts, has) {
			keyword, has = "propertyNames", func(s *schema) bool { return s.names != nil }
		}
		return failAt(parts, has, keyword, ErrUnsupported,
			"the names need more than %d automata, or one of more than %d states", maxNameClasses, MaxPatternStates)
	}
	if err != nil {
		return err
	}
	for _, class := range classes {
		value, err := c.node(class.goal)
		if err != nil {
			return err
		}
		o.free = append(o.free, freeProperty{c.g.addLeaf(&patternKey{patternLeaf{dfa: class.dfa}}), value})
	}
	return nil
}

// maxNameClasses is the maximum number of classes of names; n patterns can give 2^n classes.
const maxNameClasses = 64

type nameClass struct {
	dfa   *runeDFA
	match map[string]bool // patterns that all names of the class match
	goal  []*schema
}

// nameClasses divides the names that no schema lists into classes of names that match the same patternProperties.
func (c *compiler) nameClasses(parts []*schema, names []string, allowed nameRule) ([]nameClass, error) {
	all := everyString()
	if allowed.limited {
		all = allowed.dfa
	}
	rest, err := all.except(listedStrings(names), &c.logic.effort)
	if err != nil || rest == nil {
		return nil, err
	}
	list := []nameClass{{dfa: rest, match: map[string]bool{}}}
	done := map[string]bool{}
	for _, s := range parts {
		for _, p := range s.patterns {
			if done[p.name] {
				continue
			}
			done[p.name] = true
			d, err := c.logic.patternOf(s, p.name)
			if err != nil {
				return nil, err
			}
			if list, err = c.splitNames(list, p.name, d); err != nil {
				return nil, err
			}
		}
	}
	for i := range list {
		for _, s := range parts {
			matched := false
			for _, p := range s.patterns {
				if list[i].match[p.name] {
					matched = true
					list[i].goal = append(list[i].goal, p.schema)
				}
			}
			if !matched && s.additional != nil {
				list[i].goal = append(list[i].goal, s.additional)
			}
		}
	}
	return list, nil
}

func (c *compiler) splitNames(list []nameClass, pattern string, d *runeDFA) ([]nameClass, error) {
	if d == nil {
		return list, nil
	}
	var out []nameClass
	for _, class := range list {
		in, err := class.dfa.intersect(d, &c.logic.effort)
		if err != nil {
			return nil, err
		}
		if in != nil {
			match := maps.Clone(class.match)
			match[pattern] = true
			out = append(out, nameClass{dfa: in, match: match})
		}
		if class.dfa, err = class.dfa.except(d, &c.logic.effort); err != nil {
			return nil, err
		}
		if class.dfa != nil {
			out = append(out, class)
		}
	}
	if len(out) > maxNameClasses {
		return nil, errPatternStates
	}
	return out, nil
}

// patternOf returns the automaton of a pattern of patternProperties, or nil if the pattern matches no string.
func (l *logic) patternOf(s *schema, pattern string) (*runeDFA, error) {
	d, err := l.automaton("pattern", pattern)
	if err != nil {
		e := patternError(s.pointer, "patternProperties", pattern, err)
		e.Kind = ErrUnsupported
		return nil, e
	}
	return d, nil
}

// propertyNames returns every name that a schema in parts mentions, and which of them are required.
func propertyNames(parts []*schema) (names []string, required map[string]bool) {
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, s := range parts {
		for _, p := range s.props {
			add(p.name)
		}
	}
	required = map[string]bool{}
	for _, s := range parts {
		for _, name := range s.required {
			add(name)
			required[name] = true
		}
	}
	return names, required
}

// goalOf returns the schemas that the value of a property must satisfy. From each part these are the property's own
// schema and those of matching patterns or, without any, additionalProperties.
func (l *logic) goalOf(parts []*schema, name string) ([]*schema, error) {
	var goal []*schema
	for _, s := range parts {
		i, said := s.propAt[name]
		if said {
			goal = append(goal, s.props[i].schema)
		}
		for _, p := range s.patterns {
			d, err := l.patternOf(s, p.name)
			if err != nil {
				return nil, err
			}
			if d != nil && d.matches(name) {
				said = true
				goal = append(goal, p.schema)
			}
		}
		if !said && s.additional != nil {
			goal = append(goal, s.additional)
		}
	}
	return goal, nil
}

// freeGoal returns the schemas for the values of names that no part lists.
func freeGoal(parts []*schema) []*schema {
	var goal []*schema
	for _, s := range parts {
		if s.additional != nil {
			goal = append(goal, s.additional)
		}
	}
	return goal
}

// closed reports whether Options.ClosedObjects forbids names that no part lists.
func (c *compiler) closed(parts []*schema) bool {
	listed := slices.ContainsFunc(parts, func(s *schema) bool { return len(s.props) > 0 && s.origin == nil })
	said := slices.ContainsFunc(parts, func(s *schema) bool { return s.additional != nil || len(s.patterns) > 0 })
	return c.options.ClosedObjects && listed && !said
}

// listedKey returns the leaf for the property names of an object up to index upper.
func (c *compiler) listedKey(o *properties, upper int) int32 {
	names := make([]string, len(o.list))
	var key []byte
	for i, p := range o.list {
		names[i] = p.name
		key = appendString(key, p.name)
	}
	list, ok := c.names[string(key)]
	if !ok {
		list = newNameList(names)
		c.names[string(key)] = list
	}
	return c.g.addLeaf(&listedKey{list, o, upper})
}

func newFreeKey(names []string) *freeKey {
	k := &freeKey{}
	for _, name := range names {
		k.taken = append(k.taken, appendBody(nil, name))
	}
	slices.SortFunc(k.taken, bytes.Compare)
	return k
}

// finish computes the fields of an object's node that depend on the depth of its children.
func (n *node) finish(nodes []node) {
	o := n.props
	if o == nil {
		return
	}
	o.pending = make([]int, len(o.list)+1)
	o.pending[len(o.list)] = len(o.list)
	for i := len(o.list) - 1; i >= 0; i-- {
		o.pending[i] = o.pending[i+1]
		if o.required[i] {
			o.pending[i] = i
		}
	}
	for _, p := range o.list {
		d := nodes[p.value].depth
		o.depths = append(o.depths, d)
		if d != impossible {
			o.deepest = max(o.deepest, d)
		}
	}
	o.must = make([]int, len(o.list)+1)
	for i := len(o.list) - 1; i >= 0; i-- {
		o.must[i] = o.must[i+1]
		if o.required[i] {
			o.must[i]++
		}
	}
}
