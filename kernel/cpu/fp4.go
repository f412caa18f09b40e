package cpu

import (
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// fp4Pairs holds the two values of every packed byte.
var fp4Pairs = func() (t [256][2]float32) {
	for b := range t {
		even, odd := num.UnpackE2M1(byte(b))
		t[b] = [2]float32{num.FromE2M1(even), num.FromE2M1(odd)}
	}
	return t
}()

// widenBand widens rows n0 to n1 of a weight that has no product of its own, scales included, into out [n1-n0, in].
func widenBand(out []float32, w kernel.Weight, n0, n1 int) {
	if w.Data.DType == kernel.E2M1x2 {
		for n := n0; n < n1; n++ {
			widenFP4(out[(n-n0)*w.In():][:w.In()], host.Bytes(w.Data.Slice(n, n+1)), host.Bytes(w.Scale.Slice(n, n+1)), w.BlockCols/2)
		}
		return
	}
	widenHalf(out, w.Data.Slice(n0, n1))
}

// widenFP4 widens one row. A scale is for group bytes; a power of two times a value of 2 bits is exact.
func widenFP4(out []float32, packed, scales []byte, group int) {
	for i, e := range scales {
		scale := num.FromE8M0(e)
		part := packed[i*group : min((i+1)*group, len(packed))]
		to := out[2*i*group:][:2*len(part)]
		for j, b := range part {
			pair := &fp4Pairs[b]
			to[2*j], to[2*j+1] = pair[0]*scale, pair[1]*scale
		}
	}
}
