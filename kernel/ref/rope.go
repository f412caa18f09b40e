package ref

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// angles computes the cosines and sines of every row's rotation. The product of position and frequency is rounded to
// float32, as in every public implementation; cosine and sine of that angle are exact.
func angles(a kernel.AngleArgs) error {
	pos, freq := host.I32(a.Positions), host.RowF32(a.InvFreq, 0)
	for t := range a.Out.Rows {
		out := host.RowF32(a.Out, t)
		for i, f := range freq {
			angle := float64(float32(pos[t*a.Positions.Stride]) * f)
			out[i] = float32(math.Cos(angle) * float64(a.Scale))
			out[len(freq)+i] = float32(math.Sin(angle) * float64(a.Scale))
		}
	}
	return nil
}

// rotateRows applies RoPE in place.
func rotateRows(a kernel.RotateArgs) error {
	if err := onlyF32("rotate", a.X); err != nil {
		return err
	}
	for t := range a.X.Rows {
		row, angles := host.RowF32(a.X, t), host.RowF32(a.Angles, t)
		for h := range a.Heads {
			rotate(row[h*a.HeadDim+a.Offset:][:len(angles)], angles, a.Pairing, a.Inverse)
		}
	}
	return nil
}

// rotate rotates each pair (x, y) of v by its angle, in place: x cos - y sin, x sin + y cos. With inverse it rotates by
// the negative angle.
func rotate(v, angles []float32, p kernel.Pairing, inverse bool) {
	half := len(v) / 2
	for i := range half {
		x, y := 2*i, 2*i+1
		if p == kernel.HalfSplit {
			x, y = i, i+half
		}
		cos, sin := float64(angles[i]), float64(angles[half+i])
		if inverse {
			sin = -sin
		}
		vx, vy := float64(v[x]), float64(v[y])
		v[x] = float32(vx*cos - vy*sin)
		v[y] = float32(vx*sin + vy*cos)
	}
}
