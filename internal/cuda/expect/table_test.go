package expect

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/internal/num"
	"sparrow/internal/testkit/table"
)

// Tests on a GPU compare kernels with the functions of this package. The table has their results for random inputs, so
// that a change of a function is seen without a GPU.
func TestTableOfValues(t *testing.T) {
	draw := rand.New(rand.NewPCG(5, 6))
	normal := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(draw.NormFloat64())
		}
		return v
	}
	narrow := func(n int) []uint16 {
		v := make([]uint16, n)
		for i, x := range normal(n) {
			v[i] = num.BF16(x)
		}
		return v
	}
	codes := func(n int) []byte {
		v := make([]byte, n)
		for i, x := range normal(n) {
			v[i] = num.E4M3(60 * x)
		}
		return v
	}
	rows := func(n, width int) (list [][]float32) {
		for range n {
			list = append(list, normal(width))
		}
		return list
	}
	var lines []string
	say := func(name string, values ...any) {
		line := name
		for _, v := range values {
			switch v := v.(type) {
			case []float32:
				line += fmt.Sprintf(" %.5g of %d", ends(v), len(v))
			case []float64:
				line += fmt.Sprintf(" %.6g of %d", ends(v), len(v))
			case []byte:
				line += fmt.Sprintf(" %.8x of %d", sha256.Sum256(v), len(v))
			case float64:
				line += fmt.Sprintf(" %.6g", v)
			default:
				line += fmt.Sprint(" ", v)
			}
		}
		lines = append(lines, line)
	}
	angles := RotaryTable(3, 10000)
	say("rotary table", angles)
	for _, rotate := range []func(v, angles []float32){RotateInterleaved, RotateHalves} {
		v := normal(RotaryDim)
		rotate(v, angles[2*RotaryDim:])
		say("rotated", v)
	}
	say("main row", MainRow(narrow(512), narrow(64), angles[RotaryDim:2*RotaryDim]))
	for _, r := range []Recipe{{}, {RopeAt: 64}, {Interleaved: true}, {Hadamard: true}} {
		v := normal(IndexDim)
		r.Apply(v, angles[RotaryDim:2*RotaryDim])
		say(fmt.Sprintf("recipe %+v", r), v)
	}
	v := normal(IndexDim)
	LayerNorm(v, normal(IndexDim), normal(IndexDim), 1e-6)
	say("layer norm", v)
	score, size := IndexScore(codes(8*IndexDim), codes(IndexDim), normal(8), 0.25)
	say("index score", score, size)
	scores := normal(40)
	scores[7], scores[8], scores[9] = float32(math.NaN()), float32(math.Inf(-1)), scores[10]
	for _, k := range []int{1, 5, 38, 39, 40, 50} {
		say(fmt.Sprint("top ", k), TopK(scores, k))
	}
	values := V4Row(narrow(512), angles[RotaryDim:2*RotaryDim])
	page := make([]byte, 4*584)
	EncodeV4(page, 4, 2, values)
	say("entry", values, page, DecodeV4(page, 4, 2))
	say("combined", Combine([]int32{4, -1, 7}, []int32{0, 2, -1, 5}, 100, 9))
	q, keys := normal(576), rows(7, 576)
	for _, sink := range []float64{math.Inf(-1), 0.5} {
		out, lse, largest := Attend(q, keys, 0.1, sink)
		say("attention", out, lse, largest)
	}
	out, lse := AttendDense(normal(192), rows(6, 192), rows(6, 128), 0.1)
	say("dense attention", out, lse)
	say("distance", Distance(normal(9), []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}))
	for _, bad := range []float64{0, math.NaN(), math.Inf(1)} {
		logits := normal(12)
		logits[3] = logits[5]
		if bad != 0 {
			logits[4] = float32(bad)
		}
		ids, sum := Candidates(logits, 5)
		say("candidates", ids, sum)
	}
	say("quantised", Quantised(normal(200), num.ScalePow2))
	table.Check(t, "values.txt", lines)
}

// ends returns the first and last values of a list, a few from its middle and their sum.
func ends[T float32 | float64](v []T) []T {
	var sum T
	for i, x := range v {
		sum += x * T(i%7+1)
	}
	n := len(v)
	return append(slices.Clone([]T{v[0], v[1], v[n/3], v[n/2], v[n-2], v[n-1]}), sum)
}
