package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/block"
	"sparrow/internal/cuda/expect"
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// packing describes a packed weight format as stored in a checkpoint.
type packing struct {
	name        string
	format      cuda.PackedFormat
	data, scale kernel.DType // types of codes and scales; blocks that contain their scales have no scale type
	rows, cols  int          // block with one scale, rows x cols; cols 0 means a whole row
	source      string       // name of the pack kernel in cuda.PackSources
	middle      int32
}

var packings = []packing{
	{"nvfp4", "nvfp4", kernel.E2M1x2, kernel.E4M3, 1, 16, "nibbles", 0},
	{"mxfp4", "mxfp4", kernel.E2M1x2, kernel.E8M0, 1, 32, "nibbles", 0},
	{"int4 g32", "u4_g32", kernel.U4x2, kernel.BF16, 1, 32, "nibbles", 8},
	{"int4 g128", "u4_g128", kernel.U4x2, kernel.BF16, 1, 128, "nibbles", 8},
	{"int4 g128 f16", "u4_g128_any", kernel.U4x2, kernel.F16, 1, 128, "nibbles", 8},
	{"int8 g128", "i8_g128", kernel.U8, kernel.BF16, 1, 128, "bytes", 128},
	{"e4m3 by rows", "e4m3_g128_any", kernel.E4M3, kernel.F32, 1, 0, "bytes", 0},
	{"e4m3 32 x 32", "e4m3_g32", kernel.E4M3, kernel.F32, 32, 32, "bytes", 0},
	{"Q8_0", "i8_g32_any", kernel.Blocks(block.Q8_0), 0, 1, 0, "q8_0", 128},
	{"Q4_K", "q4_k", kernel.Blocks(block.Q4_K), 0, 1, 0, "blocks", 0},
	{"Q2_K", "q2_k", kernel.Blocks(block.Q2_K), 0, 1, 0, "blocks", 0},
	{"IQ2_XXS", "iq2_xxs", kernel.Blocks(block.IQ2_XXS), 0, 1, 0, "blocks", 0},
	{"IQ3_XXS", "iq3_xxs", kernel.Blocks(block.IQ3_XXS), 0, 1, 0, "blocks", 0},
	{"Q3_K", "q3_k", kernel.Blocks(block.Q3_K), 0, 1, 0, "blocks", 0},
	{"Q5_K", "q5_k", kernel.Blocks(block.Q5_K), 0, 1, 0, "blocks", 0},
	{"Q6_K", "q6_k", kernel.Blocks(block.Q6_K), 0, 1, 0, "blocks", 0},
	{"IQ2_XS", "iq2_xs", kernel.Blocks(block.IQ2_XS), 0, 1, 0, "blocks", 0},
	{"IQ2_S", "iq2_s", kernel.Blocks(block.IQ2_S), 0, 1, 0, "blocks", 0},
	{"IQ3_S", "iq3_s", kernel.Blocks(block.IQ3_S), 0, 1, 0, "blocks", 0},
	{"IQ4_XS", "iq4", kernel.Blocks(block.IQ4_XS), 0, 1, 0, "blocks", 0},
}

// Columns and K of the weight matrix of packed GEMMs, which has at least 100 MB in every format.
const packedColumns, packedK = 24576, 16384

// packedCases returns GEMMs with packed weights, and with bf16 for comparison.
func packedCases() []Case {
	var list []Case
	for _, p := range packings {
		for _, rows := range []int{1, 16, 64, 4096} {
			list = append(list, packedCase(p, rows))
		}
	}
	for _, p := range packings {
		for _, each := range []int{1, 16, 512} {
			list = append(list, packedExpertsCase(p, each))
		}
	}
	for _, t := range []cuda.ProductType{cuda.ProductBF16, cuda.ProductFP8} {
		s := productShape{typ: t, what: "beside packed", columns: packedColumns, k: packedK, batch: 1}
		list = append(list, productCase(s, 4096, ""))
	}
	for _, rows := range []int{1, 16, 64, 4096} {
		s := productShape{typ: cuda.ProductFP8, what: "beside packed, by rows", columns: packedColumns, k: packedK,
			batch: 1, factors: true}
		list = append(list, productCase(s, rows, ""), foldedCase(rows))
	}
	return list
}

// foldedCase returns a GEMM with an MXFP4 weight whose scales are multiplied into e4m3 codes.
func foldedCase(rows int) Case {
	const groups = packedK / 32
	stored := float64(packedColumns * (packedK/2 + groups))
	return Case{
		Case: titled("product_folded", "%d rows, mxfp4 as e4m3, %d x %d", rows, packedColumns, packedK), Rate: FP8,
		Bytes:    stored + float64(rows*(packedK+2*packedColumns)),
		FLOPs:    2 * float64(rows) * packedColumns * packedK,
		SetBytes: 2 * stored,
		New: func(h *holder) Set {
			stride := (rows + 3) / 4 * 4
			p := &foldedProduct{codes: h.packedCodes(kernel.E2M1x2)}
			a := cuda.PackE2M1Args{First: h.repeat(p.codes, packedColumns*packedK/2),
				FirstScales: h.repeat([]byte{120, 121, 119}, packedColumns*groups), Stride: packedK / 2,
				ScaleStride: groups, Rows: packedColumns, Columns: packedK}
			codes, scales := cuda.FoldedBytes(packedColumns, packedK)
			a.To, a.ScalesTo = h.alloc(int(codes)), h.alloc(int(scales))
			if h.err == nil {
				h.err = cuda.Fold(h.rig.Kernels, h.rig.Stream, &a)
			}
			p.Product = cuda.Product{Type: cuda.ProductFP8, Weight: a.To, WeightScales: a.ScalesTo,
				Input:        h.operand(cuda.ProductFP8, rows*packedK),
				InputScales:  putAll(h, h.floats(packedK/128*stride, 1e-4, 1e-3)),
				Out:          h.output(2 * rows * packedColumns),
				WeightStride: packedK, InputStride: packedK, ScaleStride: int64(stride), OutStride: packedColumns,
				Rows: int32(rows), Columns: packedColumns, K: packedK, Batch: 1}
			var scratch cuda.Ptr
			if n := p.UnfoldedBytes(); n > 0 {
				scratch = h.alloc(int(n))
			}
			var calls cuda.FoldedCalls
			if h.err == nil {
				calls, h.err = p.EncodeFolded(h.rig.Device, scratch)
			}
			return Set{func(s *cuda.Stream) error { return cuda.MultiplyFolded(h.rig.Kernels, s, &calls) }, p.check}
		},
	}
}

// foldedProduct is a GEMM whose weights repeat a pattern of codes, with the scales 2^-7, 2^-6 and 2^-8.
type foldedProduct struct {
	cuda.Product
	codes []byte
}

// check compares some elements of the result with values computed on the host.
func (p *foldedProduct) check(r *reader) error {
	for i := range 24 {
		row, column := i*577%int(p.Rows), (packedColumns-1+i*7919)%packedColumns
		weight := repeated(p.codes, column*packedK/2, packedK/2)
		input := r.bytes(p.Input.Add(int64(row)*packedK), packedK)
		var sum, size, scale float64
		for j, code := range input {
			if j%128 == 0 {
				scale = r.f32(p.InputScales.Add((int64(j/128)*p.ScaleStride + int64(row)) * 4))
			}
			group := []float64{0x1p-7, 0x1p-6, 0x1p-8}[(column*(packedK/32)+j/32)%3]
			v := float64(num.FromE4M3(code)) * scale * group * float64(num.FromE2M1(weight[j/2]>>(4*(j%2))&15))
			sum, size = sum+v, size+math.Abs(v)
		}
		got := float64(r.bf16s(p.Out.Add((int64(row)*p.OutStride+int64(column))*2), 1)[0])
		if limit := math.Abs(sum)/256 + 5e-4*size; !(math.Abs(got-sum) <= limit) {
			return fmt.Errorf("row %d column %d is %g, want %g within %g", row, column, got, sum, limit)
		}
	}
	return nil
}

// packedSet is a packed weight whose bytes repeat a pattern. The host has the pattern.
type packedSet struct {
	packing
	cuda.PackedProduct
	codes, scales []byte
}

// sizes returns, for a matrix [columns, k], the bytes of a row of codes, the scales in a row of scales, and the rows of
// scales.
func (p packing) sizes(columns, k int) (codes, scales, scaleRows int) {
	codes = k / p.data.Values() * p.data.Size()
	if p.scale == 0 {
		return codes, 0, 0
	}
	scales = 1
	if p.cols > 0 {
		scales = k / p.cols
	}
	return codes, scales, columns / p.rows
}

// stored returns the bytes of a matrix [columns, k] in a checkpoint.
func (p packing) stored(columns, k int) float64 {
	codes, scales, scaleRows := p.sizes(columns, k)
	return float64(codes*columns) + float64(scales*scaleRows*max(p.scale.Size(), 1))
}

func packedCase(p packing, rows int) Case {
	stored := p.stored(packedColumns, packedK)
	return Case{
		Case: titled("product_packed", "%d rows, %s, %d x %d", rows, p.name, packedColumns, packedK), Rate: BF16,
		Bytes: stored + float64(2*rows*(packedK+packedColumns)), FLOPs: 2 * float64(rows) * packedColumns * packedK,
		SetBytes: 2 * stored,
		New:      func(h *holder) Set { return newPackedSet(h, p, rows) },
	}
}

// pack packs a matrix [columns, k] of random codes. With twice, the matrix consists of gate and up, each with columns /
// 2 rows.
func (s *packedSet) pack(h *holder, columns, k int, twice bool) cuda.Ptr {
	p := s.packing
	codes, scales, scaleRows := p.sizes(columns, k)
	s.codes = h.packedCodes(p.data)
	a := cuda.PackPackedArgs{First: h.repeat(s.codes, codes*columns), Stride: int64(codes),
		ScaleStride: int64(scales), Rows: int32(columns), Columns: int32(k), BlockRows: int32(p.rows),
		BlockColumns: int32(max(p.cols, 1)), Source: cuda.PackSources[p.source], Middle: p.middle}
	if p.cols == 0 {
		a.BlockColumns = int32(k)
	}
	if p.scale != 0 {
		for range 4099 {
			s.scales = append(s.scales, packedScale(p.scale, h.rng.Float32())...)
		}
		a.FirstScales = h.repeat(s.scales, scales*scaleRows*p.scale.Size())
		a.ScaleType = map[kernel.DType]int32{kernel.BF16: int32(cuda.ElementBF16), kernel.F16: int32(cuda.ElementF16),
			kernel.E4M3: int32(cuda.ElementE4M3), kernel.E8M0: cuda.PackSources["e8m0"]}[p.scale]
	}
	if twice {
		a.Rows /= 2
		a.Second = a.First.Add(int64(codes) * int64(a.Rows))
		if a.FirstScales != 0 {
			a.SecondScales = a.FirstScales.Add(int64(scales*scaleRows/2) * int64(p.scale.Size()))
		}
	}
	a.To = h.alloc(int(p.format.Bytes(int32(columns), int32(k))))
	if h.err == nil {
		h.err = cuda.PackWeight(h.rig.Kernels, h.rig.Stream, p.format, &a)
	}
	return a.To
}

// row returns row i of the matrix [., k] that pack has packed, as the exact values.
func (s *packedSet) row(i, k int) []float32 {
	codes, scales, _ := s.sizes(1, k)
	weight, view := make([]float32, k), func(b []byte, d kernel.DType, cols int) kernel.Tensor {
		return kernel.Tensor{Buf: kernel.HostBuffer(b), DType: d, Rows: 1, Cols: cols, Stride: cols}
	}
	data := view(repeated(s.codes, i*codes, codes), s.data, k/s.data.Values())
	if f, ok := s.data.Block(); ok {
		f.Decode(weight, host.Bytes(data))
		return weight
	}
	m := host.Matrix{Weight: kernel.Weight{Data: data, BlockRows: 1, BlockCols: k / scales}}
	size := s.scale.Size()
	m.Scale = view(repeated(s.scales, i/s.rows*scales*size, scales*size), s.scale, scales)
	m.Widen(weight, 0)
	return weight
}

func newPackedSet(h *holder, p packing, rows int) Set {
	s := &packedSet{packing: p}
	factor, weight := p.format.Factor(0), s.pack(h, packedColumns, packedK, false)
	s.PackedProduct = cuda.PackedProduct{Format: p.format, Weight: weight,
		Factors: putAll(h, []float32{factor, factor}), X: h.repeat(raw(h.bf16s(productPattern)), 2*rows*packedK),
		Out: h.output(2 * rows * packedColumns), XStride: packedK, OutStride: packedColumns, Rows: int32(rows),
		Columns: packedColumns, K: packedK, Arrived: h.ints(0, cuda.PackedSlots)}
	if n := s.SumBytes(h.rig.Device); n > 0 {
		s.Sums = h.alloc(int(n))
	}
	return Set{func(stream *cuda.Stream) error { return cuda.MultiplyPacked(h.rig.Kernels, stream, &s.PackedProduct) },
		s.check}
}

// packedCodes returns random codes of type d. Blocks of a format have values of mean zero and deviation 1/64: gates of
// experts are then about 1, so that no activation is too small for a comparison.
func (h *holder) packedCodes(d kernel.DType) []byte {
	if f, ok := d.Block(); ok {
		b := make([]byte, 4099*f.Bytes())
		if err := f.Draw(b, h.rng, 1./64); h.err == nil {
			h.err = err
		}
		return b
	}
	b := make([]byte, productPattern)
	for i := range b {
		if b[i] = byte(h.rng.Uint32()); d == kernel.E4M3 {
			b[i] &= 0xBF
		}
	}
	return b
}

// packedScale returns a scale of about 0.01 for v between 0 and 1.
func packedScale(d kernel.DType, v float32) []byte {
	v = 0.01 * (1 + v)
	switch d {
	case kernel.E4M3:
		return []byte{num.E4M3(1000 * v)}
	case kernel.E8M0:
		return []byte{120}
	case kernel.BF16:
		return binary.LittleEndian.AppendUint16(nil, num.BF16(v))
	case kernel.F16:
		return binary.LittleEndian.AppendUint16(nil, num.F16(v))
	}
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.0/128))
}

// repeated returns n bytes, starting at offset at, of memory that repeats a pattern.
func repeated(pattern []byte, at, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern[(at+i)%len(pattern)]
	}
	return b
}

// check compares some elements of the result with values that the host computes from weights rounded to bf16.
func (s *packedSet) check(r *reader) error {
	for i := range 24 {
		row, column := i*577%int(s.Rows), (packedColumns-1+i*7919)%packedColumns
		weight := s.row(column, packedK)
		input := r.bf16s(s.X.Add(int64(row)*s.XStride*2), packedK)
		var sum, size float64
		for j, w := range weight {
			v := float64(input[j]) * float64(w)
			sum += v
			size += v * v
		}
		got := float64(r.bf16s(s.Out.Add((int64(row)*s.OutStride+int64(column))*2), 1)[0])
		// The packed weight rounds values by at most 2^-8 of their size.
		if limit := math.Abs(sum)/256 + math.Sqrt(size)/16; !(math.Abs(got-sum) <= limit) {
			return fmt.Errorf("row %d column %d is %g, want %g within %g", row, column, got, sum, limit)
		}
	}
	return nil
}

// Shape of the experts of DeepSeek-V4-Flash.
const packedExperts, packedHidden, packedInner, packedTop = 64, 4096, 2048, 8

// packedExpertsCase returns a case of gate and up of all experts; each is the number of rows per expert.
func packedExpertsCase(p packing, each int) Case {
	stored, pairs := p.stored(2*packedExperts*packedInner, packedHidden), each*packedExperts
	return Case{
		Case: titled("experts_packed", "%d x %d rows, %s, gate and up %d x %d", packedExperts, each, p.name,
			packedInner, packedHidden), Rate: BF16, SetBytes: 2 * stored,
		Bytes: stored + float64(2*pairs*(packedHidden/packedTop+packedInner)),
		FLOPs: 4 * float64(pairs) * packedHidden * packedInner,
		New:   func(h *holder) Set { return newPackedExperts(h, p, each) },
	}
}

type packedExpertsSet struct {
	packedSet
	args cuda.ExpertsArgs
	x    cuda.Ptr
	ids  []int32
}

func newPackedExperts(h *holder, p packing, each int) Set {
	s, k := &packedExpertsSet{packedSet: packedSet{packing: p}}, h.rig.Kernels
	shape := cuda.ExpertShape{Experts: packedExperts, Hidden: packedHidden, Inner: packedInner, BF16: true,
		Packed: p.format, PackedDown: p.format}
	rows := each * packedExperts / packedTop
	weights, factors := make([]float32, rows*packedTop), make([]float32, 2*packedExperts)
	for i := range weights {
		s.ids, weights[i] = append(s.ids, int32(i)%packedExperts), h.rng.Float32()
	}
	for i := range factors {
		factors[i] = p.format.Factor(0)
	}
	s.x = h.repeat(raw(h.bf16s(productPattern)), 2*rows*packedHidden)
	at := cuda.PackedExperts{GateUp: s.pack(h, 2*packedExperts*packedInner, packedHidden, true),
		GateUpScales: putAll(h, factors)}
	at.Down, at.DownScales = at.GateUp, at.GateUpScales // this case does not use the matrices of down
	x := cuda.Experts{Shape: shape, Packed: at, X: s.x, Out: h.alloc(2 * rows * packedHidden), IDs: putAll(h, s.ids),
		Weights: putAll(h, weights), Scratch: h.alloc(int(shape.ScratchBytes(int32(rows), packedTop))),
		XStride: packedHidden, OutStride: packedHidden, IDStride: packedTop, WeightStride: packedTop, Rows: int32(rows),
		Top: packedTop, Scales: num.ScalePow2}
	if h.err == nil {
		s.args, h.err = x.Encode()
	}
	h.outputs = append(h.outputs, span{s.args.Inner, len(s.ids) * int(s.args.InnerPitch)})
	if h.err == nil {
		h.err = cuda.PrepareExperts(k, h.rig.Stream, shape, &s.args)
	}
	return Set{func(stream *cuda.Stream) error { return cuda.MultiplyGateUp(k, stream, shape, &s.args) }, s.check}
}

// check compares some activations with values computed on the host.
func (s *packedExpertsSet) check(r *reader) error {
	order := expect.SortPairs(s.ids, packedExperts)
	for i := range 8 {
		place := i * (len(order) - 1) / 7
		expert := int(s.ids[order[place]])
		x := r.bf16s(s.x.Add(int64(order[place])/packedTop*packedHidden*2), packedHidden)
		got := r.bf16s(s.args.Inner.Add(int64(place)*int64(s.args.InnerPitch)), packedInner)
		dot := func(row int) (sum float64) {
			for j, w := range s.row(row, packedHidden) {
				sum += float64(w) * float64(x[j])
			}
			return sum
		}
		var off, size float64
		for c := i; c < packedInner; c += 61 {
			w := expect.Gated(dot(expert*packedInner+c), dot((packedExperts+expert)*packedInner+c), 0)
			off, size = off+(float64(got[c])-w)*(float64(got[c])-w), size+w*w
		}
		if !(math.Sqrt(off) <= 0.02*math.Sqrt(size)) {
			return fmt.Errorf("the activations of pair %d differ by %.4f of their norm", place, math.Sqrt(off/size))
		}
	}
	return nil
}
