package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// compress computes compressed entries, one entry per item of a worker.
func compress(d *Device, a kernel.CompressArgs) error {
	if err := onlyF32("compress", a.Out); err != nil {
		return err
	}
	for e := range a.Sources.Rows {
		for _, s := range host.RowI32(a.Sources, e) {
			if int(s) >= a.Values.Rows || int(-2-s) >= a.State.Rows {
				return fmt.Errorf("%w: compress: entry %d reads source %d, outside the %d rows and %d rows of state",
					kernel.ErrArgument, e, s, a.Values.Rows, a.State.Rows)
			}
		}
	}
	return each(d, a.Sources.Rows, a, compressEntry)
}

// compressEntry computes one entry. It keeps the gates of all slots, because each channel's largest gate must be known
// before the first exponential.
func compressEntry(d *Device, a *kernel.CompressArgs, worker, e int) {
	dim := a.Out.Cols
	sources, out := host.RowI32(a.Sources, e), host.RowF32(a.Out, e)
	s := &d.scratch[worker]
	gates := grow(&s.rows, len(sources)*dim)
	buf := grow(&s.tile, 2*dim)
	top, sum := buf[:dim], buf[dim:]
	for c := range top {
		top[c], sum[c] = float32(math.Inf(-1)), 0
	}
	for i, source := range sources {
		if source == -1 {
			continue
		}
		g := gates[i*dim:][:dim]
		_, raw := rawRow(a, source, i, dim)
		ape := host.RowF32(a.APE, i%a.Ratio)[i/a.Ratio*dim:][:dim]
		for c, v := range raw {
			g[c] = v + ape[c]
			top[c] = max(top[c], g[c])
		}
	}
	clear(out)
	for i, source := range sources {
		if source == -1 {
			continue
		}
		g := gates[i*dim:][:dim]
		for c := range g {
			g[c] -= top[c]
		}
		d.tier.ExpSum(g, g, 0)
		values, _ := rawRow(a, source, i, dim)
		for c, p := range g {
			sum[c] += p
			out[c] += p * values[c]
		}
	}
	for c := range out {
		if sum[c] > 0 {
			out[c] /= sum[c]
		}
	}
}

// rawRow returns the half of a token's raw row that slot i reads.
func rawRow(a *kernel.CompressArgs, source int32, i, dim int) (values, gates []float32) {
	at := i / a.Ratio * dim
	if source >= 0 {
		return host.RowF32(a.Values, int(source))[at:][:dim], host.RowF32(a.Gates, int(source))[at:][:dim]
	}
	row := host.RowF32(a.State, int(-2-source))
	return row[at:][:dim], row[len(row)/2+at:][:dim]
}

// Put writes rows to given positions.
func (*Device) Put(a kernel.PutArgs) error { return host.Put(a) }

// Tally counts which experts rows choose.
func (*Device) Tally(a kernel.TallyArgs) error { return host.Tally(a) }

// storeEntries normalises, rotates and encodes V4 entries.
func storeEntries(d *Device, a kernel.EntryStoreArgs) error {
	if err := onlyF32("store entries", a.Rows); err != nil {
		return err
	}
	if err := checkSlots("store entries", a.Slots, a.Pool, true); err != nil {
		return err
	}
	return each(d, a.Rows.Rows, a, storeEntry)
}

func storeEntry(d *Device, a *kernel.EntryStoreArgs, worker, r int) {
	slot := int(host.RowI32(a.Slots, r)[0])
	if slot < 0 {
		return
	}
	row := grow(&d.scratch[worker].tile, layout.V4Dim)
	rmsNorm(d.tier, row, host.RowF32(a.Rows, r), host.RowF32(a.Norm, 0), a.Eps)
	d.rotate(worker, headsAt{x: row[layout.V4NopeDim:], n: 1, ld: layout.RopeDim}, host.RowF32(a.Angles, r),
		kernel.Interleaved, false)
	page, offset := host.Page(a.Pool, slot/a.Pool.PageTokens), slot%a.Pool.PageTokens
	switch a.Pool.Layout {
	case layout.V4Row584:
		layout.V4Packed{}.Encode(page, a.Pool.PageTokens, offset, row)
	case layout.V4F32Row2048:
		layout.V4F32{}.Encode(page, a.Pool.PageTokens, offset, row)
	case layout.V41Row288:
		layout.V41Entry{}.Encode(page, a.Pool.PageTokens, offset, row)
	case layout.V41Window528:
		layout.V41Window{}.Encode(page, a.Pool.PageTokens, offset, row)
	}
}

// storeKeys normalises, rotates and encodes compressed indexer keys.
func storeKeys(d *Device, a kernel.KeyStoreArgs) error {
	if err := onlyF32("store keys", a.Keys); err != nil {
		return err
	}
	if err := checkSlots("store keys", a.Slots, a.Pool, true); err != nil {
		return err
	}
	return each(d, a.Keys.Rows, a, storeKey)
}

func storeKey(d *Device, a *kernel.KeyStoreArgs, worker, r int) {
	slot := int(host.RowI32(a.Slots, r)[0])
	if slot < 0 {
		return
	}
	key := grow(&d.scratch[worker].tile, layout.IndexDim)
	if a.Norm.Given() {
		rmsNorm(d.tier, key, host.RowF32(a.Keys, r), host.RowF32(a.Norm, 0), a.Eps)
	} else {
		copy(key, host.RowF32(a.Keys, r))
	}
	if a.Angles.Given() {
		d.rotate(worker, headsAt{x: key[layout.IndexDim-layout.RopeDim:], n: 1, ld: layout.RopeDim},
			host.RowF32(a.Angles, r), kernel.Interleaved, false)
	}
	writeKey(a.Pool, slot, key, a.Hadamard, num.ScaleF32)
}
