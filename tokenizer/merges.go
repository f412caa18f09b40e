package tokenizer

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"sparrow/internal/jsonscan"
)

// noMerge is the rank of a pair that is not merged; it is higher than all ranks.
const noMerge = math.MaxInt32

// mergeTable maps a pair of token ids to the rank and the result of their merge.
type mergeTable struct {
	slots []mergeSlot // hash table with open addressing and linear probing
	mask  uint64
}

// mergeSlot is one merge. key is the key of the pair plus one; zero means empty.
type mergeSlot struct {
	key  uint64
	rank int32 // position in the file; the lowest rank is merged first
	id   int32 // resulting token
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) + 1 }

// find returns the rank and the result of merging a and b. The rank is noMerge if they are not merged.
func (t *mergeTable) find(a, b int32) (rank, id int32) {
	key := pairKey(a, b)
	for i := spread(key) & t.mask; ; i = (i + 1) & t.mask {
		switch s := &t.slots[i]; s.key {
		case key:
			return s.rank, s.id
		case 0:
			return noMerge, 0
		}
	}
}

// put adds a merge. If a pair is listed twice, the later one is used.
func (t *mergeTable) put(a, b, rank, id int32) {
	key := pairKey(a, b)
	i := spread(key) & t.mask
	for t.slots[i].key != 0 && t.slots[i].key != key {
		i = (i + 1) & t.mask
	}
	t.slots[i] = mergeSlot{key, rank, id}
}

// resolver finds the id of a token by its spelling in the file.
type resolver struct {
	words *vocab
	odd   map[string]int32 // tokens by spelling that cannot be found by their bytes
	// unspell appends the bytes that a spelling represents; ok is false if it represents only itself.
	unspell func(dst, word []byte) (_ []byte, ok bool)
	buf     []byte
}

// pair returns the ids of both halves of a merge and of the result. If one is not in the vocabulary, missing is its
// spelling.
func (r *resolver) pair(a, b []byte) (ids [3]int32, missing []byte) {
	buf, okA := r.unspell(r.buf[:0], a)
	n := len(buf)
	buf, okB := r.unspell(buf, b)
	r.buf = buf
	if okA && okB {
		var found [3]bool
		ids[0], found[0] = lookup(r.words, buf[:n])
		ids[1], found[1] = lookup(r.words, buf[n:])
		ids[2], found[2] = lookup(r.words, buf)
		if found == [3]bool{true, true, true} {
			return ids, nil
		}
	}
	for i, word := range [][]byte{a, b, slices.Concat(a, b)} {
		id, ok := r.one(word)
		if !ok {
			return ids, word
		}
		ids[i] = id
	}
	return ids, nil
}

// one returns the id of a token by its spelling.
func (r *resolver) one(word []byte) (id int32, ok bool) {
	if raw, ok := r.unspell(nil, word); ok {
		if id, ok := lookup(r.words, raw); ok {
			return id, true
		}
	}
	id, ok = r.odd[string(word)]
	return id, ok
}

// readMerges reads the list of merges, in either format: "a b" or ["a", "b"].
func readMerges(data json.RawMessage, names *resolver) (mergeTable, error) {
	slots := 4
	// A merge has at least 7 bytes of JSON. The table is at most half full.
	for n := len(data) / 7; slots < n && slots < 1<<18; {
		slots *= 2
	}
	t := mergeTable{slots: make([]mergeSlot, slots), mask: uint64(slots - 1)}
	r := jsonscan.Scanner{Text: data, Name: "list of merges"}
	rank := int32(0)
	var left []byte
	err := r.Array(func() error {
		right, err := readMerge(&r, &left)
		if err != nil {
			return err
		}
		ids, missing := names.pair(left, right)
		if missing != nil {
			return malformed("merge %d, %q + %q: token %q is not in the vocabulary", rank, left, right, missing)
		}
		if 2*int(rank) >= len(t.slots) {
			t.grow()
		}
		t.put(ids[0], ids[1], rank, ids[2])
		rank++
		return nil
	})
	return t, asMalformed(err)
}

// readMerge reads one merge. left is a buffer for the first half; the second half is valid until the next read.
func readMerge(r *jsonscan.Scanner, left *[]byte) (right []byte, err error) {
	if r.Next() != '[' {
		both, err := r.Str()
		if err != nil {
			return nil, err
		}
		a, b, ok := bytes.Cut(both, []byte(" "))
		if !ok || len(a) == 0 || len(b) == 0 || bytes.IndexByte(b, ' ') >= 0 {
			return nil, malformed("merge %q is not two tokens with a space between", both)
		}
		*left = append((*left)[:0], a...)
		return b, nil
	}
	n := 0
	err = r.Array(func() error {
		s, err := r.Str()
		switch n++; n {
		case 1:
			*left = append((*left)[:0], s...)
		case 2:
			right = s
		default:
			return malformed("before byte %d: a merge of more than two tokens", r.Pos)
		}
		return err
	})
	if err == nil && n != 2 {
		err = malformed("before byte %d: a merge of %d tokens", r.Pos, n)
	}
	return right, err
}

// grow doubles the size of the table.
func (t *mergeTable) grow() {
	old := t.slots
	t.slots = make([]mergeSlot, 2*len(old))
	t.mask = uint64(len(t.slots) - 1)
	for _, s := range old {
		if s.key != 0 {
			a, b := int32((s.key-1)>>32), int32(uint32(s.key-1))
			t.put(a, b, s.rank, s.id)
		}
	}
}
