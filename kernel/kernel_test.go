package kernel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
)

func tensor(t *testing.T, d kernel.DType, rows, cols int) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(host.Memory{}, d, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func matrix(t *testing.T, w kernel.Weight, role kernel.Role) kernel.Matrix {
	t.Helper()
	m, err := host.Memory{}.Prepare(w, role)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func backend(name, hardware string, err error) kernel.Backend {
	return kernel.Backend{Name: name, Hardware: hardware, Available: func() error { return err },
		Open: func(kernel.Options) (kernel.Device, error) { return named{&ref.Device{}, name}, nil }}
}

type named struct {
	kernel.Device
	name string
}

func (n named) Name() string { return n.name }

func TestRegistry(t *testing.T) {
	broken := errors.New("no such instruction")
	r := kernel.NewRegistry([]kernel.Backend{backend("cpu-fast", "cpu", broken), backend("cpu-plain", "cpu", nil)},
		[]kernel.Backend{backend("ref", "cpu", nil), backend("gpu", "sm90", broken)})
	for name, want := range map[string]string{"cpu": "cpu-plain", "cpu-plain": "cpu-plain", "ref": "ref"} {
		d, err := r.Open(name, kernel.Options{})
		if err != nil || d.Name() != want {
			t.Errorf("%s opens %v, %v; want %s", name, d, err, want)
		}
	}
	for name, want := range map[string]string{"cpu-fast": "no such instruction", "sm90": "gpu: no such instruction",
		"tpu": "cpu-fast, cpu-plain, ref, gpu"} {
		if _, err := r.Open(name, kernel.Options{}); !errors.Is(err, kernel.ErrUnavailable) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrUnavailable with %q", name, err, want)
		}
	}
	// The reference defines the correct results. It is never chosen silently as a fallback.
	r = kernel.NewRegistry([]kernel.Backend{backend("cpu-fast", "cpu", broken), backend("ref", "cpu", nil)})
	if d, err := r.Open("cpu", kernel.Options{}); err == nil {
		t.Errorf("cpu opens %s where no fast kernel is available", d.Name())
	}
}

// Offsets in an arena depend only on the calls since its last Reset, are aligned for GPUs, and can be measured without
// memory.
func TestArena(t *testing.T) {
	lay := func(a *kernel.Arena) []int64 {
		mark := a.Mark()
		x := a.Take(kernel.F32, 3, 5)
		shared := a.Mark()
		y := a.Take(kernel.BF16, 200, 1)
		a.Reset(shared)
		z := a.Take(kernel.U8, 1, 1000)
		a.Reset(mark)
		return []int64{x.Off, y.Off, z.Off}
	}
	measured := kernel.MeasureArena()
	want := []int64{0, 256, 256}
	if got := lay(measured); !slices.Equal(got, want) || measured.High() != 256+1024 {
		t.Errorf("tensors at %v, %d bytes; want %v, %d", got, measured.High(), want, 256+1024)
	}
	a, err := kernel.NewArena(host.Memory{}, measured.High())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := lay(a); !slices.Equal(got, want) || !a.Fits() {
			t.Errorf("tensors at %v, want %v; fits %v", got, want, a.Fits())
		}
	}
	a.Take(kernel.U8, 1, 2000)
	if a.Fits() {
		t.Error("2000 bytes fit into an arena of 1280")
	}
}

// If a list has an error, none of its operations run, and the error names the position of the operation. The next list
// is independent.
func TestListsKeepTheFirstError(t *testing.T) {
	list := kernel.NewBuilder(&ref.Device{}, kernel.Member{})
	x, y := tensor(t, kernel.F32, 1, 4), tensor(t, kernel.F32, 1, 4)
	host.F32(x)[0] = 7
	list.Add(kernel.CopyArgs{Out: y, X: x})
	list.At("head", 3)
	list.Add(kernel.CopyArgs{Out: y.Columns(0, 2), X: x})
	list.At("another stage", -1)
	list.Add(kernel.CopyArgs{Out: y, X: x.Columns(0, 2)})
	if err := list.Run(); !errors.Is(err, kernel.ErrArgument) || !strings.Contains(err.Error(), "head of layer 3: ") ||
		host.F32(y)[0] != 0 {
		t.Errorf("got %v, and %v was copied", err, host.F32(y)[0])
	}
	list.Add(kernel.CopyArgs{Out: y, X: x})
	if err := list.Run(); err != nil || host.F32(y)[0] != 7 {
		t.Errorf("the next list: %v, %v", err, host.F32(y)[0])
	}
}

// A program can run in parts, and another program of the same builder can run between the parts. Errors name the
// position of an operation in its own program.
func TestProgramsRunInParts(t *testing.T) {
	list := kernel.NewBuilder(&ref.Device{}, kernel.Member{})
	x, y, z := tensor(t, kernel.F32, 1, 4), tensor(t, kernel.F32, 1, 4), tensor(t, kernel.F32, 1, 4)
	ids := tensor(t, kernel.I32, 1, 1)
	host.F32(x)[0] = 7
	compile := func(layer int, ops ...kernel.Op) kernel.Program {
		t.Helper()
		list.At("head", layer)
		for _, op := range ops {
			list.Add(op)
		}
		p, err := list.Compile()
		if err != nil || p.Len() != len(ops) {
			t.Fatalf("%d operations: %v", len(ops), err)
		}
		return p
	}
	first := compile(3, kernel.CopyArgs{Out: y, X: x}, kernel.TakeArgs{Out: z, X: y, Rows: ids})
	other := compile(4, kernel.CopyArgs{Out: y, X: z}, kernel.CopyArgs{Out: z, X: x})
	for _, err := range []error{first.Run(0, 1), other.Run(0, 2), first.Run(1, 2)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if host.F32(y)[0] != 0 || host.F32(z)[0] != 0 {
		t.Errorf("y is %v and z is %v, want those of the other program and of this one", host.F32(y)[0], host.F32(z)[0])
	}
	host.I32(ids)[0] = 5 // this row does not exist
	if err := other.Run(0, 2); err != nil {
		t.Error(err)
	}
	if err := first.Run(0, 2); err == nil || !strings.Contains(err.Error(), "head of layer 3: ") {
		t.Errorf("a row that is not there: %v", err)
	}
}

func TestViews(t *testing.T) {
	x := tensor(t, kernel.F32, 3, 4)
	for i := range host.F32(x) {
		host.F32(x)[i] = float32(i)
	}
	v := x.Slice(1, 3).Columns(1, 3)
	if got := host.RowF32(v, 1); got[0] != 9 || got[1] != 10 || len(got) != 2 {
		t.Errorf("row 1 of the view is %v, want 9 10", got)
	}
	// The extent is from element (1,1) to the end of (2,2): one stride of 4 plus 2 columns, 4 bytes each.
	if v.Extent() != 24 {
		t.Errorf("the view spans %d bytes, want 24", v.Extent())
	}
	if x.Slice(1, 1).Extent() != 0 {
		t.Error("an empty view has an extent")
	}
	if (kernel.Tensor{}).Given() || !x.Given() || (kernel.Tensor{}).String() != "none" || x.String() != "f32[3,4]" {
		t.Error("given and not given are mixed up")
	}
}

// Arguments are checked before anything is read, and the message names the operation and the argument.
func TestChecks(t *testing.T) {
	f, i := func(rows, cols int) kernel.Tensor { return tensor(t, kernel.F32, rows, cols) },
		func(rows, cols int) kernel.Tensor { return tensor(t, kernel.I32, rows, cols) }
	fp8 := kernel.Weight{Data: tensor(t, kernel.E4M3, 130, 8), Scale: f(1, 1), BlockRows: 128, BlockCols: 128}
	w := matrix(t, kernel.Weight{Data: f(3, 4)}, kernel.Projected)
	table := matrix(t, kernel.Weight{Data: f(3, 4)}, kernel.LookedUp)
	latent := matrix(t, kernel.Weight{Data: f(3, 4)}, kernel.Latent)
	dims := kernel.LatentDims{Heads: 1, Nope: 1, Rope: 1, V: 1, Latent: 4}
	whole := fp8
	whole.Scale = f(2, 1)
	outside := f(2, 4)
	outside.Rows = 3
	narrow := f(2, 4)
	narrow.Stride = 3
	pool := kernel.Pool{Mem: tensor(t, kernel.U8, 2, 1152*4), Layout: layout.BF16Row1152, PageTokens: 4}
	short := pool
	short.PageTokens = 5
	for _, c := range []struct {
		name string
		err  error
		want string // empty if the arguments are valid
	}{
		{"a product", (&kernel.MultiplyArgs{Out: f(2, 3), X: f(2, 4), W: w}).Check(), ""},
		{"no result", (&kernel.MultiplyArgs{X: f(2, 4), W: w}).Check(), "multiply: out is missing"},
		{"rows missing", (&kernel.MultiplyArgs{Out: f(1, 3), X: f(2, 4), W: w}).Check(),
			"multiply: out has 1 rows, want 2"},
		{"inner sizes differ", (&kernel.MultiplyArgs{Out: f(2, 3), X: f(2, 5), W: w}).Check(),
			"multiply: w has 4 columns, want 5"},
		{"integers", (&kernel.NormArgs{Out: f(2, 4), X: i(2, 4), Weight: f(1, 4)}).Check(), "norm: x has type i32"},
		{"beyond the buffer", (&kernel.NormArgs{Out: f(3, 4), X: outside, Weight: f(1, 4)}).Check(),
			"norm: x f32[3,4] at byte 0 ends 16 bytes beyond"},
		{"overlapping rows", (&kernel.NormArgs{Out: f(2, 4), X: narrow, Weight: f(1, 4)}).Check(),
			"norm: x has stride 3, want at least its 4 columns"},
		{"no matrix", (&kernel.MultiplyArgs{Out: f(2, 3), X: f(2, 4)}).Check(), "multiply: w is missing"},
		{"a product with a table", (&kernel.MultiplyArgs{Out: f(2, 3), X: f(2, 4), W: table}).Check(),
			"multiply: w was prepared as a table, want a projection or a latent up-projection or a table and head"},
		{"a lookup in a projection", (&kernel.EmbedArgs{Out: f(2, 4), Table: w, IDs: i(2, 1)}).Check(),
			"embed: table was prepared as a projection"},
		{"rows of another width", (&kernel.EmbedArgs{Out: f(2, 5), Table: table, IDs: i(2, 1)}).Check(),
			"embed: table has 4 columns, want 5"},
		{"queries moved by a projection", (&kernel.AbsorbArgs{Out: f(1, 5), Q: f(1, 2), KVB: w, Dims: dims}).Check(),
			"absorb: kvb was prepared as a projection"},
		{"an up-projection of other heads",
			(&kernel.ExpandArgs{Out: f(1, 1), U: f(1, 4), KVB: latent, Dims: dims}).Check(),
			"expand: kvb has 3 rows, want 2"},
		{"scales for the last block missing", fp8.Check(kernel.Projected), "prepare: weight scales has 1 rows, want 2"},
		{"scales without blocks", kernel.Weight{Data: fp8.Data}.Check(kernel.Projected),
			"prepare: weight is e4m3 and has no block size"},
		{"scales of plain floats", kernel.Weight{Data: f(3, 4), Scale: f(1, 1)}.Check(kernel.Projected),
			"prepare: weight is f32 and must not have scales"},
		{"a weight of integers", kernel.Weight{Data: i(3, 4)}.Check(kernel.Projected), "prepare: weight has type i32"},
		{"no weight", kernel.Weight{}.Check(kernel.Projected), "prepare: weight is missing"},
		{"no role", kernel.Weight{Data: f(3, 4)}.Check(0), "prepare: unknown role(0)"},
		{"a table with scales", whole.Check(kernel.Tied), "prepare: a table and head has type e4m3 with scales"},
		{"experts of other sizes",
			(&kernel.ExpertWeights{Gate: []kernel.Weight{{Data: f(3, 4)}}, Up: []kernel.Weight{{Data: f(3, 4)}},
				Down: []kernel.Weight{{Data: f(4, 2)}}}).Check(), "prepare experts: down has 2 columns, want 3"},
		{"a pool", (&kernel.GatherArgs{Out: f(1, 576), Slots: i(1, 1), Pool: pool}).Check(), ""},
		{"a pool of other pages", (&kernel.GatherArgs{Out: f(1, 576), Slots: i(1, 1), Pool: short}).Check(),
			"gather rows: pool has 4608 columns, want 5760"},
		{"index keys in place of rows",
			(&kernel.GatherArgs{Out: f(1, 576), Slots: i(1, 1),
				Pool: kernel.Pool{Mem: pool.Mem, Layout: layout.IndexPage132, PageTokens: 4}}).Check(),
			"gather rows: pool: "},
		{"an unknown pairing", (&kernel.RotateArgs{X: f(1, 4), Angles: f(1, 4), Heads: 1, HeadDim: 4}).Check(),
			"rotate: unknown pairing(0)"},
		{"a rotation beyond the head",
			(&kernel.RotateArgs{X: f(1, 4), Angles: f(1, 4), Heads: 1, HeadDim: 4, Offset: 1,
				Pairing: kernel.HalfSplit}).Check(), "rotate: offset 1 + rope 4 exceeds head size 4"},
		{"experts without matrices", (&kernel.ExpertWeights{}).Check(),
			"prepare experts: there are 0 gate, 0 up and 0 down matrices"},
		{"conversion to the layout it came from", (&kernel.ConvertArgs{Out: pool, In: pool, Pages: i(1, 1)}).Check(),
			"convert pages: pages of bf16-1152 cannot be converted to bf16-1152"},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch {
			case c.want == "" && c.err != nil:
				t.Errorf("refused: %v", c.err)
			case c.want != "" && (!errors.Is(c.err, kernel.ErrArgument) || !strings.Contains(c.err.Error(), c.want)):
				t.Errorf("got %v, want ErrArgument with %q", c.err, c.want)
			}
		})
	}
}
