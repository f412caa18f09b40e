package testkit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"sparrow/kernel"
	"sparrow/sample"
)

// candidates holds the outputs of one reduction.
type candidates struct{ values, ids, sum both }

// candidates reduces logits on both devices to the best n of each row, compares the results and returns them.
func (p *pair) candidates(what string, logits both, n int) candidates {
	p.Helper()
	rows := logits.ref.Rows
	c := candidates{p.zeros(rows, n), p.ints(rows, n, make([]int32, rows*n)), p.zeros(rows, 1)}
	p.each(func(s side) error {
		return kernel.Do(s, kernel.CandidateArgs{Values: s.of(c.values), IDs: s.of(c.ids), LogSum: s.of(c.sum),
			Logits: s.of(logits)})
	})
	p.same(what, c.ids)
	p.near(what, c.values, 0)
	p.near(what+": log of the sum", c.sum, 1e-6)
	return c
}

// testCandidates reduces rows of odd sizes: with distinct values, with many ties, and with NaN and infinities. Logits
// are a view with a stride.
func testCandidates(p *pair) {
	inf := float32(math.Inf(1))
	for _, vocabulary := range []int{1, 2, 3, 63, 64, 65, 640, 1031} {
		for _, n := range []int{1, 2, 7, 63, kernel.MaxCandidates} {
			if n > vocabulary {
				continue
			}
			for _, few := range []bool{false, true} {
				const rows = 5
				v := p.normal(rows*(vocabulary+3), 8)
				for i := range v {
					if few {
						v[i] = float32(p.rng.IntN(3))
					}
					switch p.rng.IntN(9) {
					case 0:
						v[i] = float32(math.NaN())
					case 1:
						v[i] = -inf
					}
				}
				wide := p.floats(rows, vocabulary+3, v)
				logits := wide.columns(2, vocabulary+2)
				what := fmt.Sprintf("best %d of %d, few values %v", n, vocabulary, few)
				c := p.candidates(what, logits, n)
				p.rowwise(what, c.sum.dev, func(r int) kernel.Tensor {
					values, ids, sum := p.like(c.values.dev, 1), p.like(c.ids.dev, 1), p.like(c.sum.dev, 1)
					p.must(kernel.Do(p.dev, kernel.CandidateArgs{Values: values, IDs: ids, LogSum: sum,
						Logits: logits.dev.Slice(r, r+1)}))
					return sum
				})
			}
		}
	}
	p.candidatesByHand()
	p.candidateRefusals()
}

// candidatesByHand checks rows whose results follow from the contract alone.
func (p *pair) candidatesByHand() {
	p.Helper()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name   string
		row    []float32
		ids    []int32
		values []float32
		sum    float64
	}{
		{"ties go to the lower id", []float32{1, 2, 2, 0, 2}, []int32{1, 2, 4}, []float32{2, 2, 2},
			math.Log(3*math.Exp(2) + math.E + 1)},
		{"NaN comes last, as minus infinity", []float32{nan, -3, nan, -4}, []int32{1, 3, 0}, []float32{-3, -4, -inf},
			math.NaN()},
		{"NaN and minus infinity tie", []float32{5, nan, -inf, nan}, []int32{0, 1, 2}, []float32{5, -inf, -inf},
			math.NaN()},
		{"nothing is a number", []float32{-inf, nan, -inf}, []int32{0, 1, 2}, []float32{-inf, -inf, -inf}, math.NaN()},
		{"nothing is allowed", []float32{-inf, -inf, -inf}, []int32{0, 1, 2}, []float32{-inf, -inf, -inf},
			math.Inf(-1)},
		{"one is certain", []float32{0, inf, 3}, []int32{1, 2, 0}, []float32{inf, 3, 0}, math.Inf(1)},
		{"large logits do not overflow", []float32{1000, 1000, -1000}, []int32{0, 1, 2}, []float32{1000, 1000, -1000},
			1000 + math.Ln2},
		{"small ones do not vanish", []float32{-1000, -1000, -2000}, []int32{0, 1, 2}, []float32{-1000, -1000, -2000},
			-1000 + math.Ln2},
		{"ascending", []float32{-2, -1, 0, 1}, []int32{3, 2, 1}, []float32{1, 0, -1},
			math.Log(math.Exp(-2) + math.Exp(-1) + 1 + math.E)},
	} {
		got := p.candidates(c.name, p.floats(1, len(c.row), c.row), 3)
		p.exactly(c.name, got.ids.dev, c.ids)
		if v := p.read(p.dev, got.values.dev); !slices.Equal(v, c.values) {
			p.Errorf("%s: values %v, want %v", c.name, v, c.values)
		}
		sum := float64(p.read(p.dev, got.sum.dev)[0])
		if sum != c.sum && !(math.IsNaN(sum) && math.IsNaN(c.sum)) &&
			!(math.Abs(sum-c.sum) <= 1e-6*max(1, math.Abs(c.sum))) {
			p.Errorf("%s: log of the sum %v, want %v", c.name, sum, c.sum)
		}
	}
}

func (p *pair) candidateRefusals() {
	p.Helper()
	logits := p.zeros(2, 100).dev
	for name, n := range map[string]int{"no candidates": 0, "more than there may be": kernel.MaxCandidates + 1} {
		a := kernel.CandidateArgs{Values: p.zeros(2, max(n, 1)).dev,
			IDs: p.ints(2, max(n, 1), make([]int32, 2*max(n, 1))).dev, LogSum: p.zeros(2, 1).dev,
			Logits: logits}
		a.Values, a.IDs = a.Values.Columns(0, n), a.IDs.Columns(0, n)
		if err := kernel.Do(p.dev, a); !errors.Is(err, kernel.ErrArgument) {
			p.Errorf("%s: got error %v, want one that wraps ErrArgument", name, err)
		}
	}
	few := kernel.CandidateArgs{Values: p.zeros(2, 4).dev, IDs: p.ints(2, 4, make([]int32, 8)).dev,
		LogSum: p.zeros(2, 1).dev, Logits: p.zeros(2, 3).dev}
	if err := kernel.Do(p.dev, few); !errors.Is(err, kernel.ErrArgument) {
		p.Errorf("four candidates of three tokens: got error %v, want one that wraps ErrArgument", err)
	}
}

// testCopy copies views with strides and checks that memory outside of them does not change.
func testCopy(p *pair) {
	for _, cols := range []int{1, 7, 96} {
		x, out := p.random(5, cols+3), p.random(6, cols+4)
		p.each(func(s side) error {
			return s.Copy(kernel.CopyArgs{Out: s.of(out.slice(1, 6).columns(2, cols+2)), X: s.of(x.columns(1, cols+1))})
		})
		p.near(fmt.Sprintf("copy of %d columns", cols), out, 0)
	}
	from, to := p.ints(3, 2, []int32{1, -2, 3, -4, 5, -6}), p.ints(3, 2, make([]int32, 6))
	p.each(func(s side) error { return s.Copy(kernel.CopyArgs{Out: s.of(to), X: s.of(from)}) })
	p.exactly("copy of whole numbers", to.dev, []int32{1, -2, 3, -4, 5, -6})
	err := p.dev.Copy(kernel.CopyArgs{Out: p.zeros(2, 3).dev, X: p.zeros(3, 3).dev})
	if !errors.Is(err, kernel.ErrArgument) {
		p.Errorf("a copy of three rows into two: got error %v, want one that wraps ErrArgument", err)
	}
}

// testSample samples from rows of odd sizes with every filter, in a call with rows that take their best token. Logits
// are a view with a stride; rows are also sampled one at a time.
func testSample(p *pair) {
	for _, vocabulary := range []int{1, 7, 640, 5000} {
		const rows = 8
		scratch, err := sample.NewScratch(vocabulary)
		p.must(err)
		v := p.normal(rows*(vocabulary+3), 3)
		words, best := make([]int32, rows*sample.DrawWords), make([]int32, rows)
		for r := range rows {
			params := sample.Default()
			params.Seed, params.Temperature = p.rng.Int64(), 0.25*float64(r)
			params.TopK, params.TopP, params.MinP = r%3*20, 1-0.1*float64(r%4), 0.05*float64(r%2)
			s, err := sample.New(params, 0, scratch)
			p.must(err)
			d := s.Draw(0)
			d.Put(words[r*sample.DrawWords:])
			row := v[r*(vocabulary+3)+2:][:vocabulary]
			for i := range row {
				if row[i] > row[best[r]] {
					best[r] = int32(i)
				}
			}
		}
		logits := p.floats(rows, vocabulary+3, v).columns(2, vocabulary+2)
		ids, draws := p.ints(rows, 1, best), p.ints(rows, sample.DrawWords, words)
		p.each(func(s side) error {
			return kernel.Do(s, kernel.SampleArgs{IDs: s.of(ids), Logits: s.of(logits), Draws: s.of(draws)})
		})
		p.same(fmt.Sprintf("tokens of %d", vocabulary), ids)
		if got := p.readInts(p.dev, ids.dev); got[0] != best[0] {
			p.Errorf("a row without a temperature gives token %d, want its best token %d", got[0], best[0])
		}
	}
	ids, logits := p.ints(2, 1, []int32{0, 0}).dev, p.zeros(2, 100).dev
	draws := p.ints(2, sample.DrawWords+1, make([]int32, 2*(sample.DrawWords+1))).dev
	for name, d := range map[string]kernel.Tensor{"too many words": draws,
		"words that are not adjacent": draws.Columns(0, sample.DrawWords)} {
		if err := kernel.Do(p.dev, kernel.SampleArgs{IDs: ids, Logits: logits, Draws: d}); !errors.Is(err,
			kernel.ErrArgument) {
			p.Errorf("%s: got error %v, want one that wraps ErrArgument", name, err)
		}
	}
}

// testAccept writes words of sequences with 0 to 3 accepted drafts, some of which have fewer drafts than others, and
// checks the tokens after them.
func testAccept(p *pair) {
	const sequences, most, places = 60, 3, 300
	tokens := make([]int32, 2*sequences*(most+1)) // only every second word is a token, as in a view
	for i := range tokens {
		tokens[i] = int32(p.rng.IntN(3))
	}
	drafts, words := make([]int32, 0, sequences*(1+2*most)), []int32{}
	want, counts := make([]int32, places), [most + 1]int{}
	for s := range sequences {
		first, right, going := s*(most+1), 0, true
		drafts = append(drafts, int32(first))
		for i := range most {
			least := int32(p.rng.IntN(2))
			greatest := least + int32(p.rng.IntN(4)) - 1 // a range may contain no tokens
			t := tokens[2*(first+i)]
			if going = going && t >= least && t <= greatest; going {
				right++
			}
			drafts = append(drafts, least, greatest)
		}
		counts[right]++
		for place := s; place < places; place += 2 * sequences {
			words = append(words, int32(place), int32(s))
			for n := range most + 1 {
				words = append(words, int32(1000*place+n))
			}
			want[place] = int32(1000*place + right)
		}
		if place := s + sequences; place < places {
			words = append(append(words, int32(-1-place), int32(s)), make([]int32, most+1)...)
			want[place] = tokens[2*(first+right)]
		}
	}
	if slices.Contains(counts[:], 0) {
		p.Fatalf("numbers of accepted drafts %v, want each number at least once", counts)
	}
	out := p.ints(1, places, make([]int32, places))
	of, ranges := p.ints(sequences*(most+1), 2, tokens), p.ints(sequences, 1+2*most, drafts)
	list := p.ints(len(words)/(3+most), 3+most, words)
	args := func(s side) kernel.AcceptArgs {
		return kernel.AcceptArgs{Out: s.of(out), Tokens: s.of(of.columns(0, 1)), Drafts: s.of(ranges),
			Words: s.of(list)}
	}
	p.each(func(s side) error { return s.Accept(args(s)) })
	p.exactly("words", out.dev, want)
	a := args(p.target())
	a.Words = a.Words.Columns(0, 3)
	if err := p.dev.Accept(a); !errors.Is(err, kernel.ErrArgument) {
		p.Errorf("words for no draft of sequences with drafts: got error %v, want one that wraps ErrArgument", err)
	}
}
