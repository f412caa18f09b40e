package event

// state holds the pages of each tier as published so far, in the order in which they were stored, which is parents
// first.
type state struct {
	tiers [mediums]pages
	// roots maps each root hash to its salt, known from pages on the device. Pages of other tiers have only the root.
	// They are not published if no request has used their salt since the start, because it is then unknown.
	roots     map[uint64]string
	rootBytes int
}

// maxRootBytes is the maximum memory of roots in bytes, rootBytes the overhead per salt.
const (
	maxRootBytes = 8 << 20
	rootBytes    = 96
)

// pages holds the pages of one tier.
type pages struct {
	byID  map[uint64]*change
	order []*change
	holes int // number of removed pages that are still in order
}

func newState() *state {
	s := &state{roots: map[uint64]string{}}
	for m := range s.tiers {
		s.tiers[m].byID = map[uint64]*change{}
	}
	return s
}

// apply applies changes, and adds the events to out.
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
			t.drop(c.id) // the page is stored again without having been removed before
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

// name stores the salt of a device page for its root, and sets the salt of other pages. It returns false if the salt is
// unknown.
func (s *state) name(c *change) (known bool) {
	if c.medium != GPU {
		c.salt, known = s.roots[c.root]
		return known
	}
	if salt, known := s.roots[c.root]; known && salt == c.salt {
		c.salt = salt // all pages of a root share the string of its salt
		return true
	}
	n := len(c.salt) + rootBytes
	if s.rootBytes+n > maxRootBytes {
		plain := map[uint64]string{} // a map does not release memory when entries are deleted
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

// clear removes all pages of a tier. If other tiers have pages, the removed pages are listed, because the protocol has
// only an event that clears all tiers.
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

// whole adds the events of the whole state: AllBlocksCleared, then every page.
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

// drop removes a page. It returns false if there is no such page.
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
