package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// random returns a random weight [out, in] in e4m3 with block scales, or in bf16.
func random(rng *rand.Rand, t kernel.DType, out, in int) kernel.Weight {
	data := make([]byte, out*in*t.Size())
	w := kernel.Weight{Data: kernel.Tensor{DType: t, Rows: out, Cols: in, Stride: in}}
	for i := range out * in {
		v := float32(rng.NormFloat64())
		if t == kernel.E4M3 {
			data[i] = num.E4M3(v)
		} else {
			binary.NativeEndian.PutUint16(data[2*i:], num.BF16(v))
		}
	}
	w.Data.Buf = kernel.HostBuffer(data)
	if t == kernel.E4M3 {
		rows, cols := (out+127)/128, (in+127)/128
		scales := make([]byte, 4*rows*cols)
		for i := range rows * cols {
			binary.NativeEndian.PutUint32(scales[4*i:], math.Float32bits(float32(0.5+rng.Float64())))
		}
		w.Scale = kernel.Tensor{Buf: kernel.HostBuffer(scales), DType: kernel.F32, Rows: rows, Cols: cols, Stride: cols}
		w.BlockRows, w.BlockCols = 128, 128
	}
	return w
}

func floats(t *testing.T, d kernel.Device, rng *rand.Rand, rows, cols int) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(d, kernel.F32, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	for i := range host.F32(x) {
		host.F32(x)[i] = float32(rng.NormFloat64())
	}
	return x
}

// wholes returns an i32 tensor [rows, cols] with the values v.
func wholes(t *testing.T, d kernel.Device, rows, cols int, v []int32) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(d, kernel.I32, rows, cols)
	if err == nil {
		err = kernel.WriteI32(d, x, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func prepared(t *testing.T, d kernel.Device, w kernel.Weight, err error, role kernel.Role) kernel.Matrix {
	t.Helper()
	var m kernel.Matrix
	if err == nil {
		m, err = d.Prepare(w, role)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// onEach runs a test on every device of this machine.
func onEach(t *testing.T, run func(t *testing.T, d kernel.Device, rng *rand.Rand)) {
	for _, b := range append(cpu.Backends(), ref.Backends()...) {
		if b.Available() != nil {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			d, err := b.Open(kernel.Options{Workers: 2, Precise: true})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			run(t, d, rand.New(rand.NewPCG(3, 9)))
		})
	}
}

// A shard of any rows of a weight, even if it begins inside a scale block, gives the same columns of the product as the
// whole weight. The products of column shards add up to the product of the whole weight.
func TestShardsOfWeights(t *testing.T) {
	const out, in, rows = 384, 256, 5
	onEach(t, func(t *testing.T, d kernel.Device, rng *rand.Rand) {
		for _, kind := range []kernel.DType{kernel.E4M3, kernel.BF16} {
			w, x := random(rng, kind, out, in), floats(t, d, rng, rows, in)
			whole := floats(t, d, rng, rows, out)
			multiply := func(a kernel.MultiplyArgs) {
				t.Helper()
				if err := kernel.Do(d, a); err != nil {
					t.Fatal(err)
				}
			}
			multiply(kernel.MultiplyArgs{Out: whole, X: x, W: prepared(t, d, w, nil, kernel.Projected)})
			for _, cut := range [][2]int{{0, 192}, {192, 384}, {100, 300}, {130, 140}} {
				part, err := w.Rows(cut[0], cut[1])
				got := floats(t, d, rng, rows, cut[1]-cut[0])
				multiply(kernel.MultiplyArgs{Out: got, X: x, W: prepared(t, d, part, err, kernel.Projected)})
				for r := range rows {
					for c, v := range host.RowF32(got, r) {
						if want := host.RowF32(whole, r)[cut[0]+c]; v != want {
							t.Fatalf("%v rows %v: %v at row %d, column %d, want %v", kind, cut, v, r, c, want)
						}
					}
				}
			}
			sum := floats(t, d, rng, rows, out)
			for i, cut := range [][2]int{{0, 128}, {128, 160}, {160, 256}} {
				part, err := w.Columns(cut[0], cut[1])
				multiply(kernel.MultiplyArgs{Out: sum, X: x.Columns(cut[0], cut[1]),
					W: prepared(t, d, part, err, kernel.Projected), Accumulate: i > 0})
			}
			near(t, kind.String()+" columns", sum, whole)
		}
	})
}

func near(t *testing.T, what string, got, want kernel.Tensor) {
	t.Helper()
	for i, v := range host.F32(want) {
		if d := math.Abs(float64(host.F32(got)[i] - v)); d > 1e-4*(1+math.Abs(float64(v))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, host.F32(got)[i], v)
		}
	}
}

// If ranks share experts or a table, their results add up to the result of one device; a rank that has none of the
// requested rows adds nothing.
func TestParts(t *testing.T) {
	const experts, hidden, inner, rows, k, vocabulary = 6, 64, 32, 7, 2, 12
	onEach(t, func(t *testing.T, d kernel.Device, rng *rand.Rand) {
		var w kernel.ExpertWeights
		for range experts {
			w.Gate = append(w.Gate, random(rng, kernel.BF16, inner, hidden))
			w.Up = append(w.Up, random(rng, kernel.BF16, inner, hidden))
			w.Down = append(w.Down, random(rng, kernel.BF16, hidden, inner))
		}
		choice, tokens := make([]int32, rows*k), make([]int32, rows)
		for i := range choice {
			choice[i] = int32(rng.IntN(4)) // no row chooses the last two experts
		}
		for i := range tokens {
			tokens[i] = int32(rng.IntN(vocabulary))
		}
		x, weights := floats(t, d, rng, rows, hidden), floats(t, d, rng, rows, k)
		whole, sum := floats(t, d, rng, rows, hidden), floats(t, d, rng, rows, hidden)
		part := floats(t, d, rng, rows, hidden)
		copy(host.F32(sum), host.F32(whole))
		run := func(out kernel.Tensor, first, last int, part kernel.Part) {
			t.Helper()
			x1, err := d.PrepareExperts(kernel.ExpertWeights{Gate: w.Gate[first:last], Up: w.Up[first:last],
				Down: w.Down[first:last]})
			if err == nil {
				err = kernel.Do(d, kernel.ExpertArgs{Out: out, X: x, IDs: wholes(t, d, rows, k, choice),
					Weights: weights, Experts: x1, Part: part})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		run(whole, 0, experts, kernel.Part{})
		for first := 0; first < experts; first += 2 {
			run(sum, first, first+2, kernel.Part{First: first, Of: experts})
		}
		near(t, "experts", sum, whole)

		table := random(rng, kernel.BF16, vocabulary, hidden)
		look := func(out kernel.Tensor, first, last int, part kernel.Part) {
			t.Helper()
			rows1, err := table.Rows(first, last)
			m := prepared(t, d, rows1, err, kernel.LookedUp)
			ids := wholes(t, d, rows, 1, tokens)
			if err := kernel.Do(d, kernel.EmbedArgs{Out: out, Table: m, IDs: ids, Part: part}); err != nil {
				t.Fatal(err)
			}
		}
		look(whole, 0, vocabulary, kernel.Part{})
		clear(host.F32(sum))
		for first := 0; first < vocabulary; first += 4 {
			look(part, first, first+4, kernel.Part{First: first, Of: vocabulary})
			for i, v := range host.F32(part) {
				host.F32(sum)[i] += v
			}
		}
		for i, v := range host.F32(whole) {
			if host.F32(sum)[i] != v {
				t.Fatalf("embeddings: element %d is %v, want %v", i, host.F32(sum)[i], v)
			}
		}
	})
}
