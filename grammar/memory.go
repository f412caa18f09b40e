package grammar

import (
	"sync/atomic"

	"sparrow/internal/footprint"
)

// Limits on what documents explore of all grammars of a vocabulary together, beside what a grammar is compiled to: its
// arena and its masks. Beyond maxExplored a grammar that has more than minExplored starts afresh; results do not
// change.
const (
	maxExplored = 256 << 20
	minExplored = 1 << 20
)

// explored is what documents have explored of all grammars of a vocabulary.
type explored struct {
	bytes atomic.Int64
	most  int64
}

// Bytes is the memory of what the schema was compiled to. What documents explore of it has a bound of its own, over all
// grammars of a vocabulary.
func (g *Grammar) Bytes() int { return footprint.Once(g.nodes, g.leaves, g.ignored) }

// Release reports that no document of the grammar continues: what was explored no longer counts. It may be called
// twice.
func (g *Grammar) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens.explored.bytes.Add(-g.counted)
	g.counted, g.released = 0, true
}

// makeRoom counts what has been explored and forgets it where it is too much. The caller holds mu.
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
