package offload

import (
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// widen copies the bf16 rows that use an expert of the host as float32; ids is [rows, top], negative for no expert.
func widen(to, from kernel.Tensor, ids []int32, top int) {
	for t := range to.Rows {
		if !some(ids[t*top : (t+1)*top]) {
			continue
		}
		out := host.RowF32(to, t)
		for c, v := range host.U16(from.Slice(t, t+1)) {
			out[c] = num.FromBF16(v)
		}
	}
}

func some(ids []int32) bool {
	for _, e := range ids {
		if e >= 0 {
			return true
		}
	}
	return false
}

// narrow rounds the results of the host's experts to bf16, in the way in which a device rounds the results of its
// experts.
func narrow(to, from kernel.Tensor, ids []int32) {
	for pair, e := range ids {
		if e < 0 {
			continue
		}
		out := host.U16(to.Slice(pair, pair+1))
		for c, v := range host.RowF32(from, pair) {
			out[c] = num.BF16(v)
		}
	}
}
