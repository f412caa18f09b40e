package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cpu/vec"
	"sparrow/kernel/host"
)

// Products by packed weights have the bits of those by weights as they are: alone, together and as experts, for few rows and many, also where a part
// begins within a block.
func TestPackedWeightsChangeNothing(t *testing.T) {
	tier := vec.Tiers()[0]
	if !tier.Tiled() {
		t.Skipf("the best tier here is %s: only tiles read packed weights", tier.Name)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	d := Open(tier, kernel.Options{Workers: 2, Pack: true})
	defer d.Close()
	values := func(rows, cols int) kernel.Tensor {
		x, err := kernel.New(d, kernel.F32, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		for i := range host.F32(x) {
			host.F32(x)[i] = rng.Float32() - 0.5
		}
		return x
	}
	packed := func(out, in int) kernel.Weight {
		data := make([]byte, 2*out*in)
		for i := range out * in {
			bits := math.Float32bits(float32(rng.NormFloat64())) >> 16
			data[2*i], data[2*i+1] = byte(bits), byte(bits>>8)
		}
		b, err := d.Import(data, kernel.BF16)
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.PackWeight(kernel.Weight{Data: kernel.Tensor{Buf: b, DType: kernel.BF16, Rows: out, Cols: in, Stride: in}})
		if err != nil {
			t.Fatal(err)
		}
		if w.Packed == nil || w.Packed.Len() >= w.Data.Buf.Len() && out%vec.NarrowRows == 0 {
			t.Fatalf("[%d, %d] is packed as %v", out, in, w.Packed)
		}
		return w
	}
	plain := func(w kernel.Weight) kernel.Weight {
		w.Packed = nil
		return w
	}
	const hidden, inner, experts = 256, 384, 5
	a, b := packed(1000, hidden), packed(70, hidden)
	x := values(40, hidden)
	for _, rows := range []int{1, 3, 8, 16, 17, 40} {
		t.Run(fmt.Sprintf("%d rows", rows), func(t *testing.T) {
			var got [2][][]float32
			for i, as := range []func(kernel.Weight) kernel.Weight{plain, func(w kernel.Weight) kernel.Weight { return w }} {
				one, two, alone := values(rows, a.Out()), values(rows, b.Out()), values(rows, a.Out())
				x := x.Slice(0, rows)
				err := d.Project(kernel.ProjectArgs{X: x, To: []kernel.Projection{{Out: one, W: as(a)}, {Out: two, W: as(b)}}})
				if err == nil {
					err = d.Multiply(kernel.MultiplyArgs{Out: alone, X: x, W: as(a)})
				}
				if err != nil {
					t.Fatal(err)
				}
				got[i] = [][]float32{host.F32(one), host.F32(two), host.F32(alone)}
			}
			for i, want := range got[0] {
				if !slices.Equal(got[1][i], want) {
					t.Errorf("result %d differs", i)
				}
			}
		})
	}
	gate, up, down := make([]kernel.Weight, experts), make([]kernel.Weight, experts), make([]kernel.Weight, experts)
	for e := range gate {
		gate[e], up[e], down[e] = packed(inner, hidden), packed(inner, hidden), packed(hidden, inner)
	}
	for _, rows := range []int{1, 6, 40} {
		ids, err := kernel.New(d, kernel.I32, rows, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i := range host.I32(ids) {
			host.I32(ids)[i] = int32(i * 3 % experts)
		}
		weights := values(rows, 2)
		var got [2][]float32
		for i, as := range []func(kernel.Weight) kernel.Weight{plain, func(w kernel.Weight) kernel.Weight { return w }} {
			out, err := kernel.New(d, kernel.F32, rows, hidden)
			args := kernel.ExpertArgs{Out: out, X: x.Slice(0, rows), IDs: ids, Weights: weights}
			for e := range gate {
				args.Gate, args.Up, args.Down = append(args.Gate, as(gate[e])), append(args.Up, as(up[e])), append(args.Down, as(down[e]))
			}
			if err == nil {
				err = d.Experts(args)
			}
			if err != nil {
				t.Fatal(err)
			}
			got[i] = host.F32(out)
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("experts of %d rows: results differ", rows)
		}
	}
}
