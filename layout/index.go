package layout

import (
	"fmt"

	"sparrow/internal/num"
)

// Bytes of a token in an IndexPage132 page, and of a page of 64 tokens: 64*128 key bytes and 64*4 scale bytes.
const (
	IndexScaleBytes = 4
	IndexTokenBytes = IndexDim + IndexScaleBytes   // 128 + 4 = 132
	IndexPageBytes  = PageTokens * IndexTokenBytes // 64*132 = 8448
)

// IndexFP8 is the layout IndexPage132. A page of n tokens is n*128 key bytes, then n float32 scales. A token is
// therefore not contiguous; CopyTokens copies both parts.
type IndexFP8 struct {
	// Mode selects how Encode computes the scale; Decode does not depend on it.
	Mode num.ScaleMode
}

// IndexSlot is one token of a page of indexer keys.
type IndexSlot struct {
	Page   []byte
	Tokens int // number of tokens in the page
	Slot   int // index of the token in the page
}

// Kind returns IndexPage132.
func (IndexFP8) Kind() Kind { return IndexPage132 }

// TokenBytes returns the size of a token, 132 bytes.
func (IndexFP8) TokenBytes() int { return IndexTokenBytes }

// PageBytes returns the size of a page, 132 bytes per token.
func (IndexFP8) PageBytes(tokens int) int { return tokens * IndexTokenBytes }

// Encode implements Index.
func (l IndexFP8) Encode(page []byte, tokens, slot int, key []float32) {
	checkIndex(IndexPage132, page, tokens, slot, IndexTokenBytes)
	scale := num.QuantE4M3(l.Key(page, slot), values(IndexPage132, key, IndexDim), l.Mode)
	storeF32(page[indexScaleAt(tokens, slot):], scale)
}

// Decode implements Index: the e4m3 value times the token's scale, rounded to float32.
func (l IndexFP8) Decode(key []float32, page []byte, tokens, slot int) {
	checkIndex(IndexPage132, page, tokens, slot, IndexTokenBytes)
	num.DequantE4M3(values(IndexPage132, key, IndexDim), l.Key(page, slot), l.Scale(page, tokens, slot))
}

// Key returns the 128 e4m3 bytes of a token.
func (IndexFP8) Key(page []byte, slot int) []byte {
	return page[slot*IndexDim : (slot+1)*IndexDim : (slot+1)*IndexDim]
}

// Keys returns the e4m3 bytes [tokens, 128] with which the page begins.
func (IndexFP8) Keys(page []byte, tokens int) []byte {
	return page[: tokens*IndexDim : tokens*IndexDim]
}

// Scale returns a token's scale.
func (IndexFP8) Scale(page []byte, tokens, slot int) float32 {
	return loadF32(page[indexScaleAt(tokens, slot):])
}

// KeyOffset returns the byte offset of the key at location loc in a pool whose pages have the given number of tokens.
func (IndexFP8) KeyOffset(tokens, loc int) int {
	return loc/tokens*tokens*IndexTokenBytes + loc%tokens*IndexDim
}

// ScaleOffset returns the byte offset of the scale at location loc in a pool whose pages have the given number of
// tokens.
func (IndexFP8) ScaleOffset(tokens, loc int) int {
	return loc/tokens*tokens*IndexTokenBytes + indexScaleAt(tokens, loc%tokens)
}

// CopyTokens copies the keys and scales of n adjacent tokens between pages, which may have different sizes.
func (l IndexFP8) CopyTokens(dst, src IndexSlot, n int) {
	for _, s := range [...]IndexSlot{dst, src} {
		checkIndex(IndexPage132, s.Page, s.Tokens, s.Slot, IndexTokenBytes)
		checkIndex(IndexPage132, s.Page, s.Tokens, s.Slot+n-1, IndexTokenBytes)
	}
	copy(dst.Page[dst.Slot*IndexDim:][:n*IndexDim], src.Page[src.Slot*IndexDim:])
	from := src.Page[indexScaleAt(src.Tokens, src.Slot):]
	copy(dst.Page[indexScaleAt(dst.Tokens, dst.Slot):], from[:n*IndexScaleBytes])
}

// indexScaleAt returns the byte offset of a token's scale in its page.
func indexScaleAt(tokens, slot int) int {
	return tokens*IndexDim + slot*IndexScaleBytes
}

// checkIndex panics unless the page has the given number of tokens and contains the slot.
func checkIndex(k Kind, page []byte, tokens, slot, tokenBytes int) {
	if tokens < 0 || len(page)/tokenBytes < tokens {
		panic(fmt.Sprintf("layout: %v: a page of %d tokens needs %d bytes, got %d", k, tokens, tokens*tokenBytes,
			len(page)))
	}
	if slot < 0 || slot >= tokens {
		panicSlot(k, slot, tokens, len(page))
	}
}
