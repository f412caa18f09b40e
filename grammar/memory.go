package grammar

import (
	"sync/atomic"

	"sparrow/internal/footprint"
)

// Limits on the memory of the arenas and masks of all grammars of a vocabulary together, in addition to the compiled
// grammars. If the sum exceeds maxExplored, grammars with more than minExplored drop theirs; results do not change.
const (
	maxExplored = 256 << 20
	minExplored = 1 << 20
)

// explored counts the memory of the arenas and masks of all grammars of a vocabulary.
type explored struct {
	bytes atomic.Int64
	most  int64
}

// Bytes returns the bytes of the compiled schema, without the arena and the masks, which maxExplored limits.
func (g *Grammar) Bytes() int { return footprint.Once(g.nodes, g.leaves, g.ignored) }

// Release must be called when no document of the grammar is in progress. Its arena and masks then no longer count for
// the limit. It may be called more than once.
func (g *Grammar) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens.explored.bytes.Add(-g.counted)
	g.counted, g.released = 0, true
}

// makeRoom updates the explored memory, and empties the grammar's arena and masks above the limit. The caller holds mu.
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
