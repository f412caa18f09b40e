package host

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// Page returns the bytes of one page of a pool.
func Page(p kernel.Pool, page int) []byte {
	return Bytes(p.Mem.Slice(page, page+1))
}

// Place returns the location of a slot of a pool: the bytes of its page and the index of its token in the page.
func Place(op string, p kernel.Pool, slot int32) (page []byte, token int, err error) {
	if slot < 0 || int(slot) >= p.Slots() {
		return nil, 0, fmt.Errorf("%w: %s: slot %d is outside the pool of %d slots", kernel.ErrArgument, op, slot,
			p.Slots())
	}
	return Page(p, int(slot)/p.PageTokens), int(slot) % p.PageTokens, nil
}

// MoveIndex copies n tokens of src, from slot on in one page, to the gathered page dst from token i on. The encoded
// bytes do not change.
func MoveIndex(dst kernel.Pool, i int, src kernel.Pool, slot int32, n int) error {
	page, token, err := Place("gather index", src, slot)
	if err != nil {
		return err
	}
	to := layout.IndexSlot{Page: Page(dst, 0), Tokens: dst.PageTokens, Slot: i}
	from := layout.IndexSlot{Page: page, Tokens: src.PageTokens, Slot: token}
	switch src.Layout {
	case layout.IndexPage132:
		layout.IndexFP8{}.CopyTokens(to, from, n)
	case layout.IndexPage68, layout.V41Index68:
		layout.IndexFP4{}.CopyTokens(to, from, n)
	case layout.IndexF32Row512:
		size := layout.IndexF32{}.TokenBytes()
		copy(to.Page[to.Slot*size:][:n*size], from.Page[from.Slot*size:][:n*size])
	default:
		return fmt.Errorf("%w: gather index: %v has no indexer keys", kernel.ErrUnsupported, src.Layout)
	}
	return nil
}

// EncodeKey encodes a normalised and rotated indexer key as the given token of a page of pool p. mode selects the
// rounding of scales, for layouts that have several.
func EncodeKey(p kernel.Pool, page []byte, token int, key []float32, mode num.ScaleMode) error {
	switch p.Layout {
	case layout.IndexPage132:
		layout.IndexFP8{Mode: mode}.Encode(page, p.PageTokens, token, key)
	case layout.IndexPage68:
		layout.IndexFP4{}.Encode(page, p.PageTokens, token, key)
	case layout.V41Index68:
		layout.IndexV41{}.Encode(page, p.PageTokens, token, key)
	case layout.IndexF32Row512:
		layout.IndexF32{}.Encode(page, p.PageTokens, token, key)
	default:
		return fmt.Errorf("%w: store indexer keys: %v has no indexer keys", kernel.ErrUnsupported, p.Layout)
	}
	return nil
}
