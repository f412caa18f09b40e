package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
)

// Values that the GPU generates are bitwise equal to those of the host, in every type and with gaps between rows.
func TestGPUDrawnValues(t *testing.T) {
	r := onGPU(t)
	for _, c := range []struct {
		kind    ElementType
		host    kernel.DType
		columns int
		stride  int
		rows    int
	}{{ElementF32, kernel.F32, 6, 6, 5}, {ElementBF16, kernel.BF16, 576, 576, 300},
		{ElementE4M3, kernel.E4M3, 512, 656, 70},
		{ElementF32, kernel.F32, 4, 164, 70}, {ElementE4M3, kernel.E4M3, 7168, 7168, 130}} {
		for _, d := range []kernel.Drawn{{Seed: 1, Spread: 1}, {Seed: math.MaxUint64 - 3, Mean: 1, Spread: 100},
			{Seed: 7, Mean: 0.25}} {
			size := c.host.Size()
			bytes := int64(((c.rows-1)*c.stride + c.columns) * size)
			p := r.poisoned(bytes)
			// The values are a part of a matrix that is wider by 10 columns.
			const first = 1026
			wide := c.columns + 10
			check(t, DrawValues(r.k, r.s, &DrawArgs{Out: p, Stride: int64(c.stride), Rows: int64(c.rows),
				Columns: int64(c.columns), First: first, FromStride: int64(wide), Seed: d.Seed, Mean: d.Mean,
				Step: d.Step(), Type: c.kind}))
			values := make([]byte, c.rows*wide*size)
			check(t, d.Fill(values, c.host, first))
			want := make([]byte, bytes)
			for i := range want {
				want[i] = poison
			}
			for row := range c.rows {
				copy(want[row*c.stride*size:], values[row*wide*size:][:c.columns*size])
			}
			sameBytes(t, fmt.Sprintf("%+v %+v", c, d), r.download(p, bytes), want)
		}
	}
}

// A widened weight equals the product of values and scales that the host computes, rounded once, both untransposed and
// transposed.
func TestGPUWidenedWeights(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		kind       ElementType
		rows, cols int
		blockRows  int
		blockCols  int
	}{{ElementF32, 3, 7, 0, 0}, {ElementF16, 65, 33, 0, 0}, {ElementBF16, 70, 130, 0, 0}, {ElementE4M3, 3, 5, 2, 4},
		{ElementE4M3, 300, 512, 128, 128}, {ElementE4M3, 1, 1, 128, 128}} {
		n, stride := c.rows*c.cols, (c.rows+15)/16*16+16
		from, want := make([]byte, n*c.kind.bytes()), make([]byte, 2*n)
		turned := make([]byte, 2*c.cols*stride)
		for i := range turned {
			turned[i] = poison
		}
		a := WidenArgs{Rows: int32(c.rows), Columns: int32(c.cols), TurnedStride: int64(stride), Type: c.kind}
		var scales []float32
		if c.blockRows > 0 {
			wide := (c.cols + c.blockCols - 1) / c.blockCols
			for range (c.rows + c.blockRows - 1) / c.blockRows * wide {
				scales = append(scales, rng.Float32()+0.1)
			}
			a.Scales, a.ScaleStride = upload(r, scales), int32(wide)
			a.BlockRows, a.BlockColumns = int32(c.blockRows), int32(c.blockCols)
		}
		for i := range n {
			v := float32(rng.NormFloat64())
			var bits uint16
			switch c.kind {
			case ElementF32:
				binary.LittleEndian.PutUint32(from[4*i:], math.Float32bits(v))
				bits = num.BF16(v)
			case ElementF16:
				binary.LittleEndian.PutUint16(from[2*i:], num.F16(v))
				bits = num.BF16(num.FromF16(num.F16(v)))
			case ElementBF16:
				bits = num.BF16(v)
				binary.LittleEndian.PutUint16(from[2*i:], bits)
			case ElementE4M3:
				from[i] = num.E4M3(100 * v)
				s := scales[i/c.cols/c.blockRows*int(a.ScaleStride)+i%c.cols/c.blockCols]
				bits = num.BF16(num.FromE4M3(from[i]) * s)
			}
			binary.LittleEndian.PutUint16(want[2*i:], bits)
			binary.LittleEndian.PutUint16(turned[2*(i%c.cols*stride+i/c.cols):], bits)
		}
		a.From, a.Out, a.Turned = upload(r, from), r.poisoned(int64(2*n)), r.poisoned(int64(len(turned)))
		check(t, WidenWeight(r.k, r.s, &a))
		sameBytes(t, fmt.Sprintf("%+v", c), r.download(a.Out, int64(2*n)), want)
		sameBytes(t, fmt.Sprintf("%+v transposed", c), r.download(a.Turned, int64(len(turned))), turned)
	}
}

// Merged blocks have the largest scale, and codes of blocks with smaller scales are rounded like the host rounds them.
func TestGPUMergedBlocks(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ rows, cols, blockRows, blockCols int }{{32, 32, 32, 32}, {300, 528, 32, 32},
		{129, 256, 1, 32}, {200, 136, 64, 128}} {
		wide, merged := (c.cols+c.blockCols-1)/c.blockCols, (c.cols+127)/128
		scales := make([]float32, (c.rows+c.blockRows-1)/c.blockRows*wide)
		for i := range scales {
			scales[i] = float32(math.Exp2(float64(rng.IntN(7) - 9)))
		}
		scale := func(i int) float32 { return scales[i/c.cols/c.blockRows*wide+i%c.cols/c.blockCols] }
		to := make([]float32, (c.rows+127)/128*merged)
		block := func(i int) int { return i/c.cols/128*merged + i%c.cols/128 }
		codes, want := make([]byte, c.rows*c.cols), make([]byte, c.rows*c.cols)
		for i := range codes {
			if codes[i] = byte(rng.IntN(256)); codes[i] == 0xFF {
				codes[i] = 0x7F // the sign of NaN is lost
			}
			to[block(i)] = max(to[block(i)], scale(i))
		}
		for i, v := range codes {
			want[i] = num.E4M3(num.FromE4M3(v) * (scale(i) / to[block(i)]))
		}
		a := MergeArgs{Codes: upload(r, codes), Scales: upload(r, scales), To: r.poisoned(int64(4 * len(to))),
			Rows: int32(c.rows), Columns: int32(c.cols), ScaleStride: int32(wide), BlockRows: int32(c.blockRows),
			BlockColumns: int32(c.blockCols)}
		check(t, MergeBlocks(r.k, r.s, &a))
		sameBytes(t, fmt.Sprintf("%+v", c), r.download(a.Codes, int64(len(codes))), want)
		var wantScales []byte
		for _, v := range to {
			wantScales = binary.LittleEndian.AppendUint32(wantScales, math.Float32bits(v))
		}
		sameBytes(t, fmt.Sprintf("%+v scales", c), r.download(a.To, int64(len(wantScales))), wantScales)
	}
}
