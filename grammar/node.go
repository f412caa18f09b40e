package grammar

import "math"

// node is one position in a document where a value stands. Nodes form a graph: a recursive schema leads back.
type node struct {
	kind  nodeKind
	leaf  int32   // leafNode: number of the leaf
	kids  []int32 // anyNode: one of these
	props *properties
	items *elements

	// depth is the least nesting a value here needs: 0 for a leaf, impossible if there is no such value. Positions
	// that do not fit under MaxDepth are not offered, so a document can always be completed.
	depth int
}

type nodeKind uint8

const (
	leafNode nodeKind = iota
	anyNode           // one of several; none if there are no kids
	objectNode
	arrayNode
)

const impossible = math.MaxInt32

// properties are the members of an object, in the order in which they are written. Names that are not listed follow.
type properties struct {
	list     []property
	required []bool // [list]
	pending  []int  // [list+1] first required property at or after i, len(list) if there is none
	depths   []int  // [list] depth of the values
	deepest  int    // greatest of them that is possible
	listed   int32  // leaf for their names
	freeKey  int32  // leaf for other names
	free     int32  // node of their values
	freeOpen bool   // other names are allowed
}

type property struct {
	name  string
	value int32 // node
}

// elements are the members of an array: first those of prefix, then rest.
type elements struct {
	prefix []int32
	rest   int32 // -1 if there is none
	least  int
	most   int // noItems if there is no bound
}

const noItems = math.MaxInt32 >> 4

// at is the node of element i, -1 if there can be none.
func (e *elements) at(i int) int32 {
	switch {
	case i >= e.most:
		return -1
	case i < len(e.prefix):
		return e.prefix[i]
	}
	return e.rest
}

// settled is the index from which all elements are alike and none is required, so that counting can stop.
func (e *elements) settled() int { return max(len(e.prefix), e.least) }

// measure fills depth for all nodes: the least fixed point, from the leaves up.
func measure(nodes []node) {
	for i := range nodes {
		nodes[i].depth = impossible
	}
	for changed := true; changed; {
		changed = false
		for i := len(nodes) - 1; i >= 0; i-- { // children mostly come after their parents
			if d := nodes[i].need(nodes); d < nodes[i].depth {
				nodes[i].depth = d
				changed = true
			}
		}
	}
}

// need computes depth from the present depth of the children.
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
		inner := 0
		for i, p := range n.props.list {
			if n.props.required[i] {
				inner = max(inner, nodes[p.value].depth)
			}
		}
		return within(inner)
	}
	inner := 0
	for i := range min(n.items.least, len(n.items.prefix)+1) { // beyond the prefix all are alike
		k := n.items.at(i)
		if k < 0 {
			return impossible
		}
		inner = max(inner, nodes[k].depth)
	}
	return within(inner)
}

func within(inner int) int {
	if inner == impossible {
		return impossible
	}
	return inner + 1
}
