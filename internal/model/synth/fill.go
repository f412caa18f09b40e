package synth

import (
	"context"
	"encoding/binary"
	"io"
	"math"

	"sparrow/internal/num"
	"sparrow/weight"
)

// block is the number of rows, and of columns, of a block of FP8 values with one scale.
const block = 128

// chunkValues is the number of random values that are generated at a time: even, and small enough for a CPU cache.
const chunkValues = 1 << 14

// filler writes the bytes of tensors. One goroutine uses it; its buffers are reused for all tensors.
type filler struct {
	ctx      context.Context
	seed     uint64
	pow2     bool // block scales are powers of two
	repeat   bool // only the first values of a tensor are random, and the others repeat them
	progress func(bytes int)
	values   []float32
	bytes    []byte
	found    map[string][]float32 // scales of matrices whose values are written before their scales
}

// sources lists the tensors that are written for t: its values, and its scales if it has scales.
func (f *filler) sources(t tensor) []weight.Source {
	data := weight.Source{Name: t.name, DType: t.dtype, Shape: t.shape}
	switch {
	case t.store == blockFP8 || t.store == blockFP8E8:
		data.Fill = func(w io.Writer) error { return f.matrix(w, t) }
		scales := weight.Source{Name: t.scale, DType: weight.F32, Shape: t.scaleShape()}
		write := f.writeF32
		if t.store == blockFP8E8 {
			scales.DType, write = weight.F8E8M0, f.writeE8M0
		}
		scales.Fill = func(w io.Writer) error { return f.scales(w, t, f.matrix, write) }
		return []weight.Source{data, scales}
	case t.store == groupFP4:
		data.Shape = []int{t.shape[0], t.shape[1] / 2}
		data.Fill = func(w io.Writer) error { return f.fp4(w, t) }
		scales := weight.Source{Name: t.scale, DType: weight.F8E8M0, Shape: []int{t.shape[0], t.shape[1] / fp4Group}}
		scales.Fill = func(w io.Writer) error { return f.scales(w, t, f.fp4, f.writeE8M0) }
		return []weight.Source{data, scales}
	case t.store == rowFP8:
		data.Fill = func(w io.Writer) error { return f.rows8(w, t) }
		scales := weight.Source{Name: t.scale, DType: weight.F8E8M0, Shape: []int{t.shape[0], t.shape[1] / fp4Group}}
		scales.Fill = func(w io.Writer) error { return f.scales(w, t, f.rows8, f.writeE8M0) }
		return []weight.Source{data, scales}
	case t.store == groupInt4:
		return f.int4Sources(t)
	case t.store == tokenMap:
		data.Fill = func(w io.Writer) error { return f.tokens(w, t) }
	case t.store == expertTable:
		data.Fill = func(w io.Writer) error { return f.experts(w, t) }
	case t.dtype == weight.F32:
		data.Fill = func(w io.Writer) error { return f.plain(t, func(v []float32) error { return f.writeF32(w, v) }) }
	default:
		data.Fill = func(w io.Writer) error { return f.plain(t, func(v []float32) error { return f.writeBF16(w, v) }) }
	}
	return []weight.Source{data}
}

// scales writes the scales of t. If they come before the values in the file, they are computed first.
func (f *filler) scales(w io.Writer, t tensor, find func(io.Writer, tensor) error,
	write func(io.Writer, []float32) error) error {
	if f.found[t.name] == nil {
		if err := find(nil, t); err != nil {
			return err
		}
	}
	s := f.found[t.name]
	delete(f.found, t.name)
	return write(w, s)
}

// keep stores the scales of t until they are written.
func (f *filler) keep(t tensor, scales []float32) {
	if f.found == nil {
		f.found = map[string][]float32{}
	}
	f.found[t.name] = scales
}

// scaleShape returns the shape of the scales of a matrix [out, in]; blocks at the edges may be incomplete.
func (t *tensor) scaleShape() []int {
	n := t.blockSide()
	return []int{(t.shape[0] + n - 1) / n, (t.shape[1] + n - 1) / n}
}

// blockSide returns the number of rows, and of columns, of the blocks of t that have one scale.
func (t *tensor) blockSide() int {
	if t.side > 0 {
		return t.side
	}
	return block
}

// plain generates the random values of t, a chunk at a time.
func (f *filler) plain(t tensor, write func([]float32) error) error {
	r := newRandom(f.seed, t.like, t.mean, t.spread)
	for left := elements(t.shape); left > 0; {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		first := left == elements(t.shape)
		v := f.take(int(min(left, chunkValues)))
		if first || !f.repeat {
			r.fill(v)
		}
		if err := write(v); err != nil {
			return err
		}
		left -= int64(len(v))
	}
	return nil
}

// matrix generates the random values of t, a row of blocks at a time, computes the scale of each block and writes the
// quantised values. The scales are stored until their tensor is written. If w is nil, only the scales are computed.
func (f *filler) matrix(w io.Writer, t tensor) error {
	out, in := t.shape[0], t.shape[1]
	r := newRandom(f.seed, t.like, t.mean, t.spread)
	var all []float32
	block := t.blockSide()
	for row := 0; row < out; row += block {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		v := f.take(min(block, out-row) * in)
		b := f.takeBytes(len(v))
		if row == 0 || !f.repeat {
			r.fill(v)
			for col := 0; col < in; col += block {
				all = append(all, f.quantise(b, v, blockAt{in, col, block}))
			}
		} else {
			all = append(all, all[:(in+block-1)/block]...)
		}
		if w == nil {
			continue
		}
		if err := f.write(w, b); err != nil {
			return err
		}
	}
	f.keep(t, all)
	return nil
}

// blockAt describes a block: cols is the number of columns of the matrix, col the block's first column, and side its
// number of columns.
type blockAt struct{ cols, col, side int }

// quantise writes to dst the block of rows that starts at a column, and returns its scale: the
// largest magnitude becomes the largest e4m3 value, or less if scales are powers of two. A block of zeros has
// scale 1 (v32 spec, 4.4).
func (f *filler) quantise(dst []byte, rows []float32, at blockAt) float32 {
	cols, col, width := at.cols, at.col, min(at.side, at.cols-at.col)
	var peak uint32 // the order of magnitudes is the order of their bits
	for at := col; at < len(rows); at += cols {
		for _, v := range rows[at : at+width] {
			peak = max(peak, math.Float32bits(v)&^(1<<31))
		}
	}
	scale := math.Float32frombits(peak) / num.MaxE4M3
	switch {
	case peak == 0:
		scale = 1
	case f.pow2:
		scale = num.CeilPow2(scale)
	}
	for at := col; at < len(rows); at += cols {
		to := dst[at : at+width]
		for i, v := range rows[at : at+width] {
			to[i] = num.E4M3(v / scale)
		}
	}
	return scale
}

func (f *filler) writeBF16(w io.Writer, values []float32) error {
	b := f.takeBytes(2 * len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint16(b[2*i:], num.BF16(v))
	}
	return f.write(w, b)
}

func (f *filler) writeF32(w io.Writer, values []float32) error {
	b := f.takeBytes(4 * len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return f.write(w, b)
}

func (f *filler) write(w io.Writer, b []byte) error {
	n, err := w.Write(b)
	if f.progress != nil {
		f.progress(n)
	}
	return err
}

func (f *filler) take(n int) []float32 {
	if cap(f.values) < n {
		f.values = make([]float32, n)
	}
	return f.values[:n]
}

func (f *filler) takeBytes(n int) []byte {
	if cap(f.bytes) < n {
		f.bytes = make([]byte, n)
	}
	return f.bytes[:n]
}

func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}
