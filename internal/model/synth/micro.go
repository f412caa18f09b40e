package synth

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"

	"sparrow/internal/model/engram"
	"sparrow/internal/num"
)

// fp4Group is the number of values of a row that have one exponent in FP4.
const fp4Group = 32

// fp4 generates the random values of t row by row, computes the exponent of each group and writes pairs of values. If w
// is nil, only the exponents are computed.
func (f *filler) fp4(w io.Writer, t tensor) error {
	out, in := t.shape[0], t.shape[1]
	r := newRandom(f.seed, t.like, t.mean, t.spread)
	scales := make([]float32, 0, out*in/fp4Group)
	for row := 0; row < out; row += block {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		v := f.take(min(block, out-row) * in)
		r.fill(v)
		b := f.takeBytes(len(v) / 2)
		for at := 0; at < len(v); at += fp4Group {
			scales = append(scales, quantiseFP4(b[at/2:(at+fp4Group)/2], v[at:at+fp4Group]))
		}
		if w == nil {
			continue
		}
		if err := f.write(w, b); err != nil {
			return err
		}
	}
	f.keep(t, scales)
	return nil
}

// quantiseFP4 packs a group and returns its scale, the smallest power of two with which its largest magnitude is at
// most 6. A group of zeros has scale 1.
func quantiseFP4(dst []byte, v []float32) float32 {
	peak := float32(0)
	for _, x := range v {
		peak = max(peak, float32(math.Abs(float64(x))))
	}
	scale := float32(1)
	if peak > 0 {
		scale = num.CeilPow2(peak / 6)
	}
	for i := range dst {
		dst[i] = num.PackE2M1(num.E2M1(v[2*i]/scale), num.E2M1(v[2*i+1]/scale))
	}
	return scale
}

// rows8 generates the random values of t row by row, computes the exponent of each group and writes e4m3. If w is nil,
// only the exponents are computed.
func (f *filler) rows8(w io.Writer, t tensor) error {
	out, in := t.shape[0], t.shape[1]
	r := newRandom(f.seed, t.like, t.mean, t.spread)
	scales := make([]float32, 0, out*in/fp4Group)
	for row := 0; row < out; row += block {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		v := f.take(min(block, out-row) * in)
		b := f.takeBytes(len(v))
		if row == 0 || !f.repeat {
			r.fill(v)
		}
		for at := 0; at < len(v); at += fp4Group {
			scales = append(scales, f.quantise(b[at:at+fp4Group], v[at:at+fp4Group], blockAt{fp4Group, 0, fp4Group}))
		}
		if w == nil {
			continue
		}
		if err := f.write(w, b); err != nil {
			return err
		}
	}
	f.keep(t, scales)
	return nil
}

// tokens writes a key for every token.
func (f *filler) tokens(w io.Writer, t tensor) error {
	b := f.takeBytes(4 * t.shape[0])
	for i, key := range engram.PlainMap(t.shape[0], t.limit) {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(key))
	}
	return f.write(w, b)
}

// experts writes the numbers of k different experts for every token.
func (f *filler) experts(w io.Writer, t tensor) error {
	rows, k := t.shape[0], t.shape[1]
	source := rand.New(newRandom(f.seed, t.like, 0, 1).source)
	for range rows {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		b := f.takeBytes(8 * k)
		for i, e := range source.Perm(t.limit)[:k] {
			binary.LittleEndian.PutUint64(b[8*i:], uint64(e))
		}
		if err := f.write(w, b); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) writeE8M0(w io.Writer, values []float32) error {
	b := f.takeBytes(len(values))
	for i, v := range values {
		b[i] = num.E8M0(v)
	}
	return f.write(w, b)
}
