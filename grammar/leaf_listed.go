package grammar

import (
	"bytes"
	"slices"
)

// listedKey accepts the name of one of an object's properties with its quotes and colon, and at most one space after
// it. The state determines the allowed properties: from one index up to the next required property, without those whose
// values exceed MaxDepth.
type listedKey struct {
	names *nameList
	props *properties
	upper int // index of the last allowed property
}

// nameList holds the names of properties in canonical spelling, sorted. Objects with the same names share a nameList.
type nameList struct {
	texts [][]byte // texts with quotes and colon; no text is a prefix of another
	index []int32  // [texts] index of the property in the object
}

func newNameList(names []string) *nameList {
	l := &nameList{}
	texts := make([][]byte, len(names))
	for i, name := range names {
		texts[i] = append(appendString(nil, name), ':')
		l.index = append(l.index, int32(i))
	}
	slices.SortFunc(l.index, func(a, b int32) int { return bytes.Compare(texts[a], texts[b]) })
	for _, i := range l.index {
		l.texts = append(l.texts, texts[i])
	}
	return l
}

// Bits of a state, from the lowest: 2 bits of mode, 11 for each end of the span of names, 11 for the first allowed
// property, 8 for the remaining nesting, 21 for the number of bytes read.
const (
	listedText = iota
	listedDone
	listedSpaced
)

// roomForAll replaces every nesting limit that no property exceeds, so that these limits have equal states.
const roomForAll = 255

func packListed(mode uint64, s span, from, room int) uint64 {
	return mode | uint64(s.lo)<<2 | uint64(s.hi)<<13 | uint64(from)<<24 | uint64(room)<<35 | uint64(s.depth)<<43
}

func unpackListed(q uint64) (mode uint64, s span, from, room int) {
	return q & 3, span{lo: int(q >> 2 & 0x7ff), hi: int(q >> 13 & 0x7ff), depth: int(q >> 43)}, int(q >> 24 & 0x7ff),
		int(q >> 35 & 0xff)
}

// startAt returns the state before a name. from is the first allowed property, room the maximum nesting of its value.
func (k *listedKey) startAt(from, room int) uint64 {
	if room >= k.props.deepest {
		room = roomForAll
	}
	return packListed(listedText, span{0, len(k.names.texts), 0}, from, room)
}

func (k *listedKey) start() uint64 { return k.startAt(0, MaxDepth) }

func (k *listedKey) step(q uint64, b byte) (uint64, bool) {
	mode, s, from, room := unpackListed(q)
	switch mode {
	case listedDone:
		return packListed(listedSpaced, s, from, room), b == ' '
	case listedSpaced:
		return 0, false
	}
	s = s.narrow(k.names.texts, b)
	for _, i := range k.names.index[s.lo:s.hi] {
		if int(i) <= k.upper && k.props.offers(int(i), from, room) {
			if s.depth == len(k.names.texts[s.lo]) {
				mode = listedDone
			}
			return packListed(mode, s, from, room), true
		}
	}
	return 0, false
}

func (k *listedKey) accepts(q uint64) bool { return q&3 != listedText }

func (k *listedKey) open(q uint64) bool { return q&3 != listedSpaced }

func (k *listedKey) tag(q uint64) int32 {
	_, s, _, _ := unpackListed(q)
	return k.names.index[s.lo]
}

func (k *listedKey) class(q uint64, _ int) maskKey { return maskKey{familyNone, q} }

// offers reports whether property i is allowed next if from is the first candidate: no required property is skipped,
// and the minimum nesting of its value is at most room.
func (o *properties) offers(i, from, room int) bool {
	if room == roomForAll {
		room = MaxDepth
	}
	return i >= from && i <= o.pending[from] && o.depths[i] <= room
}
