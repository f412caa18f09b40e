package ref

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// entry is one decoded V4 entry.
type entry [layout.V4Dim]float32

// dualAttend computes attention over the entries of both streams.
func dualAttend(a kernel.DualArgs) error {
	if err := onlyF32("dual attend", a.Out, a.Q); err != nil {
		return err
	}
	for r := range a.Q.Rows {
		entries, err := readStream(nil, a.Window, r)
		if err == nil && a.Extra.Given() {
			entries, err = readStream(entries, a.Extra, r)
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
		sinkRow(sinkArgs{out: a.Out, lse: a.LSE, q: a.Q, sinks: a.Sinks, heads: a.Heads, scale: a.Scale}, r, entries)
	}
	return nil
}

// readStream appends the entries of a stream that row r attends to.
func readStream(to []entry, s kernel.Stream, r int) ([]entry, error) {
	l, err := layout.V4Of(s.Pool.Layout)
	if err != nil {
		return nil, err
	}
	for _, slot := range host.Counted(s.Indices, s.Lens, r) {
		if slot < 0 {
			continue
		}
		page, offset, err := host.Place("dual attend", s.Pool, slot)
		if err != nil {
			return nil, err
		}
		var e entry
		l.Decode(e[:], page, s.Pool.PageTokens, offset)
		to = append(to, e)
	}
	return to, nil
}

// flatAttend computes attention over gathered entries.
func flatAttend(a kernel.FlatArgs) error {
	if err := onlyF32("flat attend", a.Out, a.Q); err != nil {
		return err
	}
	wide := make([]float64, layout.V4Dim)
	for r := range a.Q.Rows {
		var entries []entry
		for _, i := range host.Counted(a.Indices, a.Lens, r) {
			if i < 0 {
				continue
			}
			if int(i) >= a.KV.Rows {
				return fmt.Errorf("%w: flat attend: row %d refers to entry %d, outside the %d entries",
					kernel.ErrArgument, r, i, a.KV.Rows)
			}
			widen(wide, a.KV, int(i))
			var e entry
			for c, v := range wide {
				e[c] = float32(v)
			}
			entries = append(entries, e)
		}
		sinkRow(sinkArgs{out: a.Out, lse: a.LSE, q: a.Q, sinks: a.Sinks, heads: a.Heads, scale: a.Scale}, r, entries)
	}
	return nil
}

// sinkArgs holds the arguments that are common to DualArgs and FlatArgs.
type sinkArgs struct {
	out, lse, q, sinks kernel.Tensor
	heads              int
	scale              float32
}

// sinkRow computes attention of all heads of a row. The sink is added only to the denominator.
func sinkRow(a sinkArgs, r int, entries []entry) {
	const d = layout.V4Dim
	scores := make([]float64, len(entries))
	for h := range a.heads {
		q, out := host.RowF32(a.q, r)[h*d:][:d], host.RowF32(a.out, r)[h*d:][:d]
		largest, sink := math.Inf(-1), float64(host.RowF32(a.sinks, 0)[h])
		for i := range entries {
			scores[i] = inner(q, entries[i][:]) * float64(a.scale)
			largest = max(largest, scores[i])
		}
		lse := math.Inf(1)
		clear(out)
		if len(entries) > 0 {
			m := max(largest, sink)
			var sum float64
			for i, s := range scores {
				sum += math.Exp(s - largest)
				scores[i] = math.Exp(s - m)
			}
			lse = largest + math.Log(sum)
			total := sum*math.Exp(largest-m) + math.Exp(sink-m)
			sums := make([]float64, d)
			for i, p := range scores {
				addScaled(sums, p, entries[i][:])
			}
			for c, o := range sums {
				out[c] = float32(o / total)
			}
		}
		if a.lse.Given() {
			host.RowF32(a.lse, r)[h] = float32(lse)
		}
	}
}

// unpack decodes entries into a workspace.
func unpack(a kernel.UnpackArgs) error {
	l, err := layout.V4Of(a.Pool.Layout)
	if err != nil {
		return err
	}
	slots := host.I32(a.Slots)
	for i := range a.Slots.Rows {
		var e entry
		if slot := slots[i*a.Slots.Stride]; slot >= 0 {
			page, offset, err := host.Place("unpack", a.Pool, slot)
			if err != nil {
				return err
			}
			l.Decode(e[:], page, a.Pool.PageTokens, offset)
		}
		narrow(a.Out, i, e[:])
	}
	return nil
}
