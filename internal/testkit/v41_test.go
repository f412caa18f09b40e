package testkit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"sparrow/kernel"
)

// testEngram computes the gated sum of the v41 spec, 3.1, from its definition, with keys for which gates are near 0, at
// a half and near 1.
func testEngram(p *pair) {
	const rows, n, h, eps = 5, 3, 32, 1e-6
	x, kv, weight := p.normal(rows*n*h, 1), p.normal(rows*(n+1)*h, 1), p.normal(n*h, 2)
	for c := range h { // a key along its stream, and one against its stream
		kv[c] = 3 * x[c] * weight[c]
		kv[h+c] = -x[h+c] * weight[h+c]
	}
	clear(kv[(n+1)*h:][:h]) // a key of zeros
	want := slices.Clone(x)
	for t := range rows {
		value := kv[(t*(n+1)+n)*h:][:h]
		for i := range n {
			stream, key := want[(t*n+i)*h:][:h], kv[(t*(n+1)+i)*h:][:h]
			var dot, xx, kk float64
			for c := range h {
				dot += float64(stream[c]) * float64(weight[i*h+c]) * float64(key[c])
				xx += float64(stream[c]) * float64(stream[c]) / h
				kk += float64(key[c]) * float64(key[c]) / h
			}
			dot /= math.Sqrt(xx+eps) * math.Sqrt(kk+eps) * math.Sqrt(h)
			gate := 1 / (1 + math.Exp(-math.Copysign(math.Sqrt(max(math.Abs(dot), 1e-6)), dot)))
			for c := range h {
				stream[c] += float32(gate) * value[c]
			}
		}
	}
	on := func(rows int, x, kv []float32) kernel.Tensor {
		streams := p.on(p.dev, kernel.F32, rows, n*h, x)
		p.must(kernel.Do(p.dev, kernel.EngramArgs{X: streams, KV: p.on(p.dev, kernel.F32, rows, (n+1)*h, kv),
			Weight: p.on(p.dev, kernel.F32, n, h, weight), Eps: eps}))
		return streams
	}
	got := on(rows, x, kv)
	for i, v := range p.read(p.dev, got) {
		if math.Abs(float64(v-want[i])) > 1e-5*max(1, math.Abs(float64(want[i]))) {
			p.Fatalf("row %d, stream %d: %v, want %v", i/(n*h), i%(n*h)/h, v, want[i])
		}
	}
	p.rowwise("engram", got, func(r int) kernel.Tensor {
		return on(1, x[r*n*h:][:n*h], kv[r*(n+1)*h:][:(n+1)*h])
	})
}

// testTable reads rows of tables of every type. All values are exact in every type.
func testTable(p *pair) {
	const rows, dim, n = 5, 2 * kernel.TableScale, 2
	values := make([]float32, rows*dim)
	for i := range values {
		values[i] = float32(i*7%17 - 8)
	}
	scales := []byte{127, 128, 126, 130, 127, 120, 127, 127, 125, 129}
	scale, err := kernel.New(p.dev, kernel.E8M0, rows, dim/kernel.TableScale)
	p.must(err)
	p.must(p.dev.Write(scale, scales))
	read := func(d kernel.DType, ids ...int32) (kernel.Tensor, error) {
		table := &kernel.Table{Values: p.on(p.dev, d, rows, dim, values)}
		if d == kernel.E4M3 {
			table.Scales = scale
		}
		out := p.on(p.dev, kernel.F32, len(ids)/n, n*dim, make([]float32, len(ids)*dim))
		return out, kernel.Do(p.dev, kernel.TableArgs{Out: out, Table: table, IDs: p.ints(len(ids)/n, n, ids).dev})
	}
	ids := []int32{0, 4, 3, 3, 4, 1}
	for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.E4M3} {
		out, err := read(d, ids...)
		p.must(err)
		for i, v := range p.read(p.dev, out) {
			id, c := int(ids[i/dim]), i%dim
			want := values[id*dim+c]
			if d == kernel.E4M3 {
				want *= float32(math.Ldexp(1, int(scales[2*id+c/kernel.TableScale])-127))
			}
			if v != want {
				p.Fatalf("%v: value %d of row %d is %v, want %v", d, c, id, v, want)
			}
		}
		for _, outside := range []int32{-1, rows} {
			if _, err := read(d, 0, outside); !errors.Is(err, kernel.ErrArgument) {
				p.Errorf("%v: row %d: %v", d, outside, err)
			}
		}
	}
}

// testBlockMax finds the largest scores of blocks. The block with the newest key has +Inf. Rows of few keys, and blocks
// after the newest key, are not written.
func testBlockMax(p *pair) {
	inf, unset := float32(math.Inf(1)), float32(-9)
	const size, cols, blocks = 4, 10, 3
	scores := []float32{3, 5, 1, 2, -7, -6, -8, -6.5, 9, 10}
	for n, want := range map[int32][]float32{
		0: {unset, unset, unset}, 2: {unset, unset, unset}, 3: {inf, unset, unset}, 4: {inf, unset, unset},
		5: {5, inf, unset}, 8: {5, inf, unset}, 9: {5, -6, inf}, 10: {5, -6, inf},
	} {
		out := p.on(p.dev, kernel.F32, 2, blocks, slices.Repeat([]float32{unset}, 2*blocks))
		lens := p.ints(2, 1, []int32{n, 10}).dev
		p.must(kernel.Do(p.dev, kernel.BlockMaxArgs{Out: out, Lens: lens, Size: size, SkipUpTo: 2,
			Scores: p.on(p.dev, kernel.F32, 2, cols, slices.Concat(scores, scores))}))
		if got := p.read(p.dev, out); !slices.Equal(got, append(slices.Clone(want), 5, -6, inf)) {
			p.Errorf("%d keys: %v, want %v", n, got, want)
		}
	}
	err := kernel.Do(p.dev, kernel.BlockMaxArgs{Out: p.zeros(1, blocks).dev, Scores: p.zeros(1, cols).dev,
		Lens: p.ints(1, 1, []int32{cols + 1}).dev, Size: size})
	if !errors.Is(err, kernel.ErrArgument) {
		p.Errorf("more keys than scores: %v", err)
	}
}

// testHyperSum sums streams with given weights, for several numbers of streams.
func testHyperSum(p *pair) {
	for _, c := range []struct{ n, hidden int }{{4, 64}, {1, 7}, {3, 33}} {
		const rows = 4
		x, weights := p.normal(rows*c.n*c.hidden, 1), p.normal(rows*c.n, 1)
		on := func(rows int, x, weights []float32) kernel.Tensor {
			out := p.on(p.dev, kernel.F32, rows, c.hidden, make([]float32, rows*c.hidden))
			p.must(kernel.Do(p.dev, kernel.HyperSumArgs{Out: out, X: p.on(p.dev, kernel.F32, rows, c.n*c.hidden, x),
				Weights: p.on(p.dev, kernel.F32, rows, c.n, weights)}))
			return out
		}
		out := on(rows, x, weights)
		for i, v := range p.read(p.dev, out) {
			t, want := i/c.hidden, 0.0
			for s := range c.n {
				want += float64(weights[t*c.n+s]) * float64(x[(t*c.n+s)*c.hidden+i%c.hidden])
			}
			if math.Abs(float64(v)-want) > 1e-5 {
				p.Fatalf("%d streams: element %d of row %d is %v, want %v", c.n, i%c.hidden, t, v, want)
			}
		}
		p.rowwise(fmt.Sprint("sum of streams ", c.n), out, func(r int) kernel.Tensor {
			return on(1, x[r*c.n*c.hidden:][:c.n*c.hidden], weights[r*c.n:][:c.n])
		})
	}
}
