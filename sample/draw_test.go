package sample

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestWeights(t *testing.T) {
	for j, root := range roots {
		if want := math.Exp(-math.Exp2(float64(j)) / grain); math.Abs(root/want-1) > 4e-16 {
			t.Errorf("root %d is %v, want %v", j, root, want)
		}
	}
	if b, e := Weigh(0); b != 0 || e != 1<<weightBits {
		t.Errorf("the likeliest token is in bucket %d and weighs %d", b, e)
	}
	before := uint64(math.MaxUint64)
	for d := 0.0; d < Reach; d += 0.000737 {
		b, e := Weigh(d)
		if want := math.Exp(-d) * (1 << weightBits); math.Abs(float64(e)-want) > want*1e-7+1 || e == 0 || e > before {
			t.Fatalf("at distance %v: weight %d after %d, want %v", d, e, before, want)
		}
		if math.Abs(float64(b)/grain-d) > 0.5/grain {
			t.Fatalf("distance %v is in bucket %d", d, b)
		}
		before = e
	}
	if b, e := Weigh(math.Nextafter(Reach, 0)); b != buckets-1 || e != 2 {
		t.Errorf("the last bucket is %d of %d, the least weight %d", b, buckets, e)
	}
}

// chosen returns a token by the definition of sampling: it sorts all tokens, cuts the list, and accumulates
// probabilities along the ids.
func chosen(logits []float32, d Draw) int32 {
	top := logits[argmax(logits)]
	type token struct {
		id     int
		weight uint64
	}
	var order []token
	for i, v := range logits {
		if away := (float64(top) - float64(v)) * d.Inverse; away < Reach {
			_, e := Weigh(away)
			order = append(order, token{i, e})
		}
	}
	slices.SortStableFunc(order, func(a, b token) int {
		switch x, y := logits[a.id], logits[b.id]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	sum := func(list []token) (s uint64) {
		for _, x := range list {
			s += x.weight
		}
		return s
	}
	if d.TopK > 0 && d.TopK < len(order) {
		order = order[:d.TopK]
	}
	if d.TopP < 1 {
		need := min(uint64(math.Ceil(d.TopP*float64(sum(order)))), sum(order))
		n := 1
		for sum(order[:n]) < need {
			n++
		}
		order = order[:n]
	}
	order = slices.DeleteFunc(order, func(x token) bool { return x.weight < d.Least })
	slices.SortFunc(order, func(a, b token) int { return a.id - b.id })
	goal, _ := bits.Mul64(d.Random, sum(order))
	n := 1
	for sum(order[:n]) <= goal {
		n++
	}
	return int32(order[n-1].id)
}

// randomDraw returns a row of logits and random sampling parameters, with ties, gaps and, in some draws, each of the
// filters.
func randomDraw(r *rand.Rand) ([]float32, Draw) {
	x := make([]float32, 1+r.IntN(300))
	grid := []float64{0, 0, 1e-3, 0.25, 3}[r.IntN(5)]
	for i := range x {
		v := r.NormFloat64() * 4
		if grid > 0 {
			v = math.Round(v) * grid
		}
		if x[i] = float32(v); r.IntN(20) == 0 {
			x[i] = negInf
		}
	}
	x[r.IntN(len(x))] = float32(r.NormFloat64()) // at least one logit is finite
	p := Default()
	p.Temperature = []float64{0.05, 0.7, 1, 2, 0.3 + r.Float64()}[r.IntN(5)]
	p.TopK = []int{0, 0, 1, 2, 17, 100, 1000}[r.IntN(7)]
	p.TopP = []float64{1, 1, 0.999, 0.9, 0.5, 1e-4, 1 - r.Float64()}[r.IntN(7)]
	p.MinP = []float64{0, 0, 0.01, 0.3, 1}[r.IntN(5)]
	p.Seed = r.Int64()
	return x, (&Sampler{params: p}).Draw(0)
}

func TestChooseEqualsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for i := range 20000 {
		x, d := randomDraw(r)
		words := make([]int32, DrawWords)
		d.Put(words)
		got := scratch(t, len(x)).Choose(x, argmax(x), Drawn(words))
		if want := chosen(x, d); got != want {
			t.Fatalf("case %d: %+v of %d tokens: got %d, want %d", i, d, len(x), got, want)
		}
	}
}

func TestRowsWithoutADistributionKeepTheirBest(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	w := scratch(t, 3)
	for _, c := range []struct {
		row  []float32
		best int32
	}{{[]float32{negInf, negInf, negInf}, 0}, {[]float32{1, inf, 0}, 1}, {[]float32{nan, nan, nan}, 0}} {
		if got := w.Choose(c.row, c.best, Draw{Inverse: 1, TopP: 0.9}); got != c.best {
			t.Errorf("%v: token %d", c.row, got)
		}
	}
	if got := w.Choose([]float32{nan, 2, 1}, 1, Draw{Inverse: 1, TopP: 0.5, TopK: 2}); got != 1 {
		t.Errorf("beside NaN: token %d", got)
	}
}

// A device that samples gets only a Draw. Therefore each field of Params changes the Draw, makes Draws false, or has no
// effect on the choice of a token. The test fails for a new field until the table has a line for it.
func TestEveryParameterReachesADraw(t *testing.T) {
	fields := map[string]struct {
		set    func(p *Params)
		effect string
	}{
		"Temperature":       {func(p *Params) { p.Temperature = 0.5 }, "draw"},
		"TopP":              {func(p *Params) { p.TopP = 0.5 }, "draw"},
		"TopK":              {func(p *Params) { p.TopK = 3 }, "draw"},
		"MinP":              {func(p *Params) { p.MinP = 0.25 }, "draw"},
		"Seed":              {func(p *Params) { p.Seed = 7 }, "draw"},
		"RepetitionPenalty": {func(p *Params) { p.RepetitionPenalty = 1.5 }, "host"},
		"FrequencyPenalty":  {func(p *Params) { p.FrequencyPenalty = 0.5 }, "host"},
		"PresencePenalty":   {func(p *Params) { p.PresencePenalty = 0.5 }, "host"},
		"LogitBias":         {func(p *Params) { p.LogitBias = map[int32]float64{2: 1} }, "host"},
		"Logprobs":          {func(p *Params) { p.Logprobs = true }, "host"},
		"TopLogprobs":       {func(p *Params) { p.Logprobs, p.TopLogprobs = true, 2 }, "host"},
		"N":                 {func(p *Params) { p.N = 2 }, "none"},
		"Stop":              {func(p *Params) { p.Stop = []string{"x"} }, "none"},
		"StopTokenIDs":      {func(p *Params) { p.StopTokenIDs = []int32{1} }, "none"},
		"IncludeStop":       {func(p *Params) { p.IncludeStop = true }, "none"},
	}
	w := scratch(t, 8)
	plain := sampler(t, Default(), w).Draw(0)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Params]()) {
		c, ok := fields[f.Name]
		if !ok {
			t.Errorf("%s: no line says whether a Draw has it", f.Name)
			continue
		}
		p := Default()
		c.set(&p)
		s := sampler(t, p, w)
		effect := "none"
		if !s.Draws() {
			effect = "host"
		} else if s.Draw(0) != plain {
			effect = "draw"
		}
		if effect != c.effect {
			t.Errorf("%s: its effect is %q, want %q", f.Name, effect, c.effect)
		}
	}
}
