package grammar

import (
	"cmp"
	"slices"
	"sync"
	"unicode/utf8"
)

// A slice is the tokens made of certain characters only, up to a number of them. Where a leaf can take every such text
// (a state inside [a-z]*, say), the whole slice is allowed at once and only the other tokens are walked: that is what
// makes the widest masks quick.
type slice struct {
	class *charClass
	most  int // characters
	count int // tokens

	once  sync.Once
	words []uint64 // the tokens as a mask
	rest  trie     // the other tokens
	node  []int32  // [nodes of rest] the same node in the trie of all tokens
}

// charClass is a set of characters as ranges, in order.
type charClass struct {
	ranges []runeEdge
}

// sliced is a leaf that can say where it takes whole slices.
type sliced interface {
	// takes says whether every text of up to most characters of a class can follow q.
	takes(q uint64, class *charClass, most int) bool
}

// wholeToken stands for slices without a bound: no token has so many characters.
const wholeToken = maxTokenBytes

// charClasses are the classes of characters that patterns mostly use. None has characters that are escaped in JSON.
func charClasses() []*charClass {
	make := func(ranges ...rune) *charClass {
		c := &charClass{}
		for i := 0; i < len(ranges); i += 2 {
			c.ranges = append(c.ranges, runeEdge{lo: ranges[i], hi: ranges[i+1]})
		}
		return c
	}
	return []*charClass{
		make('a', 'z'),
		make('A', 'Z', 'a', 'z'),
		make('0', '9', 'A', 'Z', 'a', 'z'),
		make('-', '.', '0', '9', 'A', 'Z', '_', '_', 'a', 'z'),
		make(' ', ' ', 'A', 'Z', 'a', 'z'),
		make(' ', '!', '#', '[', ']', '~'),
		make(' ', '!', '#', '[', ']', 0x2027, 0x202a, 0xd7ff, 0xe000, utf8.MaxRune), // what the dot matches
	}
}

func (c *charClass) has(r rune) bool {
	return slices.ContainsFunc(c.ranges, func(e runeEdge) bool { return r >= e.lo && r <= e.hi })
}

// newSlices prepares the slices of a vocabulary, the largest first. Their tokens are collected when they are needed.
func newSlices(t *Tokens) []*slice {
	var list []*slice
	for _, class := range charClasses() {
		counts := map[int]int{4: 0, 8: 0, 16: 0, wholeToken: 0}
		for _, id := range t.trie.tokens {
			n := t.length(id, class)
			for most := range counts {
				if n >= 0 && n <= most {
					counts[most]++
				}
			}
		}
		for most, count := range counts {
			if count > sparse {
				list = append(list, &slice{class: class, most: most, count: count})
			}
		}
	}
	slices.SortFunc(list, func(a, b *slice) int { return cmp.Or(b.count-a.count, a.most-b.most) })
	return list
}

// length is the number of characters of a token, -1 if one is not in the class.
func (t *Tokens) length(id int32, class *charClass) int {
	n := 0
	for b := t.bytes(id); len(b) > 0; n++ {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size < 2 || !class.has(r) {
			return -1
		}
		b = b[size:]
	}
	return n
}

// collect fills the tokens of the slice and the trie of the others.
func (s *slice) collect(t *Tokens) {
	s.words = make([]uint64, t.MaskWords())
	all := &t.trie
	nodes := len(all.label)
	kept := make([]bool, nodes)
	path := make([]int32, all.deep+1)
	for i := range int32(nodes) {
		path[all.depth[i]] = i
		for _, id := range all.at(i) {
			if n := t.length(id, s.class); n >= 0 && n <= s.most {
				s.words[id/64] |= 1 << (id % 64)
				continue
			}
			for d := int(all.depth[i]); d >= 0 && !kept[path[d]]; d-- {
				kept[path[d]] = true
			}
		}
	}
	kept[0] = true
	before := make([]int32, nodes+1) // kept nodes before each
	for i := range nodes {
		before[i+1] = before[i]
		if kept[i] {
			before[i+1]++
		}
	}
	s.rest.deep = all.deep
	for i := range int32(nodes) {
		if !kept[i] {
			continue
		}
		s.node = append(s.node, i)
		s.rest.label = append(s.rest.label, all.label[i])
		s.rest.depth = append(s.rest.depth, all.depth[i])
		s.rest.end = append(s.rest.end, before[all.end[i]])
		s.rest.first = append(s.rest.first, int32(len(s.rest.tokens)))
		for _, id := range all.at(i) {
			if s.words[id/64]>>(id%64)&1 == 0 {
				s.rest.tokens = append(s.rest.tokens, id)
			}
		}
	}
	s.rest.first = append(s.rest.first, int32(len(s.rest.tokens)))
}

// sliceOf is the largest slice that a leaf takes whole, nil if there is none.
func (t *Tokens) sliceOf(l leaf, q uint64) *slice {
	x, ok := l.(sliced)
	if !ok {
		return nil
	}
	for _, s := range t.slices {
		if x.takes(q, s.class, min(s.most, t.trie.deep)) {
			s.once.Do(func() { s.collect(t) })
			return s
		}
	}
	return nil
}

// takes: lengths are all that limits a string.
func (s *stringLeaf) takes(q uint64, _ *charClass, most int) bool {
	return q&0xff == strBody && (s.most == noLimit || s.most-q>>8 >= uint64(most))
}

// takes: a name that is taken can go on; only its end is not allowed.
func (k *freeKey) takes(q uint64, _ *charClass, _ int) bool { return q&0xff == strBody }

func (k *patternKey) takes(q uint64, class *charClass, most int) bool {
	return k.name.takes(q, class, most)
}

func (p *patternLeaf) takes(q uint64, class *charClass, most int) bool {
	return q&0xff == strBody && p.dfa.takes(int32(q>>8&0xffffff), class, most)
}

// takes follows the class from a state, breadth first: every character must lead on, as often as asked.
func (d *runeDFA) takes(state int32, class *charClass, most int) bool {
	const enough = 64 // states looked at
	list := []int32{state}
	for depth, from := 0, 0; depth < most && from < len(list); depth++ {
		end := len(list)
		for ; from < end; from++ {
			edges := d.edges[list[from]]
			for _, r := range class.ranges {
				at := r.lo
				for _, e := range edges {
					if e.hi < at {
						continue
					}
					if e.lo > at {
						return false
					}
					if !slices.Contains(list, e.to) {
						list = append(list, e.to)
					}
					if at = e.hi + 1; at > r.hi {
						break
					}
				}
				if at <= r.hi {
					return false
				}
			}
		}
		if len(list) > enough {
			return false
		}
	}
	return true
}
