package grammar

import (
	"bytes"
	"fmt"
	"slices"
)

// object adds the node of an object that satisfies all parts. Properties come in the order of the schemas; required
// names that no schema lists come after them, and other names last.
func (c *compiler) object(parts []*schema, kids []int32) ([]int32, error) {
	names, required := propertyNames(parts)
	if len(names) > MaxProperties {
		return nil, failAt(parts, func(s *schema) bool { return s.hasObject }, "properties", ErrTooLarge,
			"%d properties after combining; at most %d are supported", len(names), MaxProperties)
	}
	if err := c.charge(parts, len(names)); err != nil {
		return nil, err
	}
	o := &properties{}
	id, err := c.add(node{kind: objectNode, props: o})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		value, err := c.node(goalOf(parts, name))
		if err != nil {
			return nil, err
		}
		o.list = append(o.list, property{name, value})
		o.required = append(o.required, required[name])
	}
	o.listed = c.listedKey(o)
	if o.freeOpen = !c.closed(parts); o.freeOpen {
		free, err := c.node(freeGoal(parts))
		if err != nil {
			return nil, err
		}
		o.free = free
		o.freeKey = c.g.addLeaf(newFreeKey(names))
	}
	return append(kids, id), nil
}

// propertyNames lists every name that a part mentions, and which are required.
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

// goalOf is what the parts together say about one property: each by its own entry, or by additionalProperties.
func goalOf(parts []*schema, name string) []*schema {
	var goal []*schema
	for _, s := range parts {
		i, ok := s.propAt[name]
		switch {
		case ok:
			goal = append(goal, s.props[i].schema)
		case s.additional != nil:
			goal = append(goal, s.additional)
		}
	}
	return goal
}

// freeGoal is what the parts say about names that none of them lists.
func freeGoal(parts []*schema) []*schema {
	var goal []*schema
	for _, s := range parts {
		if s.additional != nil {
			goal = append(goal, s.additional)
		}
	}
	return goal
}

// closed applies Options.ClosedObjects.
func (c *compiler) closed(parts []*schema) bool {
	listed := slices.ContainsFunc(parts, func(s *schema) bool { return len(s.props) > 0 })
	said := slices.ContainsFunc(parts, func(s *schema) bool { return s.additional != nil })
	return c.options.ClosedObjects && listed && !said
}

// listedKey makes the leaf for the names of an object's properties.
func (c *compiler) listedKey(o *properties) int32 {
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
	return c.g.addLeaf(&listedKey{list, o})
}

func newFreeKey(names []string) *freeKey {
	k := &freeKey{}
	for _, name := range names {
		k.taken = append(k.taken, appendBody(nil, name))
	}
	slices.SortFunc(k.taken, bytes.Compare)
	return k
}

// array adds the node of an array that satisfies all parts.
func (c *compiler) array(parts []*schema, kids []int32) ([]int32, error) {
	e := &elements{rest: -1, most: noItems}
	length := 0
	for _, s := range parts {
		length = max(length, len(s.prefix))
		e.least = max(e.least, s.minItems)
		e.most = min(e.most, s.maxItems)
	}
	if e.least > e.most {
		c.drop(parts, "minItems", fmt.Sprintf("%d is above maxItems %d", e.least, e.most))
		return kids, nil
	}
	if err := c.charge(parts, length); err != nil {
		return nil, err
	}
	id, err := c.add(node{kind: arrayNode, items: e})
	if err != nil {
		return nil, err
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

// finish fills what depends on the depth of the children.
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
}
