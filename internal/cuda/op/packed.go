package op

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/block"
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// This file prepares weights that are stored packed in device memory and converted to bf16 in registers
// (kernel/cuda/src/sm90/packed, kernel/cuda/src/sm80/packed). Values with more bits than bf16 are rounded once.

// takenFormats is the list of supported formats in error messages.
const takenFormats = "f32, f16, bf16, e4m3, NVFP4, MXFP4, int4 and int8 in groups of multiples of 32, and of GGUF's " +
	"types Q8_0, Q4_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS and MXFP4"

func described(w kernel.Weight) string {
	if !w.Scale.Given() {
		return fmt.Sprintf("a weight of type %v", w.Data.DType)
	}
	return fmt.Sprintf("a weight of type %v with %v scales for %d x %d values", w.Data.DType, w.Scale.DType,
		w.BlockRows, w.BlockCols)
}

// packedFormat returns the format in which a weight is stored packed, and whether there is one.
func packedFormat(w kernel.Weight) (cuda.PackedFormat, bool) {
	group := ""
	switch {
	case w.BlockCols >= w.In() || w.BlockCols > 0 && w.BlockCols%128 == 0:
		group = "g128"
	case w.BlockCols > 0 && w.BlockCols%32 == 0:
		group = "g32"
	}
	any := ""
	if w.Zero.Given() || w.Scale.DType != kernel.BF16 {
		any = "_any"
	}
	if f, ok := w.Data.DType.Block(); ok {
		name, ok := packedBlocks[f]
		return name, ok
	}
	switch d := w.Data.DType; {
	case d == kernel.E2M1x2 && w.Scale.DType == kernel.E4M3 && w.BlockCols == 16:
		return "nvfp4", true
	case d == kernel.E2M1x2 && w.Scale.DType == kernel.E8M0 && w.BlockCols == 32:
		return "mxfp4", true
	case d == kernel.U4x2 && group != "":
		return cuda.PackedFormat("u4_" + group + any), true
	case (d == kernel.I8 || d == kernel.U8) && group != "":
		return cuda.PackedFormat("i8_" + group + any), true
	case d == kernel.E4M3 && !blocked(w) && group != "":
		if group == "g32" && powersOfTwo(w.Scale) {
			return "e4m3_g32", true
		}
		return cuda.PackedFormat("e4m3_" + group + "_any"), true
	}
	return "", false
}

// isBlocks reports whether a weight has a type of GGUF files.
func isBlocks(w kernel.Weight) bool {
	_, ok := w.Data.DType.Block()
	return ok
}

// packedBlocks maps types of GGUF files to the formats in which they are stored packed.
var packedBlocks = map[block.Format]cuda.PackedFormat{block.Q4_0: "u4_g32_any", block.Q8_0: "i8_g32_any",
	block.MXFP4: "mxfp4", block.Q2_K: "q2_k", block.Q3_K: "q3_k", block.Q4_K: "q4_k", block.Q5_K: "q5_k",
	block.Q6_K: "q6_k", block.IQ2_XXS: "iq2_xxs", block.IQ2_XS: "iq2_xs", block.IQ2_S: "iq2_s",
	block.IQ3_XXS: "iq3_xxs", block.IQ3_S: "iq3_s", block.IQ4_NL: "iq4", block.IQ4_XS: "iq4"}

// Slow returns a text about how products with a block format are computed, if they are slow; otherwise an empty text.
func Slow(f block.Format) string {
	if _, ok := packedBlocks[f]; !ok {
		return "stored as BF16"
	}
	return ""
}

// powersOfTwo reports whether all scales of a matrix are powers of two. It returns false if the host cannot read the
// scales.
func powersOfTwo(t kernel.Tensor) bool {
	if _, ok := t.Buf.(kernel.HostBuffer); !ok || t.DType != kernel.F32 {
		return false
	}
	for b := rowBytes(t); len(b) >= 4; b = b[4:] {
		if binary.LittleEndian.Uint32(b)<<9 != 0 {
			return false
		}
	}
	return true
}

// widenedOnHost reports whether a weight is converted to bf16 before it is uploaded: packed weights in roles whose
// kernels need bf16, such as up-projections of latent rows, and types of GGUF files without kernels.
func widenedOnHost(w kernel.Weight) bool {
	switch w.Data.DType {
	case kernel.E2M1x2, kernel.U4x2, kernel.U8, kernel.I8:
		return true
	}
	_, ok := w.Data.DType.Block()
	return ok
}

// onHost returns a weight converted to bf16, rounded once. A dry run does not read the weight.
func onHost(w kernel.Weight, tried bool) (kernel.Weight, error) {
	out, in := w.Out(), w.In()
	var to []byte
	if !tried {
		to = make([]byte, 2*out*in)
		if _, ok := w.Data.Buf.(kernel.HostBuffer); !ok {
			return w, fmt.Errorf("%w: cuda: prepare: %s is not in host memory", kernel.ErrUnsupported,
				described(w))
		}
		row, m := make([]float32, in), host.Matrix{Weight: w}
		for r := range out {
			if f, ok := w.Data.DType.Block(); ok {
				f.Decode(row, host.Bytes(w.Data.Slice(r, r+1)))
			} else {
				m.Widen(row, r)
			}
			for i, v := range row {
				binary.LittleEndian.PutUint16(to[2*(r*in+i):], num.BF16(v))
			}
		}
	}
	return kernel.Weight{Data: kernel.Tensor{Buf: kernel.HostBuffer(to), DType: kernel.BF16, Rows: out, Cols: in,
		Stride: in}, Pow2Rows: w.Pow2Rows}, nil
}

// preparePacked uploads a weight that is stored packed.
func preparePacked(d *Device, w kernel.Weight, f cuda.PackedFormat) (kernel.Matrix, error) {
	r := require{op: "prepare"}
	m := &matrix{role: kernel.Projected, out: w.Out(), in: w.In(), stored: w.Out(), kind: cuda.ProductBF16, packed: f}
	out, in := r.count("rows", m.out), r.count("columns", m.in)
	if m.in%productSide != 0 {
		r.fail("the matrix is [%d, %d], its columns must be a multiple of %d", m.out, m.in, productSide)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, loaded(d, func(u *upload) (err error) {
		size := f.Bytes(out, in)
		if m.data, err = u.room(size, size); err != nil {
			return err
		}
		if m.factors, err = u.room(8, 8); err != nil {
			return err
		}
		if err := u.factors(m.factors, f, w, w); err != nil {
			return err
		}
		return u.packOne(f, w, nil, m.data)
	})
}

// factors copies the factors of two weights, by which their sums are multiplied, to device memory.
func (u *upload) factors(to cuda.Ptr, f cuda.PackedFormat, first, second kernel.Weight) error {
	b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(f.Factor(first.Factor)))
	return u.copy(to, binary.LittleEndian.AppendUint32(b, math.Float32bits(f.Factor(second.Factor))))
}

// packOne copies a weight to device memory and packs it; second, if not nil, is packed into the same tiles.
func (u *upload) packOne(f cuda.PackedFormat, w kernel.Weight, second *kernel.Weight, to cuda.Ptr) error {
	list := []kernel.Weight{w}
	if second != nil {
		list = append(list, *second)
	}
	var total int64
	for _, x := range list {
		for _, t := range []kernel.Tensor{x.Data, x.Scale, x.Zero} {
			total += aligned256(tensorBytes(t))
		}
	}
	return u.temporary(total, func(staged cuda.Ptr) error {
		a := cuda.PackPackedArgs{To: to, Stride: int64(w.Data.Cols) * int64(w.Data.DType.Size()), Rows: int32(w.Out()),
			Columns: int32(w.In()), ScaleStride: int64(w.Scale.Cols), BlockRows: max(int32(w.BlockRows), 1),
			BlockColumns: max(int32(w.BlockCols), 1), SkipRows: int32(w.SkipRows), Source: codeSource(w.Data.DType),
			ScaleType: scaleType(w.Scale.DType), Middle: int32(w.Middle())}
		switch w.Data.DType {
		case kernel.I8, kernel.Blocks(block.Q8_0): // packed with 128 added
			a.Middle = 128
		case kernel.Blocks(block.Q4_0):
			a.Middle = 8
		}
		for i, x := range list {
			codes, scales, zeros := &a.First, &a.FirstScales, &a.FirstZeros
			if i == 1 {
				codes, scales, zeros = &a.Second, &a.SecondScales, &a.SecondZeros
			}
			for _, p := range []struct {
				at *cuda.Ptr
				of kernel.Tensor
			}{{codes, x.Data}, {scales, x.Scale}, {zeros, x.Zero}} {
				if !p.of.Given() {
					continue
				}
				*p.at = staged
				staged = staged.Add(aligned256(tensorBytes(p.of)))
				if err := u.put(*p.at, p.of); err != nil {
					return err
				}
			}
		}
		u.do(func() error { return cuda.PackWeight(u.d.kernels, u.stream, f, &a) })
		return nil
	})
}

func tensorBytes(t kernel.Tensor) int64 {
	if !t.Given() {
		return 0
	}
	return int64(t.Rows) * int64(t.Cols) * int64(t.DType.Size())
}

// codeSource returns the storage format of the codes of a type, a value of cuda.PackSources.
func codeSource(d kernel.DType) int32 {
	name := "bytes"
	switch d {
	case kernel.E2M1x2, kernel.U4x2:
		name = "nibbles"
	case kernel.I8:
		name = "offset"
	case kernel.Blocks(block.Q4_0), kernel.Blocks(block.Q8_0), kernel.Blocks(block.MXFP4):
		name = d.String()
	case kernel.Blocks(block.IQ4_NL): // byte layout of Q4_0
		name = "q4_0"
	default:
		if _, ok := d.Block(); ok {
			name = "blocks"
		}
	}
	return cuda.PackSources[name]
}

// scaleType returns the kernels' type of scales.
func scaleType(d kernel.DType) int32 {
	switch d {
	case kernel.BF16:
		return int32(cuda.ElementBF16)
	case kernel.F16:
		return int32(cuda.ElementF16)
	case kernel.E4M3:
		return int32(cuda.ElementE4M3)
	case kernel.E8M0:
		return cuda.PackSources["e8m0"]
	}
	return int32(cuda.ElementF32)
}

// packedOf returns the product with a packed weight.
func (p *rowProducts) packedOf(w *matrix) cuda.PackedProduct {
	return cuda.PackedProduct{Format: w.packed, Weight: w.data, Factors: w.factors, Rows: p.rows,
		Columns: int32(w.out), K: p.k, Arrived: p.dev.arrived.Ptr()}
}

// packedSums returns the bytes of memory for sums of parts of k.
func (p *rowProducts) packedSums(w *matrix) int64 {
	x := p.packedOf(w)
	return x.SumBytes(p.dev.gpu)
}

// run launches a product with a weight of any format.
func (p *rowProducts) run(x *cuda.Product, w *matrix) error {
	if w.folded {
		return p.multiplyFolded(x)
	}
	if w.packed == "" {
		return multiplyOne(p.dev, x)
	}
	y := p.packedOf(w)
	y.X, y.XStride, y.Out, y.OutStride, y.OutF32, y.Sums = x.Input, x.InputStride, x.Out, x.OutStride, x.OutF32, x.Sums
	return cuda.MultiplyPacked(p.dev.kernels, p.dev.stream, &y)
}

// packedExperts returns the formats in which the matrices of a layer's experts are stored packed: one for gate and up,
// one for down. ok is false if other kernels multiply them, such as the kernels for MXFP4 of safetensors.
func packedExperts(w *kernel.ExpertWeights) (gateUp, down cuda.PackedFormat, ok bool) {
	gateUp, ok = packedFormat(w.Gate[0])
	down, also := packedFormat(w.Down[0])
	if !ok || !also || gateUp == "mxfp4" && w.Gate[0].Data.DType == kernel.E2M1x2 {
		return "", "", false
	}
	for e := range w.Gate {
		for i, m := range []kernel.Weight{w.Gate[e], w.Up[e], w.Down[e]} {
			first, want := w.Gate[0], gateUp
			if i == 2 {
				first, want = w.Down[0], down
			}
			if f, _ := packedFormat(m); f != want || m.Data.DType != first.Data.DType ||
				m.BlockCols != first.BlockCols || m.BlockRows != first.BlockRows ||
				m.Scale.DType != first.Scale.DType || m.Zero.Given() != first.Zero.Given() {
				return "", "", false
			}
		}
	}
	return gateUp, down, true
}

// packFormat is like pack, for experts in a packed format.
func (u *upload) packFormat(x *experts, w *kernel.ExpertWeights, at cuda.PackedExperts, after func(e int) error) error {
	gateUp, gateUpFactors, down, downFactors := x.shape.PackedBytes()
	f, g := x.shape.Packed, x.shape.PackedDown
	for e := range w.Gate {
		n := int64(e)
		if after != nil {
			n = 0
		}
		for _, err := range []error{
			u.factors(at.GateUpScales.Add(n*gateUpFactors), f, w.Gate[e], w.Up[e]),
			u.factors(at.DownScales.Add(n*downFactors), g, w.Down[e], w.Down[e]),
			u.packOne(f, w.Gate[e], &w.Up[e], at.GateUp.Add(n*gateUp)),
			u.packOne(g, w.Down[e], nil, at.Down.Add(n*down)),
		} {
			if err != nil {
				return fmt.Errorf("expert %d: %w", e, err)
			}
		}
		if after != nil {
			u.do(func() error { return after(e) })
		}
	}
	return nil
}
