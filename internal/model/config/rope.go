package config

import "math"

// Rope describes rotary position embedding.
type Rope struct {
	Theta float64
	Yarn  *Yarn // nil means rotation without YaRN
}

// Yarn holds the parameters of YaRN, which extends the rotation to contexts longer than those of the first training
// (v32 spec, 2.3).
type Yarn struct {
	Factor       float64
	Original     int // context length of the first training, in tokens
	BetaFast     float64
	BetaSlow     float64
	MScale       float64
	MScaleAllDim float64
}

// InvFreq returns the angle per position, in radians, of each of d/2 pairs, rounded to float32.
func (r Rope) InvFreq(d int) []float32 {
	out := make([]float32, d/2)
	for i := range out {
		f := math.Pow(r.Theta, -2*float64(i)/float64(d))
		if y := r.Yarn; y != nil {
			ramp := y.ramp(i, d, r.Theta)
			f = f*(1-ramp) + f/y.Factor*ramp
		}
		out[i] = float32(f)
	}
	return out
}

// ramp returns a value from 0, for pairs whose frequency does not change, to 1, for pairs whose frequency is divided by
// Factor.
func (y *Yarn) ramp(i, d int, theta float64) float64 {
	corr := func(rotations float64) float64 {
		return float64(d) * math.Log(float64(y.Original)/(2*math.Pi*rotations)) / (2 * math.Log(theta))
	}
	low := max(math.Floor(corr(y.BetaFast)), 0)
	high := min(math.Ceil(corr(y.BetaSlow)), float64(d-1))
	if high == low {
		// This avoids a division by 0 if the ramp has length 0, as in public implementations.
		high += 0.001
	}
	return min(max((float64(i)-low)/(high-low), 0), 1)
}

func mscale(factor, m float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*m*math.Log(factor) + 1
}

// CosScale multiplies cosines and sines: 1 unless YaRN's two mscale values differ.
func (r Rope) CosScale() float32 {
	if r.Yarn == nil {
		return 1
	}
	y := r.Yarn
	if y.MScale != 0 && y.MScaleAllDim != 0 {
		return float32(mscale(y.Factor, y.MScale) / mscale(y.Factor, y.MScaleAllDim))
	}
	return float32(mscale(y.Factor, 1))
}

// SoftmaxScale returns the factor of attention scores for query heads of size qk.
func (r Rope) SoftmaxScale(qk int) float32 {
	s := 1 / math.Sqrt(float64(qk))
	if r.Yarn != nil && r.Yarn.MScaleAllDim != 0 {
		m := mscale(r.Yarn.Factor, r.Yarn.MScaleAllDim)
		s *= m * m
	}
	return float32(s)
}
