package layout

import "sparrow/internal/num"

// Bytes of a token in an IndexPage68 page: 128 values of 4 bits, and an exponent for every 32 values.
const (
	IndexFP4Group  = 32
	indexFP4Values = IndexDim / 2                    // 64
	indexFP4Scales = IndexDim / IndexFP4Group        // 4
	IndexFP4Bytes  = indexFP4Values + indexFP4Scales // 64 + 4 = 68
)

// IndexFP4 is the layout IndexPage68. A page of n tokens is n*64 bytes of pairs of e2m1 values, the even element in the
// low nibble, then n*4 exponents. Values are rounded to nearest, ties to even. The scale of a group is the smallest
// power of two that is at least max(largest magnitude, 1e-4) / 6.
type IndexFP4 struct{}

// Kind returns IndexPage68.
func (IndexFP4) Kind() Kind { return IndexPage68 }

// TokenBytes returns the size of a token, 68 bytes.
func (IndexFP4) TokenBytes() int { return IndexFP4Bytes }

// PageBytes returns the size of a page, 68 bytes per token.
func (IndexFP4) PageBytes(tokens int) int { return tokens * IndexFP4Bytes }

// Encode implements Index.
func (l IndexFP4) Encode(page []byte, tokens, slot int, key []float32) {
	packed, scales := l.token(page, tokens, slot)
	key = values(IndexPage68, key, IndexDim)
	for g := range scales {
		scales[g] = num.QuantE2M1(packed[g*IndexFP4Group/2:][:IndexFP4Group/2], key[g*IndexFP4Group:][:IndexFP4Group])
	}
}

// Decode implements Index: the e2m1 value times its power-of-two scale, which is exact.
func (l IndexFP4) Decode(key []float32, page []byte, tokens, slot int) {
	packed, scales := l.token(page, tokens, slot)
	key = values(IndexPage68, key, IndexDim)
	for g, e := range scales {
		num.DequantE2M1(key[g*IndexFP4Group:][:IndexFP4Group], packed[g*IndexFP4Group/2:][:IndexFP4Group/2], e)
	}
}

// KeyOffset returns the byte offset of the values at location loc in a pool whose pages have the given number of
// tokens.
func (IndexFP4) KeyOffset(tokens, loc int) int {
	return loc/tokens*tokens*IndexFP4Bytes + loc%tokens*indexFP4Values
}

// ScaleOffset returns the byte offset of the exponents at location loc in a pool whose pages have the given number of
// tokens.
func (IndexFP4) ScaleOffset(tokens, loc int) int {
	return loc/tokens*tokens*IndexFP4Bytes + tokens*indexFP4Values + loc%tokens*indexFP4Scales
}

// CopyTokens copies the values and exponents of n adjacent tokens between pages, which may have different sizes.
func (l IndexFP4) CopyTokens(dst, src IndexSlot, n int) {
	toPacked, toScales := l.Tokens(dst.Page, dst.Tokens, dst.Slot, n)
	packed, scales := l.Tokens(src.Page, src.Tokens, src.Slot, n)
	copy(toPacked, packed)
	copy(toScales, scales)
}

// Tokens returns the values and the exponents of n adjacent tokens of a page.
func (l IndexFP4) Tokens(page []byte, tokens, slot, n int) (packed, scales []byte) {
	checkIndex(IndexPage68, page, tokens, slot, IndexFP4Bytes)
	checkIndex(IndexPage68, page, tokens, slot+n-1, IndexFP4Bytes)
	at := l.ScaleOffset(tokens, slot)
	return page[slot*indexFP4Values:][:n*indexFP4Values], page[at:][:n*indexFP4Scales]
}

// token returns the values (64 bytes) and the exponents (4 bytes) of a token.
func (l IndexFP4) token(page []byte, tokens, slot int) (packed, scales []byte) {
	return l.Tokens(page, tokens, slot, 1)
}
