package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
)

// quantised returns the host's result for bf16 rows: codes [rows, columns+gap] and scales [ceil(columns/128), stride].
// The gaps are poisoned.
func quantised(x []uint16, rows, columns, stride int, mode num.ScaleMode) (codes, scales []byte) {
	blocks := (columns + 127) / 128
	codes, scales = make([]byte, rows*(columns+gap)), make([]byte, blocks*stride*4)
	for i := range codes {
		codes[i] = poison
	}
	for i := range scales {
		scales[i] = poison
	}
	for row := range rows {
		for b := range blocks {
			from, to := b*128, min(b*128+128, columns)
			scale := num.QuantE4M3(codes[row*(columns+gap)+from:], expect.Widen(x[row*columns+from:row*columns+to]),
				mode)
			binary.LittleEndian.PutUint32(scales[(b*stride+row)*4:], math.Float32bits(scale))
		}
	}
	return codes, scales
}

var quantSizes = [][2]int{{1, 16}, {3, 128}, {2, 272}, {65, 1536}, {5, 7168}, {1, 16384}, {300, 144}}

func TestGPUQuantisedRowsEqualTheHost(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(51, 1))
	for _, size := range append(quantSizes, [2]int{8*manyBlocks + 1, 144}) { // the last size has many rows
		for mode, exact := range map[num.ScaleMode]int32{num.ScalePow2: 0, num.ScaleF32: 1} {
			rows, columns := size[0], size[1]
			stride := rows + 3
			x := randomBF16(rng, rows*columns)
			for i := range x[:len(x)/4] { // all finite values; the blocks of a row have different exponents
				x[i] = uint16(rng.Uint32()&0x807F | (rng.Uint32N(128)+uint32(i/128%128))%255<<7)
			}
			if rows*columns > 4000 { // large enough to contain every special value
				copy(x[len(x)/2:], []uint16{0x7F80, 0xFF80, 0x7FC1, 0xFFC1, 0x8000, 0x0001, 0x7F7F})
				copy(x[:128], make([]uint16, 128))
			}
			wantCodes, wantScales := quantised(x, rows, columns, stride, mode)
			a := QuantiseRowsArgs{X: upload(r, x), Codes: r.poisoned(int64(len(wantCodes))),
				Scales: r.poisoned(int64(len(wantScales))), XStride: int64(columns),
				CodeStride: int64(columns + gap), ScaleStride: int64(stride), Rows: int32(rows),
				Columns: int32(columns), Exact: exact}
			check(t, QuantiseRows(r.k, r.s, &a))
			name := fmt.Sprintf("%d x %d, %v", rows, columns, mode)
			sameBytes(t, name+": codes", r.download(a.Codes, int64(len(wantCodes))), wantCodes)
			sameBytes(t, name+": scales", r.download(a.Scales, int64(len(wantScales))), wantScales)
		}
	}
}

func TestGPUNormQuantiseEqualsItsSteps(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(52, 1))
	for i, size := range quantSizes {
		rows, columns := size[0], size[1]
		n := rows * columns
		x, delta, weight := randomBF16(rng, n), randomBF16(rng, n), randomBF16(rng, columns)
		sum := make([]uint16, n)
		for i := range sum {
			sum[i] = num.BF16(num.FromBF16(x[i]) + num.FromBF16(delta[i]))
		}
		w := upload(r, weight)
		if i%2 == 1 {
			w = upload(r, expect.Widen(weight))
		}
		steps := RMSNormArgs{X: upload(r, sum), Out: r.poisoned(int64(2 * n)), Weight: w, Epsilon: 1e-6,
			XStride: int64(columns), OutStride: int64(columns), Rows: int32(rows),
			Columns: int32(columns), WeightBF16: int32(1 - i%2)}
		check(t, RMSNorm(r.k, r.s, &steps))
		norm := r.download(steps.Out, int64(2*n))
		half := make([]uint16, n)
		for i := range half {
			half[i] = binary.LittleEndian.Uint16(norm[2*i:])
		}
		stride := rows + 1
		codes, scales := quantised(half, rows, columns, stride, num.ScaleMode(i%2))
		a := NormQuantiseArgs{X: upload(r, x), Delta: upload(r, delta), Sum: r.poisoned(int64(2 * n)), Weight: w,
			Out: r.poisoned(int64(2 * n)), Codes: r.poisoned(int64(len(codes))),
			Scales: r.poisoned(int64(len(scales))), Epsilon: 1e-6, XStride: int64(columns),
			DeltaStride: int64(columns), SumStride: int64(columns), OutStride: int64(columns),
			CodeStride: int64(columns + gap), ScaleStride: int64(stride), Rows: int32(rows), Columns: int32(columns),
			WeightBF16: int32(1 - i%2), Exact: int32(i % 2)}
		check(t, NormQuantise(r.k, r.s, &a))
		name := fmt.Sprintf("%d x %d", rows, columns)
		sameBytes(t, name+": sum", r.download(a.Sum, int64(2*n)), bytesOf(sum))
		sameBytes(t, name+": norm", r.download(a.Out, int64(2*n)), norm)
		sameBytes(t, name+": codes", r.download(a.Codes, int64(len(codes))), codes)
		sameBytes(t, name+": scales", r.download(a.Scales, int64(len(scales))), scales)
		// The operation is also run without a second operand, in place, and without codes.
		b := a
		b.X, b.Delta, b.Sum, b.Out, b.Codes = upload(r, sum), 0, 0, r.poisoned(int64(2*n)), 0
		check(t, NormQuantise(r.k, r.s, &b))
		sameBytes(t, name+": norm alone", r.download(b.Out, int64(2*n)), norm)
		b = a
		b.Sum, b.Out = b.X, 0
		check(t, NormQuantise(r.k, r.s, &b))
		sameBytes(t, name+": sum in place", r.download(b.Sum, int64(2*n)), bytesOf(sum))
	}
}
