package prefix

import "hash/maphash"

// table is a hash table of slots, with chained buckets in arrays of fixed size, so that no operation allocates. Each
// table has a random seed, so that prompts cannot be crafted whose hashes are in the same bucket.
type table struct {
	seed  maphash.Seed
	heads []int32 // [buckets, a power of two] first slot of the bucket
	next  []int32 // [slots] next slot of the bucket
	keys  []Hash  // [slots] hash, valid if the slot is in the table
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

// find returns the slot with the hash h, or none.
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
