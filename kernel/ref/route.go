package ref

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// rootScore returns sqrt(softplus(z)), rounded to float32 as every implementation keeps scores. log1p is accurate also
// for z far below zero, where log(1+x) would return 0: the sum of scores, a divisor, must be positive.
func rootScore(z float32) float64 {
	v := float64(z)
	return float64(float32(math.Sqrt(max(v, 0) + math.Log1p(math.Exp(-math.Abs(v))))))
}

// routeRoot chooses experts by the square root of softplus.
func routeRoot(a kernel.RootRouteArgs) error {
	bias := host.RowF32(a.Bias, 0)
	biased := make([]float64, a.Logits.Cols)
	for t := range a.Logits.Rows {
		logits, ids := host.RowF32(a.Logits, t), host.RowI32(a.IDs, t)
		for e, z := range logits {
			biased[e] = float64(float32(rootScore(z)) + bias[e])
		}
		for j := range ids {
			e := argmax(biased)
			ids[j] = int32(e)
			biased[e] = math.Inf(-1)
		}
		share(host.RowF32(a.Weights, t), ids, logits, a.Scale)
	}
	return nil
}

// routeHash looks experts up by token.
func routeHash(a kernel.HashRouteArgs) error {
	tokens := host.I32(a.Tokens)
	for t := range a.Logits.Rows {
		token := int(tokens[t*a.Tokens.Stride])
		if token < 0 || token >= a.Table.Rows {
			return fmt.Errorf("%w: route hash: token %d is outside the table of %d rows", kernel.ErrArgument, token,
				a.Table.Rows)
		}
		logits, ids := host.RowF32(a.Logits, t), host.RowI32(a.IDs, t)
		for j, e := range host.RowI32(a.Table, token) {
			if e < 0 || int(e) >= len(logits) {
				return fmt.Errorf("%w: route hash: token %d is routed to expert %d, outside the %d experts",
					kernel.ErrArgument, token, e, len(logits))
			}
			ids[j] = e
		}
		share(host.RowF32(a.Weights, t), ids, logits, a.Scale)
	}
	return nil
}

// share sets weights to the scores of the chosen experts, divided by their sum and multiplied by scale.
func share(weights []float32, ids []int32, logits []float32, scale float32) {
	var sum float64
	for _, e := range ids {
		sum += rootScore(logits[e])
	}
	for j, e := range ids {
		weights[j] = float32(rootScore(logits[e]) / (sum + 1e-20) * float64(scale))
	}
}
