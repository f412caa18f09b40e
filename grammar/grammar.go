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

	mu    sync.Mutex // mu guards all fields below, and the leaves of numbers, which store prefixes.
	arena *arena
	own   *maskCache
	// counted is the part of explored.bytes that belongs to this grammar; 0 after Release.
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

// Narrowed reports whether configs of a document were dropped because it had more than 1024 of them, or more than 32 in
// different strings with a pattern or a bounded length. This happens for schemas with many alternatives that have the
// same beginning. All output is still valid, but some valid documents were not allowed.
func (g *Grammar) Narrowed() bool { return g.narrowed.Load() }

// wide reports whether a mask of the leaf is costly: computed by a walk over most of the vocabulary, and not shared
// with other leaves.
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
