package grammar

import "unicode/utf8"

// mask adds the tokens that a state allows to dst ([Tokens.MaskWords] words). It returns false if there are none.
func (a *arena) mask(id int32, dst []uint64) bool {
	var set *tokenSet
	if list := a.states[id].configs; len(list) == 1 {
		set = a.configTokens(a.configs[list[0]])
	} else {
		set = a.stateTokens(id)
	}
	set.mergeInto(dst)
	return !set.empty()
}

// stateTokens returns the set of tokens that a state with several configs allows. Configs with equal leaf states are
// combined: what follows them is one state.
func (a *arena) stateTokens(id int32) *tokenSet {
	if set, ok := a.stateMasks[id]; ok {
		return set
	}
	groups := map[maskKey][]int32{}
	var keys []maskKey // in the order of the configs, because the numbers of new states must not depend on map order
	for _, c := range a.states[id].configs {
		key := a.g.class(a.configs[c])
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], c)
	}
	words := make([]uint64, len(a.words))
	clear(a.words)
	for _, key := range keys {
		list := groups[key]
		m := a.g.leafMask(a.configs[list[0]], key)
		m.whole.mergeInto(words)
		next := map[int32]int32{} // [outcome] state that follows
		for _, e := range m.exits {
			s, ok := next[e.tag]
			if !ok {
				s = a.followAll(list, e.tag)
				next[e.tag] = s
			}
			if s != dead {
				a.walkExit(s, e)
			}
		}
	}
	for i, w := range a.words {
		words[i] |= w
	}
	set := freeze(words)
	if len(a.stateMasks) >= maxConfigMasks {
		clear(a.stateMasks)
	}
	a.stateMasks[id] = set
	return set
}

// followAll returns the state after a complete leaf of any of the configs.
func (a *arena) followAll(configs []int32, tag int32) int32 {
	from := len(a.scratch)
	for _, c := range configs {
		if next := a.follow(a.configs[c].stack, tag); next != dead {
			a.scratch = append(a.scratch, a.states[next].configs...)
		}
	}
	return a.intern(from)
}

// configTokens returns the tokens that a single config allows. leafMask contains most of them, computed once per leaf
// state; here only the tokens that go beyond the end of the leaf are followed.
func (a *arena) configTokens(c config) *tokenSet {
	leafKey := a.g.class(c)
	key := configMask{leafKey, c.stack}
	if set, ok := a.masks[key]; ok {
		return set
	}
	m := a.g.leafMask(c, leafKey)
	set := m.whole
	if len(m.exits) > 0 {
		clear(a.words)
		m.whole.mergeInto(a.words)
		for _, e := range m.exits {
			if next := a.follow(c.stack, e.tag); next != dead {
				a.walkExit(next, e)
			}
		}
		set = freeze(a.words)
	}
	if len(a.masks) >= maxConfigMasks {
		clear(a.masks)
	}
	a.masks[key] = set
	return set
}

// walkExit adds to a.words the tokens that reach exit e and whose remaining bytes state id accepts.
func (a *arena) walkExit(id int32, e exit) {
	if e.shape {
		a.walkShapes(id, e.node)
		return
	}
	t := &a.g.tokens.trie
	a.walk(id, e.node+1, t.end[e.node])
}

// walkShapes does what walkExit does, for all texts of a shape. Mostly punctuation follows, and shapes distinguish each
// punctuation character; other texts are followed byte by byte.
func (a *arena) walkShapes(id, below int32) {
	s := &a.g.tokens.shapes
	base := int(s.depth[below])
	path := append(a.g.shapePath[:0], id)
	a.walkBroken(id, below)
	for i := below + 1; i < s.end[below]; {
		d := int(s.depth[i]) - base
		if s.label[i] >= kindLower {
			a.walkEach(path[d-1], i)
			i = s.end[i]
			continue
		}
		next := a.step(path[d-1], s.label[i])
		if next == dead {
			i = s.end[i]
			continue
		}
		path = append(path[:d], next)
		s.merge(i, a.words)
		a.walkBroken(next, i)
		i++
	}
	a.g.shapePath = path
}

// walkEach adds the tokens that begin with a text of a shape. The state is applied from the last character of the text.
func (a *arena) walkEach(id, shape int32) {
	t := &a.g.tokens.trie
	for _, node := range a.g.tokens.shapes.nodes(shape) {
		text := a.g.tokens.bytes(t.tokens[t.first[node]])[:t.depth[node]]
		_, size := utf8.DecodeLastRune(text)
		next := id
		for _, b := range text[len(text)-size:] {
			if next = a.step(next, b); next == dead {
				break
			}
		}
		if next == dead {
			continue
		}
		for _, token := range t.at(node) {
			a.words[token/64] |= 1 << (token % 64)
		}
		a.walk(next, node+1, t.end[node])
	}
}

// walkBroken adds the tokens that end inside a character after a text of a shape. It may also follow whole characters,
// which gives the same result.
func (a *arena) walkBroken(id, shape int32) {
	t := &a.g.tokens.trie
	for _, node := range a.g.tokens.shapes.broken[shape] {
		for k := node + 1; k < t.end[node]; k = t.end[k] {
			if t.label[k] >= utf8.RuneSelf {
				a.walk(id, k, t.end[k])
			}
		}
	}
}

// walk adds to a.words the tokens in the subtrees of sibling nodes from ... end-1 whose bytes a state accepts.
func (a *arena) walk(id, from, end int32) {
	if from == end {
		return
	}
	t := &a.g.tokens.trie
	base := int(t.depth[from]) - 1
	path := append(a.g.path[:0], id)
	for i := from; i < end; {
		d := int(t.depth[i]) - base
		next := a.step(path[d-1], t.label[i])
		if next == dead {
			i = t.end[i]
			continue
		}
		path = append(path[:d], next)
		for _, token := range t.at(i) {
			a.words[token/64] |= 1 << (token % 64)
		}
		i++
	}
	a.g.path = path
}

// class returns the key of the leaf mask of a config.
func (g *Grammar) class(c config) maskKey {
	k := g.leaves[c.leaf].class(c.q, g.tokens.trie.deep)
	if k.family == familyNone {
		k.family = ownFamilies + uint32(c.leaf)
	}
	return k
}

// leafMask looks up the mask of a leaf state in the vocabulary's cache or the grammar's own, or computes it.
func (g *Grammar) leafMask(c config, key maskKey) *leafMask {
	cache := g.tokens.shared
	if key.family >= ownFamilies && key.family < patternFamilies {
		cache = g.own
	}
	if m := cache.get(key); m != nil {
		return m
	}
	m := g.tokens.explore(g.leaves[c.leaf], c.q)
	cache.put(key, m)
	return m
}
