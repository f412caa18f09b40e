package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots and cachedPiece limit the cache: 16384 pieces of up to 32 bytes and at most as many tokens, under 5 MB
	// in the worst case.
	cacheSlots  = 1 << 14
	cachedPiece = 32
)

// pieceCache stores the tokens of recent short pieces. Most pieces of a text are words that occurred before, and
// finding one here costs a hash and a comparison. Each piece has one slot, where the last writer wins; readers and
// writers never wait.
type pieceCache struct {
	seed  maphash.Seed
	slots []cacheSlot
}

type cacheSlot struct{ entry atomic.Pointer[cacheEntry] }

// cacheEntry is immutable once it is in a slot.
type cacheEntry struct {
	piece string
	ids   []int32
}

func newPieceCache() pieceCache {
	return pieceCache{seed: maphash.MakeSeed(), slots: make([]cacheSlot, cacheSlots)}
}

// slot returns the slot of piece, nil if it is too long to be cached.
func (c *pieceCache) slot(piece string) *cacheSlot {
	if len(piece) > cachedPiece {
		return nil
	}
	return &c.slots[maphash.String(c.seed, piece)%cacheSlots]
}

// get appends the tokens of piece to dst if the slot holds them.
func (s *cacheSlot) get(dst []int32, piece string) (_ []int32, ok bool) {
	if s == nil {
		return dst, false
	}
	e := s.entry.Load()
	if e == nil || e.piece != piece {
		return dst, false
	}
	return append(dst, e.ids...), true
}

// put stores copies, so that neither the caller's text nor its ids stay in memory.
func (s *cacheSlot) put(piece string, ids []int32) {
	if s == nil {
		return
	}
	s.entry.Store(&cacheEntry{piece: strings.Clone(piece), ids: append([]int32(nil), ids...)})
}
