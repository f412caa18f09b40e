package event

// state is what a reader of all batches knows: the pages of each tier, in the order they were stored. A page's parent
// is stored before it, so that readers can replay the order.
type state struct {
	tiers [mediums]pages
	// roots holds the salt of each root, from pages of the device. Events of other tiers have only the root of a page:
	// pages whose salt is unknown, because no request has used it since the start, are omitted.
	roots     map[uint64]string
	rootBytes int
}

// maxRootBytes is the maximum memory of stored salts; rootBytes is the overhead of one salt.
const (
	maxRootBytes = 8 << 20
	rootBytes    = 96
)

// pages holds the pages of one tier.
type pages struct {
	byID  map[uint64]*change
	order []*change
	holes int // number of entries of order whose pages were removed
}

func newState() *state {
	s := &state{roots: map[uint64]string{}}
	for m := range s.tiers {
		s.tiers[m].byID = map[uint64]*change{}
	}
	return s
}

// apply applies changes and appends the events for readers to out.
func (s *state) apply(list []change, out *encoder) {
	for i := range list {
		c := &list[i]
		t := &s.tiers[c.medium]
		switch c.kind {
		case rooted:
			s.roots[c.root] = ""
		case stored:
			if !s.name(c) {
				continue
			}
			t.drop(c.id) // the page is stored again without having been removed
			kept := *c
			t.byID[c.id] = &kept
			t.order = append(t.order, &kept)
			out.stored(c.medium, &kept.page)
		case removed:
			if t.drop(c.id) {
				out.removed(c.medium, c.id)
			}
		case cleared:
			s.clear(c.medium, out)
		}
	}
}

// name sets the salt of a page from the salt of its root, or stores the salt of the root, and reports whether the salt
// is known.
func (s *state) name(c *change) (known bool) {
	if c.medium != GPU {
		c.salt, known = s.roots[c.root]
		return known
	}
	if salt, known := s.roots[c.root]; known && salt == c.salt {
		c.salt = salt // all pages of a root share the memory of its salt
		return true
	}
	n := len(c.salt) + rootBytes
	if s.rootBytes+n > maxRootBytes {
		plain := map[uint64]string{} // a new map, because a map does not release memory
		for root, salt := range s.roots {
			if salt == "" {
				plain[root] = ""
			}
		}
		s.roots, s.rootBytes = plain, len(plain)*rootBytes
	}
	s.roots[c.root] = c.salt
	s.rootBytes += n
	return true
}

// clear empties a tier. The protocol has only an event that clears all tiers, so while other tiers hold pages, the
// removed pages are listed.
func (s *state) clear(m Medium, out *encoder) {
	alone := true
	for other := range s.tiers {
		alone = alone && (Medium(other) == m || len(s.tiers[other].byID) == 0)
	}
	if alone {
		out.cleared()
	} else {
		for _, c := range s.tiers[m].order {
			if !c.gone {
				out.removed(m, c.id)
			}
		}
	}
	s.tiers[m] = pages{byID: map[uint64]*change{}}
}

// whole appends the events that bring any reader to this state.
func (s *state) whole(out *encoder) {
	out.cleared()
	for m := range s.tiers {
		for _, c := range s.tiers[m].order {
			if !c.gone {
				out.stored(Medium(m), &c.page)
			}
		}
	}
}

// drop removes a page and reports whether it was present.
func (t *pages) drop(id uint64) bool {
	c := t.byID[id]
	if c == nil {
		return false
	}
	delete(t.byID, id)
	c.gone = true
	t.holes++
	if t.holes > len(t.order)/2 {
		kept := t.order[:0]
		for _, c := range t.order {
			if !c.gone {
				kept = append(kept, c)
			}
		}
		clear(t.order[len(kept):])
		t.order, t.holes = kept, 0
	}
	return true
}
