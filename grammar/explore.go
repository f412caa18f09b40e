package grammar

import "slices"

// explore returns the mask of state q of a leaf.
func (t *Tokens) explore(l leaf, q uint64) *leafMask {
	x, ok := l.(shaped)
	if !ok || midCharacter(q&0xff) {
		return t.exploreBytes(l, q)
	}
	if k, ok := l.(*freeKey); ok && !k.free(q) {
		return t.exploreTaken(k, q)
	}
	return t.exploreShapes(x, q)
}

// midCharacter reports whether a mode of a shaped leaf is inside a character. Only the few tokens that begin inside a
// character are allowed there.
func midCharacter(mode uint64) bool {
	return mode >= utf1 && mode <= utfF4 || mode >= patternTail1 && mode <= patternTail3
}

// exploreBytes computes a mask by walking the trie of tokens byte by byte.
func (t *Tokens) exploreBytes(l leaf, q uint64) *leafMask {
	x := &exploration{t: t, l: l, words: make([]uint64, t.MaskWords()), path: make([]uint64, t.trie.deep+1)}
	x.below(0, q)
	x.m.whole = freeze(x.words)
	return &x.m
}

// exploreTaken is explore for a name whose text so far is a prefix of a taken name. The mask is that of any name
// without the tokens that would complete a taken name.
func (t *Tokens) exploreTaken(k *freeKey, q uint64) *leafMask {
	mode, names := unpackKey(q)
	rest := func(name []byte) []byte { return append(name[names.depth:len(name):len(name)], '"') }
	if mode == strStart {
		names = span{0, len(k.taken), 0}
		rest = func(name []byte) []byte { return append(append([]byte{'"'}, name...), '"') }
	}
	base := t.anyName(mode)
	words := make([]uint64, t.MaskWords())
	base.whole.mergeInto(words)
	m := &leafMask{}
	split := map[int32]bool{} // shapes of which some nodes are exits and others are not
	gone := map[int32]bool{}  // nodes of such shapes that are not exits
	for _, name := range k.taken[names.lo:names.hi] {
		node, ok := t.trie.find(rest(name))
		if !ok {
			continue
		}
		end := t.trie.end[node]
		for _, token := range t.trie.tokens[t.trie.first[node]:t.trie.first[end]] {
			words[token/64] &^= 1 << (token % 64)
		}
		for i := node; i < end; i++ {
			gone[i] = true
			if shape := t.shapes.of[i]; shape >= 0 {
				split[shape] = true
			}
		}
	}
	for _, e := range base.exits {
		switch {
		case !e.shape && !gone[e.node] || e.shape && !split[e.node]:
			m.exits = append(m.exits, e)
		case e.shape:
			for _, node := range t.shapes.nodes(e.node) {
				if !gone[node] && !t.trie.isLeaf(node) {
					m.exits = append(m.exits, exit{node: node, tag: e.tag})
				}
			}
		}
	}
	m.whole = freeze(words)
	return m
}

// anyName returns the tokens that are allowed for a property name if no name is taken.
func (t *Tokens) anyName(mode uint64) *leafMask {
	key := maskKey{familyFreeKey, mode}
	m := t.shared.get(key)
	if m == nil {
		m = t.explore(&freeKey{}, mode)
		t.shared.put(key, m)
	}
	return m
}

// maxBundle is the maximum number of states that the texts of a shape may lead to; above it, tokens are followed byte
// by byte.
const maxBundle = 32

// exploreShapes walks the shapes from one state of a leaf. The texts of a shape may lead to several states, called a
// bundle. If only some of the texts are accepted, they are followed byte by byte.
func (t *Tokens) exploreShapes(l shaped, q uint64) *leafMask {
	x := &exploration{t: t, l: l, words: make([]uint64, t.MaskWords()), path: make([]uint64, t.trie.deep+1)}
	s := &t.shapes
	bundles := make([][]uint64, s.deep+1) // [depth] states after the texts of the current shape
	bundles[0] = []uint64{q}
	x.broken(q)
	for i := int32(1); i < int32(len(s.label)); {
		d := s.depth[i]
		next, takes, refuses := stepBundle(l, bundles[d][:0], bundles[d-1], s.label[i])
		bundles[d] = next
		switch {
		case !takes:
			i = s.end[i]
			continue
		case refuses || len(next) > maxBundle:
			x.each(i, q)
			i = s.end[i]
			continue
		}
		s.merge(i, x.words)
		x.shapeExits(i, next, q)
		i++
	}
	x.m.whole = freeze(x.words)
	return &x.m
}

// stepBundle returns the states after a character of a kind, from all states of a bundle.
func stepBundle(l shaped, dst, from []uint64, kind byte) (next []uint64, takes, refuses bool) {
	for _, q := range from {
		if kind >= kindLower {
			var some, not bool
			before := len(dst)
			dst, some, not = l.stepKind(dst, q, kind)
			takes, refuses = takes || some, refuses || not
			dst = dropRepeated(dst, before)
			continue
		}
		if n, ok := l.step(q, kind); ok {
			takes = true
			dst = dropRepeated(append(dst, n), len(dst))
		} else {
			refuses = true
		}
	}
	return dst, takes, refuses
}

// dropRepeated removes states from list[from:] that list[:from] already contains.
func dropRepeated(list []uint64, from int) []uint64 {
	kept := list[:from]
	for _, q := range list[from:] {
		if !slices.Contains(kept, q) {
			kept = append(kept, q)
		}
	}
	return kept
}

// exploration is a walk over the trie of tokens from one leaf state.
type exploration struct {
	t     *Tokens
	l     leaf
	words []uint64 // mask of the tokens that stay inside the leaf
	path  []uint64 // [depth] states on the path to the current node
	m     leafMask
}

// shapeExits records the nodes of a shape after which the leaf may end. If this is the same for all nodes, it records
// the shape as a whole.
func (x *exploration) shapeExits(i int32, bundle []uint64, start uint64) {
	s := &x.t.shapes
	accepting := 0
	for _, q := range bundle {
		if x.l.accepts(q) {
			accepting++
		}
	}
	switch {
	case accepting == 0 || s.ends(i):
	case accepting == len(bundle):
		x.m.exits = append(x.m.exits, exit{node: i, shape: true})
	default:
		for _, node := range s.nodes(i) {
			if q, _ := x.after(node, start); x.l.accepts(q) && !x.t.trie.isLeaf(node) {
				x.m.exits = append(x.m.exits, exit{node: node})
			}
		}
	}
}

// after returns the state after the text of a node; ok is false if the text is not allowed.
func (x *exploration) after(node int32, q uint64) (uint64, bool) {
	t := &x.t.trie
	ok := true
	for _, b := range x.t.bytes(t.tokens[t.first[node]])[:t.depth[node]] { // prefix of the first token
		if q, ok = x.l.step(q, b); !ok {
			return 0, false
		}
	}
	return q, true
}

// each walks the tokens that begin with a text of a shape, one text after the other.
func (x *exploration) each(shape int32, start uint64) {
	for _, node := range x.t.shapes.nodes(shape) {
		if q, ok := x.after(node, start); ok {
			x.take(node, q)
			x.below(node, q)
		}
	}
}

// broken walks the tokens that are not whole characters. From a state between characters, no leaf ends inside such a
// token's incomplete character.
func (x *exploration) broken(q uint64) {
	t := &x.t.broken
	x.path[0] = q
	for i := int32(1); i < int32(len(t.label)); {
		next, ok := x.l.step(x.path[t.depth[i]-1], t.label[i])
		if !ok {
			i = t.end[i]
			continue
		}
		x.path[t.depth[i]] = next
		for _, token := range t.at(i) {
			x.words[token/64] |= 1 << (token % 64)
		}
		i++
	}
}

// below walks the tokens whose texts continue the text of a node, byte by byte. The text of the node leads to state
// q.
func (x *exploration) below(node int32, q uint64) {
	t := &x.t.trie
	base := t.depth[node]
	x.path[0] = q
	for i := node + 1; i < t.end[node]; {
		d := t.depth[i] - base
		next, ok := x.l.step(x.path[d-1], t.label[i])
		if !ok {
			i = t.end[i]
			continue
		}
		x.path[d] = next
		x.take(i, next)
		i++
	}
}

// take adds the tokens of a node to the mask, and records an exit if the leaf may end at state q after its text.
func (x *exploration) take(node int32, q uint64) {
	t := &x.t.trie
	for _, token := range t.at(node) {
		x.words[token/64] |= 1 << (token % 64)
	}
	if !t.isLeaf(node) && x.l.accepts(q) {
		x.m.exits = append(x.m.exits, exit{node: node, tag: tagOf(x.l, q)})
	}
}
