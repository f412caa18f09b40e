package prefix

// ghosts holds the hashes of recently evicted pages, so that a lookup can report whether a missing page was evicted or
// never stored. When the table is full, a new hash replaces the oldest hash.
type ghosts struct {
	table
	count int // number of filled slots
	at    int // slot that is overwritten next
}

func newGhosts(slots int) ghosts { return ghosts{table: newTable(slots)} }

// remember stores the hash of an evicted page.
func (g *ghosts) remember(h *Hash) {
	if g.find(h) != none {
		return
	}
	slot := int32(g.at)
	if g.count == len(g.keys) {
		g.remove(slot)
	} else {
		g.count++
	}
	g.add(slot, h)
	g.at = (g.at + 1) % len(g.keys)
}

func (g *ghosts) forget() {
	g.table.clear()
	g.count, g.at = 0, 0
}
