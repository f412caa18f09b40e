package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
)

// distributions generates scores of very different kinds, by name: kinds that occur in practice, and kinds for which
// estimates of a threshold fail.
var distributions = map[string]func(rng *rand.Rand, i, n int) float32{
	"normal":            func(rng *rand.Rand, _, _ int) float32 { return float32(rng.NormFloat64()) },
	"far from zero":     func(rng *rand.Rand, _, _ int) float32 { return float32(10 + rng.NormFloat64()) },
	"few behind a relu": func(rng *rand.Rand, _, _ int) float32 { return max(float32(rng.NormFloat64())-2, 0) },
	"tenth behind relu": func(rng *rand.Rand, _, _ int) float32 { return max(float32(rng.NormFloat64())-1.28, 0) },
	"zeros, tiny scores": func(rng *rand.Rand, _, _ int) float32 {
		x := rng.NormFloat64()
		return oneIn(rng, 9, float32(x)*oneIn(rng, 2, 1, 1e-30), float32(math.Copysign(0, x)))
	},
	"relu, both signs": func(rng *rand.Rand, _, _ int) float32 { return sparse(float32(rng.NormFloat64())) },
	"halves": func(rng *rand.Rand, _, _ int) float32 {
		return float32(math.Round(2*rng.NormFloat64()) / 2)
	},
	"negative":        func(rng *rand.Rand, _, _ int) float32 { return float32(-1 - 3*math.Abs(rng.NormFloat64())) },
	"one value":       func(*rand.Rand, int, int) float32 { return 1.5 },
	"many magnitudes": func(rng *rand.Rand, _, _ int) float32 { return float32(math.Exp(20 * rng.NormFloat64())) },
	"denormal":        func(rng *rand.Rand, _, _ int) float32 { return float32(rng.IntN(9)-4) * 1e-42 },
	"ascending":       func(_ *rand.Rand, i, _ int) float32 { return float32(i) },
	"descending":      func(_ *rand.Rand, i, _ int) float32 { return float32(-i) },
	"louder at the end": func(rng *rand.Rand, i, n int) float32 {
		return float32(rng.NormFloat64() * float64(1+i/(n/2+1)*1000))
	},
	"mostly -inf": func(rng *rand.Rand, _, _ int) float32 {
		return oneIn(rng, 100, float32(rng.NormFloat64()), negInf)
	},
	"a third +inf": func(rng *rand.Rand, _, _ int) float32 {
		return oneIn(rng, 3, -negInf, float32(rng.NormFloat64()))
	},
	"no numbers":         func(rng *rand.Rand, _, _ int) float32 { return oneIn(rng, 2, negInf, float32(math.NaN())) },
	"everything at once": mixed,
}

var negInf = float32(math.Inf(-1))

func sparse(x float32) float32 {
	if x > -2 && x < 2 {
		return 0
	}
	return x
}

func oneIn(rng *rand.Rand, n int, then, otherwise float32) float32 {
	if rng.IntN(n) == 0 {
		return then
	}
	return otherwise
}

func mixed(rng *rand.Rand, _, _ int) float32 {
	special := []float32{float32(math.NaN()), negInf, -negInf, 0, float32(math.Copysign(0, -1))}
	if i := rng.IntN(50); i < len(special) {
		return special[i]
	}
	return float32(rng.NormFloat64())
}

// selection holds one launch of top-k and its expected result.
type selection struct {
	args   TopKArgs
	want   []int32
	counts []int32
}

// topKCase describes a selection: rows of the given lengths with scores of one distribution.
type topKCase struct {
	k       int
	kind    TopKTransform
	lengths []int32
	starts  bool // if set, rows begin at odd columns
	score   func(rng *rand.Rand, i, n int) float32
	columns int // hint; 0 means that the stride is used
}

const testPage = 64

func (c topKCase) build(r *rig, rng *rand.Rand) selection {
	rows, longest := len(c.lengths), 4
	for _, n := range c.lengths {
		longest = max(longest, int(n))
	}
	stride := (longest + 15) &^ 3
	scores, starts := make([]float32, rows*stride), make([]int32, rows)
	for i := range scores {
		scores[i] = c.score(rng, i%stride, stride)
	}
	for i := range starts {
		if c.starts {
			starts[i] = int32(rng.IntN(9))
		}
	}
	tableStride := stride/testPage + 1
	table, offsets := make([]int32, rows*tableStride), make([]int32, rows)
	for i := range table {
		table[i] = int32(rng.IntN(1 << 20))
	}
	for i := range offsets {
		offsets[i] = int32(rng.IntN(1 << 20))
	}
	s := selection{}
	for row, n := range c.lengths {
		chosen := expect.TopK(scores[row*stride+int(starts[row]):][:max(n, 0)], c.k)
		s.counts = append(s.counts, int32(len(chosen)))
		for i := range c.k {
			v := int32(-1)
			if i < len(chosen) {
				v = chosen[i]
				switch c.kind {
				case TopKPaged:
					v = table[row*tableStride+int(v)/testPage]*testPage + v%testPage
				case TopKRagged:
					v += offsets[row]
				}
			}
			s.want = append(s.want, v)
		}
	}
	s.args = TopKArgs{Scores: upload(r, scores), Lengths: upload(r, c.lengths), Out: r.alloc(int64(rows * c.k * 4)),
		Counts: r.alloc(int64(rows * 4)), PageTable: upload(r, table), Offsets: upload(r, offsets),
		Stride: int64(stride), TableStride: int64(tableStride), Rows: int32(rows), K: int32(c.k),
		Transform: int32(c.kind), RowsPerRequest: 1, PageShift: 6, Columns: int32(c.columns)}
	if c.starts {
		s.args.Starts = upload(r, starts)
	}
	if n := TopKScratch(r.k, int32(rows), int32(stride), int32(c.k)); n > 0 {
		s.args.Kept, s.args.Via = r.alloc(4*n), r.alloc(4*n)
	}
	return s
}

// run poisons the outputs, launches the selection and compares the outputs with the expected result.
func (s selection) run(r *rig, name string) {
	r.t.Helper()
	check(r.t, r.s.Fill(s.args.Out, poison, int64(4*len(s.want))))
	check(r.t, r.s.Fill(s.args.Counts, poison, int64(4*len(s.counts))))
	check(r.t, SelectTopK(r.k, r.s, &s.args))
	sameBytes(r.t, name, r.download(s.args.Out, int64(4*len(s.want))), bytesOf(s.want))
	sameBytes(r.t, name+" counts", r.download(s.args.Counts, int64(4*len(s.counts))), bytesOf(s.counts))
}

// without returns the selection with whole rows, for kernels that stream long rows.
func (s selection) without() selection {
	s.args.Kept, s.args.Via = 0, 0
	return s
}

func TestGPUTopKIsExactForEveryDistribution(t *testing.T) {
	r := onGPU(t)
	for name, score := range distributions {
		for i, k := range []int{1, 7, 512, 1024, 2048} {
			n := int32(k)
			c := topKCase{k: k, kind: TopKTransform(i % 3), starts: i%2 == 1, score: score,
				lengths: []int32{0, 1, n - 1, n, n + 1, n + 5, -3, 2049, 5000, 9001, 20000, 32767, 32768, 33001, 49149}}
			c.build(r, rand.New(rand.NewPCG(13, uint64(k)))).run(r, fmt.Sprintf("top %d, %v, %s", k, c.kind, name))
		}
	}
}

func TestGPUTopKIsExactForLongRows(t *testing.T) {
	r := onGPU(t)
	for name, score := range distributions {
		c := topKCase{k: 2048, kind: TopKPaged, score: score, lengths: []int32{2048, 100000, 0, 65536, 2049, 200000}}
		s := c.build(r, rand.New(rand.NewPCG(14, 1)))
		s.run(r, "in parts, "+name)
		one := topKCase{k: 2048, kind: TopKPaged, score: score, lengths: []int32{2048, 100000, 0, 65536, 2049, 131000}}
		one.build(r, rand.New(rand.NewPCG(14, 3))).run(r, "eight blocks a row, "+name)
		s.without().run(r, "streamed by large blocks, "+name)
	}
	c := topKCase{k: 1024, kind: TopKRagged, starts: true, score: distributions["few behind a relu"],
		lengths: []int32{1 << 20}}
	s := c.build(r, rand.New(rand.NewPCG(14, 2)))
	s.run(r, "a million in parts")
	s.without().run(r, "a million streamed")
}

// Every kernel selects exactly from a few small rows. The test is small enough for a memory or race checker.
func TestGPUTopKOfAFewRows(t *testing.T) {
	r := onGPU(t)
	for _, name := range []string{"normal", "few behind a relu", "louder at the end", "everything at once"} {
		rng := rand.New(rand.NewPCG(16, 1))
		topKCase{k: 512, kind: TopKPaged, score: distributions[name],
			lengths: []int32{0, 511, 513, 3000, 9001}}.build(r, rng).run(r, "one block a row, "+name)
		topKCase{k: 512, kind: TopKRagged, starts: true, score: distributions[name],
			lengths: []int32{513, 20000, 40000}}.build(r, rng).run(r, "three blocks a row, "+name)
		many := topKCase{k: 512, kind: TopKPaged, score: distributions[name]}
		for i := range 140 {
			many.lengths = append(many.lengths, int32(i%7*1500))
		}
		many.build(r, rng).run(r, "swept, "+name)
		for i := range many.lengths {
			many.lengths[i] = int32(i % 7 * 700)
		}
		many.build(r, rng).run(r, "short, "+name)
		s := topKCase{k: 512, kind: TopKPosition, starts: true, score: distributions[name],
			lengths: []int32{197000, 300}}.build(r, rng)
		s.run(r, "in parts, "+name)
		s.without().run(r, "streamed, "+name)
	}
}

// Selections from more rows than SMs are exact: a block processes several rows through its ring, and the streaming
// kernel uses small blocks.
func TestGPUTopKIsExactForManyRows(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(15, 1))
	var short, long []int32
	for i := range 500 {
		short = append(short, int32(rng.IntN(12000)))
		if i%7 == 0 {
			short[i] = int32(rng.IntN(300))
		}
	}
	for i := range 140 {
		long = append(long, int32(rng.IntN(6000)))
		if i%20 == 0 {
			long[i] = int32(50000 + rng.IntN(10000))
		}
	}
	for _, name := range []string{"normal", "few behind a relu", "everything at once"} {
		topKCase{k: 256, kind: TopKPaged, score: distributions[name], lengths: short}.build(r, rng).run(r,
			"many short rows, "+name)
		s := topKCase{k: 256, kind: TopKPosition, score: distributions[name], lengths: long}.build(r, rng)
		s.run(r, "many long rows, "+name)
		if *portableTier {
			continue // the portable tier has only one kernel
		}
		alone := s.args // the kernel for marked rows supports any row
		alone.Parts = 1
		check(t, r.s.Fill(alone.Out, poison, int64(4*len(s.want))))
		check(t, runPersistent(r.k, r.s, "sparrow_topk_t256", alone.Rows, 3, &alone))
		sameBytes(t, "many streamed rows, "+name, r.download(alone.Out, int64(4*len(s.want))), bytesOf(s.want))
	}
}

// Selections from more rows than SMs are exact if all rows are short: a block holds several rows, with lengths up to
// the capacity of a row.
func TestGPUTopKIsExactForManyShortRows(t *testing.T) {
	r := onGPU(t)
	for name, score := range distributions {
		for i, k := range []int{1, 7, 512, 2048} {
			rng := rand.New(rand.NewPCG(17, uint64(k)))
			c := topKCase{k: k, kind: TopKTransform(i % 3), starts: i%2 == 1, score: score, columns: shortScores}
			if c.starts {
				c.columns -= 3
			}
			n, most := int32(k), int32(c.columns)
			c.lengths = []int32{0, 1, n - 1, n, n + 1, n + 5, -3, 31, 33, 2049, most - 1, most}
			for range 160 {
				c.lengths = append(c.lengths, int32(rng.IntN(c.columns+1)))
			}
			c.build(r, rng).run(r, fmt.Sprintf("many short rows, top %d, %v, %s", k, c.kind, name))
		}
	}
}

func TestTopKPartsKeepEveryRowInsideTheKernel(t *testing.T) {
	const most = spreadBlocks * spreadScores
	for _, k := range []int64{4, 512, 1024, 2048} {
		for _, columns := range []int64{49149, 65536, most, most + 1, 300001, 1 << 20, 1100000, 8300000, 9000000} {
			for _, rows := range []int64{1, 3, 64, 132, 500} {
				parts := topKParts(rows, columns, k, 132)
				if columns <= most && parts != 1 {
					t.Errorf("%d rows of %d, top %d: %d parts of what one cluster holds", rows, columns, k, parts)
				}
				if parts == 1 {
					continue
				}
				part := ((columns+parts-1)/parts + 63) &^ 63
				if topKBlocks(part, true) > spreadBlocks || part*parts < columns ||
					topKBlocks(parts*k, false) > spreadBlocks || rows*parts*spreadBlocks > 8*132 {
					t.Errorf("%d rows of %d, top %d: %d parts of %d", rows, columns, k, parts, part)
				}
			}
		}
	}
	if got := topKParts(1, 1<<20, 2048, 132); got != 9 {
		t.Errorf("a million scores are selected in %d parts, want 9", got)
	}
	if got := topKParts(1, 1<<20, 2047, 132); got != 1 {
		t.Errorf("a top-k whose rows are not 16-byte aligned is selected in %d parts, want 1", got)
	}
}

func TestTopKBlocksHoldARowWhereverItStarts(t *testing.T) {
	for _, c := range []struct {
		columns int64
		starts  bool
		want    int64
	}{{0, false, 1}, {1, true, 1}, {16384, false, 1}, {16381, true, 1}, {16382, true, 2}, {16385, false, 2},
		{32768, false, 2}, {131072, false, 8}, {131072, true, 9}} {
		if got := topKBlocks(c.columns, c.starts); got != c.want {
			t.Errorf("%d columns, starts %v: %d blocks, want %d", c.columns, c.starts, got, c.want)
		}
	}
}
