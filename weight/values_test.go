package weight

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// The number of bytes of a checkpoint counts only the tensors that remain after some are dropped and others are
// renamed.
func TestBytesOfWhatIsLeft(t *testing.T) {
	c := inMemory(t, described("model.visual.a", F32, 10), described("model.b", F32, 3), described("p.c", BF16, 7))
	if c.Bytes() != 40+12+14 {
		t.Fatalf("%d bytes", c.Bytes())
	}
	if c.Drop("model.visual.", "other."); c.Bytes() != 26 || len(c.Names()) != 2 {
		t.Errorf("%d bytes of %v", c.Bytes(), c.Names())
	}
	if c.TrimPrefix("p."); c.Bytes() != 26 || c.Names()[0] != "c" {
		t.Errorf("%d bytes of %v", c.Bytes(), c.Names())
	}
}

// NVFP4 scales become MXFP4 scales only if they are equal in pairs, positive, normal powers of two, and the global
// factor is a power of two as well.
func TestWhichNVFP4IsMXFP4(t *testing.T) {
	for _, c := range []struct {
		scales [2]byte
		factor float32
		want   bool
	}{{[2]byte{0x38, 0x38}, 0.25, true}, {[2]byte{0x38, 0x40}, 0.25, false}, {[2]byte{0x39, 0x39}, 0.25, false},
		{[2]byte{0x04, 0x04}, 0.25, false}, {[2]byte{0xb8, 0xb8}, 0.25, false}, {[2]byte{0x38, 0x38}, 0.3, false},
		{[2]byte{0x08, 0x08}, 0x1p-126, false}} {
		m := Matrix{Data: &Tensor{}, Rows: 1, Cols: 32, BlockCols: nvGroup, Factor: c.factor,
			Scale: &Tensor{DType: F8E4M3, Shape: []int{1, 2}, Data: c.scales[:]}}
		got := m.asMXFP4()
		if (got.BlockCols == mxGroup) != c.want || (got.Factor == 0) != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
		if c.want && got.Scale.Data[0] != 127-2 {
			t.Errorf("%+v: exponent %d", c, got.Scale.Data[0])
		}
	}
}

// The golden table records which shapes and types of scales are accepted for which weights.
func TestTableOfScales(t *testing.T) {
	shapes := [][]int{{}, {1}, {4}, {2, 1}, {256, 1}, {4, 1}, {4, 2}, {4, 4}, {3, 2}, {1, 2}, {2, 1, 1, 1},
		{2, 3, 1, 1}, {2, 1, 1, 3}, {4, 1, 2, 1}}
	factor := words("x.weight_scale_2", F32, nil, math.Float32bits(0.125))
	var lines []string
	for _, list := range [][]Source{{described("x.weight", F8E4M3, 256, 128)}, {described("x.weight", F8E4M3, 3, 130)},
		{described("x.weight", U8, 4, 32)}, {described("x.weight", U8, 4, 32), factor},
		{described("x.weight", I8, 4, 64)},
		{described("x.weight_packed", I32, 4, 8), shapeOf("x.weight_shape", 4, 64)},
		{described("x.weight_packed", U8, 4, 32), factor}, {described("x.weight", BF16, 4, 64)}} {
		data := list[0]
		for _, name := range []string{"x.weight_scale", "x.weight_scale_inv", "x.scale"} {
			for _, kind := range []DType{F32, F8E8M0, F8E4M3} {
				text := ""
				for _, shape := range shapes {
					all := append(list[:len(list):len(list)], described(name, kind, shape...))
					m, err := inMemory(t, all...).Matrix("x.weight")
					if err == nil {
						text += fmt.Sprintf(" %v: %v %d x %d in %d x %d, scale %v;", shape, m.Values, m.Rows, m.Cols,
							m.BlockRows, m.BlockCols, m.Scale != nil)
					}
				}
				if text != "" {
					lines = append(lines, fmt.Sprintf("%s %v %v of %d with %s %v:%s", data.Name, data.DType, data.Shape,
						len(list), name, kind, text))
				}
			}
		}
	}
	table.Check(t, "scales.txt", lines)
}

// GPTQ without a configuration has 8 bits if its zero points say so. Stored zero points are smaller by one. Without
// zero points, a symmetric matrix has the middle of the range of codes.
func TestZeroPointsOfGPTQ(t *testing.T) {
	one := []uint32{0x3c003c00, 0x3c003c00}
	scales := words("x.scales", F16, []int{1, 4}, one...)
	bytewise := words("x.qweight", I32, []int{2, 4}, 0x04030201, 0x04030201, 0x04030201, 0x04030201, 1, 2, 3, 4)
	nibbles := words("x.qweight", I32, []int{1, 4}, 0x76543210, 0x76543210, 0xfedcba98, 0)
	for _, c := range []struct {
		name   string
		scheme Scheme
		list   []Source
		want   []float32 // a few values from the beginning of each row
	}{
		{"8 bits", Scheme{}, []Source{bytewise, words("x.qzeros", I32, []int{1, 1}, 0x03020100), scales},
			[]float32{0, 1, 2, 3, 0, -1, -1, -1, -1, 0, 1, 2, 0, -2, -2, -2}},
		{"8 bits, plain zeros", Scheme{Method: "gptq", PlainZeros: true, Groups: []Group{{Bits: 8, Size: 8}}},
			[]Source{bytewise, words("x.qzeros", I32, []int{1, 1}, 0xff020100), scales},
			[]float32{1, 2, 3, 4, 1, 0, 0, 0, 0, 1, 2, 3, 1, -1, -1, -1}},
		{"8 bits, symmetric", Scheme{Method: "gptq", Symmetric: true, Groups: []Group{{Bits: 8, Size: 8}}},
			[]Source{bytewise, scales}, []float32{-127, -126, -125, -124, -127, -128, -128, -128}},
		{"4 bits, symmetric", Scheme{Method: "gptq", Symmetric: true, Groups: []Group{{Bits: 4, Size: 8}}},
			[]Source{nibbles, scales}, []float32{-8, -7, -6, -5, -4, -3, -2, -1, -8}},
	} {
		from := inMemory(t, c.list...)
		from.Scheme = c.scheme
		m, err := from.Matrix("x.weight")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, err := m.ReadF32(); err != nil || len(got) != 4*m.Cols || !slices.Equal(got[:len(c.want)], c.want) {
			t.Errorf("%s: %v, error %v, want %v first", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct {
		name, want string
		list       []Source
	}{
		{"a zero point of 256", "256", []Source{bytewise, words("x.qzeros", I32, []int{1, 1}, 0xff), scales}},
		{"groups of one value", "whole bytes", []Source{described("x.qweight", I32, 1, 8),
			described("x.qzeros", I32, 8, 1), described("x.scales", F16, 8, 8)}},
		{"no zero points", "qzeros", []Source{bytewise, scales}},
		{"codes of another type", "qweight must be I32", []Source{described("x.qweight", F32, 2, 4), scales}},
		{"no scales", "x.scales", []Source{bytewise}},
		{"scales of no rows", "qweight must be I32", []Source{bytewise, described("x.scales", F16, 1, 0)}},
	} {
		m, err := inMemory(t, c.list...).Matrix("x.weight")
		if err == nil {
			_, err = m.ReadF32()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Packed values count individually; scales, zero points and shapes are no parameters.
func TestParametersOfATensor(t *testing.T) {
	c := inMemory(t, described("a.weight", BF16, 3, 5), described("b.weight", F8E4M3, 3, 5),
		described("b.weight_scale_inv", F32, 1, 2), described("c.weight", U8, 4, 16),
		described("c.weight_scale", F8E4M3, 4, 2), described("d.weight_packed", I32, 4, 8),
		shapeOf("d.weight_shape", 4, 63), described("d.weight_scale", BF16, 4, 2),
		described("e.weight_packed", I32, 4, 8), described("f.qweight", I32, 2, 8), described("f.qzeros", I32, 1, 2),
		described("f.scales", F16, 1, 8), described("f.g_idx", I32, 8), described("g.weight", I8, 4, 16),
		described("h.weight", I8, 4, 16), described("h.weight_scale", F32, 4), described("k.k_scale", F32, 1),
		described("norm", F32, 7))
	for name, want := range map[string][2]int64{
		"a.weight": {15, 0}, "b.weight": {15, 0}, "b.weight_scale_inv": {0, 2}, "c.weight": {128, 0},
		"c.weight_scale": {0, 8}, "d.weight_packed": {4 * 63, 0}, "d.weight_shape": {0, 0}, "d.weight_scale": {0, 8},
		"e.weight_packed": {32, 0}, "f.qweight": {16 * 8, 0}, "f.qzeros": {0, 2}, "f.scales": {0, 8}, "f.g_idx": {0, 0},
		"g.weight": {128, 0}, "h.weight": {64, 0}, "h.weight_scale": {0, 4}, "k.k_scale": {0, 0}, "norm": {7, 0},
	} {
		x, ok := c.Tensor(name)
		if !ok {
			t.Fatalf("%s is missing", name)
		}
		if values, scales := c.Parameters(x); values != want[0] || scales != want[1] {
			t.Errorf("%s: %d parameters and %d scales, want %v", name, values, scales, want)
		}
	}
	c.Scheme = Scheme{Groups: []Group{{Bits: 8}}}
	if x, _ := c.Tensor("f.qweight"); x != nil {
		if values, _ := c.Parameters(x); values != 16*4 {
			t.Errorf("8 bits: %d parameters", values)
		}
	}
}

// The files of a release follow from its index, or are its only file of weights.
func TestFilesOfAnIndex(t *testing.T) {
	const text = `{"weight_map": {"b": "2.safetensors", "a": "1.safetensors", "c": "1.safetensors"}}`
	index := func(name string) ([]byte, error) { return []byte(text), nil }
	got, err := Files("x", []string{"1.safetensors", IndexName, "README.md"}, index)
	if want := []string{IndexName, "1.safetensors", "2.safetensors"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	got, err = Files("x", []string{"model.safetensors", "README.md"}, index)
	if want := []string{"model.safetensors"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	broken := errors.New("no index")
	if _, err := Files("x", []string{IndexName}, func(string) ([]byte, error) { return nil, broken }); err != broken {
		t.Errorf("%v", err)
	}
	if _, err := Files("x", []string{IndexName}, func(string) ([]byte, error) { return []byte("{"), nil }); err == nil {
		t.Error("a broken index was accepted")
	}
	names, err := IndexedTensors("x", []byte(text))
	if want := []string{"a", "b", "c"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, %v, want %v", names, err, want)
	}
	if _, err := IndexedTensors("x", []byte("[")); err == nil {
		t.Error("a broken index was accepted")
	}
}

// Matrices that are stored together are found by the shapes of their tensors, which have no empty dimension.
func TestStacksHaveExactShapes(t *testing.T) {
	for _, c := range []struct {
		blocks, scales []int
		d              DType
		refused        bool
	}{
		{[]int{1, 1, 1, 16}, []int{1, 1, 1}, U8, false},
		{[]int{2, 3, 4, 16}, []int{2, 3, 4}, U8, false},
		{[]int{2, 0, 4, 16}, []int{2, 0, 4}, U8, true},
		{[]int{2, 3, 4, 15}, []int{2, 3, 4}, U8, true},
		{[]int{2, 3, 16}, []int{2, 3}, U8, true},
		{[]int{2, 3, 4, 16}, []int{2, 3, 5}, U8, true},
		{[]int{2, 3, 4, 16}, []int{2, 3, 4}, I8, true},
	} {
		list, err := inMemory(t, described("x_blocks", c.d, c.blocks...), described("x_scales", U8, c.scales...)).
			Stack("x")
		if (err != nil) != c.refused || err == nil && (len(list) != c.blocks[0] || list[0].Rows != c.blocks[1] ||
			list[0].Cols != 32*c.blocks[2] || len(list[0].Scale.Data) != c.blocks[1]*c.blocks[2]) {
			t.Errorf("%v with scales %v: %d matrices, %v", c.blocks, c.scales, len(list), err)
		}
	}
	if _, err := inMemory(t, described("x_blocks", U8, 1, 1, 1, 16)).Stack("x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("without scales: %v", err)
	}
}
