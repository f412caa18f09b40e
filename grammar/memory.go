package grammar

import (
	"sync/atomic"

	"sparrow/internal/footprint"
)

// Limits on the memory of the arenas and masks of all grammars of a vocabulary together, in addition to the compiled
// grammars. Above maxExplored, a grammar with more than minExplored is emptied; results do not change.
const (
	maxExplored = 256 << 20
	minExplored = 1 << 20
)

// explored counts the memory of the arenas and masks of all grammars of a vocabulary.
type explored struct {
	bytes atomic.Int64
	most  int64
}

// Bytes returns the memory of the compiled schema. Arenas and masks have their own limit, over all grammars of a
// vocabulary.
func (g *Grammar) Bytes() int { return footprint.Once(g.nodes, g.leaves, g.ignored) }

// Release declares that no document of the grammar is in progress: its arena and masks no longer count. It may be
// called twice.
func (g *Grammar) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens.explored.bytes.Add(-g.counted)
	g.counted, g.released = 0, true
}

// makeRoom counts the explored memory and frees it if it exceeds the limit. The caller holds mu.
func (g *Grammar) makeRoom() {
	all := &g.tokens.explored
	if !g.released {
		now := g.arena.bytes() + int64(g.own.bytes())
		if now != g.counted {
			all.bytes.Add(now - g.counted)
			g.counted = now
		}
	}
	crowded := all.bytes.Load() > all.most && g.counted > minExplored
	if crowded {
		g.own = newMaskCache(maxMaskBytes)
	}
	if crowded || g.arena.full() {
		g.arena = newArena(g)
	}
}
