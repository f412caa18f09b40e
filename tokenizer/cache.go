package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots and cachedPiece bound the cache: 16384 pieces of up to 32 bytes and
	// at most as many tokens, under 5 MB when every slot holds the worst.
	cacheSlots  = 1 << 14
	cachedPiece = 32
)

// pieceCache stores the tokens of recent short pieces. Most pieces of a text
// are words seen before, and finding one here costs a hash and a comparison. Each
// piece has one slot, where the last writer wins; readers and writers never wait.
type pieceCache struct {
	seed  maphash.Seed
	slots []cacheSlot
}

type cacheSlot struct{ entry atomic.Pointer[cacheEntry] }

// cacheEntry is never changed once it is in a slot.
type cacheEntry struct {
	piece string
	ids   []int32
}

func newPieceCache() pieceCache {
	return pieceCache{seed: maphash.MakeSeed(), slots: make([]cacheSlot, cacheSlots)}
}

// slot returns the place of piece, nil if it is too long to be kept.
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

// put stores copies: neither the caller's text nor its ids stay alive.
func (s *cacheSlot) put(piece string, ids []int32) {
	if s == nil {
		return
	}
	s.entry.Store(&cacheEntry{piece: strings.Clone(piece), ids: append([]int32(nil), ids...)})
}
