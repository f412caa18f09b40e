package tokenizer

import (
	"fmt"
	"runtime"
	"testing"
)

// When it is filled with the longest pieces of the most tokens, the cache takes less than the 5 MB that its comment
// states.
func TestThePieceCacheIsBounded(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	c := newPieceCache()
	ids := make([]int32, cachedPiece)
	filled := 0
	for i := range 16 * cacheSlots {
		piece := fmt.Sprintf("%0*d", cachedPiece, i)
		s := c.slot(piece)
		if s.entry.Load() == nil {
			filled++
		}
		s.put(piece, ids)
	}
	if c.slot(fmt.Sprintf("%0*d", cachedPiece+1, 0)) != nil {
		t.Error("a longer piece has a slot")
	}
	if grown := heap() - before; grown > 5_000_000 || filled < cacheSlots*9/10 {
		t.Errorf("%d slots of %d hold %d bytes", filled, cacheSlots, grown)
	}
	runtime.KeepAlive(c)
}
