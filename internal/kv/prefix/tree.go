package prefix

// newNode adds a node as the newest child of parent, or a root if parent is none. There is always an unused node,
// because there are at most as many entries as stored pages, and at most as many roots as entries.
func (ix *Index) newNode(h *Hash, parent int32) int32 {
	n := ix.unused
	e := &ix.nodes[n]
	ix.unused = e.next
	*e = node{page: None, parent: parent, child: none, prev: none, next: none, older: none, newer: none}
	ix.byHash.add(n, h)
	if parent != none {
		e.next = ix.nodes[parent].child
		if e.next != none {
			ix.nodes[e.next].prev = n
		}
		ix.nodes[parent].child = n
	}
	return n
}

// freeNode removes a node without pages and children, and then its parent if that is a root without other children.
func (ix *Index) freeNode(n int32) {
	e := &ix.nodes[n]
	parent := e.parent
	if parent != none {
		if e.prev == none {
			ix.nodes[parent].child = e.next
		} else {
			ix.nodes[e.prev].next = e.next
		}
		if e.next != none {
			ix.nodes[e.next].prev = e.prev
		}
	}
	ix.byHash.remove(n)
	*e = node{next: ix.unused}
	ix.unused = n
	if parent != none && ix.nodes[parent].page == None && ix.nodes[parent].child == none {
		ix.freeNode(parent)
	}
}

// join adds a used page to entry n, after the page that lookups return. If that page is idle, the new page replaces it,
// and freed is the idle page; otherwise freed is None.
func (ix *Index) join(n int32, page Page) (freed Page) {
	first := ix.nodes[n].page
	after := ix.pages[first].next
	ix.pages[page] = slot{node: n, prev: first, next: after}
	if after != None {
		ix.pages[after].prev = page
	}
	ix.pages[first].next = page
	if !ix.nodes[n].idle {
		return None
	}
	ix.idle.remove(ix.nodes, n)
	ix.leave(n, first)
	return first
}

// leave removes a page from entry n. If lookups returned this page, they then return the next page of the entry.
func (ix *Index) leave(n int32, page Page) {
	s := ix.pages[page]
	if s.prev == None {
		ix.nodes[n].page = s.next
	} else {
		ix.pages[s.prev].next = s.next
	}
	if s.next != None {
		ix.pages[s.next].prev = s.prev
	}
	ix.pages[page] = slot{node: none, prev: None, next: None}
}

// list is the list of idle entries in the order in which they became idle.
type list struct {
	oldest, newest int32
	count          int
}

func newList() list { return list{oldest: none, newest: none} }

// add adds an entry, which has become idle, at the newest end.
func (l *list) add(nodes []node, n int32) {
	e := &nodes[n]
	e.idle, e.older, e.newer = true, l.newest, none
	if l.newest == none {
		l.oldest = n
	} else {
		nodes[l.newest].newer = n
	}
	l.newest = n
	l.count++
}

// remove removes an idle entry.
func (l *list) remove(nodes []node, n int32) {
	e := &nodes[n]
	if e.older == none {
		l.oldest = e.newer
	} else {
		nodes[e.older].newer = e.newer
	}
	if e.newer == none {
		l.newest = e.older
	} else {
		nodes[e.newer].older = e.older
	}
	e.idle, e.older, e.newer = false, none, none
	l.count--
}
