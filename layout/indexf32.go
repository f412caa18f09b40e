package layout

// IndexF32Bytes is the size of a token in IndexF32Row512 in bytes: 128*4 = 512.
const IndexF32Bytes = IndexDim * 4

// IndexF32 is the layout IndexF32Row512: 128 float32 values per token, without Hadamard rotation. It is exact, for
// verification.
type IndexF32 struct{}

// Kind returns IndexF32Row512.
func (IndexF32) Kind() Kind { return IndexF32Row512 }

// TokenBytes returns the size of a token, 512 bytes.
func (IndexF32) TokenBytes() int { return IndexF32Bytes }

// PageBytes returns the size of a page, 512 bytes per token.
func (IndexF32) PageBytes(tokens int) int { return tokens * IndexF32Bytes }

// Encode implements Index without rounding.
func (IndexF32) Encode(page []byte, tokens, slot int, key []float32) {
	checkIndex(IndexF32Row512, page, tokens, slot, IndexF32Bytes)
	putF32(page[slot*IndexF32Bytes:], values(IndexF32Row512, key, IndexDim))
}

// Decode implements Index without rounding.
func (IndexF32) Decode(key []float32, page []byte, tokens, slot int) {
	checkIndex(IndexF32Row512, page, tokens, slot, IndexF32Bytes)
	getF32(values(IndexF32Row512, key, IndexDim), page[slot*IndexF32Bytes:])
}
