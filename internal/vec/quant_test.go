package vec

import (
	"bytes"
	"math"
	"testing"

	"sparrow/internal/num"
)

// Every tier gives the same bytes, scales and rotated values as package num.
func TestRotateQuantIsThatOfNum(t *testing.T) {
	inf := float32(math.Inf(1))
	eachTier(t, func(t *testing.T, tier *Tier) {
		const n = 130
		for _, mode := range []num.ScaleMode{num.ScalePow2, num.ScaleF32} {
			r := newRand(uint64(mode) + 1)
			v := normals(r, n*IndexDim)
			for i := range n {
				row := v[i*IndexDim:][:IndexDim]
				size := float32(math.Ldexp(1, r.IntN(60)-30))
				for c := range row {
					row[c] *= size
				}
				switch i {
				case 0:
					clear(row)
				case 1:
					row[5] = float32(math.NaN())
				case 2:
					row[7], row[9] = inf, -3
				case 3:
					row[0] = -inf
				case 4:
					clear(row)
					row[3] = float32(math.Copysign(1e-40, -1))
				case 5:
					for c := range row {
						row[c] = math.MaxFloat32
					}
				}
			}
			want, wantCodes, wantScales := clone(v), make([]byte, n*IndexDim), make([]float32, n)
			for i := range n {
				num.Hadamard128(want[i*IndexDim:][:IndexDim])
				wantScales[i] = num.QuantE4M3(wantCodes[i*IndexDim:][:IndexDim], want[i*IndexDim:][:IndexDim], mode)
			}
			codes, scales := make([]byte, n*IndexDim), make([]float32, n)
			tier.RotateQuant(codes, scales, v, n, mode)
			wantSame(t, "scales", scales, wantScales)
			wantSame(t, "rotated", v, want)
			for i := range n {
				if got, want := codes[i*IndexDim:][:IndexDim],
					wantCodes[i*IndexDim:][:IndexDim]; !bytes.Equal(magnitudes(got), magnitudes(want)) {
					t.Fatalf("%v: codes of vector %d are %x, want %x", mode, i, got, want)
				}
			}
		}
	})
}

// magnitudes clears the sign of NaN codes, which differs between processors.
func magnitudes(codes []byte) []byte {
	out := bytes.Clone(codes)
	for i, c := range out {
		if c&0x7F == 0x7F {
			out[i] = 0x7F
		}
	}
	return out
}
