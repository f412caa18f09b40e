package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/model/nn"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/weight"
)

// loader returns a loader of the given tensors, which it writes to a file.
func loader(t *testing.T, onTensor func(string), tensors ...weight.Source) *nn.Loader {
	t.Helper()
	dir := t.TempDir()
	if err := weight.CreateSharded(dir, tensors, nil, 0); err != nil {
		t.Fatal(err)
	}
	w, err := weight.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return nn.NewLoader(w, &ref.Device{}, onTensor)
}

func tensor(name string, d weight.DType, data []byte, shape ...int) weight.Source {
	return weight.SourceBytes(name, d, shape, data)
}

func filled(n int, b byte) []byte { return slices.Repeat([]byte{b}, n) }

// Scales are float32 on the device, whatever their type in the file. The e8m0 byte b means 2^(b-127).
func TestScaleTypes(t *testing.T) {
	const out, in = 130, 128 // two blocks of rows; the second has 2 rows
	data := filled(out*in, num.E4M3(1.5))
	f32 := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40} // the values 1 and 2
	for _, c := range []struct {
		name  string
		scale weight.Source
	}{
		{"f32", tensor("w.weight_scale_inv", weight.F32, f32, 2, 1)},
		{"e8m0", tensor("w.weight_scale_inv", weight.F8E8M0, []byte{127, 128}, 2, 1)},
		{"e8m0 bytes stored as u8", tensor("w.weight_scale_inv", weight.U8, []byte{127, 128}, 2, 1)},
		{"the official name", tensor("w.scale", weight.F8E8M0, []byte{127, 128}, 2, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []string
			l := loader(t, func(n string) { seen = append(seen, n) }, tensor("w.weight", weight.F8E4M3, data, out, in),
				c.scale)
			m := l.Matrix("w.weight", out, in)
			if err := l.Finish(); err != nil {
				t.Fatal(err)
			}
			w := m.(*host.Matrix).Weight
			if w.Scale.DType != kernel.F32 || w.Scale.Rows != 2 || w.Scale.Cols != 1 || w.BlockRows != 128 ||
				w.BlockCols != 128 {
				t.Fatalf("scales %v in blocks of %d x %d", w.Scale, w.BlockRows, w.BlockCols)
			}
			if got := host.F32(w.Scale); got[0] != 1 || got[1] != 2 {
				t.Errorf("scales %v, want 1 and 2", got)
			}
			if want := []string{"w.weight", c.scale.Name}; !slices.Equal(seen, want) {
				t.Errorf("progress names %v, want %v", seen, want)
			}
			// The product of a row with ones is the sum of the row, 128 * 1.5 * scale. Rows 128 and 129 have the second
			// scale.
			x, y := ones(t, in), ones(t, out)
			if err := (&ref.Device{}).Do(kernel.MultiplyArgs{Out: y, X: x, W: m}); err != nil {
				t.Fatal(err)
			}
			v := host.F32(y)
			if v[0] != 192 || v[127] != 192 || v[128] != 384 || v[129] != 384 {
				t.Errorf("row sums %v %v %v %v, want 192 192 384 384", v[0], v[127], v[128], v[129])
			}
		})
	}
}

// If weights are only described, matrices that would be converted share zero bytes, whatever their sizes are.
func TestDescribedMatricesShareBytes(t *testing.T) {
	z := func(name string, d weight.DType, rows, cols int) weight.Source {
		return tensor(name, d, filled(rows*cols*d.Bits()/8, 0), rows, cols)
	}
	l := loader(t, nil,
		z("a.qweight", weight.I32, 32, 1), z("a.qzeros", weight.I32, 1, 1), z("a.scales", weight.F16, 1, 8),
		z("b.qweight", weight.I32, 64, 2), z("b.qzeros", weight.I32, 2, 2), z("b.scales", weight.F16, 2, 16))
	l.Described = true
	for _, x := range []struct {
		name    string
		out, in int
	}{{"a.weight", 8, 32}, {"b.weight", 16, 64}} {
		if m := l.Matrix(x.name, x.out, x.in); m == nil || m.In() != x.in {
			t.Errorf("%s: %v", x.name, m)
		}
	}
	if err := l.Finish(); err != nil {
		t.Error(err)
	}
}

// A matrix that cannot be converted is a problem of the checkpoint, with the name of its tensor.
func TestScalesThatAreNotFinite(t *testing.T) {
	infinite := []byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x7f} // the values 1 and infinity
	l := loader(t, nil, tensor("w.weight", weight.F8E4M3, filled(130*128, 1), 130, 128),
		tensor("w.weight_scale", weight.F32, infinite, 2, 1))
	l.Matrix("w.weight", 130, 128)
	if err := l.Finish(); !errors.Is(err, nn.ErrTensors) || !strings.Contains(err.Error(), "w.weight_scale") {
		t.Errorf("got %v", err)
	}
}

func ones(t *testing.T, n int) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(&ref.Device{}, kernel.F32, 1, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range host.F32(x) {
		host.F32(x)[i] = 1
	}
	return x
}

// kv_a_proj_with_mqa has 576 rows: four blocks of 128 and one of 64, so five rows of scales.
func TestRaggedLastBlock(t *testing.T) {
	const name = "self_attn.kv_a_proj_with_mqa.weight"
	data := tensor(name, weight.F8E4M3, filled(576*256, 0x38), 576, 256)
	l := loader(t, nil, data, tensor(name+"_scale_inv", weight.F32, filled(4*5*2, 0x3f), 5, 2))
	if w := l.Weight(name, 576, 256); w.Scale.Rows != 5 || w.Scale.Cols != 2 {
		t.Errorf("scales %v, want f32[5,2]", w.Scale)
	}
	if err := l.Finish(); err != nil {
		t.Error(err)
	}
	l = loader(t, nil, data, tensor(name+"_scale_inv", weight.F32, filled(4*4*2, 0x3f), 4, 2))
	l.Matrix(name, 576, 256)
	err := l.Finish()
	if !errors.Is(err, nn.ErrTensors) || !strings.Contains(err.Error(), "scale shape [5 2]") ||
		!strings.Contains(err.Error(), "[4 2]") {
		t.Errorf("four rows of scales: %v", err)
	}
}

// Half precision matrices are loaded unchanged, and vectors are widened to float32.
func TestHalfPrecision(t *testing.T) {
	half := []byte{0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38, 0x01, 0x00} // 1, -2, 0.5, 2^-24
	want := []float32{1, -2, 0.5, float32(math.Ldexp(1, -24))}
	l := loader(t, nil, tensor("m", weight.F16, half, 2, 2), tensor("v", weight.F16, half, 4),
		tensor("b", weight.BF16, []byte{0x80, 0x3f, 0x20, 0xc0}, 2))
	m, v, b := l.Weight("m", 2, 2), l.Vector("v", 4), l.Vector("b", 2)
	if err := l.Finish(); err != nil {
		t.Fatal(err)
	}
	if m.Data.DType != kernel.F16 || string(host.Bytes(m.Data)) != string(half) {
		t.Errorf("matrix %v holds % x", m.Data, host.Bytes(m.Data))
	}
	if v.DType != kernel.F32 || !slices.Equal(host.F32(v), want) {
		t.Errorf("vector %v holds %v, want %v", v, host.F32(v), want)
	}
	if !slices.Equal(host.F32(b), []float32{1, -2.5}) {
		t.Errorf("bf16 vector holds %v, want 1 and -2.5", host.F32(b))
	}
}

// Finish lists every kind of problem of a file, each with the expected shape.
func TestFinishListsEverything(t *testing.T) {
	z := func(name string, d weight.DType, shape ...int) weight.Source {
		n := d.Bits() / 8
		for _, s := range shape {
			n *= s
		}
		return tensor(name, d, filled(n, 0), shape...)
	}
	l := loader(t, nil,
		z("wide.weight", weight.BF16, 4, 9), z("flat.weight", weight.BF16, 8), z("ints.weight", weight.I32, 4, 8),
		z("bare.weight", weight.F8E4M3, 4, 8), z("fp4.weight", weight.U8, 4, 16), z("fp4.scale", weight.F32, 4, 1),
		z("table.weight", weight.F8E4M3, 4, 8), z("table.scale", weight.F32, 1, 1), z("long.bias", weight.F32, 9),
		z("square.bias", weight.F32, 2, 4), z("int.bias", weight.I32, 8), z("extra.weight", weight.F32, 3, 5),
		z("model.layers.0.self_attn.rotary_emb.inv_freq", weight.F32, 32))
	for _, n := range []string{"gone", "wide", "flat", "ints", "bare"} {
		l.Matrix(n+".weight", 4, 8)
	}
	l.Matrix("fp4.weight", 4, 32)
	l.Table("table.weight", 4, 8)
	for _, n := range []string{"gone", "long", "square", "int"} {
		l.Vector(n+".bias", 8)
	}
	err := l.Finish()
	if !errors.Is(err, nn.ErrTensors) {
		t.Fatalf("got %v, want ErrTensors", err)
	}
	want := []string{
		"missing gone.weight, want shape [4 8]", "missing gone.bias, want shape [8]",
		"wide.weight has shape [4 9], want [4 8]", `matrix "flat.weight"`, `matrix "ints.weight"`,
		`matrix "bare.weight"`, "fp4.weight has F32 scales", "table.weight is e4m3 with scales",
		"long.bias has shape [9], want [8]", "square.bias has shape [2 4], want [8]", "int.bias is I32",
		"unexpected extra.weight, shape [3 5]",
	}
	lines := strings.Split(err.Error(), "\n")[1:]
	for _, w := range want {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, w) }) {
			t.Errorf("no line with %q in\n%v", w, err)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(lines), len(want), err)
	}
}

func TestFinishShortensEndlessLists(t *testing.T) {
	l := loader(t, nil)
	for i := range 250 {
		l.Matrix(strings.Repeat("x", i+1), 1, 1)
	}
	err := l.Finish()
	if err == nil || !strings.Contains(err.Error(), "250 problems") || !strings.Contains(err.Error(), "and 50 more") {
		t.Errorf("got %.100v", err)
	}
}

// full is a device without free memory.
type full struct{ ref.Device }

var errFull = errors.New("out of device memory")

func (*full) Alloc(int64) (kernel.Buffer, error)                        { return nil, errFull }
func (*full) Prepare(kernel.Weight, kernel.Role) (kernel.Matrix, error) { return nil, errFull }

func TestDeviceErrorsAreNotTheCheckpoints(t *testing.T) {
	dir := t.TempDir()
	if err := weight.CreateSharded(dir,
		[]weight.Source{tensor("m", weight.F32, filled(16, 0), 2, 2), tensor("v", weight.F32, filled(8, 0), 2)}, nil,
		0); err != nil {
		t.Fatal(err)
	}
	w, err := weight.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, use := range []func(*nn.Loader){func(l *nn.Loader) { l.Matrix("m", 2, 2) }, func(l *nn.Loader) {
		l.Vector("v", 2)
	}} {
		l := nn.NewLoader(w, &full{}, nil)
		use(l)
		if err := l.Finish(); !errors.Is(err, errFull) || errors.Is(err, nn.ErrTensors) {
			t.Errorf("got %v, want the device's error", err)
		}
	}
}
