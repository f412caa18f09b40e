package public

import (
	"fmt"
	"math"

	"sparrow/plan"
)

// Filler writes the contents of per-batch arrays that depend only on lengths. It allocates nothing, clamps every
// length at 0, and returns ErrLength if dst does not have the size in the plan. Page tables are filled by the cache.
//
// Rows are segment rows. Padding requests have one key, so that no schedule is empty; their rows attend to no key and
// select none.
type Filler struct {
	cfg *Config
	b   *plan.Batch
	s   *plan.Segment
}

// NewFiller returns a Filler for a segment and the batch for which it was planned, or a batch of equal Shape. It keeps
// the pointers and does not change their targets.
func NewFiller(cfg *Config, b *plan.Batch, s *plan.Segment) Filler { return Filler{cfg, b, s} }

func (f Filler) sized(name ArrayName, dst []int32, want int) error {
	if len(dst) != want {
		return plan.ErrLength(string(name), len(dst), want)
	}
	return nil
}

// sizedRows checks an array with an entry for each kernel row. With context parallelism, a rank has only some rows of
// the segment. These depend on the rank, which a plan does not state, so sizedRows returns an error.
func (f Filler) sizedRows(name ArrayName, dst []int32) error {
	if f.s.KernelRows < f.s.Rows {
		return &plan.Error{Code: plan.E10, Asked: fmt.Sprintf("array %s of one of %d ranks", name, f.cfg.CP.Size),
			Supported: "contents of segments whose rows are all on one rank", Try: "no context parallelism"}
	}
	return f.sized(name, dst, f.s.KernelRows)
}

// keys returns the number of keys of span i after the step.
func (f Filler) keys(i int) int {
	if i >= len(f.s.Spans) {
		return 1
	}
	sp := &f.s.Spans[i]
	return max(0, f.b.FirstPosition(&f.cfg.Config, sp.Request)+sp.To)
}

// firstKeys returns the number of keys of the first row of span i, which may be negative.
func (f Filler) firstKeys(i int) int {
	sp := &f.s.Spans[i]
	return f.b.FirstPosition(&f.cfg.Config, sp.Request) + sp.From + 1
}

// eachRow calls put for every kernel row with its span (-1 for padding) and its number of keys.
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

// perRow fills an array with an entry for each kernel row.
func (f Filler) perRow(name ArrayName, dst []int32, value func(span, visible int) int) error {
	if err := f.sizedRows(name, dst); err != nil {
		return err
	}
	f.eachRow(func(row, span, visible int) { dst[row] = int32(value(span, visible)) })
	return nil
}

// sums fills an array with a zero and the prefix sums of n values.
func (f Filler) sums(name ArrayName, dst []int32, n int, value func(i int) int) error {
	if err := f.sized(name, dst, n+1); err != nil {
		return err
	}
	dst[0] = 0
	for i := range n {
		dst[i+1] = dst[i] + int32(value(i))
	}
	return nil
}

func one(int) int { return 1 }

// CacheSeqlens writes [B] keys per request after this step.
func (f Filler) CacheSeqlens(dst []int32) error {
	if err := f.sized(CacheSeqlens, dst, f.s.Requests); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = int32(f.keys(i))
	}
	return nil
}

// CuSeqlensK writes [B+1] prefix sums of CacheSeqlens.
func (f Filler) CuSeqlensK(dst []int32) error { return f.sums(CuSeqlensK, dst, f.s.Requests, f.keys) }

// CuSeqlensQ writes [B+1] query offsets of a prompt segment, or the numbers 0 to R in other segments, where every row
// is a separate entry.
func (f Filler) CuSeqlensQ(dst []int32) error {
	if f.s.NextN > 0 {
		return f.sums(CuSeqlensQ, dst, f.s.KernelRows, one)
	}
	return f.sums(CuSeqlensQ, dst, f.s.Requests, func(i int) int {
		if i >= len(f.s.Spans) { // padded requests have no rows
			return 0
		}
		return f.s.Spans[i].Rows()
	})
}

// SeqlensExpanded writes [R] keys visible to each row.
func (f Filler) SeqlensExpanded(dst []int32) error {
	return f.perRow(SeqlensExpanded, dst, func(_, visible int) int { return visible })
}

// DSACacheSeqlens writes [R] keys that each row attends to, at most K; 0 for padding.
func (f Filler) DSACacheSeqlens(dst []int32) error {
	return f.perRow(DSACacheSeqlens, dst, func(_, visible int) int { return min(visible, f.cfg.Model.K) })
}

// DSACuK writes [R+1] prefix sums of DSACacheSeqlens.
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

// DSACuQ writes [R+1] the numbers 0 to R.
func (f Filler) DSACuQ(dst []int32) error { return f.sums(DSACuQ, dst, f.s.KernelRows, one) }

// starts fills an array from the sum of index keys of earlier spans and the index keys of each row: tokens, or
// compressed entries for V4.
func (f Filler) starts(name ArrayName, dst []int32, value func(start, visible int) int) error {
	start, last := 0, 0
	m := &f.cfg.Model
	return f.perRow(name, dst, func(span, visible int) int {
		if span > last {
			start += m.IndexKeys(f.keys(last))
			last = span
		}
		return value(start, m.IndexKeys(visible))
	})
}

// KStart writes [R] the index of the first gathered index key of each row's request.
func (f Filler) KStart(dst []int32) error {
	return f.starts(KStart, dst, func(start, _ int) int { return start })
}

// KEnd writes [R] KStart plus the number of index keys of the row.
func (f Filler) KEnd(dst []int32) error {
	return f.starts(KEnd, dst, func(start, visible int) int { return start + visible })
}

// TopKOffset writes [R] the first gathered KV row of each row's request (V4: of its compressed part), counted over
// the segment; a launch that gathers only its own spans subtracts the offset of its first row.
func (f Filler) TopKOffset(dst []int32) error {
	return f.starts(TopKOffset, dst, func(start, _ int) int { return start })
}

// TokenToRequest writes [R] the index of each row's request in Batch.Requests; padding rows repeat the last request.
func (f Filler) TokenToRequest(dst []int32) error {
	last := 0
	return f.perRow(TokenToRequest, dst, func(span, _ int) int {
		if span >= 0 {
			last = f.s.Spans[span].Request
		}
		return last
	})
}

// CtxLens2D writes [B, n] for the native kernel: the number of index keys after the step, in every column. For split
// rows it writes [R, 1]: the number of index keys of each row. The value for padding is 1.
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
	return f.perRow(CtxLens2D, dst, func(span, visible int) int {
		if span < 0 {
			return 1
		}
		return f.cfg.Model.IndexKeys(visible)
	})
}

// scheduleSplit is the number of keys that one block of the paged-score kernel processes, for any page size of the
// cache.
const scheduleSplit = 256

// PagedSchedule writes [SMs+1, 2]. Entry i is the (row of CtxLens2D, split of that row) at which multiprocessor i
// starts; entry SMs is the end. ctx must be the array that CtxLens2D wrote for the same segment: a schedule made from
// other lengths can hang a GPU.
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
	entry, before := 0, 0 // before: number of splits in rows before entry
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
