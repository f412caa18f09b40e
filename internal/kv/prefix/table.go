package prefix

import "hash/maphash"

// table finds slots by hash: chained buckets in arrays of fixed size, so that neither adding nor removing allocates.
// Buckets are chosen with a random seed per table: prompts that were crafted to share bits of their hashes are still
// spread over buckets.
type table struct {
	seed  maphash.Seed
	heads []int32 // [buckets, a power of two] first slot of each bucket
	next  []int32 // [slots] next slot of the same bucket
	keys  []Hash  // [slots] valid while the slot is in the table
}

func newTable(slots int) table {
	buckets := 1
	for buckets < slots {
		buckets *= 2
	}
	t := table{seed: maphash.MakeSeed(), heads: make([]int32, buckets), next: make([]int32, slots),
		keys: make([]Hash, slots)}
	t.clear()
	return t
}

func (t *table) bucket(h *Hash) *int32 {
	return &t.heads[maphash.Bytes(t.seed, h[:])&uint64(len(t.heads)-1)]
}

// find returns the slot of h, or none.
func (t *table) find(h *Hash) int32 {
	s := *t.bucket(h)
	for s != none && t.keys[s] != *h {
		s = t.next[s]
	}
	return s
}

// add inserts a slot that is not yet in the table under the hash h.
func (t *table) add(slot int32, h *Hash) {
	b := t.bucket(h)
	t.keys[slot], t.next[slot] = *h, *b
	*b = slot
}

// remove removes a slot that is in the table.
func (t *table) remove(slot int32) {
	at := t.bucket(&t.keys[slot])
	for *at != slot {
		at = &t.next[*at]
	}
	*at = t.next[slot]
}

func (t *table) clear() {
	for i := range t.heads {
		t.heads[i] = none
	}
}
