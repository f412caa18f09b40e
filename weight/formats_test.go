package weight_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/archive"
	"sparrow/weight"
)

// formatCase is a case of the oracle's manifest.
type formatCase struct {
	Config struct {
		Method  string `json:"quant_method"`
		Block   []int  `json:"weight_block_size"`
		Bits    int    `json:"bits"`
		Size    int    `json:"group_size"`
		Sym     bool   `json:"sym"`
		Stored  string `json:"checkpoint_format"`
		Weights struct {
			Bits int    `json:"num_bits"`
			Type string `json:"type"`
			Size int    `json:"group_size"`
		} `json:"weights"`
	} `json:"config"`
	Shape []int `json:"shape"`
}

func (c *formatCase) scheme() (s weight.Scheme) {
	q := &c.Config
	s = weight.Scheme{Method: q.Method, Symmetric: q.Sym, PlainZeros: q.Stored == "gptq_v2"}
	copy(s.Block[:], q.Block)
	if q.Bits > 0 {
		s.Groups = []weight.Group{{Bits: q.Bits, Size: q.Size}}
	}
	if q.Weights.Type == "int" {
		s.Groups = []weight.Group{{Bits: q.Weights.Bits, Size: q.Weights.Size}}
	}
	return s
}

// Matrices of every format are decoded to exactly the values that the format's own package gives, except for NVFP4,
// whose scales are rounded: its values are within 2^-22. Formats with reordered columns are refused with a message.
func TestFormats(t *testing.T) {
	dir := filepath.Join(archive.Unpack(t, "../testdata/oracle/formats-1.tar.gz"), "formats-1")
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Cases map[string]json.RawMessage `json:"cases"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	files := map[string]*weight.Checkpoint{}
	open := func(name string) *weight.Checkpoint {
		c, ok := files[name]
		if !ok {
			if c, err = weight.OpenFile(filepath.Join(dir, name+".safetensors")); err != nil {
				t.Fatal(err)
			}
			files[name] = c
			t.Cleanup(func() { c.Close() })
		}
		return c
	}
	cases := 0
	for name, text := range manifest.Cases {
		family, id, _ := strings.Cut(name, "/")
		if family == "gguf" || family == "checkpoints" {
			continue
		}
		cases++
		t.Run(name, func(t *testing.T) {
			var c formatCase
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			from := open(family + ".stored")
			from.Scheme = c.scheme()
			got, err := readCase(from, id)
			if strings.Contains(id, "_act") {
				if err == nil || !strings.Contains(err.Error(), "reordered columns") {
					t.Errorf("%v, want an error that names reordered columns", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			end := ".weight"
			if family == "mxfp4" {
				end = ".gate_up_proj"
			}
			want, ok := open(family + ".values").Tensor(id + end)
			if !ok {
				t.Fatalf("%s has no values", id)
			}
			values, err := weight.ReadF32(want)
			if err != nil {
				t.Fatal(err)
			}
			rounded := strings.Contains(name, "nvfp4") || c.Config.Method == "modelopt" && c.Config.Size == 16
			compare(t, got, values, rounded)
		})
	}
	if cases != 36 {
		t.Errorf("%d cases, want 36", cases)
	}
}

// readCase returns the values of a case, which is one matrix or several matrices that are stored together.
func readCase(c *weight.Checkpoint, id string) ([]float32, error) {
	if _, ok := c.Tensor(id + ".gate_up_proj_blocks"); !ok {
		m, err := c.Matrix(id + ".weight")
		if err != nil {
			return nil, err
		}
		return m.ReadF32()
	}
	list, err := c.Stack(id + ".gate_up_proj")
	var out []float32
	for _, m := range list {
		v, err := m.ReadF32()
		if err != nil {
			return nil, err
		}
		out = slices.Concat(out, v)
	}
	return out, err
}

// compare fails the test if values differ in any bit, or, if rounded is set, by more than 2^-22 of the value.
func compare(t *testing.T, got, want []float32, rounded bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i, v := range got {
		if v == want[i] || math.Float32bits(v) == math.Float32bits(want[i]) {
			continue
		}
		if d := math.Abs(float64(v) - float64(want[i])); !rounded || d > math.Abs(float64(want[i]))/(1<<22) {
			t.Fatalf("value %d is %v, want %v", i, v, want[i])
		}
	}
}

// A matrix with reordered columns is rearranged in at most 5 % more memory than its tensors take. An NVFP4 matrix whose
// scales are powers of two and equal in pairs becomes MXFP4 with the same values.
func TestArrangedMatrices(t *testing.T) {
	described := func(name string, d weight.DType, shape []int, fill byte) weight.Source {
		n := d.Size()
		for _, s := range shape {
			n *= s
		}
		return weight.SourceBytes(name, d, shape, bytes.Repeat([]byte{fill}, n))
	}
	open := func(tensors ...weight.Source) *weight.Checkpoint {
		var b bytes.Buffer
		if err := weight.Write(&b, tensors, nil); err != nil {
			t.Fatal(err)
		}
		c, err := weight.FromBytes("memory", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open(described("x.qweight", weight.I32, []int{256, 16}, 0x31),
		described("x.qzeros", weight.I32, []int{8, 16}, 7),
		described("x.scales", weight.F16, []int{8, 128}, 0x3c))
	m, err := c.Matrix("x.weight")
	if err != nil || !m.Reordered() {
		t.Fatalf("%v, %v", m.Reordered(), err)
	}
	if err := m.Arrange(); err != nil {
		t.Fatal(err)
	}
	held := int64(len(m.Data.Data) + len(m.Scale.Data) + len(m.Zero.Data))
	if most := c.Bytes() * 105 / 100; held > most || m.Reordered() {
		t.Errorf("%d bytes of %d, want up to %d", held, c.Bytes(), most)
	}
	factor := func(v float32) weight.Source {
		return weight.SourceBytes("x.weight_scale_2", weight.F32, nil,
			binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	codes := described("x.weight", weight.U8, []int{4, 64}, 0xb6)
	for _, tt := range []struct {
		name   string
		scale  weight.Source
		factor float32
		exact  bool
	}{
		{"powers of two", described("x.weight_scale", weight.F8E4M3, []int{4, 8}, 0x40), 1.0 / 1024, true},
		{"another factor", described("x.weight_scale", weight.F8E4M3, []int{4, 8}, 0x40), 3.0 / 1024, false},
		{"another scale", described("x.weight_scale", weight.F8E4M3, []int{4, 8}, 0x41), 1.0 / 1024, false},
		{"a pair that differs", weight.SourceBytes("x.weight_scale", weight.F8E4M3, []int{4, 8},
			bytes.Repeat([]byte{0x40, 0x48}, 16)), 1.0 / 1024, false},
	} {
		m, err := open(codes, tt.scale, factor(tt.factor)).Matrix("x.weight")
		if err != nil {
			t.Fatal(err)
		}
		before, err := m.ReadF32() // the values of a copy, because the matrix itself is rearranged
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Arrange(); err != nil {
			t.Fatal(err)
		}
		if is := m.Scale.DType == weight.F8E8M0 && m.BlockCols == 32 && m.Factor == 0; is != tt.exact {
			t.Errorf("%s: scales of %v in groups of %d", tt.name, m.Scale.DType, m.BlockCols)
		}
		want := float32(4) * 2 / 1024 // the first code is 6, which stands for 4; the scale e4m3 0x40 is 2
		if tt.exact && (before[0] != want || before[1] != -1.5*2/1024) {
			t.Errorf("%s: %v, want %v first", tt.name, before[:2], want)
		}
	}
}
