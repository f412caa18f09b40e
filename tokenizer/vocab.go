package tokenizer

import "slices"

// maxID is the maximum token id, so that a damaged file cannot allocate gigabytes. Vocabularies have at most 262,144
// entries.
const maxID = 1<<22 - 1

// vocab maps ids to byte strings and back. All strings are in one block, in the order of ids. An id without a token has
// an empty string.
type vocab struct {
	text  string
	raw   []byte   // bytes of text, for callers that need slices
	off   []uint32 // [size+1] offset of each id's bytes in raw
	slots []int32  // hash table of ids with linear probing; -1 is empty
}

// vocabBuilder collects tokens in any order.
type vocabBuilder struct {
	arena  []byte
	words  []builtWord
	unique bool // whether two tokens with equal bytes are an error; otherwise lookup returns the first
}

type builtWord struct {
	id       int32
	off, len uint32
	hidden   bool // whether lookup does not return the token
}

// add adds a token. A hidden token can be decoded, but lookup does not return it.
func (b *vocabBuilder) add(id int32, word []byte, hidden bool) {
	b.words = append(b.words, builtWord{id, uint32(len(b.arena)), uint32(len(word)), hidden})
	b.arena = append(b.arena, word...)
}

// build builds the vocab. Two tokens with the same id are an error.
func (b *vocabBuilder) build() (*vocab, error) {
	slices.SortFunc(b.words, func(x, y builtWord) int { return int(x.id) - int(y.id) })
	size := 0
	if n := len(b.words); n > 0 {
		size = int(b.words[n-1].id) + 1
	}
	v := &vocab{raw: make([]byte, 0, len(b.arena)), off: make([]uint32, size+1)}
	last := int32(-1)
	for _, w := range b.words {
		if w.id == last {
			return nil, malformed("id %d is used by two tokens, %q and %q", w.id, v.raw[v.off[w.id]:], b.bytes(w))
		}
		for last < w.id {
			last++
			v.off[last] = uint32(len(v.raw))
		}
		v.raw = append(v.raw, b.bytes(w)...)
	}
	v.off[size] = uint32(len(v.raw))
	v.text = string(v.raw)

	slots := 4
	for slots < 2*len(b.words) {
		slots *= 2
	}
	v.slots = slices.Repeat([]int32{-1}, slots)
	for _, w := range b.words {
		if w.hidden || w.len == 0 {
			continue
		}
		slot, found := probe(v, b.bytes(w))
		if found && !b.unique {
			continue
		}
		if found {
			return nil, malformed("ids %d and %d are the same token %q", v.slots[slot], w.id, b.bytes(w))
		}
		v.slots[slot] = w.id
	}
	return v, nil
}

func (b *vocabBuilder) bytes(w builtWord) []byte { return b.arena[w.off : w.off+w.len] }

// size returns the largest id plus one.
func (v *vocab) size() int { return len(v.off) - 1 }

// has reports whether id is in range, even if it has no token.
func (v *vocab) has(id int32) bool { return id >= 0 && int(id) < len(v.off)-1 }

// str returns the token's bytes as a string, or "" if there is no such token.
func (v *vocab) str(id int32) string {
	if !v.has(id) {
		return ""
	}
	return v.text[v.off[id]:v.off[id+1]]
}

// bytes returns the token's bytes, or nil if there is no such token.
func (v *vocab) bytes(id int32) []byte {
	if !v.has(id) || v.off[id] == v.off[id+1] {
		return nil
	}
	return v.raw[v.off[id]:v.off[id+1]:v.off[id+1]]
}

// lookup returns the token with exactly these bytes.
func lookup[S string | []byte](v *vocab, word S) (id int32, ok bool) {
	slot, ok := probe(v, word)
	return v.slots[slot], ok
}

// probe returns the slot with word, or the empty slot for it.
func probe[S string | []byte](v *vocab, word S) (slot int, found bool) {
	mask := len(v.slots) - 1
	for i := int(hashBytes(word)) & mask; ; i = (i + 1) & mask {
		id := v.slots[i]
		if id < 0 {
			return i, false
		}
		if v.text[v.off[id]:v.off[id+1]] == string(word) {
			return i, true
		}
	}
}

// hashBytes returns an FNV-1a hash, mixed by spread.
func hashBytes[S string | []byte](s S) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return spread(h)
}

// spread makes the low bits of h depend on all bits.
func spread(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9E3779B97F4A7C15
	return h ^ h>>29
}
