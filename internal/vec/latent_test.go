package vec

import (
	"fmt"
	"testing"
)

// Results are within the rounding of x for every number of rows, and for weights with and without gaps. A row is
// bitwise equal alone, and nothing is written outside the output.
func TestTiledLatent(t *testing.T) {
	tier := tiledTier(t)
	r := newRand(51)
	for _, s := range []struct{ m, d, pad, ahead int }{
		{1, 32, 0, 0}, {3, 128, 0, 256}, {16, 128, 64, 0}, {17, 192, 0, 1}, {40, 96, 1, 0}, {2, 512, 0, -512},
	} {
		ldx, ldw, ldy := s.d+s.pad, LatentDim+s.pad, LatentDim+s.pad+1
		x, wide := normals(r, s.m*ldx), normals(r, s.d*ldw)
		w := narrow(wide)
		widenBF16Go(wide, w)
		y := normals(r, s.m*ldy)
		before := append([]float32(nil), y...)
		tier.TiledLatent(y, ldy, x, ldx, s.m, w, ldw, s.d, s.ahead)
		// wantSums expects transposed weights and results without gaps between rows.
		turned, got := make([]float32, LatentDim*s.d), make([]float32, s.m*LatentDim)
		for c := range LatentDim {
			for n := range s.d {
				turned[c*s.d+n] = wide[n*ldw+c]
			}
		}
		for i := range s.m {
			copy(got[i*LatentDim:], y[i*ldy:][:LatentDim])
			wantSame(t, "between rows", y[i*ldy+LatentDim:(i+1)*ldy], before[i*ldy+LatentDim:(i+1)*ldy])
			alone := make([]float32, LatentDim)
			tier.TiledLatent(alone, LatentDim, x[i*ldx:], ldx, 1, w, ldw, s.d, 0)
			wantSame(t, fmt.Sprintf("row %d of %v", i, s), alone, y[i*ldy:][:LatentDim])
		}
		wantSums(t, "latent", got, x, ldx, s.m, turned, s.d, LatentDim, s.d, float64(s.d/8+8)*0x1p-24+0x1p-17)
	}
	for name, call := range map[string]func(){
		"depth": func() { tier.TiledLatent(nil, 0, nil, 0, 0, nil, 0, 33, 0) },
		"tier":  func() { portable.TiledLatent(nil, 0, nil, 0, 0, nil, 0, 32, 0) },
		"short": func() {
			tier.TiledLatent(make([]float32, 511), 512, make([]float32, 32), 32, 1, make([]byte, 32768), 512, 32, 0)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
