package op

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Weights are uploaded once. e4m3 with float32 scales for blocks of 128 x 128 stays as it is where it multiplies rows;
// everything else becomes bf16: f32 and f16, e4m3 in other blocks, up-projections of latent rows and tables.

// blockSide is the side of the blocks whose scales the FP8 kernels read.
const blockSide = 128

// productSide is what both sides of a matrix must be multiples of. Missing rows are stored as zeros.
const productSide = 16

// matrix is a weight in device memory.
type matrix struct {
	role    kernel.Role
	out, in int
	stored  int // rows in memory: out, and zeros up to a multiple of productSide
	kind    cuda.ProductType
	data    cuda.Ptr // e4m3 or bf16 [stored, in]
	scales  cuda.Ptr // e4m3: f32 [ceil(out/128), ceil(in/128)]
	turned  cuda.Ptr // latent: bf16 [in, stored], the transposed matrix
	group   *joined  // matrices behind or in front of it in memory; nil where it is alone
	exact   bool     // e4m3: scales of the rows it multiplies are any float32, else powers of two
}

func (m *matrix) Out() int          { return m.out }
func (m *matrix) In() int           { return m.in }
func (m *matrix) Role() kernel.Role { return m.role }

// own is the device's own matrix behind a handle.
func own(op string, m kernel.Matrix) (*matrix, error) {
	if w, ok := m.(*matrix); ok {
		return w, nil
	}
	return nil, fmt.Errorf("%w: %s: the matrix was prepared by another device", kernel.ErrArgument, op)
}

// blocked reports whether the FP8 kernels read a weight as it is stored.
func blocked(w kernel.Weight) bool {
	return w.Data.DType == kernel.E4M3 && w.BlockRows == blockSide && w.BlockCols == blockSide
}

// Prepare uploads a weight.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	if err := w.Check(role); err != nil {
		return nil, err
	}
	r := require{op: "prepare"}
	r.weight(w)
	m := &matrix{role: role, out: w.Out(), in: w.In(), kind: cuda.ProductBF16, exact: !w.Pow2Rows}
	m.stored = (m.out + productSide - 1) / productSide * productSide
	if role != kernel.LookedUp && m.in%productSide != 0 {
		r.fail("a matrix [%d, %d], columns must be a multiple of %d", m.out, m.in, productSide)
	}
	if r.err != nil {
		return nil, r.err
	}
	var err error
	if role == kernel.Projected && blocked(w) {
		m.kind = cuda.ProductFP8
		if m.data, err = d.place(rowBytes(w.Data), int64(m.stored)*int64(m.in)); err == nil {
			m.scales, err = d.place(rowBytes(w.Scale), w.Scale.Extent())
		}
		return m, err
	}
	values := bf16(w)
	if m.data, err = d.place(values, 2*int64(m.stored)*int64(m.in)); err == nil && role == kernel.Latent {
		m.turned, err = d.place(transposed(values, m.out, m.in, m.stored), 2*int64(m.stored)*int64(m.in))
	}
	return m, err
}

// weight asks for an element type that this backend reads.
func (r *require) weight(w kernel.Weight) {
	switch w.Data.DType {
	case kernel.F32, kernel.F16, kernel.BF16, kernel.E4M3:
	default:
		r.fail("a weight of type %v, this backend takes f32, f16, bf16 and e4m3", w.Data.DType)
	}
}

// place uploads bytes to memory that stays until the device is closed; what lies behind them, up to size, is zero.
func (d *Device) place(from []byte, size int64) (cuda.Ptr, error) {
	b, err := d.gpu.Alloc(max(size, 1))
	if err != nil {
		return 0, err
	}
	d.weights = append(d.weights, b)
	n := int64(len(from))
	if err := d.stream.CopyToDevice(b.Ptr(), from); err != nil {
		return 0, err
	}
	return b.Ptr(), d.stream.Fill(b.Ptr().Add(n), 0, size-n)
}

// rowBytes are the rows of a host tensor, one after the other.
func rowBytes(t kernel.Tensor) []byte {
	from, size := []byte(t.Buf.(kernel.HostBuffer))[t.Off:], t.DType.Size()
	if t.Rows <= 1 || t.Stride == t.Cols {
		return from[:t.Extent()]
	}
	out := make([]byte, 0, t.Rows*t.Cols*size)
	for i := range t.Rows {
		out = append(out, from[i*t.Stride*size:][:t.Cols*size]...)
	}
	return out
}

// bf16 is a weight [out, in] as bf16, scales applied.
func bf16(w kernel.Weight) []byte {
	from := rowBytes(w.Data)
	if w.Data.DType == kernel.BF16 {
		return from
	}
	rows, cols := w.Out(), w.In()
	out := make([]byte, 2*rows*cols)
	put := func(i int, v float32) { binary.LittleEndian.PutUint16(out[2*i:], num.BF16(v)) }
	switch w.Data.DType {
	case kernel.F32:
		for i := range rows * cols {
			put(i, math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:])))
		}
	case kernel.F16:
		for i := range rows * cols {
			put(i, num.FromF16(binary.LittleEndian.Uint16(from[2*i:])))
		}
	case kernel.E4M3:
		scales, wide := rowBytes(w.Scale), w.Scale.Cols
		for r := range rows {
			for b := range wide {
				at := 4 * (r/w.BlockRows*wide + b)
				scale := math.Float32frombits(binary.LittleEndian.Uint32(scales[at:]))
				for i := r*cols + b*w.BlockCols; i < r*cols+min((b+1)*w.BlockCols, cols); i++ {
					put(i, num.FromE4M3(from[i])*scale)
				}
			}
		}
	}
	return out
}

// transposed is a bf16 matrix [rows, cols] as [cols, stride], zeros behind the rows' values.
func transposed(from []byte, rows, cols, stride int) []byte {
	const tile = 64 // both sides of a tile stay in the cache
	out := make([]byte, 2*cols*stride)
	for r := 0; r < rows; r += tile {
		for c := 0; c < cols; c += tile {
			for i := r; i < min(r+tile, rows); i++ {
				for j := c; j < min(c+tile, cols); j++ {
					*(*[2]byte)(out[2*(j*stride+i):]) = *(*[2]byte)(from[2*(i*cols+j):])
				}
			}
		}
	}
	return out
}
