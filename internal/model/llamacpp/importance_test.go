package llamacpp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/llamacpp"
	"sparrow/weight/gguf"
)

// inputs is an entry of an importance matrix: the sums of squares of each matrix [matrices, columns], and the numbers
// of tokens.
type inputs struct {
	name         string
	sums, counts []float32
}

// matrixFile writes an importance matrix as llama.cpp does.
func matrixFile(t testing.TB, list ...inputs) string {
	t.Helper()
	var tensors []gguf.Source
	add := func(name string, values []float32, shape ...int) {
		tensors = append(tensors, gguf.Source{Name: name, Type: gguf.F32, Shape: shape, Write: func(w io.Writer) error {
			return binary.Write(w, binary.LittleEndian, values)
		}})
	}
	for _, x := range list {
		add(x.name+".in_sum2", x.sums, len(x.counts), len(x.sums)/len(x.counts))
		add(x.name+".counts", x.counts, len(x.counts), 1)
	}
	path := filepath.Join(t.TempDir(), "imatrix.gguf")
	if _, err := gguf.Create(path, []gguf.Pair{{Key: "general.type", Value: "imatrix"}}, tensors); err != nil {
		t.Fatal(err)
	}
	return path
}

// olderFile returns the same entry in the older format: means times calls.
func olderFile(name string, calls int32, values []float32) []byte {
	var b bytes.Buffer
	for _, v := range []any{int32(1), int32(len(name)), []byte(name), calls, int32(len(values)), values} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

// Sums become means; matrices that no token used have none.
func TestImportanceIsRead(t *testing.T) {
	path := matrixFile(t, inputs{"blk.0.ffn_down_exps.weight", []float32{8, 0, 4, 4, 7, 7}, []float32{2, 4, 0}})
	got, err := llamacpp.ReadImportance(path)
	if err != nil {
		t.Fatal(err)
	}
	list := got["blk.0.ffn_down_exps.weight"]
	if len(list) != 3 || list[0][0] != 4 || list[0][1] != 0 || list[1][0] != 1 || list[2] != nil {
		t.Errorf("importance %v", got)
	}
	old := filepath.Join(t.TempDir(), "imatrix.dat")
	if err := os.WriteFile(old, olderFile("output.weight", 5, []float32{10, 20}), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = llamacpp.ReadImportance(old)
	if err != nil || !slices.Equal(got["output.weight"][0], []float32{2, 4}) {
		t.Errorf("older format: %v, %v", got, err)
	}
}

// Files that are cut off, or have invalid values, end with an error that states what was found.
func TestHostileImportance(t *testing.T) {
	refused := func(what string, data []byte, want string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.dat")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := llamacpp.ReadImportance(path)
		if !errors.Is(err, llamacpp.ErrImportance) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", what, err, want)
		}
	}
	whole := olderFile("output.weight", 5, []float32{10, 20})
	for n := range whole {
		refused("cut off", whole[:n], "")
	}
	absurd := slices.Clone(whole)
	binary.LittleEndian.PutUint32(absurd, 1<<31)
	refused("a negative count", absurd, "the number of entries")
	absurd = slices.Clone(whole)
	binary.LittleEndian.PutUint32(absurd, 0)
	refused("no entries", absurd, "the number of entries")
	absurd = slices.Clone(whole)
	binary.LittleEndian.PutUint32(absurd[len(whole)-12:], 1<<27)
	refused("more values than bytes", absurd, "134217728 values")
	twice := append(slices.Clone(whole), whole[4:]...)
	twice[0] = 2
	refused("a name twice", twice, `entry "output.weight" occurs twice`)
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), -1} {
		refused("an invalid value", olderFile("output.weight", 1, []float32{1, v}), `entry "output.weight"`)
	}
	for what, path := range map[string]string{
		"no sums":         write(t, models(t)["builtin"], llamacpp.MixF32),
		"a negative mean": matrixFile(t, inputs{"x", []float32{1, -2}, []float32{1}}),
		"a huge mean":     matrixFile(t, inputs{"x", []float32{1, 3e38}, []float32{0.5}}),
		"negative tokens": matrixFile(t, inputs{"x", []float32{0, 0}, []float32{-1}}),
	} {
		if _, err := llamacpp.ReadImportance(path); !errors.Is(err, llamacpp.ErrImportance) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// With an importance matrix, the errors of values with large inputs are smaller. An importance matrix of another model
// is refused.
func TestImportanceWeighsErrors(t *testing.T) {
	const name, cols = "blk.1.ffn_gate_exps.weight", 256
	m := *models(t)["builtin"]
	const experts = 8
	x := inputs{name: name, counts: make([]float32, experts), sums: make([]float32, experts*cols)}
	for i := range x.sums {
		if x.sums[i] = 0.01; i%cols%7 == 0 {
			x.sums[i] = 50
		}
	}
	for e := range x.counts {
		x.counts[e] = float32(min(e, 1)) // the first expert has no importance
	}
	exact := valuesOf(t, write(t, models(t)["builtin"], llamacpp.MixF32), name)
	loss := func(mix llamacpp.Mix) (e [2]float64) {
		t.Helper()
		dir := t.TempDir()
		path := filepath.Join(dir, "m.gguf")
		report, err := llamacpp.Write(context.Background(), path, &m, mix, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range report {
			want := len(m.Importance) * (experts - 1)
			if l.Class == "experts" && l.Type == "Q4_K" && l.Weighed != want {
				t.Errorf("%+v: %d matrices are weighed, want %d", l, l.Weighed, want)
			}
			if l.Weighed > 0 && slices.Contains([]string{"Q8_0", "Q4_0", "Q5_0"}, l.Type) {
				t.Errorf("%+v: encoders of this type do not use importances", l)
			}
		}
		got := valuesOf(t, path, name)
		for i := range got {
			if expert := i / (len(got) / experts); i%cols%7 == 0 {
				e[min(expert, 1)] += math.Pow(float64(got[i]-exact[i]), 2)
			}
		}
		return e
	}
	plain := loss(llamacpp.MixQ4KM)
	var err error
	if m.Importance, err = llamacpp.ReadImportance(matrixFile(t, x)); err != nil {
		t.Fatal(err)
	}
	m.ImportanceFile = "imatrix.gguf"
	weighed := loss(llamacpp.MixQ4KM)
	if !(weighed[1] < 0.9*plain[1]) || weighed[0] != plain[0] {
		t.Errorf("squared errors of important values %v, without importance %v", weighed, plain)
	}
	loss(llamacpp.MixQ4_0)
	// Only the ratios of the importances of a matrix matter, also in the older format, with all experts in one list.
	scaled := func(by func(expert int) float64) (out []float32) {
		for i, v := range x.sums {
			expert := i / cols
			out = append(out, float32(float64(v*x.counts[expert])*by(expert)))
		}
		return out
	}
	older := filepath.Join(t.TempDir(), "imatrix.dat")
	rare := scaled(func(expert int) float64 { return math.Exp2(float64(-8 * expert)) })
	if err := os.WriteFile(older, olderFile(name, 1, rare), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{
		"tiny and huge": matrixFile(t, inputs{name, scaled(func(expert int) float64 {
			return math.Exp2(float64(200*(expert%2) - 100))
		}), x.counts}),
		"rarely used, older": older,
	} {
		if m.Importance, err = llamacpp.ReadImportance(path); err != nil {
			t.Fatal(err)
		}
		if got := loss(llamacpp.MixQ4KM); got != weighed {
			t.Errorf("%s: squared errors of important values %v, want %v", what, got, weighed)
		}
	}
	for what, bad := range map[string]inputs{
		"another width": {name, make([]float32, 8*128), x.counts}, "another model": {"blk.99.x", x.sums, x.counts},
		"fewer experts": {name, make([]float32, 4*256), x.counts[:4]},
		"more experts":  {name, make([]float32, 9*256), append(x.counts[:8:8], 1)}} {
		for i := range bad.sums {
			bad.sums[i] = 1
		}
		if m.Importance, err = llamacpp.ReadImportance(matrixFile(t, bad)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		if _, err := llamacpp.Write(context.Background(), path, &m, llamacpp.MixQ4KM, nil); err == nil ||
			!strings.Contains(err.Error(), "importance") {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// valuesOf returns the values of a tensor of a file.
func valuesOf(t *testing.T, path, name string) []float32 {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors {
		if x.Name != name {
			continue
		}
		if b, ok := x.Type.Block(); ok {
			out := make([]float32, len(x.Data)/b.Bytes()*b.Values())
			b.Decode(out, x.Data)
			return out
		}
		out := make([]float32, len(x.Data)/4)
		if _, err := binary.Decode(x.Data, binary.LittleEndian, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Fatalf("%s has no tensor %s", path, name)
	return nil
}

// FuzzImportance reads any file. The result is an error, or mean squares that are finite and not negative, and no more
// of them than the file has values.
func FuzzImportance(f *testing.F) {
	older := olderFile("output.weight", 5, []float32{10, 20})
	f.Add(older)
	f.Add(older[:len(older)-3])
	for _, counts := range [][]float32{{2, 4, 0}, {1}, {0.5, 3e38}} {
		data, err := os.ReadFile(matrixFile(f, inputs{"blk.0.x", []float32{8, 0, 4, 4, 7, 7}, counts}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	path := filepath.Join(f.TempDir(), "imatrix")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := llamacpp.ReadImportance(path)
		if err != nil {
			return
		}
		n := 0
		for name, list := range m {
			for _, one := range list {
				n += len(one)
				for _, v := range one {
					if !(v >= 0 && v <= math.MaxFloat32) {
						t.Fatalf("%q has the mean square %v", name, v)
					}
				}
			}
		}
		if 4*n > len(data) {
			t.Fatalf("%d values in %d bytes", n, len(data))
		}
	})
}
