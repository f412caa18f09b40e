package weight

import (
	"fmt"
	"math"
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
