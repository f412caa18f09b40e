package op

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// detached returns a device without a GPU, whose operations check their arguments and compute nothing.
func detached(t *testing.T) *Device {
	t.Helper()
	d, err := On(cuda.OpenDetached(cuda.Properties{Name: "none", Major: 9, SMs: 132, SharedOptinBytes: 232448,
		MemoryBytes: 1 << 36}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// stored returns a weight in host memory, each row followed by a gap of columns.
func stored(kind kernel.DType, out, in, gap int) kernel.Weight {
	w := kernel.Weight{Data: kernel.Tensor{Buf: make(kernel.HostBuffer, 16+out*(in+gap)*kind.Size()), Off: 16,
		DType: kind,
		Rows:  out, Cols: in, Stride: in + gap}}
	if kind == kernel.E4M3 {
		w.BlockRows, w.BlockCols = 128, 128
		w.Scale = kernel.Tensor{Buf: make(kernel.HostBuffer, 4*((out+127)/128)*((in+127)/128)), DType: kernel.F32,
			Rows: (out + 127) / 128, Cols: (in + 127) / 128, Stride: (in + 127) / 128}
	}
	return w
}

// Each prepared weight stays FP8 or is converted to bf16, and stores the number of rows, as the table states.
func TestPreparedWeights(t *testing.T) {
	d := detached(t)
	for _, c := range []struct {
		name      string
		w         kernel.Weight
		role      kernel.Role
		kind      cuda.ProductType
		stored    int
		transpose bool
	}{
		{"blocks", stored(kernel.E4M3, 130, 256, 0), kernel.Projected, cuda.ProductFP8, 144, false},
		{"latent blocks", stored(kernel.E4M3, 256, 512, 0), kernel.Latent, cuda.ProductBF16, 256, true},
		{"index head weights", stored(kernel.F32, 4, 256, 0), kernel.Projected, cuda.ProductBF16, 16, false},
		{"a table", stored(kernel.F16, 3, 7, 0), kernel.LookedUp, cuda.ProductBF16, 16, false},
		{"a tied table", stored(kernel.BF16, 643, 32, 0), kernel.Tied, cuda.ProductBF16, 656, false},
	} {
		got, err := d.Prepare(c.w, c.role)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m := got.(*matrix)
		if m.kind != c.kind || m.stored != c.stored || (m.turned != 0) != c.transpose || m.Out() != c.w.Out() ||
			m.In() != c.w.In() || m.Role() != c.role || (m.scales != 0) != (c.kind == cuda.ProductFP8) {
			t.Errorf("%s: prepared as %+v", c.name, m)
		}
	}
	packed := stored(kernel.U8, 16, 96, 0) // 24 values per group, 192 columns
	packed.Data.DType, packed.BlockRows, packed.BlockCols = kernel.U4x2, 1, 24
	packed.Scale = kernel.Tensor{Buf: make(kernel.HostBuffer, 256), DType: kernel.BF16, Rows: 16, Cols: 8, Stride: 8}
	for says, w := range map[string]kernel.Weight{
		"columns must be a multiple of 16": stored(kernel.BF16, 16, 24, 0),
		"int8 in groups of multiples":      packed,
	} {
		if _, err := d.Prepare(w, kernel.Projected); !errors.Is(err, kernel.ErrUnsupported) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error that says %q", err, says)
		}
	}
}

// Experts stay FP8 only if all of them have blocks that the kernels can read.
func TestPreparedExperts(t *testing.T) {
	d := detached(t)
	all := func(kind kernel.DType, hidden, inner int) (w kernel.ExpertWeights) {
		for range 3 {
			w.Gate, w.Up = append(w.Gate, stored(kind, inner, hidden, 0)), append(w.Up, stored(kind, inner, hidden, 0))
			w.Down = append(w.Down, stored(kind, hidden, inner, 0))
		}
		return w
	}
	mixed := all(kernel.E4M3, 256, 64)
	mixed.Up[1] = stored(kernel.F32, 64, 256, 0)
	for _, c := range []struct {
		name string
		w    kernel.ExpertWeights
		bf16 bool
	}{{"blocks", all(kernel.E4M3, 256, 64), false}, {"f32", all(kernel.F32, 48, 32), true},
		{"one of f32", mixed, true}} {
		got, err := d.PrepareExperts(c.w)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		x := got.(*experts)
		if x.shape.BF16 != c.bf16 || x.Count() != 3 || x.Hidden() != c.w.Gate[0].In() ||
			x.Inner() != c.w.Gate[0].Out() ||
			x.scales != num.ScaleF32 {
			t.Errorf("%s: prepared as %+v", c.name, x)
		}
	}
	if _, err := d.PrepareExperts(all(kernel.BF16, 40, 32)); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("40 columns: %v, want ErrUnsupported", err)
	}
}

// More rows than one call of the expert kernels supports are accepted: they run in groups.
func TestExpertsOfManyRows(t *testing.T) {
	d := detached(t)
	var w kernel.ExpertWeights
	w.Gate, w.Up, w.Down = []kernel.Weight{stored(kernel.BF16, 16, 16, 0)},
		[]kernel.Weight{stored(kernel.BF16, 16, 16, 0)},
		[]kernel.Weight{stored(kernel.BF16, 16, 16, 0)}
	x, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(kind kernel.DType, rows, cols int) kernel.Tensor {
		y, err := kernel.New(d, kind, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		return y
	}
	const top = 8
	for _, rows := range []int{1, cuda.MaxExpertPairs / top, cuda.MaxExpertPairs/top + 1, cuda.MaxExpertPairs} {
		err := d.Do(kernel.ExpertArgs{Out: tensor(kernel.BF16, rows, 16), X: tensor(kernel.BF16, rows, 16),
			IDs: tensor(kernel.I32, rows, top), Weights: tensor(kernel.F32, rows, top), Experts: x})
		if err != nil {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

// The arguments of products at equal addresses are encoded once and not used for other addresses, and the number of
// stored arguments is limited.
func TestProductsAreKept(t *testing.T) {
	d := detached(t)
	w, err := d.Prepare(stored(kernel.BF16, 32, 16, 0), kernel.Projected)
	if err != nil {
		t.Fatal(err)
	}
	x, err := kernel.New(d, kernel.BF16, mostCalls+2, 16)
	if err != nil {
		t.Fatal(err)
	}
	out, err := kernel.New(d, kernel.BF16, mostCalls+2, 32)
	if err != nil {
		t.Fatal(err)
	}
	multiply := func(from, rows, want int) {
		t.Helper()
		a := kernel.MultiplyArgs{Out: out.Slice(0, rows), X: x.Slice(from, from+rows), W: w}
		if err := d.Do(a); err != nil {
			t.Fatal(err)
		}
		if len(d.calls) != want {
			t.Fatalf("%d products are kept, want %d", len(d.calls), want)
		}
	}
	multiply(0, 1, 1)
	multiply(0, 1, 1)
	multiply(0, 2, 2)
	multiply(1, 1, 3)
	for i := 4; i <= mostCalls; i++ {
		multiply(i, 1, i)
	}
	multiply(mostCalls+1, 1, 1)
}

// loadTogether prepares weights of many sizes in one load, each three times.
func loadTogether(t *testing.T, d *Device) (list []kernel.Weight, made []*matrix) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	random := func(w kernel.Weight) kernel.Weight {
		for _, x := range []kernel.Tensor{w.Data, w.Scale} {
			if x.Given() {
				b := []byte(x.Buf.(kernel.HostBuffer))
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
			}
		}
		return w
	}
	for _, rows := range []int{16, 128, 8192, 20000, 272} {
		list = append(list, random(stored(kernel.E4M3, rows, 512, 0)), random(stored(kernel.BF16, rows, 256, 0)),
			random(stored(kernel.E4M3, rows, 128, 16)))
	}
	if err := d.BeginLoad(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, w := range list {
			m, err := d.Prepare(w, kernel.Projected)
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, m.(*matrix))
		}
	}
	if err := d.EndLoad(); err != nil {
		t.Fatal(err)
	}
	return list, made
}

// After a load every weight has its own memory, and the buffers are released.
func TestLoadedTogether(t *testing.T) {
	d := detached(t)
	free, _, err := d.MemoryFree()
	if err != nil {
		t.Fatal(err)
	}
	_, made := loadTogether(t, d)
	seen := map[cuda.Ptr]bool{}
	for _, m := range made {
		if m.data == 0 || seen[m.data] {
			t.Errorf("a matrix at %#x", m.data)
		}
		seen[m.data] = true
	}
	left, _, err := d.MemoryFree()
	if err != nil || free-left != d.MemoryUse().Weights {
		t.Errorf("%d bytes are taken, weights take %d, %v", free-left, d.MemoryUse().Weights, err)
	}
}
