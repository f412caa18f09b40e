package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// bpe (byte-pair encoding) merges the symbols of a piece into tokens: it repeatedly merges the adjacent pair with the
// lowest rank, of several the leftmost, until no pair can be merged.
type bpe struct {
	words  *vocab // tokens by the bytes that they match
	merges mergeTable
	cache  pieceCache

	// byteID holds the token of each byte, or -1: the symbols of a byte-level vocabulary, or the byte-fallback tokens
	// of a character-level vocabulary.
	byteID       [256]int32
	byteLevel    bool // whether symbols are bytes; otherwise they are characters
	unknown      int32
	fuseUnknown  bool
	ignoreMerges bool   // whether a piece that equals a token becomes this token, without merges
	added        []bool // [size] whether the id is produced only by matching added tokens
}

// scanLimit is the maximum number of symbols of a piece that is merged by scanning for the lowest rank. This takes
// quadratic time, but up to this length it is faster than a queue.
const scanLimit = 40

// mergeBuffers holds buffers for merging a piece of n symbols.
type mergeBuffers struct {
	ids  []int32 // [n] symbol ids
	rank []int32 // [n] rank of the pair of symbol i and the next one
	prev []int32 // [n] neighbours, or -1; only for long pieces
	next []int32
	heap []uint64 // rank<<32 | position, lowest first; only for long pieces
}

// encode appends the tokens of piece to dst.
func (m *bpe) encode(buf *mergeBuffers, dst []int32, piece string) ([]int32, error) {
	if len(piece) == 1 && m.byteLevel && m.byteID[piece[0]] >= 0 {
		return append(dst, m.byteID[piece[0]]), nil
	}
	if m.ignoreMerges {
		if id, ok := lookup(m.words, piece); ok && !m.added[id] {
			return append(dst, id), nil
		}
	}
	slot := m.cache.slot(piece)
	if out, ok := slot.get(dst, piece); ok {
		return out, nil
	}
	var err error
	if buf.ids, err = m.symbols(buf.ids[:0], piece); err != nil {
		return dst, err
	}
	n := len(dst)
	if len(buf.ids) <= scanLimit {
		dst = append(dst, m.mergeShort(buf)...)
	} else {
		dst = m.mergeLong(buf, dst)
	}
	slot.put(piece, dst[n:])
	return dst, nil
}

// symbols appends the initial ids of a piece.
func (m *bpe) symbols(dst []int32, piece string) ([]int32, error) {
	for i := 0; i < len(piece); {
		size := 1
		if !m.byteLevel {
			_, size = utf8.DecodeRuneInString(piece[i:])
			if id, ok := lookup(m.words, piece[i:i+size]); ok {
				dst = append(dst, id)
				i += size
				continue
			}
		}
		n := len(dst)
		for j := i; j < i+size; j++ {
			id := m.byteID[piece[j]]
			if id < 0 {
				dst = dst[:n]
				break
			}
			dst = append(dst, id)
		}
		if len(dst) == n {
			if m.unknown < 0 {
				return dst, fmt.Errorf("%w: %q at byte %d of %.40q: the vocabulary has no token for it, no byte "+
					"fallback and no unknown token",
					ErrUnencodable, piece[i:i+size], i, piece)
			}
			if !m.fuseUnknown || n == 0 || dst[n-1] != m.unknown {
				dst = append(dst, m.unknown)
			}
		}
		i += size
	}
	return dst, nil
}

// mergeShort merges buf.ids in place and returns the resulting ids.
func (m *bpe) mergeShort(buf *mergeBuffers) []int32 {
	ids := buf.ids
	rank := buf.rank[:0]
	for i := range len(ids) - 1 {
		r, _ := m.merges.find(ids[i], ids[i+1])
		rank = append(rank, r)
	}
	buf.rank = rank
	for {
		best, at := int32(noMerge), -1
		for i, r := range rank {
			if r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return ids
		}
		_, ids[at] = m.merges.find(ids[at], ids[at+1])
		ids = append(ids[:at+1], ids[at+2:]...)
		rank = append(rank[:at], rank[at+1:]...)
		if at > 0 {
			rank[at-1], _ = m.merges.find(ids[at-1], ids[at])
		}
		if at < len(rank) {
			rank[at], _ = m.merges.find(ids[at], ids[at+1])
		}
	}
}

// mergeLong merges buf.ids with a linked list of symbols and a queue of pairs, in O(n log n), and appends the resulting
// ids to dst.
func (m *bpe) mergeLong(buf *mergeBuffers, dst []int32) []int32 {
	ids := buf.ids
	n := len(ids)
	buf.rank, buf.prev, buf.next = resize(buf.rank, n), resize(buf.prev, n), resize(buf.next, n)
	rank, prev, next := buf.rank, buf.prev, buf.next
	queue := pairQueue(buf.heap[:0])
	for i := range n {
		prev[i], next[i], rank[i] = int32(i-1), int32(i+1), noMerge
		if i == n-1 {
			next[i] = -1
		} else if rank[i], _ = m.merges.find(ids[i], ids[i+1]); rank[i] != noMerge {
			queue = append(queue, queued(rank[i], int32(i)))
		}
	}
	queue.init()
	update := func(i int32) {
		if rank[i], _ = m.merges.find(ids[i], ids[next[i]]); rank[i] != noMerge {
			queue.push(queued(rank[i], i))
		}
	}
	for len(queue) > 0 {
		r, i := queue.pop()
		if rank[i] != r { // the pair has changed since it was queued
			continue
		}
		gone := next[i]
		_, ids[i] = m.merges.find(ids[i], ids[gone])
		rank[gone], rank[i] = noMerge, noMerge
		if next[i] = next[gone]; next[i] >= 0 {
			prev[next[i]] = i
			update(i)
		}
		if prev[i] >= 0 {
			update(prev[i])
		}
	}
	buf.heap = queue
	for i := int32(0); i >= 0; i = next[i] {
		dst = append(dst, ids[i])
	}
	return dst
}

// resize returns a slice of n elements, in the memory of s if it is large enough.
func resize(s []int32, n int) []int32 {
	if cap(s) < n {
		return make([]int32, n)
	}
	return s[:n]
}

// pairQueue is a binary heap of pairs: lowest rank first, of equal ranks the leftmost.
type pairQueue []uint64

func queued(rank, at int32) uint64 { return uint64(uint32(rank))<<32 | uint64(uint32(at)) }

// init establishes the heap order.
func (q pairQueue) init() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q *pairQueue) push(v uint64) {
	h := append(*q, v)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= v {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = v
	*q = h
}

func (q *pairQueue) pop() (rank, at int32) {
	h := *q
	v := h[0]
	last := len(h) - 1
	h[0] = h[last]
	*q = h[:last]
	if last > 0 {
		q.down(0)
	}
	return int32(v >> 32), int32(v & math.MaxUint32)
}

func (q pairQueue) down(i int) {
	v := q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if v <= q[child] {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = v
}
