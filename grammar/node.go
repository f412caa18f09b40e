package grammar

import (
	"math"
	"slices"
)

// node is one position of a value in a document. Nodes form a graph: a recursive schema has cycles.
type node struct {
	kind  nodeKind
	leaf  int32   // index of the leaf; only for leafNode
	kids  []int32 // alternatives; only for anyNode
	props *properties
	items *elements

	// depth is the minimum nesting of a value here: 0 for a leaf, impossible if there is no such value. A value that
	// would exceed MaxDepth is not allowed, so that a document can always be completed.
	depth int
}

type nodeKind uint8

const (
	leafNode nodeKind = iota
	anyNode           // one of kids; without kids no value is possible
	objectNode
	arrayNode
)

const impossible = math.MaxInt32

// properties holds the members of an object, in the order in which they are written. Names that are not listed follow.
type properties struct {
	list     []property
	required []bool         // [list] whether the property is required
	pending  []int          // [list+1] first required property at or after i; len(list) if there is none
	must     []int          // [list+1] number of required properties at or after i
	depths   []int          // [list] minimum nesting of the property's value
	deepest  int            // largest value in depths that is not impossible
	listed   int32          // leaf for the names of all properties
	upTo     map[int]int32  // leaves for the names up to an index, made on demand
	free     []freeProperty // classes of names that are not listed; none if such names are not allowed
	least    int            // minimum number of members
	most     int            // maximum number of members; noItems if there is none
}

type property struct {
	name  string
	value int32 // index of the value's node
}

// freeProperty is a class of names that are not listed.
type freeProperty struct {
	key   int32 // index of the name's leaf
	value int32 // index of the value's node
}

// counted reports whether the number of members is limited.
func (o *properties) counted() bool { return o.least > 0 || o.most != noItems }

// elements describes the members of an array: first those of prefix, then rest.
type elements struct {
	prefix []int32
	rest   int32 // node of the elements after prefix; -1 if there are none
	least  int
	most   int // maximum number of elements; noItems if there is none

	// With contains, elements are of 2^contains kinds: the set of contains schemas that an element satisfies.
	contains []containing
	kinds    [][]int32 // [prefix+1][2^contains] nodes; in a kind, bit i is set if it satisfies contains[i]
	known    map[progress]bool

	// With uniqueItems the elements are values of a list, each at most once.
	values []int32 // node of each value
}

// maxUnique is the maximum number of values for the elements of an array with uniqueItems.
const maxUnique = 64

// maxContains is the maximum number of contains keywords of one array, after schemas are combined.
const maxContains = 3

// maxContained is the maximum of the product of the bounds of contains and minItems of one array.
const maxContained = 1 << 13

// found counts the elements that have satisfied each contains.
type found [maxContains]uint8

// progress is the state of an array in progress, and the maximum nesting of its elements.
type progress struct {
	index int
	found found
	room  int
}

const noItems = math.MaxInt32 >> 4

// at returns the node of element i, or -1 if the array cannot have it.
func (e *elements) at(i int) int32 {
	switch {
	case i >= e.most:
		return -1
	case i < len(e.prefix):
		return e.prefix[i]
	}
	return e.rest
}

// settled returns the index from which on all elements have the same schema and no element is required, so that
// elements need not be counted.
func (e *elements) settled() int { return max(len(e.prefix), e.least) }

// measure computes depth for all nodes: the least fixed point of need, starting with the leaves.
func measure(nodes []node) {
	for i := range nodes {
		nodes[i].depth = impossible
	}
	for changed := true; changed; {
		changed = false
		for i := len(nodes) - 1; i >= 0; i-- { // children mostly have higher indices than their parents
			if d := nodes[i].need(nodes); d < nodes[i].depth {
				nodes[i].depth = d
				changed = true
			}
		}
	}
}

// need computes depth from the current depths of the children.
func (n *node) need(nodes []node) int {
	switch n.kind {
	case leafNode:
		return 0
	case anyNode:
		least := impossible
		for _, k := range n.kids {
			least = min(least, nodes[k].depth)
		}
		return least
	case objectNode:
		return within(n.props.need(nodes))
	}
	if n.items.values != nil {
		return within(n.items.needValues(nodes))
	}
	if n.items.contains != nil {
		return within(n.items.needKinds(nodes))
	}
	inner := 0
	for i := range min(n.items.least, len(n.items.prefix)+1) { // all elements after the prefix have the same schema
		k := n.items.at(i)
		if k < 0 {
			return impossible
		}
		inner = max(inner, nodes[k].depth)
	}
	return within(inner)
}

// need returns the minimum nesting of the members that an object must have: the required ones, and those of the others
// with the least nesting until minProperties is reached.
func (o *properties) need(nodes []node) int {
	inner, count := 0, 0
	var others []int
	for i, p := range o.list {
		d := nodes[p.value].depth
		if o.required[i] {
			inner = max(inner, d)
			count++
		} else {
			others = append(others, d)
		}
	}
	if count > o.most {
		return impossible
	}
	if count >= o.least {
		return inner
	}
	free := impossible
	for _, f := range o.free {
		free = min(free, nodes[f.value].depth)
	}
	slices.Sort(others)
	for i := range o.least - count {
		d := free
		if i < len(others) {
			d = min(d, others[i])
		}
		inner = max(inner, d)
		if i >= len(others) || d == impossible {
			break // the remaining properties have equal depths
		}
	}
	return inner
}

// needValues returns the minimum nesting of the required number of different values of an array.
func (e *elements) needValues(nodes []node) int {
	depths := []int{}
	for _, n := range e.values {
		depths = append(depths, nodes[n].depth)
	}
	slices.Sort(depths)
	if e.least == 0 {
		return 0
	}
	return depths[e.least-1]
}

// needKinds returns the minimum nesting of the elements of an array with contains.
func (e *elements) needKinds(nodes []node) int {
	var depths []int
	for _, kinds := range e.kinds {
		for _, n := range kinds {
			depths = append(depths, nodes[n].depth)
		}
	}
	depths = append(depths, 0)
	slices.Sort(depths)
	for _, d := range slices.Compact(depths) {
		if d == impossible {
			break
		}
		e.known = map[progress]bool{} // the results depend on depths, which are not final yet
		if e.completes(nodes, progress{room: d}) {
			return d
		}
	}
	return impossible
}

// completes reports whether an array can be completed from progress p.
func (e *elements) completes(nodes []node, p progress) bool {
	if p.index >= e.least && e.satisfied(p.found) {
		return true
	}
	if p.index >= e.most {
		return false
	}
	if known, ok := e.known[p]; ok {
		return known
	}
	e.known[p] = false // a path that returns to this state cannot complete the array
	kinds := e.kinds[min(p.index, len(e.prefix))]
	for kind := len(kinds) - 1; kind >= 0; kind-- {
		if next, ok := e.after(p, kind); ok && nodes[kinds[kind]].depth <= p.room && e.completes(nodes, next) {
			e.known[p] = true
			return true
		}
	}
	return false
}

// satisfied reports whether the minimum of every contains is reached.
func (e *elements) satisfied(f found) bool {
	for i, x := range e.contains {
		if int(f[i]) < x.least {
			return false
		}
	}
	return true
}

// after returns the progress with one more element of a kind; ok is false if the maximum of a contains would be
// exceeded.
func (e *elements) after(p progress, kind int) (progress, bool) {
	p.index++
	if e.most == noItems {
		p.index = min(p.index, e.settled())
	}
	for i, x := range e.contains {
		if kind>>i&1 == 0 {
			continue
		}
		if int(p.found[i]) == x.most {
			return p, false
		}
		if x.most != noItems || int(p.found[i]) < x.least {
			p.found[i]++
		}
	}
	return p, true
}

func within(inner int) int {
	if inner == impossible {
		return impossible
	}
	return inner + 1
}
