// Package probe measures a machine for which package cost has no figures: the rates at which its CPU reads weights in
// matrix products with few and with many rows, and the rate of copies over its bus. This takes less than a second.
package probe

import (
	"bytes"
	"fmt"
	"time"

	"sparrow/internal/cost"
	"sparrow/kernel"
)

const (
	weightBytes = 128 << 20 // bytes of the matrix for GEMMs with one row: more than caches hold
	manyPart    = 8         // divisor of weightBytes for GEMMs with 16 rows, which are bound by arithmetic
	columns     = 4096
	copyBytes   = 64 << 20
	smallBytes  = 64 << 10 // bytes of a copy whose time is nearly independent of its size
	repeats     = 2        // number of repetitions of each measurement; the shortest time counts
)

// formats maps cost.Format to types of weights.
var formats = [...]kernel.DType{cost.BF16: kernel.BF16, cost.E4M3: kernel.E4M3, cost.E2M1: kernel.E2M1x2}

// Host measures a CPU with the given number of workers. The device must not be used for anything else: it has the
// matrices of the measurement until it is closed. Figures that are not measured are taken from the table.
func Host(dev kernel.Device, workers int, now func() time.Time) (cost.Host, error) {
	return prober{now}.host(dev, workers, weightBytes)
}

func (p prober) host(dev kernel.Device, workers, size int) (h cost.Host, err error) {
	h = cost.H200().CPU
	h.Name, h.Cores, h.Stream = dev.Name(), workers, 0
	data := bytes.Repeat([]byte{0x3c, 0x3d}, size/2) // bytes that are small normal numbers in every format
	rate := func(d kernel.DType, size, rows int) float64 {
		if err != nil {
			return 0
		}
		var micros float64
		micros, err = p.product(dev, d, data[:size], rows)
		return float64(size) / micros
	}
	const tiny = 64 * columns * 2
	h.Dispatch = tiny / rate(kernel.BF16, tiny, 1)
	for f, d := range formats {
		h.One[f], h.Sixteen[f] = rate(d, size, 1), rate(d, size/manyPart, 16)
		h.Stream = max(h.Stream, h.One[f], h.Sixteen[f])
	}
	for f := range formats { // rates are stored relative to the highest rate
		h.One[f] /= h.Stream
		h.Sixteen[f] /= h.Stream
	}
	h.Core = h.Stream / float64(workers)
	return h, err
}

// Bus measures copies of page-locked memory to a device.
func Bus(dev kernel.Machine, now func() time.Time) (b cost.Bus, err error) {
	mover, ok := dev.(kernel.PageMover)
	if !ok {
		return b, fmt.Errorf("probe: %w: %s has no page-locked memory; a bus is measured with a GPU",
			kernel.ErrUnsupported, dev.Name())
	}
	from, err := mover.HostAlloc(copyBytes)
	if err != nil {
		return b, err
	}
	defer func() {
		if e := mover.HostFree(from); err == nil {
			err = e
		}
	}()
	to, err := dev.Alloc(copyBytes)
	if err != nil {
		return b, err
	}
	defer dev.Free(to)
	p := prober{now}
	micros := func(n int) (float64, error) {
		t := kernel.Tensor{Buf: to, DType: kernel.E4M3, Rows: 1, Cols: n, Stride: n}
		return p.shortest(func() error {
			if err := dev.Write(t, from[:n]); err != nil {
				return err
			}
			return dev.Sync()
		})
	}
	large, err := micros(copyBytes)
	if err != nil {
		return b, err
	}
	b.Rate = copyBytes / large
	b.Wait, err = micros(smallBytes)
	return b, err
}

// prober measures times with the clock now.
type prober struct{ now func() time.Time }

// product returns the time of a GEMM of some rows with a matrix.
func (p prober) product(dev kernel.Device, d kernel.DType, data []byte, rows int) (micros float64, err error) {
	m, err := dev.Prepare(weight(d, data), kernel.Projected)
	if err != nil {
		return 0, err
	}
	x, err := activation(dev, rows, columns)
	if err != nil {
		return 0, err
	}
	defer dev.Free(x.Buf)
	out, err := activation(dev, rows, m.Out())
	if err != nil {
		return 0, err
	}
	defer dev.Free(out.Buf)
	return p.shortest(func() error { return kernel.Do(dev, kernel.MultiplyArgs{Out: out, X: x, W: m}) })
}

// weight returns a matrix [out, columns] of a type, with scales of 1.
func weight(d kernel.DType, data []byte) kernel.Weight {
	cols := columns / d.Values()
	w := kernel.Weight{Data: tensor(kernel.HostBuffer(data), d, len(data)/(cols*d.Size()), cols)}
	scales := func(d kernel.DType, one ...byte) {
		rows, cols := (w.Out()+w.BlockRows-1)/w.BlockRows, columns/w.BlockCols
		w.Scale = tensor(kernel.HostBuffer(bytes.Repeat(one, rows*cols)), d, rows, cols)
	}
	switch d {
	case kernel.E4M3:
		w.BlockRows, w.BlockCols = 128, 128
		scales(kernel.F32, 0, 0, 0x80, 0x3f)
	case kernel.E2M1x2:
		w.BlockRows, w.BlockCols = 1, 32
		scales(kernel.E8M0, 127)
	}
	return w
}

// activation returns device memory for activations [rows, cols].
func activation(dev kernel.Device, rows, cols int) (kernel.Tensor, error) {
	d := dev.Activation()
	b, err := dev.Alloc(int64(rows*cols) * int64(d.Size()))
	return tensor(b, d, rows, cols), err
}

func tensor(b kernel.Buffer, d kernel.DType, rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: b, DType: d, Rows: rows, Cols: cols, Stride: cols}
}

// shortest returns the shortest of repeated times, in microseconds, at least a thousandth of a microsecond.
func (p prober) shortest(f func() error) (micros float64, err error) {
	for i := range repeats {
		begun := p.now()
		if err := f(); err != nil {
			return 0, err
		}
		took := max(float64(p.now().Sub(begun))/1e3, 1e-3)
		if i == 0 || took < micros {
			micros = took
		}
	}
	return micros, nil
}
