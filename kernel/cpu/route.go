package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// rootScore returns sqrt(softplus(z)), computed in float64 and rounded once. log1p is accurate for z far below zero,
// where log is not.
func rootScore(z float32) float32 {
	v := float64(z)
	return float32(math.Sqrt(max(v, 0) + math.Log1p(math.Exp(-math.Abs(v)))))
}

// routeRoot chooses experts by the square root of softplus.
func routeRoot(d *Device, a kernel.RootRouteArgs) error {
	return eachRow(d, a.Logits.Rows, a, func(d *Device, a *kernel.RootRouteArgs, worker, t int) {
		biased, bias := grow(&d.scratch[worker].tile, a.Logits.Cols), host.RowF32(a.Bias, 0)
		logits, ids := host.RowF32(a.Logits, t), host.RowI32(a.IDs, t)
		for e, z := range logits {
			biased[e] = rootScore(z) + bias[e]
		}
		best(ids, biased)
		share(host.RowF32(a.Weights, t), ids, logits, a.Scale)
	})
}

// routeHash looks experts up by token.
func routeHash(d *Device, a kernel.HashRouteArgs) error {
	for t := range a.Logits.Rows {
		token := int(host.RowI32(a.Tokens, t)[0])
		if token < 0 || token >= a.Table.Rows {
			return fmt.Errorf("%w: route hash: token %d is outside the table of %d rows", kernel.ErrArgument, token,
				a.Table.Rows)
		}
		logits, ids := host.RowF32(a.Logits, t), host.RowI32(a.IDs, t)
		copy(ids, host.RowI32(a.Table, token))
		for _, e := range ids {
			if e < 0 || int(e) >= len(logits) {
				return fmt.Errorf("%w: route hash: token %d is routed to expert %d, outside the %d experts",
					kernel.ErrArgument, token, e, len(logits))
			}
		}
		share(host.RowF32(a.Weights, t), ids, logits, a.Scale)
	}
	return nil
}

// share sets weights to the scores of the chosen experts, divided by their sum and multiplied by scale.
func share(weights []float32, ids []int32, logits []float32, scale float32) {
	var sum float64
	for j, e := range ids {
		weights[j] = rootScore(logits[e])
		sum += float64(weights[j])
	}
	for j, w := range weights {
		weights[j] = float32(float64(w) / (sum + 1e-20) * float64(scale))
	}
}
