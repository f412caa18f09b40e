package host

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// Page is the bytes of one page of a pool.
func Page(p kernel.Pool, page int) []byte {
	return Bytes(p.Mem.Slice(page, page+1))
}

// Place finds a slot of a pool: its page's bytes and its token within the page.
func Place(op string, p kernel.Pool, slot int32) (page []byte, token int, err error) {
	if slot < 0 || int(slot) >= p.Slots() {
		return nil, 0, fmt.Errorf("%w: %s: slot %d of a pool of %d", kernel.ErrArgument, op, slot, p.Slots())
	}
	return Page(p, int(slot)/p.PageTokens), int(slot) % p.PageTokens, nil
}

// MoveIndex copies token slot of src to token i of the gathered page dst, bytes unchanged.
func MoveIndex(dst kernel.Pool, i int, src kernel.Pool, slot int32) error {
	page, token, err := Place("gather index", src, slot)
	if err != nil {
		return err
	}
	to := layout.IndexSlot{Page: Page(dst, 0), Tokens: dst.PageTokens, Slot: i}
	from := layout.IndexSlot{Page: page, Tokens: src.PageTokens, Slot: token}
	switch src.Layout {
	case layout.IndexPage132:
		layout.IndexFP8{}.CopyToken(to, from)
	case layout.IndexPage68:
		layout.IndexFP4{}.CopyToken(to, from)
	case layout.IndexF32Row512:
		n := layout.IndexF32{}.TokenBytes()
		copy(to.Page[to.Slot*n:][:n], from.Page[from.Slot*n:][:n])
	default:
		return fmt.Errorf("%w: gather index: %v holds no indexer keys", kernel.ErrUnsupported, src.Layout)
	}
	return nil
}

// EncodeKey writes a finished indexer key as a token of a page of pool p, with scales by the given rule where the
// layout leaves a choice.
func EncodeKey(p kernel.Pool, page []byte, token int, key []float32, mode num.ScaleMode) error {
	switch p.Layout {
	case layout.IndexPage132:
		layout.IndexFP8{Mode: mode}.Encode(page, p.PageTokens, token, key)
	case layout.IndexPage68:
		layout.IndexFP4{}.Encode(page, p.PageTokens, token, key)
	case layout.IndexF32Row512:
		layout.IndexF32{}.Encode(page, p.PageTokens, token, key)
	default:
		return fmt.Errorf("%w: store indexer keys: %v holds none", kernel.ErrUnsupported, p.Layout)
	}
	return nil
}
