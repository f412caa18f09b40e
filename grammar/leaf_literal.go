package grammar

import (
	"bytes"
	"slices"
	"sort"
)

// literals accepts any one of a set of texts: enum values, true and false, property names.
type literals struct {
	texts [][]byte // sorted, distinct
	tags  []int32  // [texts] outcome of each text
}

// literal is one text with its outcome.
type literal struct {
	text []byte
	tag  int32
}

// newLiterals makes a leaf from at least one text, none of them empty. Of equal texts only the first is used.
func newLiterals(list []literal) *literals {
	slices.SortStableFunc(list, func(a, b literal) int { return bytes.Compare(a.text, b.text) })
	l := &literals{}
	for i, x := range list {
		if i > 0 && bytes.Equal(x.text, list[i-1].text) {
			continue
		}
		l.texts = append(l.texts, x.text)
		l.tags = append(l.tags, x.tag)
	}
	return l
}

// span is a range of sorted texts with a common prefix. As a state it is packed: 20 bits for each end, 24 for the
// depth.
type span struct {
	lo, hi int // texts[lo:hi]
	depth  int // length of the common prefix in bytes
}

func (s span) pack() uint64 { return uint64(s.lo)<<44 | uint64(s.hi)<<24 | uint64(s.depth) }

func unpackSpan(q uint64) span {
	return span{lo: int(q >> 44), hi: int(q >> 24 & 0xfffff), depth: int(q & 0xffffff)}
}

// narrow returns the part of the span whose next byte is b, which may be empty.
func (s span) narrow(texts [][]byte, b byte) span {
	at := func(i int) int { // -1 for a text that ends at the depth of the span; it is sorted first
		if t := texts[s.lo+i]; len(t) > s.depth {
			return int(t[s.depth])
		}
		return -1
	}
	n := s.hi - s.lo
	lo := sort.Search(n, func(i int) bool { return at(i) >= int(b) })
	hi := lo + sort.Search(n-lo, func(i int) bool { return at(lo+i) > int(b) })
	return span{s.lo + lo, s.lo + hi, s.depth + 1}
}

func (s span) empty() bool { return s.lo >= s.hi }

func (l *literals) start() uint64 { return span{0, len(l.texts), 0}.pack() }

func (l *literals) step(q uint64, b byte) (uint64, bool) {
	s := unpackSpan(q).narrow(l.texts, b)
	return s.pack(), !s.empty()
}

func (l *literals) accepts(q uint64) bool {
	s := unpackSpan(q)
	return len(l.texts[s.lo]) == s.depth
}

func (l *literals) open(q uint64) bool {
	s := unpackSpan(q)
	return len(l.texts[s.hi-1]) > s.depth
}

func (l *literals) tag(q uint64) int32 { return l.tags[unpackSpan(q).lo] }

func (l *literals) class(q uint64, _ int) maskKey { return maskKey{familyNone, q} }
