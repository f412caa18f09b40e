package public

import (
	"fmt"
	"math"

	"sparrow/plan"
)

// Filler writes the contents of per-batch arrays that are functions of lengths
// alone. It allocates nothing, clamps every length at 0, and returns ErrLength
// when dst has another size than the plan's shape. Page tables come from the
// cache, not from here.
//
// Rows are segment rows. Padded requests have 1 key and their rows see none,
// so that no schedule is empty and no padding row selects anything.
type Filler struct {
	cfg *plan.Config
	b   *plan.Batch
	s   *plan.Segment
}

// NewFiller binds a segment to the batch it was planned for, or to a batch of
// equal Shape. It keeps the pointers and writes through none of them.
func NewFiller(cfg *plan.Config, b *plan.Batch, s *plan.Segment) Filler { return Filler{cfg, b, s} }

func (f Filler) sized(name ArrayName, dst []int32, want int) error {
	if len(dst) != want {
		return plan.ErrLength(string(name), len(dst), want)
	}
	return nil
}

// sizedRows checks an array with an entry for each kernel row. Context
// parallelism leaves a rank fewer rows than the segment has; which ones depends
// on the rank, which a plan does not name.
func (f Filler) sizedRows(name ArrayName, dst []int32) error {
	if f.s.KernelRows < f.s.Rows {
		return &plan.Error{Code: plan.E10, Asked: fmt.Sprintf("array %s of one of %d ranks", name, f.cfg.CP.Size),
			Supported: "contents of segments whose rows are all on one rank", Try: "no context parallelism"}
	}
	return f.sized(name, dst, f.s.KernelRows)
}

// keys is the number of keys of span i after the step.
func (f Filler) keys(i int) int {
	if i >= len(f.s.Spans) {
		return 1
	}
	sp := &f.s.Spans[i]
	return max(0, f.b.FirstPosition(f.cfg, sp.Request)+sp.To)
}

// firstKeys is the number of keys the first row of span i sees, unclamped.
func (f Filler) firstKeys(i int) int {
	sp := &f.s.Spans[i]
	return f.b.FirstPosition(f.cfg, sp.Request) + sp.From + 1
}

// eachRow calls put for every kernel row with its span (-1 for padding) and
// the keys it sees.
func (f Filler) eachRow(put func(row, span, visible int)) {
	for i := range f.s.Spans {
		sp := &f.s.Spans[i]
		visible := f.firstKeys(i)
		for row := sp.FirstRow; row < sp.FirstRow+sp.Rows(); row++ {
			put(row, i, max(0, visible))
			visible++
		}
	}
	for row := f.s.Rows; row < f.s.KernelRows; row++ {
		put(row, -1, 0)
	}
}

// CacheSeqlens: [B] keys per request after this step.
func (f Filler) CacheSeqlens(dst []int32) error {
	if err := f.sized(CacheSeqlens, dst, f.s.Requests); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = int32(f.keys(i))
	}
	return nil
}

// CuSeqlensK: [B+1] prefix sums of CacheSeqlens.
func (f Filler) CuSeqlensK(dst []int32) error {
	if err := f.sized(CuSeqlensK, dst, f.s.Requests+1); err != nil {
		return err
	}
	dst[0] = 0
	for i := range f.s.Requests {
		dst[i+1] = dst[i] + int32(f.keys(i))
	}
	return nil
}

// CuSeqlensQ: [B+1] query offsets of a prompt segment, [R+1] counting up in a
// decode-like one, where every row is an entry of its own.
func (f Filler) CuSeqlensQ(dst []int32) error {
	if f.s.NextN > 0 {
		return f.countUp(CuSeqlensQ, dst)
	}
	if err := f.sized(CuSeqlensQ, dst, f.s.Requests+1); err != nil {
		return err
	}
	dst[0] = 0
	for i := range f.s.Spans {
		dst[i+1] = dst[i] + int32(f.s.Spans[i].Rows())
	}
	return nil
}

func (f Filler) countUp(name ArrayName, dst []int32) error {
	if err := f.sized(name, dst, f.s.KernelRows+1); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = int32(i)
	}
	return nil
}

// SeqlensExpanded: [R] keys visible to each row.
func (f Filler) SeqlensExpanded(dst []int32) error {
	if err := f.sizedRows(SeqlensExpanded, dst); err != nil {
		return err
	}
	f.eachRow(func(row, _, visible int) { dst[row] = int32(visible) })
	return nil
}

// DSACacheSeqlens: [R] keys each row attends to, at most K; 0 for padding.
func (f Filler) DSACacheSeqlens(dst []int32) error {
	if err := f.sizedRows(DSACacheSeqlens, dst); err != nil {
		return err
	}
	most := f.cfg.Model.K
	f.eachRow(func(row, _, visible int) { dst[row] = int32(min(visible, most)) })
	return nil
}

// DSACuK: [R+1] prefix sums of DSACacheSeqlens.
func (f Filler) DSACuK(dst []int32) error {
	if err := f.sized(DSACuK, dst, f.s.KernelRows+1); err != nil {
		return err
	}
	if err := f.DSACacheSeqlens(dst[1:]); err != nil {
		return err
	}
	dst[0] = 0
	for i := 1; i < len(dst); i++ {
		dst[i] += dst[i-1]
	}
	return nil
}

// DSACuQ: [R+1] counting up.
func (f Filler) DSACuQ(dst []int32) error { return f.countUp(DSACuQ, dst) }

// starts calls put for every row with the sum of index keys of earlier spans
// and the index keys the row sees: tokens, or compressed entries for V4.
func (f Filler) starts(put func(row, start, visible int)) {
	start, last := 0, 0
	m := &f.cfg.Model
	f.eachRow(func(row, span, visible int) {
		if span > last {
			start += m.IndexKeys(f.keys(last))
			last = span
		}
		put(row, start, m.IndexKeys(visible))
	})
}

// KStart: [R] first gathered index key of each row's request.
func (f Filler) KStart(dst []int32) error {
	if err := f.sizedRows(KStart, dst); err != nil {
		return err
	}
	f.starts(func(row, start, _ int) { dst[row] = int32(start) })
	return nil
}

// KEnd: [R] KStart plus the index keys the row sees.
func (f Filler) KEnd(dst []int32) error {
	if err := f.sizedRows(KEnd, dst); err != nil {
		return err
	}
	f.starts(func(row, start, visible int) { dst[row] = int32(start + visible) })
	return nil
}

// TopKOffset: [R] first gathered KV row of each row's request (V4: of its
// compressed part), counted over the segment; a launch that gathers only its
// own spans subtracts the offset of its first row.
func (f Filler) TopKOffset(dst []int32) error {
	if err := f.sizedRows(TopKOffset, dst); err != nil {
		return err
	}
	f.starts(func(row, start, _ int) { dst[row] = int32(start) })
	return nil
}

// TokenToRequest: [R] index into Batch.Requests; padding rows repeat the last.
func (f Filler) TokenToRequest(dst []int32) error {
	if err := f.sizedRows(TokenToRequest, dst); err != nil {
		return err
	}
	last := 0
	f.eachRow(func(row, span, _ int) {
		if span >= 0 {
			last = f.s.Spans[span].Request
		}
		dst[row] = int32(last)
	})
	return nil
}

// CtxLens2D: native [B, n], every column the index keys after the step; split
// [R, 1], the index keys each row sees. Padding has 1.
func (f Filler) CtxLens2D(dst []int32) error {
	if f.s.Indexer.Kind == plan.IndexerPagedNative {
		n := f.s.Indexer.NextN
		if err := f.sized(CtxLens2D, dst, f.s.Requests*n); err != nil {
			return err
		}
		for i := range dst {
			dst[i] = int32(f.cfg.Model.IndexKeys(f.keys(i / n)))
		}
		return nil
	}
	if err := f.sizedRows(CtxLens2D, dst); err != nil {
		return err
	}
	f.eachRow(func(row, span, visible int) {
		dst[row] = int32(f.cfg.Model.IndexKeys(visible))
		if span < 0 {
			dst[row] = 1
		}
	})
	return nil
}

// scheduleSplit is the run of keys the paged-score kernel hands to one block,
// whatever the page of the cache.
const scheduleSplit = 256

// PagedSchedule: [SMs+1, 2]. Entry i is the (row of CtxLens2D, split of that
// row) at which multiprocessor i starts; entry SMs is the end. ctx must be the
// array CtxLens2D filled for this very segment: a schedule made from other
// lengths can hang a GPU.
func (f Filler) PagedSchedule(dst, ctx []int32) error {
	sms := f.cfg.Hardware.SMs
	if err := f.sized(PagedSchedule, dst, (sms+1)*2); err != nil {
		return err
	}
	n := 1
	if f.s.Indexer.Kind == plan.IndexerPagedNative {
		n = f.s.Indexer.NextN
	}
	if want := f.s.KernelRows; len(ctx) != want {
		return plan.ErrLength(string(CtxLens2D), len(ctx), want)
	}
	entries := len(ctx) / n
	splits := func(e int) int {
		longest := int32(0)
		for _, c := range ctx[e*n : (e+1)*n] {
			longest = max(longest, c)
		}
		return (int(longest) + scheduleSplit - 1) / scheduleSplit
	}
	total := 0
	for e := range entries {
		total += splits(e)
		if total > math.MaxInt32 {
			return &plan.Error{Code: plan.E26, Asked: fmt.Sprintf("a schedule of %d splits", total),
				Supported: fmt.Sprintf("at most %d, which int32 can count", math.MaxInt32)}
		}
	}
	each, extra := total/max(sms, 1), total%max(sms, 1)
	entry, before := 0, 0 // splits of entries below entry
	for sm := range sms + 1 {
		start := sm*each + min(sm, extra)
		for entry < entries && before+splits(entry) <= start {
			before += splits(entry)
			entry++
		}
		dst[2*sm], dst[2*sm+1] = int32(entry), int32(start-before)
	}
	return nil
}
