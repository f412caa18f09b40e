package vec

import "math"

func axpyGo(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += a * x[i]
	}
}

func maxGo(x []float32) float32 {
	best := x[0]
	for _, v := range x {
		best = max(best, v)
	}
	return best
}

func expSumGo(dst, x []float32, max float32) float32 {
	var sum float32
	for i, v := range x {
		e := float32(math.Exp(float64(v - max)))
		dst[i] = e
		sum += e
	}
	return sum
}

func softmaxGo(p []float32, scale, top float32) (newTop, sum float32) {
	for i, v := range p {
		p[i] = v * scale
		if p[i] > top {
			top = p[i]
		}
	}
	if math.IsInf(float64(top), -1) {
		return top, expSumGo(p, p, 0)
	}
	return top, expSumGo(p, p, top)
}

func siluMulGo(dst, gate, up []float32) {
	for i, g := range gate {
		silu := float64(g) / (1 + math.Exp(-float64(g)))
		dst[i] = float32(silu) * up[i]
	}
}

func scaleMulGo(y, x, w []float32, s float32) {
	for i, v := range x {
		y[i] = v * s * w[i]
	}
}
