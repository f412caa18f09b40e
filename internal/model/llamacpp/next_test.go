package llamacpp_test

import (
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/testkit/archive"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// A GLM-5.3-Flash model written as float32 and read again has the same configuration and the same values. This includes
// layers of linear attention, pooled index keys, residual streams and the drafting layer. The vision tower is left out.
func TestNextFloatsComeBack(t *testing.T) {
	s, err := family.Open(filepath.Join(archive.Unpack(t, "../../../testdata/oracle/glm5_next-1.tar.gz"),
		"glm5_next-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := write(t, &llamacpp.Model{Name: "next", Config: s.Model, Weights: s.Weights}, llamacpp.MixF32)
	got, err := family.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	have, want := *got.Model.(*config.Next), *s.Model.(*config.Next)
	have.BOS, have.EOS, have.Pad, want.BOS, want.EOS, want.Pad = nil, nil, nil, nil, nil, nil
	want.Format, want.Losses, want.Scheme = config.FormatGGUF, nil, weight.Scheme{}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("config\n%+v\nwant\n%+v", have, want)
	}
	names := slices.DeleteFunc(s.Weights.Names(), func(n string) bool { return strings.HasPrefix(n, "model.visual.") })
	if n := len(got.Weights.Names()); n != len(names) {
		t.Errorf("%d tensors, want %d", n, len(names))
	}
	for _, n := range names {
		as := strings.Replace(n, "model.language_model.", "model.", 1)
		x, _ := s.Weights.Tensor(n)
		y, ok := got.Weights.Tensor(as)
		if !ok || !slices.Equal(x.Shape, y.Shape) {
			t.Fatalf("%s is %+v, want shape %v", as, y, x.Shape)
		}
		a, err := weight.ReadF32(x)
		if err != nil {
			t.Fatal(err)
		}
		b, err := weight.ReadF32(y)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a {
			// The file stores the exponential of A_log.
			if b[i] != a[i] && !(strings.HasSuffix(n, "A_log") && math.Abs(float64(b[i]-a[i])) < 1e-6) {
				t.Fatalf("%s[%d] is %v, want %v", as, i, b[i], a[i])
			}
		}
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if kv, _ := f.Metadata.Ints("glm5next.attention.head_count_kv"); !slices.Equal(kv, []int64{0, 1, 0, 1, 1}) {
		t.Errorf("heads of keys %v, want 0 for layers of linear attention", kv)
	}
}

// Wrong metadata is refused with its name: decays that are not below zero, and a missing list of layers.
func TestNextFilesAreChecked(t *testing.T) {
	s, err := family.Open(filepath.Join(archive.Unpack(t, "../../../testdata/oracle/glm5_next-1.tar.gz"),
		"glm5_next-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := gguf.Open(write(t, &llamacpp.Model{Name: "next", Config: s.Model, Weights: s.Weights}, llamacpp.MixF32))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range f.Tensors {
		if f.Tensors[i].Name == "blk.2.ssm_a" {
			f.Tensors[i].Data = make([]byte, len(f.Tensors[i].Data))
		}
	}
	const zero = "blk.2.ssm_a has 0 for head 0"
	if err := openEdited(t, f, f.Metadata); err == nil || !strings.Contains(err.Error(), zero) {
		t.Errorf("decays of zero: %v", err)
	}
	delete(f.Metadata, "glm5next.attention.head_count_kv")
	if err := openEdited(t, f, f.Metadata); err == nil || !strings.Contains(err.Error(), "head_count_kv") {
		t.Errorf("no list of layers: %v", err)
	}
}
