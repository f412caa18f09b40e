package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
)

// Products with folded weights are bitwise equal to products with the e4m3 codes of these weights, for few and for many
// rows.
func TestGPUFoldedProductsAreThoseOfTheirCodes(t *testing.T) {
	r := onHopper(t)
	rng := rand.New(rand.NewPCG(47, 1))
	for _, s := range [][2]int{{2112, 4096}, {272, 1056}, {1040, 2048}, {8720, 544}} {
		columns, k := s[0], s[1]
		blocks, scaleBytes := (k+127)/128, make([]byte, columns*k/32)
		packed, want := make([]byte, columns*k/2), make([]byte, columns*k)
		for i := range packed {
			packed[i] = byte(rng.Uint32())
		}
		for i := range scaleBytes {
			scaleBytes[i] = byte(104 + rng.IntN(15))
		}
		scales := make([]float32, (columns+127)/128*blocks)
		for i := range scales {
			most := byte(0)
			top, left := i/blocks*128, i%blocks*128
			for row := top; row < min(top+128, columns); row++ {
				for c := left; c < min(left+128, k); c += 32 {
					most = max(most, scaleBytes[(row*k+c)/32])
				}
			}
			scales[i] = float32(math.Ldexp(1, int(most)-6-127))
		}
		for i := range want {
			row, c := i/k, i%k
			code := packed[i/2] >> (4 * (i % 2)) & 15
			v := float32(math.Ldexp(float64(num.FromE2M1(code)), int(scaleBytes[i/32])-127))
			want[i] = num.E4M3(v / scales[row/128*blocks+c/128])
		}
		codeBytes, foldedScales := FoldedBytes(int32(columns), int32(k))
		a := PackE2M1Args{First: upload(r, packed), FirstScales: upload(r, scaleBytes), To: r.poisoned(codeBytes),
			ScalesTo: r.poisoned(foldedScales), Stride: int64(k / 2), ScaleStride: int64(k / 32), Rows: int32(columns),
			Columns: int32(k)}
		check(t, Fold(r.k, r.s, &a))
		for _, rows := range []int{1, 7, 17, 33, 64, 65, 200} {
			c := newProductCase(r, rng, ProductFP8, rows, columns, k, 1)
			x := c.x
			x.Weight, x.WeightScales, x.WeightStride, x.OutF32 = upload(r, want), upload(r, scales), int64(k), true
			x.Out = r.poisoned(x.outBytes())
			call, err := x.Encode(r.d)
			check(t, err)
			check(t, Multiply(r.k, r.s, &call))
			plain := r.download(x.Out, x.outBytes())
			x.Weight, x.WeightScales, x.Out = a.To, a.ScalesTo, r.poisoned(x.outBytes())
			var scratch Ptr
			if n := x.UnfoldedBytes(); n > 0 {
				scratch = r.poisoned(n)
			}
			folded, err := x.EncodeFolded(r.d, scratch)
			check(t, err)
			check(t, MultiplyFolded(r.k, r.s, &folded))
			sameBytes(t, fmt.Sprintf("%d rows, %d x %d", rows, columns, k), r.download(x.Out, x.outBytes()), plain)
		}
	}
}
