package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// fp4Pairs holds the two FP4 values of every packed byte, those of the low four bits first.
var fp4Pairs = func() (t [256][2]float32) {
	for b := range t {
		even, odd := num.UnpackE2M1(byte(b))
		t[b] = [2]float32{num.FromE2M1(even), num.FromE2M1(odd)}
	}
	return t
}()

// widenBand widens rows n0 to n1 of a weight that has no product kernel, and applies its scales. out is [n1-n0, in].
func widenBand(out []float32, w *host.Matrix, n0, n1 int) {
	if f, ok := w.Data.DType.Block(); ok {
		for n := n0; n < n1; n++ {
			f.Decode(out[(n-n0)*w.In():][:w.In()], host.Bytes(w.Data.Slice(n, n+1)))
		}
		return
	}
	if !w.Scale.Given() {
		widenHalf(out, w.Data.Slice(n0, n1))
		return
	}
	if w.Data.DType != kernel.E2M1x2 || w.Scale.DType != kernel.E8M0 {
		for n := n0; n < n1; n++ {
			w.Widen(out[(n-n0)*w.In():][:w.In()], n)
		}
		return
	}
	group := w.BlockCols / 2
	for n := n0; n < n1; n++ {
		packed, row := host.Bytes(w.Data.Slice(n, n+1)), out[(n-n0)*w.In():][:w.In()]
		for _, e := range host.Bytes(w.Scale.Slice(n, n+1)) {
			k := min(group, len(packed))
			widenFP4(row[:2*k], packed[:k], num.FromE8M0(e))
			packed, row = packed[k:], row[2*k:]
		}
	}
}

// widenFP4 widens one group, four bytes at a time. The product of an e2m1 value and a power of two is exact.
func widenFP4(out []float32, packed []byte, scale float32) {
	for len(packed) >= 4 && len(out) >= 8 {
		a, b, c, d := &fp4Pairs[packed[0]], &fp4Pairs[packed[1]], &fp4Pairs[packed[2]], &fp4Pairs[packed[3]]
		o := (*[8]float32)(out)
		o[0], o[1], o[2], o[3] = a[0]*scale, a[1]*scale, b[0]*scale, b[1]*scale
		o[4], o[5], o[6], o[7] = c[0]*scale, c[1]*scale, d[0]*scale, d[1]*scale
		packed, out = packed[4:], out[8:]
	}
	for i, b := range packed {
		out[2*i], out[2*i+1] = fp4Pairs[b][0]*scale, fp4Pairs[b][1]*scale
	}
}
