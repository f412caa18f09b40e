package op

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Weights are uploaded once. Matrices for products are stored as e4m3 if they have float32 scales per block of 128 x
// 128 or in smaller blocks that merge, per row or per matrix, and packed if their format has kernels (packed.go). Other
// weights are converted to bf16: f32 and f16, up-projections of latent rows, and tables.

// blockSide is the number of rows, and of columns, of the blocks whose scales the FP8 kernels support.
const blockSide = 128

// The numbers of rows and columns of a matrix must be multiples of productSide. Rows that are added for this are zeros.
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
	group   *joined  // group of adjacent matrices in memory; nil if the matrix is alone
	folded  bool     // e2m1 that is multiplied as e4m3: data and scales in the format of cuda.Fold
	exact   bool     // e4m3: scales of the rows that it multiplies are any float32, otherwise powers of two
	packed  cuda.PackedFormat
	factors cuda.Ptr // packed: f32 [2]; e4m3 with a scale for each row: f32 [stored]; otherwise 0
}

func (m *matrix) Out() int          { return m.out }
func (m *matrix) In() int           { return m.in }
func (m *matrix) Role() kernel.Role { return m.role }

// own returns the matrix of a handle, if this backend prepared it.
func own(op string, m kernel.Matrix) (*matrix, error) {
	if w, ok := m.(*matrix); ok {
		return w, nil
	}
	return nil, fmt.Errorf("%w: %s: the matrix was prepared by another device", kernel.ErrArgument, op)
}

// prepareChannels uploads e4m3 with one scale for each row, or one scale for all rows: the FP8 kernels multiply the
// codes, and then multiply the sums by the scales.
func prepareChannels(d *Device, w kernel.Weight) (kernel.Matrix, error) {
	r := require{op: "prepare"}
	m := &matrix{role: kernel.Projected, out: w.Out(), in: w.In(), kind: cuda.ProductFP8, exact: !w.Pow2Rows}
	m.stored = (m.out + productSide - 1) / productSide * productSide
	if m.in%productSide != 0 {
		r.fail("the matrix is [%d, %d], its columns must be a multiple of %d", m.out, m.in, productSide)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, loaded(d, func(u *upload) (err error) {
		if m.data, err = u.place(w.Data, int64(m.stored)*int64(m.in)); err != nil {
			return err
		}
		one := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))
		blocks := (m.stored + blockSide - 1) / blockSide * ((m.in + blockSide - 1) / blockSide)
		if m.scales, err = u.room(4*int64(blocks), 4*int64(blocks)); err != nil {
			return err
		}
		if err := u.copy(m.scales, bytes.Repeat(one, blocks)); err != nil {
			return err
		}
		if w.BlockRows == 1 {
			m.factors, err = u.place(w.Scale, 4*int64(m.stored))
			return err
		}
		if x, ok := w.Scale.Buf.(kernel.Drawn); ok {
			if w.Scale, err = x.OnHost(w.Scale); err != nil {
				return err
			}
		}
		if !u.d.tried {
			one = rowBytes(w.Scale)
		}
		if m.factors, err = u.room(4*int64(m.stored), 4*int64(m.stored)); err != nil {
			return err
		}
		return u.copy(m.factors, bytes.Repeat(one, m.stored))
	})
}

// prepareFolded uploads e2m1 whose scales can be folded into e4m3 codes. It is stored packed, and the FP8 kernels
// multiply by it.
func prepareFolded(d *Device, w kernel.Weight) (kernel.Matrix, error) {
	r := require{op: "prepare"}
	m := &matrix{role: kernel.Projected, out: w.Out(), in: w.In(), kind: cuda.ProductFP8, folded: true,
		exact: !w.Pow2Rows}
	m.stored = (m.out + productSide - 1) / productSide * productSide
	out, in := r.count("rows", m.out), r.count("columns", m.in)
	if m.in%packedGroup != 0 {
		r.fail("the matrix of e2m1 is [%d, %d], its columns must be a multiple of %d", m.out, m.in, packedGroup)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, loaded(d, func(u *upload) (err error) {
		codes, scales := cuda.FoldedBytes(out, in)
		if m.data, err = u.room(codes, codes); err != nil {
			return err
		}
		if m.scales, err = u.room(scales, scales); err != nil {
			return err
		}
		a := cuda.PackE2M1Args{To: m.data, ScalesTo: m.scales, Stride: int64(in) / 2,
			ScaleStride: int64(in) / packedGroup, Rows: out, Columns: in}
		size := aligned256(tensorBytes(w.Data))
		return u.temporary(size+tensorBytes(w.Scale), func(staged cuda.Ptr) error {
			a.First, a.FirstScales = staged, staged.Add(size)
			if err := u.put(a.First, w.Data); err != nil {
				return err
			}
			if err := u.put(a.FirstScales, w.Scale); err != nil {
				return err
			}
			u.do(func() error { return cuda.Fold(u.d.kernels, u.stream, &a) })
			return nil
		})
	})
}

// blocked reports whether the FP8 kernels can read a weight in its stored form.
func blocked(w kernel.Weight) bool {
	return w.Data.DType == kernel.E4M3 && w.BlockRows == blockSide && w.BlockCols == blockSide && w.SkipRows == 0
}

// Prepare uploads a weight.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	if err := w.Check(role); err != nil {
		return nil, err
	}
	r := require{op: "prepare"}
	if role == kernel.Projected && !d.gpu.Portable() {
		if w.Channels() && !blocked(w) {
			return prepareChannels(d, w)
		}
		if w.Folds() {
			return prepareFolded(d, w)
		}
	}
	merges := role == kernel.Projected && !d.gpu.Portable() && w.Merges()
	if f, ok := packedFormat(w); ok && role == kernel.Projected && !merges {
		return preparePacked(d, w, f)
	}
	if _, ok := w.Data.DType.Block(); (ok || role != kernel.Projected) && widenedOnHost(w) {
		var err error
		if w, err = onHost(w, d.tried); err != nil {
			return nil, err
		}
	}
	r.weight(w)
	m := &matrix{role: role, out: w.Out(), in: w.In(), kind: cuda.ProductBF16, exact: !w.Pow2Rows}
	m.stored = (m.out + productSide - 1) / productSide * productSide
	if role != kernel.LookedUp && m.in%productSide != 0 {
		r.fail("the matrix is [%d, %d], its columns must be a multiple of %d", m.out, m.in, productSide)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, loaded(d, func(u *upload) (err error) {
		if merges || role == kernel.Projected && blocked(w) {
			m.kind = cuda.ProductFP8
			if m.data, err = u.place(w.Data, int64(m.stored)*int64(m.in)); err != nil {
				return err
			}
			if merges {
				m.scales, err = u.merge(w, m.data)
			} else {
				m.scales, err = u.place(w.Scale, w.Scale.Extent())
			}
			return err
		}
		size := 2 * int64(m.stored) * int64(m.in)
		if m.data, err = u.room(size, 2*int64(m.out)*int64(m.in)); err == nil && role == kernel.Latent {
			m.turned, err = u.room(size, 0)
		}
		if err != nil {
			return err
		}
		return u.widen(w, m.data, m.turned, int64(m.stored))
	})
}

// weight requires an element type that this backend supports.
func (r *require) weight(w kernel.Weight) {
	switch w.Data.DType {
	case kernel.F32, kernel.F16, kernel.BF16, kernel.E4M3:
	default:
		r.fail("%s, this backend supports %s; such weights run on the CPU (--kernels cpu)", described(w), takenFormats)
	}
}

// room allocates memory that is freed when the device is closed. Its bytes [bytes, size) are set to zero.
func (u *upload) room(size, bytes int64) (cuda.Ptr, error) {
	b, err := u.d.gpu.Alloc(max(size, 1))
	if err != nil {
		return 0, err
	}
	u.d.weights = append(u.d.weights, b)
	u.do(func() error { return u.stream.Fill(b.Ptr().Add(bytes), 0, size-bytes) })
	return b.Ptr(), nil
}

// place copies a tensor to new memory. The bytes after the tensor, up to size, are set to zero.
func (u *upload) place(t kernel.Tensor, size int64) (cuda.Ptr, error) {
	p, err := u.room(size, int64(t.Rows)*int64(t.Cols)*int64(t.DType.Size()))
	if err != nil {
		return 0, err
	}
	return p, u.put(p, t)
}

// put copies the rows of a tensor to device memory without gaps.
func (u *upload) put(to cuda.Ptr, t kernel.Tensor) error {
	if x, ok := t.Buf.(kernel.Drawn); ok && !evenly(t) {
		var err error
		if t, err = x.OnHost(t); err != nil {
			return err
		}
	} else if ok {
		u.do(func() error { return drawTensor(u.d, u.stream, to, int64(t.Cols), t, x) })
		return nil
	}
	if u.d.tried {
		return nil
	}
	if x, ok := t.Buf.(kernel.Repeated); ok {
		for piece := range x.Pieces() {
			if err := u.copy(to, piece); err != nil {
				return err
			}
			to = to.Add(int64(len(piece)))
		}
		return nil
	}
	return u.copy(to, rowBytes(t))
}

// merge rescales the codes of a weight, which merges, to one scale for each 128 x 128, and returns these scales.
func (u *upload) merge(w kernel.Weight, codes cuda.Ptr) (cuda.Ptr, error) {
	size := 4 * int64((w.Out()+blockSide-1)/blockSide) * int64((w.In()+blockSide-1)/blockSide)
	to, err := u.room(size, size)
	if err != nil {
		return 0, err
	}
	a := cuda.MergeArgs{Codes: codes, To: to, Rows: int32(w.Out()), Columns: int32(w.In()),
		ScaleStride: int32(w.Scale.Cols), BlockRows: int32(w.BlockRows), BlockColumns: int32(w.BlockCols)}
	return to, u.temporary(tensorBytes(w.Scale), func(staged cuda.Ptr) error {
		a.Scales = staged
		if err := u.put(staged, w.Scale); err != nil {
			return err
		}
		u.do(func() error { return cuda.MergeBlocks(u.d.kernels, u.stream, &a) })
		return nil
	})
}

// widen copies a weight to device memory as bf16 [out, in] with its scales applied and, if turned is not 0, also
// transposed: [in, stride].
func (u *upload) widen(w kernel.Weight, to, turned cuda.Ptr, stride int64) error {
	if w.SkipRows != 0 {
		return u.widenParts(w, to, turned, stride)
	}
	a := cuda.WidenArgs{Out: to, Turned: turned, TurnedStride: stride, Rows: int32(w.Out()), Columns: int32(w.In())}
	switch w.Data.DType {
	case kernel.BF16:
		if err := u.put(to, w.Data); err != nil || turned == 0 {
			return err
		}
		a.From, a.Out, a.Type = to, 0, cuda.ElementBF16
		u.do(func() error { return cuda.WidenWeight(u.d.kernels, u.stream, &a) })
		return nil
	case kernel.F32:
		a.Type = cuda.ElementF32
	case kernel.F16:
		a.Type = cuda.ElementF16
	case kernel.E4M3:
		a.Type = cuda.ElementE4M3
		a.BlockRows, a.BlockColumns, a.ScaleStride = int32(w.BlockRows), int32(w.BlockCols), int32(w.Scale.Cols)
	}
	values := (int64(w.Out())*int64(w.In())*int64(w.Data.DType.Size()) + 255) / 256 * 256
	return u.temporary(values+4*int64(w.Scale.Rows)*int64(w.Scale.Cols), func(staged cuda.Ptr) error {
		a.From = staged
		if err := u.put(staged, w.Data); err != nil {
			return err
		}
		if w.Scale.Given() {
			a.Scales = staged.Add(values)
			if err := u.put(a.Scales, w.Scale); err != nil {
				return err
			}
		}
		u.do(func() error { return cuda.WidenWeight(u.d.kernels, u.stream, &a) })
		return nil
	})
}

// widenParts widens a weight that begins inside a block of scales: first the rows of that block, then the other rows.
func (u *upload) widenParts(w kernel.Weight, to, turned cuda.Ptr, stride int64) error {
	n := min(w.BlockRows-w.SkipRows, w.Out())
	first, rest := w, w
	first.SkipRows, first.Data, first.Scale = 0, w.Data.Slice(0, n), w.Scale.Slice(0, 1)
	if err := u.widen(first, to, turned, stride); err != nil || n == w.Out() {
		return err
	}
	rest.SkipRows, rest.Data, rest.Scale = 0, w.Data.Slice(n, w.Out()), w.Scale.Slice(1, w.Scale.Rows)
	if turned != 0 {
		turned = turned.Add(2 * int64(n))
	}
	return u.widen(rest, to.Add(2*int64(n)*int64(w.In())), turned, stride)
}

// rowBytes returns the rows of a host tensor without gaps.
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
