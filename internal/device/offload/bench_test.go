package offload_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// BenchmarkExpertRows measures the experts that the host computes in a layer of DeepSeek-V4-Flash, for rows that choose
// some of its FP4 experts. GB/s counts the weights of these experts.
func BenchmarkExpertRows(b *testing.B) {
	const hidden, inner, count = 4096, 2048, 32
	for _, workers := range []int{1, 2} {
		d := cpu.Open(vec.Best(), kernel.Options{Workers: workers, Pack: true})
		r := rand.New(rand.NewPCG(1, 1))
		var w kernel.ExpertWeights
		for range count {
			w.Gate = append(w.Gate, matrix(b, r, kernel.E2M1x2, inner, hidden))
			w.Up = append(w.Up, matrix(b, r, kernel.E2M1x2, inner, hidden))
			w.Down = append(w.Down, matrix(b, r, kernel.E2M1x2, hidden, inner))
		}
		x, err := d.PrepareExperts(w)
		if err != nil {
			b.Fatal(err)
		}
		each := int64(3 * hidden * inner * 17 / 32)
		for _, c := range []struct{ rows, chosen, of int }{{1, 1, count}, {1, 2, count}, {32, 24, 15}, {32, 15, 15}} {
			name := fmt.Sprintf("%d workers/%d rows/%d choices of %d", workers, c.rows, c.chosen, c.of)
			b.Run(name, func(b *testing.B) {
				const top = 6
				a := kernel.ExpertRowsArgs{Experts: x, X: tensor(b, kernel.F32, c.rows, hidden, func([]byte) {}),
					Results: tensor(b, kernel.F32, c.rows*top, hidden, func([]byte) {}),
					IDs:     tensor(b, kernel.I32, c.rows, top, func([]byte) {})}
				for i := range host.F32(a.X) {
					host.F32(a.X)[i] = float32(r.NormFloat64())
				}
				bytes, n := int64(0), 0
				for b.Loop() {
					ids := host.I32(a.IDs)
					for i := range ids {
						ids[i] = -1
					}
					seen := map[int32]bool{}
					for i := range c.chosen {
						e := int32((n*c.chosen + i) % c.of)
						ids[i*len(ids)/c.chosen] = e
						seen[e] = true
					}
					n++
					if err := d.ExpertRows(a); err != nil {
						b.Fatal(err)
					}
					bytes += int64(len(seen)) * each
				}
				b.ReportMetric(float64(bytes)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
		d.Close()
	}
}
