package synth

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// bellSpread is the standard deviation of the sum of four bytes, each of variance (256*256-1)/12.
var bellSpread = math.Sqrt(4 * (256*256 - 1) / 12.0)

// bellMean is the mean of the sum of four bytes.
const bellMean = 4 * 255 / 2

// random generates values whose distribution is close to normal: the sum of four random bytes, which is within 3.45
// standard deviations. Integer sums and one product in float32 give the same bits on every machine; a logarithm or an
// error function would not.
type random struct {
	source *rand.PCG
	mean   float32
	step   float32 // value of one unit of the sum of bytes
}

// newRandom returns the generator of a tensor's values, which depend only on the seed and the tensor's name.
func newRandom(seed uint64, name string, mean, deviation float64) *random {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &random{source: rand.NewPCG(seed, h.Sum64()), mean: float32(mean), step: float32(deviation / bellSpread)}
}

// fill writes the next len(dst) values. Each random word gives two values, so only the last call for a tensor may
// have an odd length.
func (r *random) fill(dst []float32) {
	for i := 0; i < len(dst); i += 2 {
		w := r.source.Uint64()
		w = w&0x00FF00FF00FF00FF + w>>8&0x00FF00FF00FF00FF // sums of two bytes in 16-bit lanes
		w += w >> 16                                       // sums of four bytes in lanes 0 and 2
		dst[i] = r.value(uint16(w))
		if i+1 < len(dst) {
			dst[i+1] = r.value(uint16(w >> 32))
		}
	}
}

func (r *random) value(sum uint16) float32 {
	// The conversion prevents compilers from fusing product and sum, which would round differently on some machines.
	return r.mean + float32(float32(int32(sum)-bellMean)*r.step)
}
