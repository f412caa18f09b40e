package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots and cachedPiece limit the cache to 16384 pieces of at most 32 bytes, with their tokens: less than 5
	// MB.
	cacheSlots  = 1 << 14
	cachedPiece = 32
)

// pieceCache caches the tokens of short pieces, because most pieces of a text are words that have occurred before. A
// piece has one slot, chosen by its hash; a new piece replaces the previous one. It is lock-free.
type pieceCache struct {
	seed  maphash.Seed
	slots []cacheSlot
}

type cacheSlot struct{ entry atomic.Pointer[cacheEntry] }

// cacheEntry is immutable after it was stored.
type cacheEntry struct {
	piece string
	ids   []int32
}

func newPieceCache() pieceCache {
	return pieceCache{seed: maphash.MakeSeed(), slots: make([]cacheSlot, cacheSlots)}
}

// slot returns the slot of a piece, or nil if the piece is too long to be cached.
func (c *pieceCache) slot(piece string) *cacheSlot {
	if len(piece) > cachedPiece {
		return nil
	}
	return &c.slots[maphash.String(c.seed, piece)%cacheSlots]
}

// get appends the tokens of the piece to dst; ok is false if the slot holds another piece.
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

// put stores copies of the piece and its ids.
func (s *cacheSlot) put(piece string, ids []int32) {
	if s == nil {
		return
	}
	s.entry.Store(&cacheEntry{piece: strings.Clone(piece), ids: append([]int32(nil), ids...)})
}
