package grammar

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Kinds of characters. Each ASCII character that is neither a letter nor a digit is a kind, below kindLower. The other
// kinds are classes that patterns distinguish: \S, the dot, \p{L}.
const (
	kindLower = utf8.RuneSelf + iota
	kindUpper
	kindDigit
	kindSpace  // white space that is not ASCII, except ends of lines
	kindLine   // U+2028 and U+2029, which the dot does not match
	kindLetter // letters that are not ASCII
	kindOther
	kindsEnd
)

// kindOf returns the kind of a character.
func kindOf(r rune) byte {
	switch {
	case r >= 'a' && r <= 'z':
		return kindLower
	case r >= 'A' && r <= 'Z':
		return kindUpper
	case r >= '0' && r <= '9':
		return kindDigit
	case r < utf8.RuneSelf:
		return byte(r)
	case r == 0x2028 || r == 0x2029:
		return kindLine
	case r != 0x85 && unicode.IsSpace(r) || r == 0xfeff: // as in the class ecmaSpace
		return kindSpace
	case unicode.IsLetter(r):
		return kindLetter
	}
	return kindOther
}

// kindRanges holds, for each kind from kindLower on, its characters in order, without surrogates.
var kindRanges = sync.OnceValue(func() (list [kindsEnd - kindLower][]runeEdge) {
	borders := []rune{0x2028, 0x202a, 0xfeff, 0xff00, unicode.MaxRune + 1} // first code points of ranges of one kind
	for r := range rune(utf8.RuneSelf + 1) {
		borders = append(borders, r)
	}
	for _, table := range []*unicode.RangeTable{unicode.L, unicode.White_Space} {
		for _, r := range table.R16 {
			borders = appendBorders(borders, rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range table.R32 {
			borders = appendBorders(borders, rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	slices.Sort(borders)
	for i, lo := range borders[:len(borders)-1] {
		if k := kindOf(lo); k >= kindLower && lo < borders[i+1] {
			list[k-kindLower] = appendValid(list[k-kindLower], lo, borders[i+1]-1, 0)
		}
	}
	return list
})

// appendBorders adds the borders of a range in a Unicode table, which contains every stride-th character.
func appendBorders(borders []rune, lo, hi, stride rune) []rune {
	if stride == 1 {
		return append(borders, lo, hi+1)
	}
	for ; lo <= hi; lo += stride {
		borders = append(borders, lo, lo+1)
	}
	return borders
}

// shapes is the trie of the shapes of tokens. A shape is a text with each character replaced by its kind, so all words
// of seven letters share one node. Most patterns and all bounded strings treat all characters of a kind the same; one
// step over shapes then replaces thousands of steps over tokens.
type shapes struct {
	trie            // labels are kinds of characters; the tokens of a node are those with its shape
	wide [][]uint64 // [nodes] mask of the node's tokens, if there are many; otherwise nil
	node []int32    // nodes of the token trie, grouped by shape
	from []int32    // [nodes+1] the nodes of shape i are node[from[i]:from[i+1]]
	// broken lists, for each shape, the nodes of the token trie below which tokens end inside a character.
	broken [][]int32
	of     []int32 // [nodes of the token trie] shape; -1 if the text ends inside a character
}

// newShapes groups the nodes of a trie of tokens by shape.
func newShapes(t *trie, words int) shapes {
	b := &shapeBuilder{kids: map[shapeKid]int32{}, list: make([]shapeNode, 1)}
	s := shapes{of: make([]int32, len(t.label))}
	text := make([]byte, 0, t.deep)
	start := make([]int, t.deep+1)  // [depth] start of the last incomplete character
	last := make([]int32, t.deep+1) // [depth] last node whose text consists of whole characters
	noted := make([]bool, len(t.label))
	for i := range int32(len(t.label)) {
		d := int(t.depth[i])
		if i > 0 {
			text = append(text[:d-1], t.label[i])
			start[d], last[d] = start[d-1], last[d-1]
			r, size := utf8.DecodeRune(text[start[d]:])
			if size < d-start[d] || r == utf8.RuneError && size < 2 {
				s.of[i] = -1
				if at := last[d]; len(t.at(i)) > 0 && !noted[at] {
					noted[at] = true
					n := &b.list[s.of[at]]
					n.broken = append(n.broken, at)
				}
				continue
			}
			s.of[i] = b.kid(s.of[last[d]], kindOf(r))
			start[d], last[d] = d, i
		}
		n := &b.list[s.of[i]]
		n.nodes++
		n.tokens += int32(len(t.at(i)))
	}
	b.number(t, &s, words)
	return s
}

// shapeBuilder numbers shapes in the order in which they are found.
type shapeBuilder struct {
	kids map[shapeKid]int32
	list []shapeNode
}

type shapeKid struct {
	parent int32
	kind   byte
}

type shapeNode struct {
	kind          byte
	kids, broken  []int32
	nodes, tokens int32
}

func (b *shapeBuilder) kid(parent int32, kind byte) int32 {
	key := shapeKid{parent, kind}
	id, ok := b.kids[key]
	if !ok {
		id = int32(len(b.list))
		b.list = append(b.list, shapeNode{kind: kind})
		b.list[parent].kids = append(b.list[parent].kids, id)
		b.kids[key] = id
	}
	return id
}

// number stores the shapes in preorder, like the nodes of a trie.
func (b *shapeBuilder) number(t *trie, s *shapes, words int) {
	to := make([]int32, len(b.list)) // [shape] position in preorder
	nodes, tokens := int32(0), int32(0)
	var visit func(id int32, depth int)
	visit = func(id int32, depth int) {
		n := &b.list[id]
		at := int32(len(s.label))
		to[id] = at
		s.label = append(s.label, n.kind)
		s.depth = append(s.depth, uint16(depth))
		s.end = append(s.end, 0)
		s.from, s.first = append(s.from, nodes), append(s.first, tokens)
		s.broken = append(s.broken, n.broken)
		s.deep = max(s.deep, depth)
		nodes, tokens = nodes+n.nodes, tokens+n.tokens
		for _, k := range n.kids {
			visit(k, depth+1)
		}
		s.end[at] = int32(len(s.label))
	}
	visit(0, 0)
	s.from, s.first = append(s.from, nodes), append(s.first, tokens)
	s.node, s.tokens = make([]int32, nodes), make([]int32, tokens)
	nextNode, nextToken := slices.Clone(s.from), slices.Clone(s.first)
	for i, shape := range s.of {
		if shape < 0 {
			continue
		}
		at := to[shape]
		s.of[i] = at
		s.node[nextNode[at]] = int32(i)
		nextNode[at]++
		nextToken[at] += int32(copy(s.tokens[nextToken[at]:], t.at(int32(i))))
	}
	s.wide = make([][]uint64, len(s.label))
	for i := range s.wide {
		if list := s.at(int32(i)); len(list) > sparse {
			s.wide[i] = make([]uint64, words)
			for _, id := range list {
				s.wide[i][id/64] |= 1 << (id % 64)
			}
		}
	}
}

// merge adds the tokens of a shape to a mask.
func (s *shapes) merge(i int32, words []uint64) {
	if wide := s.wide[i]; wide != nil {
		for j, w := range wide {
			words[j] |= w
		}
		return
	}
	for _, id := range s.at(i) {
		words[id/64] |= 1 << (id % 64)
	}
}

// ends reports whether no token continues after a text of this shape.
func (s *shapes) ends(i int32) bool { return s.isLeaf(i) && len(s.broken[i]) == 0 }

// nodes returns the nodes of the trie of tokens whose texts have this shape.
func (s *shapes) nodes(i int32) []int32 { return s.node[s.from[i]:s.from[i+1]] }

// shaped is a leaf that can follow all characters of a kind at once. It has no outcomes (see [tagged]).
type shaped interface {
	leaf
	// stepKind appends the states after the characters of a kind, each state once; kinds begin at kindLower. takes and
	// refuses report whether some characters are accepted and whether some are refused. If this is unknown, both are
	// true.
	stepKind(dst []uint64, q uint64, kind byte) (states []uint64, takes, refuses bool)
}

// stepKind treats all characters of a kind alike, because only the length of the string is limited.
func (s *stringLeaf) stepKind(dst []uint64, q uint64, _ byte) ([]uint64, bool, bool) {
	switch q & 0xff {
	case strBody:
		next, ok := s.step(q, 'a')
		if !ok {
			return dst, false, true
		}
		return append(dst, next), true, false
	case strStart, strEnd:
		return dst, false, true
	}
	return dst, true, true
}

// stepKind treats all characters of a kind alike if no taken name begins with the text so far.
func (k *freeKey) stepKind(dst []uint64, q uint64, _ byte) ([]uint64, bool, bool) {
	switch q & 0xff {
	case strBody:
		return append(dst, q), true, !k.free(q)
	case strStart, keyColon, keyDone, keySpaced:
		return dst, false, true
	}
	return dst, true, true
}

func (p *patternLeaf) stepKind(dst []uint64, q uint64, kind byte) ([]uint64, bool, bool) {
	switch q & 0xff {
	case strBody:
		from := len(dst)
		dst, takes, refuses := p.dfa.stepKind(dst, int32(q>>8&0xffffff), kind)
		if p.short == nil {
			return dst, takes, refuses
		}
		count, kept := q>>countShift, dst[:from]
		for _, next := range dst[from:] {
			if p.fits(int32(next>>8&0xffffff), count) {
				kept = append(kept, next|(count+1)<<countShift)
			} else {
				refuses = true
			}
		}
		return kept, len(kept) > from, refuses
	case strStart, strEnd:
		return dst, false, true
	}
	return dst, true, true
}

func (k *patternKey) stepKind(dst []uint64, q uint64, kind byte) ([]uint64, bool, bool) {
	if mode := q & 0xff; mode == keyDone || mode == keySpaced {
		return dst, false, true
	}
	return k.name.stepKind(dst, q, kind)
}

func (l *textLeaf) stepKind(dst []uint64, q uint64, kind byte) ([]uint64, bool, bool) {
	return l.pattern.stepKind(dst, q, kind)
}

// kindStep is the cached result of stepKind for one state and one kind.
type kindStep struct {
	known          bool
	takes, refuses bool
	to             []int32 // states after the characters of the kind, each once
}

// stepKind appends the states after the characters of a kind, in the encoding of patternLeaf.
func (d *runeDFA) stepKind(dst []uint64, state int32, kind byte) (states []uint64, takes, refuses bool) {
	if d.kinds == nil {
		d.kinds = make([]*[kindsEnd - kindLower]kindStep, len(d.edges))
	}
	if d.kinds[state] == nil {
		d.kinds[state] = new([kindsEnd - kindLower]kindStep)
	}
	k := &d.kinds[state][kind-kindLower]
	if !k.known {
		*k = findKind(d.edges[state], kindRanges()[kind-kindLower])
	}
	for _, to := range k.to {
		dst = append(dst, packPattern(strBody, to, 0))
	}
	return dst, k.takes, k.refuses
}

// findKind returns the states after the characters in ranges. Both lists are sorted.
func findKind(edges, ranges []runeEdge) kindStep {
	k := kindStep{known: true}
	for _, r := range ranges {
		at := r.lo
		for len(edges) > 0 && edges[0].hi < at {
			edges = edges[1:]
		}
		for _, e := range edges {
			if e.lo > r.hi {
				break
			}
			if e.lo > at {
				k.refuses = true
			}
			k.takes = true
			if !slices.Contains(k.to, e.to) {
				k.to = append(k.to, e.to)
			}
			at = e.hi + 1
		}
		if at <= r.hi {
			k.refuses = true
		}
	}
	return k
}
