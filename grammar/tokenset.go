package grammar

import (
	"math/bits"
	"sync"
)

// tokenSet is a set of token ids, as a bitmap or, if there are few, as a list.
type tokenSet struct {
	words []uint64 // [words of a mask] bitmap; nil if the set is a list
	ids   []int32
}

// sparse is the maximum number of tokens of a list. For so few, setting single bits is as fast as merging a bitmap of
// 129k tokens.
const sparse = 512

// freeze copies a bitmap to a bitmap or a list, whichever is smaller.
func freeze(words []uint64) *tokenSet {
	n := 0
	for _, w := range words {
		n += bits.OnesCount64(w)
	}
	if n > sparse {
		return &tokenSet{words: append([]uint64(nil), words...)}
	}
	s := &tokenSet{ids: make([]int32, 0, n)}
	for i, w := range words {
		for ; w != 0; w &= w - 1 {
			s.ids = append(s.ids, int32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return s
}

// mergeInto adds the set to a mask.
func (s *tokenSet) mergeInto(dst []uint64) {
	for i, w := range s.words {
		dst[i] |= w
	}
	for _, id := range s.ids {
		dst[id/64] |= 1 << (id % 64)
	}
}

func (s *tokenSet) empty() bool { return s.words == nil && len(s.ids) == 0 }

// maskKey identifies a class of leaf states that allow the same tokens. Families below [ownFamilies] are the same in
// every grammar; the others belong to one leaf of one grammar.
type maskKey struct {
	family uint32
	class  uint64
}

// leafMask is the set of tokens that a leaf state allows: the tokens that it accepts as a whole, and the nodes of the
// trie at which the leaf can end inside a token. The following leaves must accept the rest of such a token.
type leafMask struct {
	whole *tokenSet
	exits []exit
}

// exit is a node of the token trie, or of the trie of shapes, after which the leaf may end with the given outcome.
type exit struct {
	node  int32
	tag   int32
	shape bool
}

// bytes returns the approximate memory of a mask in a cache.
func (m *leafMask) bytes() int {
	const place = 256 // bytes of its structures and of its map entry
	return place + 8*cap(m.whole.words) + 4*cap(m.whole.ids) + 12*cap(m.exits)
}

// maskCache stores leaf masks up to a maximum number of bytes; the oldest masks are dropped first. It is safe for
// concurrent use.
type maskCache struct {
	mu    sync.Mutex
	masks map[maskKey]*leafMask
	order []maskKey // keys of the masks, oldest first
	held  int       // bytes of the stored masks
	limit int
}

func newMaskCache(limit int) *maskCache {
	return &maskCache{masks: make(map[maskKey]*leafMask), limit: limit}
}

func (c *maskCache) get(k maskKey) *leafMask {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.masks[k]
}

// bytes returns the memory of the masks.
func (c *maskCache) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

func (c *maskCache) put(k maskKey, m *leafMask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.masks[k]; ok {
		return
	}
	c.masks[k] = m
	c.order = append(c.order, k)
	for c.held += m.bytes(); c.held > c.limit; {
		oldest := c.order[0]
		c.held -= c.masks[oldest].bytes()
		c.order = c.order[1:]
		delete(c.masks, oldest)
	}
}
