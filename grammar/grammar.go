package grammar

import (
	"sync"
	"sync/atomic"
)

// Grammar is a compiled schema for one vocabulary. It is safe for concurrent use; each sequence has its own [State].
type Grammar struct {
	tokens *Tokens
	nodes  []node
	root   int32

	mu      sync.Mutex // guards everything below
	leaves  []leaf
	windows map[windowKey]int32
	arena   *arena
	own     *maskCache
	path    []int32 // scratch of arena.walk

	narrowed atomic.Bool
}

// windowKey names a choice among the next properties of an object.
type windowKey struct {
	node int32
	from int
	room int // nesting left, or -1 if all properties fit
}

// Start is the state before the first byte of a document.
func (g *Grammar) Start() *State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &State{g: g, arena: g.arena, id: g.arena.initial()}
}

// Tokens is the vocabulary that the grammar was compiled for.
func (g *Grammar) Tokens() *Tokens { return g.tokens }

// Narrowed reports whether some document had more readings at once than are kept: 1024, or 32 that are in different strings with a pattern or a
// bounded length. Such a schema has many alternatives that stay indistinguishable. Everything produced is still valid, but some valid documents were not
// offered.
func (g *Grammar) Narrowed() bool { return g.narrowed.Load() }

// window is the leaf for the next listed name of an object, from property from on, with room for so much nesting inside; -1 if there is none.
// A required property ends the choice.
func (g *Grammar) window(n int32, from, room int) int32 {
	o := g.nodes[n].props
	key := windowKey{n, from, room}
	if room >= o.deepest {
		key.room = -1
	}
	if l, ok := g.windows[key]; ok {
		return l
	}
	var list []literal
	for i := from; i < len(o.list) && i <= o.pending[from]; i++ {
		if g.nodes[o.list[i].value].depth > room {
			continue
		}
		text := append(appendString(nil, o.list[i].name), ':')
		spaced := append(append([]byte(nil), text...), ' ')
		list = append(list, literal{text, int32(i)}, literal{spaced, int32(i)})
	}
	l := int32(-1)
	if len(list) > 0 {
		l = g.addLeaf(newLiterals(list))
	}
	g.windows[key] = l
	return l
}

// wide says whether a leaf's mask takes a walk over most of the vocabulary that it does not share with other leaves.
func (g *Grammar) wide(l int32) bool {
	switch l := g.leaves[l].(type) {
	case *patternLeaf:
		return true
	case *stringLeaf:
		return l.least > 0 || l.most != noLimit
	}
	return false
}

func (g *Grammar) addLeaf(l leaf) int32 {
	g.leaves = append(g.leaves, l)
	return int32(len(g.leaves) - 1)
}
