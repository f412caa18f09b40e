package grammar

// place is the position of a frame in its object or array: the part that was read last, and an index. Together with the
// node it determines what may follow.
type place struct {
	phase phase
	index int32
	count int32  // number of members of an object so far, if it is limited
	found found  // number of elements of an array that have satisfied each contains
	used  uint64 // for uniqueItems: bit i is set if value i was written
}

type phase uint8

const (
	opened   phase = iota // after the opening bracket
	named                 // after the name of a listed property; the leaf's outcome is the property
	nameFree              // after a name that is not listed
	valued                // after a value; index is the property or element that may come next
	parted                // after a comma; index is the property or element that may come next
)

// enter collects the configs at the start of a value of node n.
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

// leave collects the configs that follow a complete leaf.
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
	enough := func() bool { return o.pending[f.place.index] == len(o.list) && int(f.place.count) >= o.least }
	switch f.place.phase {
	case opened:
		a.names(f, true)
		if enough() {
			a.begin(closeObject, f.parent)
		}
	case named:
		a.enter(o.list[tag].value, a.member(f, o, tag+1))
	case nameFree:
		a.enter(o.free[f.place.index].value, a.member(f, o, end))
	case valued:
		if a.names(f, false) {
			a.begin(comma, a.at(f, parted, f.place.index))
		}
		if enough() {
			a.begin(closeObjectSpaced, f.parent)
		}
	case parted:
		a.names(f, true)
	}
}

// member returns the frame after one more member, in which next is the first allowed property.
func (a *arena) member(f frame, o *properties, next int32) int32 {
	if o.counted() {
		f.place.count++
		if o.most == noItems {
			f.place.count = min(f.place.count, int32(o.least))
		}
	}
	return a.at(f, valued, next)
}

// names reports whether another name is allowed after a frame's last member. With collect, it also collects its
// configs. Required properties cannot be skipped; names that are not listed come last.
func (a *arena) names(f frame, collect bool) bool {
	o := a.g.nodes[f.node].props
	room := MaxDepth - int(f.depth)
	i, count := int(f.place.index), int(f.place.count)
	any := false
	from, next := i, o.pending[i]
	if count+1+o.must[i] > o.most {
		from = next // from here on only required listed properties are allowed
	}
	upper := -1
	for j := from; j < len(o.list) && j <= next; j++ {
		if o.offers(j, from, room) && a.completes(o, f.depth, j+1, count+1) {
			upper = j
		}
	}
	if upper >= 0 {
		any = true
		if collect {
			l := o.listed
			if upper < min(next, len(o.list)-1) {
				l = a.g.namesUpTo(o, upper)
			}
			a.collect(config{l, a.g.leaves[l].(*listedKey).startAt(from, room), a.at(f, named, 0)})
		}
	}
	if next < len(o.list) || count == o.most {
		return any
	}
	for class, p := range o.free {
		if a.fits(p.value, f.depth) {
			any = true
			if collect {
				a.begin(p.key, a.at(f, nameFree, int32(class)))
			}
		}
	}
	return any
}

// completes reports whether an object can reach its minimum number of members, after count members and with property i
// as the next candidate.
func (a *arena) completes(o *properties, depth int32, i, count int) bool {
	if !o.counted() {
		return true
	}
	if count+o.must[i] > o.most {
		return false
	}
	for _, p := range o.free {
		if a.fits(p.value, depth) {
			return true
		}
	}
	for ; i < len(o.list) && count < o.least; i++ {
		if o.depths[i] <= MaxDepth-int(depth) {
			count++
		}
	}
	return count >= o.least
}

// namesUpTo returns the leaf of an object's names up to property upper.
func (g *Grammar) namesUpTo(o *properties, upper int) int32 {
	l, ok := o.upTo[upper]
	if !ok {
		full := g.leaves[o.listed].(*listedKey)
		l = g.addLeaf(&listedKey{full.names, o, upper})
		if o.upTo == nil {
			o.upTo = map[int]int32{}
		}
		o.upTo[upper] = l
	}
	return l
}

func (a *arena) leaveArray(f frame) {
	e := a.g.nodes[f.node].items
	switch {
	case e.contains != nil:
		a.leaveKinds(f, e)
		return
	case e.values != nil:
		a.leaveUnique(f, e)
		return
	}
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

// leaveKinds does the work of leaveArray for contains: it collects a config for each kind of element with which the
// array can be completed.
func (a *arena) leaveKinds(f frame, e *elements) {
	now := progress{int(f.place.index), f.place.found, MaxDepth - int(f.depth)}
	nodes := a.g.nodes
	more := false
	if now.index < e.most {
		for kind, n := range e.kinds[min(now.index, len(e.prefix))] {
			next, ok := e.after(now, kind)
			if !ok || !a.fits(n, f.depth) || !e.completes(nodes, next) {
				continue
			}
			more = true
			if f.place.phase != valued {
				g := f
				g.place.found = next.found
				a.enter(n, a.at(g, valued, int32(next.index)))
			}
		}
	}
	enough := now.index >= e.least && e.satisfied(now.found)
	switch {
	case f.place.phase == opened && enough:
		a.begin(closeArray, f.parent)
	case f.place.phase == valued:
		if more {
			a.begin(comma, a.at(f, parted, f.place.index))
		}
		if enough {
			a.begin(closeArraySpaced, f.parent)
		}
	}
}

// leaveUnique is leaveArray for uniqueItems: it collects a config for each value that has not been written.
func (a *arena) leaveUnique(f frame, e *elements) {
	i := int(f.place.index)
	more := false
	for v, n := range e.values {
		if i >= e.most || f.place.used>>v&1 == 1 || !a.fits(n, f.depth) {
			continue
		}
		more = true
		if f.place.phase != valued {
			g := f
			g.place.used |= 1 << v
			a.enter(n, a.at(g, valued, int32(i+1)))
		}
	}
	switch {
	case f.place.phase == opened && e.least == 0:
		a.begin(closeArray, f.parent)
	case f.place.phase == valued:
		if more {
			a.begin(comma, a.at(f, parted, f.place.index))
		}
		if i >= e.least {
			a.begin(closeArraySpaced, f.parent)
		}
	}
}

// begin collects the config at the start of a leaf.
func (a *arena) begin(l, stack int32) {
	a.collect(config{l, a.g.leaves[l].start(), stack})
}

// at returns the frame with another place.
func (a *arena) at(f frame, p phase, index int32) int32 {
	f.place.phase, f.place.index = p, index
	return a.push(f)
}

// fits reports whether a value of the node can be completed below MaxDepth inside the given number of open objects and
// arrays.
func (a *arena) fits(n, depth int32) bool {
	return int(depth)+a.g.nodes[n].depth <= MaxDepth
}
