package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plain computes steps 5 to 8 by their definition: it sorts all tokens and then cuts the list.
func plain(p *Params, x []float32) map[int32]float64 {
	order := make([]int32, 0, len(x))
	for i, v := range x {
		if v != negInf {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return 0
	})
	weight := func(id int32) float64 {
		return math.Exp((float64(x[id]) - float64(x[order[0]])) / p.Temperature)
	}
	if p.TopK > 0 && p.TopK < len(order) {
		order = order[:p.TopK]
	}
	total := 0.0
	for _, id := range order {
		total += weight(id)
	}
	sum := 0.0
	for i, id := range order {
		sum += weight(id)
		if p.TopP < 1 && sum >= p.TopP*total {
			order = order[:i+1]
			break
		}
	}
	out := map[int32]float64{}
	kept := 0.0
	for _, id := range order {
		if e := weight(id); e >= p.MinP {
			out[id] = e
			kept += e
		}
	}
	for id := range out {
		out[id] /= kept
	}
	return out
}

// TestDistributionEqualsTheDefinition generates logits on a coarse grid, so that there are many ties, and compares with
// sorting. A token may be missing or added only if its probability is within rounding of the cut of top_p or min_p.
func TestDistributionEqualsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(t, "n")
		grid := rapid.SampledFrom([]float64{0.001, 0.25, 3}).Draw(t, "grid")
		steps := rapid.SliceOfN(rapid.IntRange(-40, 40), n, n).Draw(t, "steps")
		x := make([]float32, n)
		for i, v := range steps {
			x[i] = float32(float64(v) * grid)
		}
		if rapid.Bool().Draw(t, "holes") {
			for i := 1; i < n; i += 3 {
				x[i] = negInf
			}
		}
		p := Default()
		p.Temperature = rapid.SampledFrom([]float64{0.05, 0.7, 1, 2}).Draw(t, "temperature")
		p.TopK = rapid.SampledFrom([]int{0, 1, 2, 17, 100, 1000}).Draw(t, "topk")
		p.TopP = rapid.SampledFrom([]float64{1, 0.999, 0.913, 0.507, 0.0001}).Draw(t, "topp")
		p.MinP = rapid.SampledFrom([]float64{0, 0.0113, 0.31, 1}).Draw(t, "minp")
		w, err := NewScratch(n)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(p, 0, w)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, n)
		if err := s.Probabilities(got, x, nil); err != nil {
			t.Fatal(err)
		}
		want := plain(&p, x)
		for i, g := range got {
			if math.Abs(float64(g)-want[int32(i)]) > 2e-6 {
				t.Fatalf("%+v: token %d (logit %v): got %v, want %v", p, i, x[i], g, want[int32(i)])
			}
		}
	})
}

func TestLargeBucketsAreCutExactly(t *testing.T) {
	const n = 20000
	p := Default()
	for name, x := range map[string][]float32{
		"all equal":  make([]float32, n),
		"one bucket": gaussian(n, 1e-4, 3),
		"falling":    ramp(n, -1e-6),
		"rising":     ramp(n, 1e-6),
	} {
		for _, k := range []int{1, 24, 25, 9999, n - 1, n, n + 1} {
			p.TopK = k
			s := sampler(t, p, scratch(t, n))
			s.scratch.distributeFrom(&p, x)
			want := plain(&p, x)
			if len(s.scratch.kept) != len(want) {
				t.Fatalf("%s, k = %d: kept %d, want %d", name, k, len(s.scratch.kept), len(want))
			}
			for _, id := range s.scratch.kept {
				if _, ok := want[id]; !ok {
					t.Fatalf("%s, k = %d: token %d should not be kept", name, k, id)
				}
			}
		}
	}
}

// TestTopPOfLargeVocabularies checks the definition of the set: it contains the best tokens, its sum reaches p, and
// without its worst token the sum would not reach p.
func TestTopPOfLargeVocabularies(t *testing.T) {
	const n = 20000
	for name, x := range map[string][]float32{
		"flat":       gaussian(n, 1, 7),
		"peaked":     gaussian(n, 4, 8),
		"one bucket": gaussian(n, 1e-4, 9),
		"far away":   shifted(gaussian(n, 1, 10), 3e4), // logits so large that float32 rounds them to a coarse grid
	} {
		for _, share := range []float64{0.01, 0.5, 0.95, 0.999} {
			for _, temperature := range []float64{0.3, 1} {
				p := Default()
				p.TopP, p.Temperature = share, temperature
				s := sampler(t, p, scratch(t, n))
				s.scratch.distributeFrom(&p, x)
				kept := slices.Clone(s.scratch.kept)
				slices.SortFunc(kept, s.scratch.compare)
				total := 0.0
				top := float64(x[argmax(x)])
				weight := func(id int32) float64 { return math.Exp((float64(x[id]) - top) / temperature) }
				for id := range x {
					total += weight(int32(id))
				}
				mass := 0.0
				last := edge{x[kept[len(kept)-1]], kept[len(kept)-1]}
				best := 0
				for id, v := range x {
					if last.keeps(v, int32(id)) {
						best++
						mass += weight(int32(id))
					}
				}
				without := mass - weight(last.id)
				if best != len(kept) || mass/total < share-1e-6 || without/total > share+1e-6 {
					t.Errorf("%s, top_p %v at temperature %v: kept %d of the best %d; their share is %v, without "+
						"the worst %v", name, share, temperature, len(kept), best, mass/total, without/total)
				}
			}
		}
	}
}

func shifted(x []float32, by float32) []float32 {
	for i := range x {
		x[i] += by
	}
	return x
}

// distributeFrom applies the filters of p to a row of logits.
func (w *Scratch) distributeFrom(p *Params, x []float32) {
	w.x = x
	d := (&Sampler{params: *p}).Draw(0)
	w.distribute(&d, w.x[argmax(w.x)])
}

func ramp(n int, step float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(float64(i) * step)
	}
	return x
}

// TestDrawsFollowTheDistribution is a chi-squared test with fixed seeds: it gives the same figure on every run.
func TestDrawsFollowTheDistribution(t *testing.T) {
	x := []float32{0, 1, 2, 0.5, -1, 1.5, 0.2, 1.1}
	p := Default()
	p.Temperature, p.TopK = 0.8, 7
	p.Seed = 99
	s := sampler(t, p, scratch(t, len(x)))
	want := plain(&p, x)
	const draws = 40000
	seen := make([]float64, len(x))
	for range draws {
		c := mustSample(t, s, x, nil)
		seen[c.Token]++
		if err := s.Accept(c.Token); err != nil {
			t.Fatal(err)
		}
	}
	chi := 0.0
	for i := range x {
		e := want[int32(i)] * draws
		if e == 0 {
			if seen[i] > 0 {
				t.Errorf("token %d was dropped by top_k and drawn %v times", i, seen[i])
			}
			continue
		}
		chi += (seen[i] - e) * (seen[i] - e) / e
	}
	if chi > 24.3 { // with 6 degrees of freedom exceeded once in 2000 runs
		t.Errorf("chi squared %v", chi)
	}
}

func TestExpNeg(t *testing.T) {
	worst := 0.0
	for d := 0.0; d < negligible; d += 0.00137 {
		worst = max(worst, math.Abs(expNeg(d)/math.Exp(-d)-1))
	}
	if worst > 5e-10 {
		t.Errorf("relative error %v", worst)
	}
	if expNeg(0) != 1 {
		t.Errorf("expNeg(0) = %v", expNeg(0))
	}
}

func BenchmarkSample(b *testing.B) {
	const vocabulary = 129280
	for _, shape := range []struct {
		name      string
		deviation float64
	}{{"peaked", 4}, {"flat", 1}} {
		logits := gaussian(vocabulary, shape.deviation, 5)
		logits[rand.New(rand.NewPCG(1, 1)).IntN(vocabulary)] += float32(shape.deviation)
		for _, c := range []struct {
			name   string
			change func(*Params)
		}{
			{"greedy", func(p *Params) { p.Temperature = 0 }},
			{"plain", func(p *Params) {}},
			{"top_p=0.95", func(p *Params) { p.TopP = 0.95 }},
			{"top_k=50,top_p=0.95", func(p *Params) { p.TopK, p.TopP = 50, 0.95 }},
			{"min_p=0.05", func(p *Params) { p.MinP = 0.05 }},
			{"top_p=0.95,logprobs", func(p *Params) { p.TopP, p.Logprobs, p.TopLogprobs = 0.95, true, 20 }},
		} {
			b.Run(fmt.Sprintf("%s/%s", shape.name, c.name), func(b *testing.B) {
				p := Default()
				c.change(&p)
				s := sampler(b, p, scratch(b, vocabulary))
				b.ReportAllocs()
				for b.Loop() {
					mustSample(b, s, logits, nil)
				}
			})
		}
	}
}
