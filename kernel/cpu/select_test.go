package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// chosen sorts the scores and returns the expected result of Select, without its -1.
func chosen(scores []float32, k int) []int32 {
	var all []int32
	for p, v := range scores {
		if v == v && !math.IsInf(float64(v), -1) {
			all = append(all, int32(p))
		}
	}
	slices.SortStableFunc(all, func(x, y int32) int {
		switch {
		case scores[x] > scores[y]:
			return -1
		case scores[x] < scores[y]:
			return 1
		}
		return 0
	})
	all = all[:min(k, len(all))]
	slices.Sort(all)
	return all
}

// rowsOfScores generates rows that are long enough to be sampled and, for one row and several workers, to be divided.
// In some rows the sample is not representative.
var rowsOfScores = map[string]func(r *rand.Rand, i, n int) float32{
	"normal":          func(r *rand.Rand, i, n int) float32 { return float32(r.NormFloat64()) },
	"all zero":        func(r *rand.Rand, i, n int) float32 { return 0 },
	"both zeros":      func(r *rand.Rand, i, n int) float32 { return float32(math.Copysign(0, float64(i%3)-1)) },
	"mostly zero":     func(r *rand.Rand, i, n int) float32 { return max(0, float32(r.NormFloat64())-2.5) },
	"five values":     func(r *rand.Rand, i, n int) float32 { return float32(r.IntN(5)) - 3 },
	"ascending":       func(r *rand.Rand, i, n int) float32 { return float32(i) },
	"descending":      func(r *rand.Rand, i, n int) float32 { return -float32(i) },
	"best unseen":     func(r *rand.Rand, i, n int) float32 { return float32(max(0, i%500-400)) },
	"best at the end": func(r *rand.Rand, i, n int) float32 { return float32(max(0, i-n+40)) },
	"NaN and -inf": func(r *rand.Rand, i, n int) float32 {
		return []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(r.NormFloat64()),
			float32(math.Inf(1))}[min(r.IntN(40)/13, 3)]
	},
	"almost nothing": func(r *rand.Rand, i, n int) float32 {
		if i%997 == 0 {
			return -float32(i)
		}
		return float32(math.Inf(-1))
	},
	"tiny": func(r *rand.Rand, i, n int) float32 { return math.Float32frombits(uint32(r.IntN(300))) },
}

func TestSelectOfLongRows(t *testing.T) {
	for _, tier := range vec.Tiers() {
		for _, workers := range []int{1, 3} {
			d := cpu.Open(tier, kernel.Options{Workers: workers})
			for name, draw := range rowsOfScores {
				for _, n := range []int{4095, 5000, 40001} {
					for _, k := range []int{1, 100, 2048} {
						r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
						scores, out, lens := newTensor(t, d, kernel.F32, 1, n), newTensor(t, d, kernel.I32, 1, k),
							newTensor(t, d, kernel.I32, 1, 1)
						for i := range host.F32(scores) {
							host.F32(scores)[i] = draw(r, i, n)
						}
						host.I32(lens)[0] = int32(n)
						if err := d.Do(kernel.SelectArgs{Out: out, Scores: scores, Lens: lens}); err != nil {
							t.Fatal(err)
						}
						want := chosen(host.F32(scores), k)
						for len(want) < k {
							want = append(want, -1)
						}
						if !slices.Equal(host.I32(out), want) {
							t.Fatalf("%s, %d workers, %s: the best %d of %d are at wrong positions", tier.Name,
								workers, name, k, n)
						}
					}
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func newTensor(t testing.TB, d kernel.Device, k kernel.DType, rows, cols int) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(d, k, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// BenchmarkSelect measures the top 2048 of one row, compared with one read of its scores, and of 64 rows.
func BenchmarkSelect(b *testing.B) {
	d := cpu.Open(vec.Best(), kernel.Options{})
	defer d.Close()
	for _, name := range []string{"normal", "mostly zero", "all zero"} {
		for _, c := range []struct{ rows, n int }{{1, 131072}, {64, 8192}} {
			r := rand.New(rand.NewPCG(1, 1))
			scores, out, lens := newTensor(b, d, kernel.F32, c.rows, c.n), newTensor(b, d, kernel.I32, c.rows, 2048),
				newTensor(b, d, kernel.I32, c.rows, 1)
			for i := range host.F32(scores) {
				host.F32(scores)[i] = rowsOfScores[name](r, i, c.n)
			}
			for i := range host.I32(lens) {
				host.I32(lens)[i] = int32(c.n)
			}
			b.Run(fmt.Sprintf("%s/%dx%d", name, c.rows, c.n), func(b *testing.B) {
				b.SetBytes(int64(4 * c.rows * c.n))
				for b.Loop() {
					if err := d.Do(kernel.SelectArgs{Out: out, Scores: scores, Lens: lens}); err != nil {
						b.Fatal(err)
					}
				}
			})
			if c.rows == 1 {
				b.Run(fmt.Sprintf("%s/read %d", name, c.n), func(b *testing.B) {
					b.SetBytes(int64(4 * c.n))
					for b.Loop() {
						vec.Best().Max(host.F32(scores))
					}
				})
			}
		}
	}
}
