package bench

import (
	"fmt"
	"math"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel/cuda"
)

// productShape is a weight of a DeepSeek-V3.2 layer, with the row counts of its GEMMs.
type productShape struct {
	typ               cuda.ProductType
	what              string
	columns, k, batch int
	f32               bool
	rows              []int
	factors           bool // whether an FP8 weight has one scale for each column
}

func productShapes() []productShape {
	var list []productShape
	for _, s := range []struct {
		what       string
		columns, k int
	}{{"q_a and kv_a", 2112, 7168}, {"q_b", 24576, 1536}, {"indexer q_b", 8192, 1536}, {"o", 7168, 16384},
		{"dense gate and up", 36864, 7168}, {"dense down", 7168, 18432}, {"shared gate and up", 4096, 7168},
		{"shared down", 7168, 2048}} {
		list = append(list, productShape{cuda.ProductFP8, s.what, s.columns, s.k, 1, false,
			[]int{1, 16, 64, 128, 512, 4096, 8192}, false})
	}
	few, heads := []int{1, 64, 4096}, []int{1, 16, 64, 128, 4096}
	return append(list, productShape{cuda.ProductBF16, "head", 129280, 7168, 1, true, few, false},
		productShape{cuda.ProductBF16, "router", 256, 7168, 1, true, few, false},
		productShape{cuda.ProductBF16, "absorb", 512, 128, 128, false, heads, false},
		productShape{cuda.ProductBF16, "expand", 128, 512, 128, false, heads, false})
}

// productCases returns the GEMMs of a layer, and the quantisation of their input rows.
func productCases() []Case {
	var list []Case
	for _, s := range productShapes() {
		for _, rows := range s.rows {
			list = append(list, productCase(s, rows, ""))
			if rows <= 64 { // few rows run inside a captured graph
				list = append(list, productCase(s, rows, overlap))
			}
		}
	}
	for _, rows := range []int{1, 64, 4096} {
		list = append(list, quantiseCase(rows, 7168, false), quantiseCase(rows, 7168, true))
	}
	return list
}

// product is one set of a GEMM or a batch of GEMMs. In a batch, the rows of the matrices are adjacent, as for heads.
type product struct {
	cuda.Product
	call cuda.ProductCall
}

func productCase(s productShape, rows int, suffix string) Case {
	size, outSize, rate := 1, 2, FP8
	if s.typ == cuda.ProductBF16 {
		size, rate = 2, BF16
	}
	if s.f32 {
		outSize = 4
	}
	weights, inputs, results := s.columns*s.k*s.batch, rows*s.k*s.batch, rows*s.columns*s.batch
	bytes := float64((weights+inputs)*size) + float64(results*outSize)
	batch := ""
	if s.batch > 1 {
		batch = fmt.Sprintf("%d of ", s.batch)
	}
	return Case{
		Case: titled(fmt.Sprintf("product_%v", s.typ), "%d rows, %s%d x %d %s%s", rows, batch, s.columns, s.k, s.what,
			suffix), Rate: rate, Bytes: bytes,
		FLOPs: 2 * float64(results) * float64(s.k),
		New: func(h *holder) Set {
			stride := (rows + 3) / 4 * 4
			p := &product{Product: cuda.Product{
				Type: s.typ, Weight: h.operand(s.typ, weights), Input: h.operand(s.typ, inputs),
				Out:          h.output(results * outSize),
				WeightStride: int64(s.k), InputStride: int64(s.k * s.batch), ScaleStride: int64(stride),
				OutStride:   int64(s.columns * s.batch),
				WeightBatch: int64(s.columns * s.k), InputBatch: int64(s.k), OutBatch: int64(s.columns),
				Rows: int32(rows), Columns: int32(s.columns), K: int32(s.k), Batch: int32(s.batch), OutF32: s.f32,
			}}
			if s.typ == cuda.ProductFP8 {
				blocks := (s.k + 127) / 128
				p.WeightScales = putAll(h, h.floats((s.columns+127)/128*blocks, 1e-4, 1e-3))
				p.InputScales = putAll(h, h.floats(blocks*stride, 1e-4, 1e-3))
			}
			if s.factors {
				p.Factors = putAll(h, h.floats(s.columns, 0.5, 2))
			}
			if n := p.SumBytes(h.rig.Device); n > 0 {
				p.Sums = h.alloc(int(n))
			}
			if h.err == nil {
				p.call, h.err = p.Encode(h.rig.Device)
			}
			launch := func(s *cuda.Stream) error { return cuda.Multiply(h.rig.Kernels, s, &p.call) }
			if suffix == overlap {
				launch = overlapping(launch)
			}
			return Set{launch, p.check}
		},
	}
}

// productPattern is the number of random elements of an operand; the other elements repeat them with an offset, so that
// columns differ.
const productPattern = 1<<19 + 641

// operand allocates n random elements in device memory.
func (h *holder) operand(t cuda.ProductType, n int) cuda.Ptr {
	if t == cuda.ProductFP8 {
		return h.repeat(h.codes(min(n, productPattern)), n)
	}
	return h.repeat(raw(h.bf16s(min(n, productPattern))), n*2)
}

// check compares some elements with values computed on the host: the corners, and elements at regular distances.
func (p *product) check(r *reader) error {
	for i := range 48 {
		row, column, b := i*577%int(p.Rows), i*7919%int(p.Columns), i*31%int(p.Batch)
		if i == 0 {
			row, column, b = int(p.Rows)-1, int(p.Columns)-1, int(p.Batch)-1
		}
		if err := p.checkElement(r, row, column, b); err != nil {
			return fmt.Errorf("row %d column %d of %d: %w", row, column, b, err)
		}
	}
	return nil
}

func (p *product) checkElement(r *reader, row, column, b int) error {
	input := p.values(r, p.Input, int64(row)*p.InputStride+int64(b)*p.InputBatch)
	weight := p.values(r, p.Weight, int64(column)*p.WeightStride+int64(b)*p.WeightBatch)
	var sum, size float64
	for from := 0; from < len(input); from += 128 {
		scale := 1.0
		if p.Type == cuda.ProductFP8 {
			blocks := (int64(p.K) + 127) / 128
			scale = r.f32(p.InputScales.Add((int64(from/128)*p.ScaleStride+int64(row))*4)) *
				r.f32(p.WeightScales.Add((int64(column/128)*blocks+int64(from/128))*4))
		}
		for i := from; i < min(from+128, len(input)); i++ {
			v := float64(input[i]) * float64(weight[i]) * scale
			sum += v
			size += math.Abs(v)
		}
	}
	if p.Factors != 0 {
		f := r.f32(p.Factors.Add(4 * int64(column)))
		sum, size = f*sum, f*size
	}
	at := int64(row)*p.OutStride + int64(b)*p.OutBatch + int64(column)
	// Products of e4m3 are exact to 14 bits and those of bf16 to 24; a bf16 result is rounded to 8 bits.
	limit := map[cuda.ProductType]float64{cuda.ProductFP8: 5e-4, cuda.ProductBF16: 2e-6}[p.Type] * size
	var got float64
	if p.OutF32 {
		got = r.f32(p.Out.Add(at * 4))
	} else {
		got = float64(r.bf16s(p.Out.Add(at*2), 1)[0])
		limit += math.Abs(sum) / 256
	}
	if !(math.Abs(got-sum) <= limit) {
		return fmt.Errorf("the value is %g, want %g within %g", got, sum, limit)
	}
	return nil
}

// values returns k elements of an operand, from element at on.
func (p *product) values(r *reader, base cuda.Ptr, at int64) []float32 {
	if p.Type == cuda.ProductBF16 {
		return r.bf16s(base.Add(at*2), int(p.K))
	}
	v := make([]float32, p.K)
	for i, code := range r.bytes(base.Add(at), int(p.K)) {
		v[i] = num.FromE4M3(code)
	}
	return v
}

func quantiseCase(rows, columns int, norm bool) Case {
	n := rows * columns
	size, name := float64(3*n+n/32), "quantise_rows"
	if norm {
		size, name = float64(7*n+n/32+2*columns), "norm_quantise"
	}
	return Case{
		Case: titled(name, "%d rows of %d", rows, columns), Rate: Memory, Bytes: size,
		New: func(h *holder) Set {
			// Host copies of the first row, of the residual row and of the weight.
			first, delta, weight := h.bf16s(columns), h.bf16s(columns), h.bf16s(columns)
			stride := int64(columns)
			x, codes, scales := h.repeat(raw(first), n*2), h.output(n), h.output(n/128*4)
			check := func(r *reader) error {
				row := expect.Widen(first)
				if norm {
					normalised(row, expect.Widen(delta), expect.Widen(weight))
				}
				return r.quantised(row, codes, scales, rows)
			}
			if norm {
				all := cuda.NormQuantiseArgs{X: x, Delta: h.repeat(raw(delta), n*2),
					Sum: h.output(n * 2), Weight: putAll(h, weight), Codes: codes, Scales: scales,
					Epsilon: normEpsilon, XStride: stride, DeltaStride: stride, SumStride: stride, CodeStride: stride,
					ScaleStride: int64(rows), Rows: int32(rows), Columns: int32(columns), WeightBF16: 1}
				return launching(h, cuda.NormQuantise, &all, check)
			}
			args := cuda.QuantiseRowsArgs{X: x, Codes: codes, Scales: scales, XStride: stride, CodeStride: stride,
				ScaleStride: int64(rows), Rows: int32(rows), Columns: int32(columns)}
			return launching(h, cuda.QuantiseRows, &args, check)
		},
	}
}

const normEpsilon = 1e-6

// normalised adds delta to row and applies RMSNorm with weight, with the rounding of the device.
func normalised(row, delta, weight []float32) {
	var squares float64
	for i, d := range delta {
		row[i] = num.RoundBF16(row[i] + d)
		squares += float64(row[i]) * float64(row[i])
	}
	inverse := 1 / math.Sqrt(squares/float64(len(row))+normEpsilon)
	for i, w := range weight {
		row[i] = num.RoundBF16(float32(float64(row[i]) * inverse * float64(w)))
	}
}

// quantised checks that the first and the last row on the device equal the quantised row; all device rows are copies of
// it.
func (r *reader) quantised(row []float32, codes, scales cuda.Ptr, rows int) error {
	want, wantScales := make([]byte, len(row)), make([]float32, 0, len(row)/128)
	for from := 0; from < len(row); from += 128 {
		wantScales = append(wantScales, num.QuantE4M3(want[from:], row[from:from+128], num.ScalePow2))
	}
	for _, i := range []int{0, rows - 1} {
		if err := r.same(fmt.Sprintf("codes of row %d", i), codes.Add(int64(i*len(row))), want); err != nil {
			return err
		}
		for b, w := range wantScales {
			if got := r.f32(scales.Add(int64(b*rows+i) * 4)); got != float64(w) {
				return fmt.Errorf("scale %d of row %d is %g, want %g", b, i, got, w)
			}
		}
	}
	return nil
}
