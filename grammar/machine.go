package grammar

// place is where a frame stands in its object or array: what has just been read, and an index. Together with the node
// it decides what may follow.
type place struct {
	phase phase
	index int32
}

type phase uint8

const (
	opened   phase = iota // the opening bracket
	named                 // a listed property's name; the leaf's outcome says which
	nameFree              // another name
	valued                // a value; index is the property or element that may come next
	parted                // a comma; index likewise
)

// enter collects the readings of a value of the node on a stack.
func (a *arena) enter(n, stack int32) {
	v := &a.g.nodes[n]
	depth := a.frames[stack].depth
	if !a.fits(n, depth) {
		return
	}
	f := frame{node: n, place: place{phase: opened}, parent: stack, depth: depth + 1}
	switch v.kind {
	case leafNode:
		a.begin(v.leaf, stack)
	case anyNode:
		for _, k := range v.kids {
			a.enter(k, stack)
		}
	case objectNode:
		a.begin(openObject, a.push(f))
	case arrayNode:
		a.begin(openArray, a.push(f))
	}
}

// leave collects the readings that follow a complete leaf on a stack.
func (a *arena) leave(stack, tag int32) {
	if stack == 0 {
		a.complete = true
		return
	}
	f := a.frames[stack]
	if a.g.nodes[f.node].kind == objectNode {
		a.leaveObject(f, tag)
	} else {
		a.leaveArray(f)
	}
}

func (a *arena) leaveObject(f frame, tag int32) {
	o := a.g.nodes[f.node].props
	end := int32(len(o.list))
	switch f.place.phase {
	case opened:
		a.names(f, 0)
		if o.pending[0] == len(o.list) {
			a.begin(closeObject, f.parent)
		}
	case named:
		a.enter(o.list[tag].value, a.at(f, valued, tag+1))
	case nameFree:
		a.enter(o.free, a.at(f, valued, end))
	case valued:
		if a.hasNames(f, f.place.index) {
			a.begin(comma, a.at(f, parted, f.place.index))
		}
		if o.pending[f.place.index] == len(o.list) {
			a.begin(closeObjectSpaced, f.parent)
		}
	case parted:
		a.names(f, f.place.index)
	}
}

// names collects the readings of the next name, from property i on. Required properties cannot be passed over; other
// names come last.
func (a *arena) names(f frame, i int32) {
	o := a.g.nodes[f.node].props
	room := MaxDepth - int(f.depth)
	if o.offersAny(int(i), room) {
		a.collect(config{o.listed, a.g.leaves[o.listed].(*listedKey).startAt(int(i), room), a.at(f, named, 0)})
	}
	if a.freeNames(f, o, i) {
		a.begin(o.freeKey, a.at(f, nameFree, 0))
	}
}

// hasNames says whether names would find any.
func (a *arena) hasNames(f frame, i int32) bool {
	o := a.g.nodes[f.node].props
	return a.freeNames(f, o, i) || o.offersAny(int(i), MaxDepth-int(f.depth))
}

func (a *arena) freeNames(f frame, o *properties, i int32) bool {
	return o.freeOpen && o.pending[i] == len(o.list) && a.fits(o.free, f.depth)
}

func (a *arena) leaveArray(f frame) {
	e := a.g.nodes[f.node].items
	i := f.place.index
	next := e.at(int(i))
	more := next >= 0 && a.fits(next, f.depth)
	count := i + 1
	if e.most == noItems {
		count = min(count, int32(e.settled()))
	}
	switch f.place.phase {
	case opened:
		if more {
			a.enter(next, a.at(f, valued, count))
		}
		if e.least == 0 {
			a.begin(closeArray, f.parent)
		}
	case parted:
		a.enter(next, a.at(f, valued, count))
	case valued:
		if more {
			a.begin(comma, a.at(f, parted, i))
		}
		if int(i) >= e.least {
			a.begin(closeArraySpaced, f.parent)
		}
	}
}

// begin collects the start of a leaf.
func (a *arena) begin(l, stack int32) {
	a.collect(config{l, a.g.leaves[l].start(), stack})
}

// at is the frame moved to another place.
func (a *arena) at(f frame, p phase, index int32) int32 {
	f.place = place{p, index}
	return a.push(f)
}

// fits says whether a value of the node can be completed inside so many open objects and arrays.
func (a *arena) fits(n, depth int32) bool {
	return int(depth)+a.g.nodes[n].depth <= MaxDepth
}
