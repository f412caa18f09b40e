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

	leaves []leaf

	ignored []Ignored

	mu    sync.Mutex // guards all fields below, and the number leaves, which store prefixes
	arena *arena
	own   *maskCache
	// counted is the size that is included in the explored total; 0 after release.
	counted  int64
	released bool

	path, shapePath []int32 // buffers of arena.walk and arena.walkShapes

	narrowed atomic.Bool
}

// Start returns the state before the first byte of a document.
func (g *Grammar) Start() *State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &State{g: g, arena: g.arena, id: g.arena.initial()}
}

// Tokens returns the vocabulary that the grammar was compiled for.
func (g *Grammar) Tokens() *Tokens { return g.tokens }

// Narrowed reports whether some document had more simultaneous readings than are kept: 1024, or 32 in different strings
// with a pattern or a bounded length. Such a schema has many alternatives that cannot be distinguished for long. All
// output is still valid, but some valid documents were not offered.
func (g *Grammar) Narrowed() bool { return g.narrowed.Load() }

// wide reports whether computing a leaf's mask needs a walk over most of the vocabulary that is not shared with other
// leaves.
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
