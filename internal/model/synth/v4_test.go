package synth

import (
	"math"
	"slices"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/num"
	"sparrow/weight"
)

// In FP4 experts, the exponent of each group brings its largest magnitude to 6, or as close below 6 as a power of two
// can.
func TestFP4GroupsFitTheirExponents(t *testing.T) {
	w := open(t, written(t, "v4-tiny", Options{DType: FP8}))
	groups := 0
	for _, name := range w.Names() {
		d, _ := w.Tensor(name)
		if d.DType != weight.I8 {
			continue
		}
		m, err := w.Matrix(name)
		if err != nil {
			t.Fatal(err)
		}
		scales, err := weight.ReadF32(m.Scale)
		if err != nil {
			t.Fatal(err)
		}
		for g, s := range scales {
			groups++
			peak := float32(0)
			for _, b := range m.Data.Data[g*fp4Group/2 : (g+1)*fp4Group/2] {
				even, odd := num.UnpackE2M1(b)
				for _, c := range []byte{even, odd} {
					peak = max(peak, float32(math.Abs(float64(num.FromE2M1(c)))))
				}
			}
			if !num.IsPow2(s) || peak < 3 {
				t.Fatalf("%s: group %d has scale %g and reaches %g", name, g, s, peak)
			}
		}
	}
	if groups == 0 {
		t.Error("no expert is FP4")
	}
}

// A layer that looks experts up by token has k different experts for each token.
func TestExpertTablesNameDifferentExperts(t *testing.T) {
	w := open(t, written(t, "v4-tiny", Options{}))
	table, ok := w.Tensor("layers.0.ffn.gate.tid2eid")
	if !ok || table.DType != weight.I64 || !slices.Equal(table.Shape, []int{1280, 2}) {
		t.Fatalf("the table is %+v", table)
	}
	seen := map[byte]int{}
	for at := 0; at < len(table.Data); at += 16 {
		a, b := table.Data[at], table.Data[at+8]
		if a == b || a >= 8 || b >= 8 {
			t.Fatalf("token %d has experts %d and %d", at/16, a, b)
		}
		seen[a]++
	}
	if len(seen) != 8 {
		t.Errorf("only experts %v come first", seen)
	}
}

// Experts are FP8 if the config of a checkpoint has FP8 experts.
func TestExpertsAreWhatTheConfigSays(t *testing.T) {
	text, err := PresetConfig("v4-tiny")
	if err != nil {
		t.Fatal(err)
	}
	fp8 := []byte(string(text[:len(text)-2]) + `, "expert_dtype": "fp8"}`)
	for _, c := range []struct {
		text []byte
		want weight.DType
	}{{text, weight.I8}, {fp8, weight.F8E4M3}} {
		ck, err := New("config.json", c.text, Options{DType: FP8})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range ck.tensors {
			if x.name == "layers.1.ffn.experts.0.w1.weight" && x.dtype != c.want {
				t.Errorf("experts are %v, want %v", x.dtype, c.want)
			}
		}
	}
}

// The tensors and bytes of releases with a DSpark head equal the published numbers (dspark spec, 2).
func TestDSparkSizes(t *testing.T) {
	for _, c := range []struct {
		preset         string
		tensors        int
		bytes, drafted int64
	}{
		{"deepseek-v4-flash-0731", 72_317, 166_878_536_440, 4_705},
		{"deepseek-v4-pro-0813", 149_782, 892_727_580_904, 7_009},
	} {
		text, err := PresetConfig(c.preset)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New("config.json", text, Options{DType: FP8})
		if err != nil {
			t.Fatal(err)
		}
		if s := m.Size(); s.Tensors != c.tensors || s.Bytes != c.bytes {
			t.Errorf("%s: %d tensors of %d bytes, published are %d of %d", c.preset, s.Tensors, s.Bytes, c.tensors,
				c.bytes)
		}
		drafted := int64(0)
		for _, x := range m.sources(&filler{}) {
			if m.config.(*config.V4).DSpark.DraftTensors(x.Name) {
				drafted++
			}
		}
		if drafted != c.drafted {
			t.Errorf("%s: %d tensors of the draft head, published are %d", c.preset, drafted, c.drafted)
		}
	}
}
