package ref

import (
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// compress computes entries from groups of tokens, channel by channel.
func compress(a kernel.CompressArgs) error {
	if err := onlyF32("compress", a.Out); err != nil {
		return err
	}
	dim := a.Out.Cols
	for e := range a.Sources.Rows {
		slots, err := readSlots(&a, e)
		if err != nil {
			return fmt.Errorf("entry %d: %w", e, err)
		}
		out, gates := host.RowF32(a.Out, e), make([]float64, len(slots))
		for c := range dim {
			for i, s := range slots {
				gates[i] = float64(s.gates[c]) + float64(s.ape[c])
			}
			softmax(gates)
			var sum float64
			for i, p := range gates {
				sum += p * float64(slots[i].values[c])
			}
			out[c] = float32(sum)
		}
	}
	return nil
}

// slot is the half of a raw row that one slot of an entry reads, and the APE values that are added to its gates.
type slot struct{ values, gates, ape []float32 }

// readSlots returns the slots of entry e, without those whose source is absent.
func readSlots(a *kernel.CompressArgs, e int) ([]slot, error) {
	var out []slot
	dim := a.Out.Cols
	for i, source := range host.RowI32(a.Sources, e) {
		if source == -1 {
			continue
		}
		row, err := rawRow(a, source)
		if err != nil {
			return nil, err
		}
		half := i / a.Ratio * dim // offset of the half to read: a group's own tokens use the second half
		out = append(out, slot{row.values[half:][:dim], row.gates[half:][:dim],
			host.RowF32(a.APE, i%a.Ratio)[half:][:dim]})
	}
	return out, nil
}

// raw is a token's raw row.
type raw struct{ values, gates []float32 }

// rawRow reads the raw row of a source: a row of this step, or a row of the state.
func rawRow(a *kernel.CompressArgs, source int32) (raw, error) {
	if source >= 0 {
		if int(source) >= a.Values.Rows {
			return raw{}, fmt.Errorf("%w: compress: row %d is outside the %d rows", kernel.ErrArgument, source,
				a.Values.Rows)
		}
		return raw{host.RowF32(a.Values, int(source)), host.RowF32(a.Gates, int(source))}, nil
	}
	r := int(-2 - source)
	if r >= a.State.Rows {
		return raw{}, fmt.Errorf("%w: compress: state row %d is outside the %d rows", kernel.ErrArgument, r,
			a.State.Rows)
	}
	row := host.RowF32(a.State, r)
	return raw{row[:len(row)/2], row[len(row)/2:]}, nil
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
	entry, err := layout.V4Of(a.Pool.Layout)
	if err != nil {
		return err
	}
	norm := vector(a.Norm)
	var row [layout.V4Dim]float32
	slots := host.I32(a.Slots)
	for i := range a.Rows.Rows {
		slot := slots[i*a.Slots.Stride]
		if slot < 0 {
			continue
		}
		page, offset, err := host.Place("store entries", a.Pool, slot)
		if err != nil {
			return err
		}
		rmsNorm(row[:], host.RowF32(a.Rows, i), norm, a.Eps)
		d.kept(row[:])
		rotate(row[layout.V4NopeDim:], host.RowF32(a.Angles, i), kernel.Interleaved, false)
		entry.Encode(page, a.Pool.PageTokens, offset, row[:])
	}
	return nil
}

// storeKeys normalises, rotates and encodes compressed indexer keys.
func storeKeys(d *Device, a kernel.KeyStoreArgs) error {
	if err := onlyF32("store keys", a.Keys); err != nil {
		return err
	}
	var key [layout.IndexDim]float32
	slots := host.I32(a.Slots)
	for i := range a.Keys.Rows {
		slot := slots[i*a.Slots.Stride]
		if slot < 0 {
			continue
		}
		page, offset, err := host.Place("store keys", a.Pool, slot)
		if err != nil {
			return err
		}
		if copy(key[:], host.RowF32(a.Keys, i)); a.Norm.Given() {
			rmsNorm(key[:], host.RowF32(a.Keys, i), vector(a.Norm), a.Eps)
		}
		d.kept(key[:])
		if a.Angles.Given() {
			rotate(key[layout.IndexDim-layout.RopeDim:], host.RowF32(a.Angles, i), kernel.Interleaved, false)
		}
		if a.Hadamard {
			num.Hadamard128(key[:])
		}
		if err := host.EncodeKey(a.Pool, page, offset, key[:], num.ScaleF32); err != nil {
			return err
		}
	}
	return nil
}
