package cpu

import (
	"fmt"
	"math"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// dualWork is V4 attention divided into rows and groups of heads, over paged streams or over a workspace.
type dualWork struct {
	out, lse, q, sinks kernel.Tensor
	heads, groups      int
	scale              float32

	window, extra kernel.Stream
	flat          kernel.Stream // Indices and Lens into a workspace
	kv            kernel.Tensor
	call          int // number of this operation, to recognise entries that an earlier operation kept
}

// dualAttend computes attention over the entries of both streams.
func dualAttend(d *Device, a kernel.DualArgs) error {
	if err := onlyF32("dual attend", a.Out, a.Q); err != nil {
		return err
	}
	if err := checkIndices("dual attend: window", a.Window, a.Q.Rows, a.Window.Pool.Slots()); err != nil {
		return err
	}
	if a.Extra.Given() {
		if err := checkIndices("dual attend: extra", a.Extra, a.Q.Rows, a.Extra.Pool.Slots()); err != nil {
			return err
		}
	}
	return attendEntries(d, dualWork{out: a.Out, lse: a.LSE, q: a.Q, sinks: a.Sinks, heads: a.Heads, scale: a.Scale,
		window: a.Window, extra: a.Extra})
}

// flatAttend computes attention over gathered entries.
func flatAttend(d *Device, a kernel.FlatArgs) error {
	if err := onlyF32("flat attend", a.Out, a.Q); err != nil {
		return err
	}
	flat := kernel.Stream{Indices: a.Indices, Lens: a.Lens}
	if err := checkIndices("flat attend", flat, a.Q.Rows, a.KV.Rows); err != nil {
		return err
	}
	return attendEntries(d, dualWork{out: a.Out, lse: a.LSE, q: a.Q, sinks: a.Sinks, heads: a.Heads, scale: a.Scale,
		flat: flat, kv: a.KV})
}

// checkIndices checks that every index is below limit, once, so that workers need not return errors.
func checkIndices(op string, s kernel.Stream, rows, limit int) error {
	for r := range rows {
		for _, i := range host.Counted(s.Indices, s.Lens, r) {
			if int(i) >= limit {
				return fmt.Errorf("%w: %s: row %d refers to entry %d, outside the %d entries", kernel.ErrArgument, op,
					r, i, limit)
			}
		}
	}
	return nil
}

func attendEntries(d *Device, w dualWork) error {
	w.groups = 1
	if rows := w.q.Rows; rows > 0 && rows < d.pool.Limit() {
		w.groups = min(w.heads, ceilDiv(d.pool.Limit(), rows))
	}
	w.call = taskOf[dualWork](d).args.call + 1
	return each(d, w.q.Rows*w.groups, w, dualRow)
}

// dualRow computes attention for one group of heads of one row. It takes valid entries in blocks, the window first, so
// that sums over paged streams and over a workspace have one order.
func dualRow(d *Device, w *dualWork, worker, item int) {
	const dim = layout.V4Dim
	r, g := item/w.groups, item%w.groups
	h0, h1 := g*w.heads/w.groups, (g+1)*w.heads/w.groups
	s := &d.scratch[worker]
	state := grow(&s.join, 2*(h1-h0))
	b := entryBlock{
		w: w, s: s, q: host.RowF32(w.q, r)[h0*dim : h1*dim],
		join: join{softmax: softmax{top: state[:h1-h0], sum: state[h1-h0:],
			scores: grow(&s.scores, (h1-h0)*attendBlock)}, out: host.RowF32(w.out, r)[h0*dim : h1*dim]},
	}
	b.reset()
	clear(b.out)
	b.keeps = w.follows(r) || w.follows(r+1)
	if w.kv.Given() {
		b.stream(d, &w.flat, nil, r)
	} else {
		b.stream(d, &w.window, &w.window.Pool, r)
		if w.extra.Given() {
			b.stream(d, &w.extra, &w.extra.Pool, r)
		}
	}
	b.flush(d)
	for h := range h1 - h0 {
		lse := b.finishSink(d, b.out[h*dim:][:dim], h, host.RowF32(w.sinks, 0)[h0+h])
		if w.lse.Given() {
			host.RowF32(w.lse, r)[h0+h] = lse
		}
	}
}

// follows reports whether row r attends to the newest entry of row r-1: then both are rows of one sequence, and their
// windows differ in one entry.
func (w *dualWork) follows(r int) bool {
	if r == 0 || r >= w.q.Rows || w.kv.Given() {
		return false
	}
	seen := func(r int) []int32 { return host.Counted(w.window.Indices, w.window.Lens, r) }
	before := seen(r - 1)
	return len(before) > 0 && slices.Contains(seen(r), before[len(before)-1])
}

// keptEntries is the number of widened entries of a stream that a worker keeps: enough for a window and the following
// rows.
const keptEntries = 160

// keptEntry is an entry that is widened once for all rows that attend to it.
type keptEntry struct {
	call int // number of the operation that widened it; entries do not change during an operation
	slot int
	wide [layout.V4Dim]float32
}

// entryChunk is the number of entries that are attended to at a time: large enough that joining a chunk to the earlier
// sums on tiles costs little. It equals the number of entries of a row of DeepSeek-V4-Flash: 128 in its window and 512
// selected.
const entryChunk = 10 * attendBlock

// entryBlock collects entries and computes attention over them when a block is full.
type entryBlock struct {
	join    // outputs [heads, 512] and the state of their softmax
	w       *dualWork
	s       *scratch
	q       []float32 // [heads, 512]
	entries [entryChunk]entryAt
	n       int
	// hasQuery reports that the tiles already hold this row's queries.
	hasQuery bool
	// keeps reports that adjacent rows attend to mostly the entries of this row, so that widened entries are kept.
	keeps bool
}

// entryAt refers to one entry: a slot of a pool or, if pool is nil, a row of the workspace.
type entryAt struct {
	pool *kernel.Pool
	slot int
}

// stream adds the entries of a stream that row r attends to: slots of a pool or, without a pool, rows of the
// workspace.
func (b *entryBlock) stream(d *Device, s *kernel.Stream, pool *kernel.Pool, r int) {
	for _, slot := range host.Counted(s.Indices, s.Lens, r) {
		if slot < 0 {
			continue
		}
		b.entries[b.n] = entryAt{pool, int(slot)}
		if b.n++; b.n == entryChunk {
			b.flush(d)
		}
	}
}

// widen decodes an entry into 512 float32 values.
func (b *entryBlock) widen(d *Device, out []float32, e entryAt) {
	switch {
	case e.pool == nil:
		widenFlat(d.tier, out, b.w.kv, e.slot)
	case !b.keeps:
		widenEntry(d.tier, out, *e.pool, e.slot)
	default:
		place := e.slot % keptEntries
		if e.pool == &b.w.extra.Pool {
			place += keptEntries
		}
		k := &grow(&b.s.kept, 2*keptEntries)[place]
		if k.call != b.w.call || k.slot != e.slot {
			widenEntry(d.tier, k.wide[:], *e.pool, e.slot)
			k.call, k.slot = b.w.call, e.slot
		}
		copy(out, k.wide[:])
	}
}

// flush adds the collected entries to the running softmax of all heads and empties the block.
func (b *entryBlock) flush(d *Device) {
	const dim = layout.V4Dim
	entries := b.entries[:b.n]
	b.n = 0
	if len(entries) == 0 || b.onTiles(d, entries) {
		return
	}
	rows, heads, p := grow(&b.s.rows, attendBlock*dim), len(b.top), b.scores
	for len(entries) > 0 {
		n := min(attendBlock, len(entries))
		for i, e := range entries[:n] {
			b.widen(d, rows[i*dim:][:dim], e)
		}
		d.tier.MatMulF32(p, attendBlock, b.q, dim, heads, rows, dim, n, dim)
		for h := range heads {
			b.fold(d, p[h*attendBlock:][:n], b.out[h*dim:][:dim], h, b.w.scale)
		}
		d.tier.AccumulateF32(b.out, dim, p, attendBlock, heads, rows, dim, n, dim)
		entries = entries[n:]
	}
}

// onTiles computes attention over the collected entries on tiles and reports whether it did. It does so if the tier has
// tiles and bfloat16 represents the entries exactly. This holds for packed entries and for entries unpacked from them,
// so that sums over both are bitwise equal.
func (b *entryBlock) onTiles(d *Device, entries []entryAt) bool {
	s := b.s
	if s.entry == nil {
		if s.entry = vec.NewLatentAttend(d.tier, vec.LatentDim); s.entry == nil {
			return false
		}
	}
	memory, ok := b.rows(d, entries)
	if !ok {
		return false
	}
	heads := len(b.top)
	if !b.hasQuery {
		s.entry.Query(0, b.q, heads, b.w.scale, vec.RowBF16)
		b.hasQuery = true
	}
	if !s.entry.Attend(0, memory, s.places, nil, vec.RowBF16) {
		return false
	}
	s.part.take(1, heads)
	p := s.part.at(0)
	s.entry.Result(p.out, p.top, p.sum)
	b.add(d, p)
	return true
}

// rows collects the entries as rows of bfloat16, in place or in scratch memory, and lists their offsets. It reports
// whether bfloat16 represents them exactly.
func (b *entryBlock) rows(d *Device, entries []entryAt) ([]byte, bool) {
	const rowBytes = 2 * vec.LatentDim
	s := b.s
	s.places = s.places[:0]
	if kv := b.w.kv; kv.Given() && kv.DType == kernel.BF16 {
		for _, e := range entries {
			s.places = append(s.places, 2*kv.Stride*e.slot)
		}
		memory := host.Bytes(kv)
		return memory, s.entry.Holds(memory, s.places)
	}
	narrow := grow(&s.narrow, len(entries)*rowBytes)
	for i, e := range entries {
		if !b.narrow(d, narrow[i*rowBytes:][:rowBytes], e) {
			return nil, false
		}
		s.places = append(s.places, i*rowBytes)
	}
	return narrow, true
}

// narrow writes an entry as a row of bfloat16 and reports whether bfloat16 represents it exactly.
func (b *entryBlock) narrow(d *Device, row []byte, e entryAt) bool {
	if e.pool != nil && e.pool.Layout == layout.V4Row584 {
		var l layout.V4Packed
		page, slot := host.Page(*e.pool, e.slot/e.pool.PageTokens), e.slot%e.pool.PageTokens
		return b.s.entry.Entry(row, l.Data(page, slot), l.Scales(page, e.pool.PageTokens, slot))
	}
	wide := grow(&b.s.rows, layout.V4Dim)
	b.widen(d, wide, e)
	return b.s.entry.Narrow(row, wide)
}

// finishSink is finish with a sink in the denominator; the log-sum-exp that it returns excludes the sink.
func (st softmax) finishSink(d *Device, out []float32, i int, sink float32) float32 {
	if st.sum[i] == 0 {
		return float32(math.Inf(1))
	}
	top, sum := float64(st.top[i]), float64(st.sum[i])
	scaleBy(d.tier, out, float32(1/(sum+math.Exp(float64(sink)-top))))
	return float32(top + math.Log(sum))
}

// widenEntry decodes one V4 entry into 512 float32 values.
func widenEntry(tier *vec.Tier, out []float32, p kernel.Pool, slot int) {
	page, s := host.Page(p, slot/p.PageTokens), slot%p.PageTokens
	switch p.Layout {
	case layout.V4F32Row2048:
		layout.V4F32{}.Decode(out, page, p.PageTokens, s)
		return
	case layout.V41Row288, layout.V41Window528:
		widenShared(tier, out, p.Layout, page, s)
		return
	}
	var l layout.V4Packed
	data, scales := l.Data(page, s), l.Scales(page, p.PageTokens, s)
	var groups vec.Groups
	for t := range layout.V4Tiles {
		groups[t] = num.FromE8M0(scales[t])
	}
	tier.WidenE4M3Groups(out[:layout.V4NopeDim], data[:layout.V4NopeDim], groups, layout.V4TileDim)
	tier.WidenBF16(out[layout.V4NopeDim:], data[layout.V4RopeOffset:])
}

// widenFlat reads one row of a workspace.
func widenFlat(tier *vec.Tier, out []float32, kv kernel.Tensor, i int) {
	row := kv.Slice(i, i+1)
	if kv.DType == kernel.BF16 {
		tier.WidenBF16(out, host.Bytes(row))
		return
	}
	copy(out, host.F32(row))
}

// unpack decodes entries into a workspace.
func unpack(d *Device, a kernel.UnpackArgs) error {
	if err := checkSlots("unpack", a.Slots, a.Pool, true); err != nil {
		return err
	}
	return each(d, a.Slots.Rows, a, func(d *Device, a *kernel.UnpackArgs, worker, r int) {
		row := grow(&d.scratch[worker].tile, layout.V4Dim)
		if slot := int(host.RowI32(a.Slots, r)[0]); slot >= 0 {
			widenEntry(d.tier, row, a.Pool, slot)
		} else {
			clear(row)
		}
		if a.Out.DType == kernel.F32 {
			copy(host.RowF32(a.Out, r), row)
		} else {
			d.tier.NarrowBF16(host.Bytes(a.Out.Slice(r, r+1)), row)
		}
	})
}
