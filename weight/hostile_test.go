package weight

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

// words returns a tensor whose bytes are the given 32-bit numbers.
func words(name string, d DType, shape []int, v ...uint32) Source {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return SourceBytes(name, d, shape, b)
}

// shapeOf returns a tensor weight_shape with the given numbers.
func shapeOf(name string, v ...int64) Source {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return SourceBytes(name, I64, []int{len(v)}, b)
}

// Reading a damaged or hostile matrix gives an error that names the wrong tensor or field.
func TestHostileMatrices(t *testing.T) {
	one, nan := math.Float32bits(1), math.Float32bits(float32(math.NaN()))
	nvfp4 := []Source{described("x.weight", U8, 4, 16), described("x.weight_scale", F8E4M3, 4, 2)}
	packed := []Source{described("x.weight_packed", I32, 4, 8), described("x.weight_scale", BF16, 4, 2),
		shapeOf("x.weight_shape", 4, 64)}
	awq := []Source{described("x.qweight", I32, 64, 2), described("x.qzeros", I32, 2, 2),
		described("x.scales", F16, 2, 16)}
	gptq := []Source{described("x.qweight", I32, 8, 16), described("x.qzeros", I32, 2, 2),
		described("x.scales", F16, 2, 16)}
	with := func(list []Source, at int, s Source) []Source {
		out := append([]Source(nil), list...)
		out[at] = s
		return out
	}
	index := make([]uint32, 64)
	for i := range index {
		index[i] = uint32(i % 2)
	}
	for _, tt := range []struct {
		name    string
		tensors []Source
		scheme  Scheme
		want    []string
	}{
		{"NVFP4 without its factor", nvfp4, Scheme{}, []string{"x.weight_scale_2", "x.weight_global_scale", "missing"}},
		{"NVFP4 with both factors", append(nvfp4, words("x.weight_scale_2", F32, nil, one),
			words("x.weight_global_scale", F32, nil, one)), Scheme{},
			[]string{"x.weight_scale_2", "x.weight_global_scale"}},
		{"a factor that divides taken for one that multiplies", append(nvfp4, words("x.weight_scale_2", F32, nil,
			math.Float32bits(4000))), Scheme{}, []string{"x.weight_scale_2", "4000", "divides"}},
		{"a factor of NaN", append(nvfp4, words("x.weight_scale_2", F32, nil, nan)), Scheme{},
			[]string{"x.weight_scale_2", "NaN"}},
		{"a divisor of zero", append(nvfp4, words("x.weight_global_scale", F32, []int{1}, 0)), Scheme{},
			[]string{"x.weight_global_scale", "0"}},
		{"two factors", append(nvfp4, words("x.weight_scale_2", F32, []int{2}, one, one)), Scheme{},
			[]string{"x.weight_scale_2", "[2]"}},
		{"NVFP4 scales of groups of 32", append(with(nvfp4, 1, described("x.weight_scale", F8E4M3, 4, 1)),
			words("x.weight_scale_2", F32, nil, math.Float32bits(0.1))), Scheme{}, []string{"x.weight_scale", "[4 2]"}},
		{"NVFP4 scales of NaN", append(with(nvfp4, 1, SourceBytes("x.weight_scale", F8E4M3, []int{4, 2},
			bytes.Repeat([]byte{0x7f}, 8))), words("x.weight_scale_2", F32, nil, math.Float32bits(0.1))), Scheme{},
			[]string{"x.weight_scale", "NaN"}},
		{"MXFP4 scales of NaN", []Source{described("x.weight_packed", U8, 1, 16), SourceBytes("x.weight_scale", U8,
			[]int{1, 1}, []byte{255})}, Scheme{}, []string{"x.weight_scale", "NaN"}},
		{"packed integers without a scale", packed[:1], Scheme{}, []string{"x.weight_scale"}},
		{"packed integers without a shape", packed[:2], Scheme{}, []string{"x.weight_shape"}},
		{"a shape of other rows", with(packed, 2, shapeOf("x.weight_shape", 5, 64)), Scheme{},
			[]string{"x.weight_shape", "[5 64]"}},
		{"a shape of absurd columns", with(packed, 2, shapeOf("x.weight_shape", 4, 1<<62)), Scheme{},
			[]string{"x.weight_shape"}},
		{"a shape of no columns", with(packed, 2, shapeOf("x.weight_shape", 4, 0)), Scheme{},
			[]string{"x.weight_shape"}},
		{"a shape of three numbers", with(packed, 2, shapeOf("x.weight_shape", 4, 64, 1)), Scheme{},
			[]string{"x.weight_shape"}},
		{"integers of 3 bits", with(packed, 2, shapeOf("x.weight_shape", 4, 80)), Scheme{}, []string{"4 or 8 bits"}},
		{"groups that are not equal", with(packed, 1, described("x.weight_scale", BF16, 4, 3)), Scheme{},
			[]string{"x.weight_scale", "[4 3]"}},
		{"scales of integers", with(packed, 1, described("x.weight_scale", I32, 4, 2)), Scheme{},
			[]string{"x.weight_scale", "I32"}},
		{"another group size than the configuration's", packed, Scheme{Groups: []Group{{4, 128}, {8, 32}}},
			[]string{"x.weight_scale", "int4 in groups of 32", "group_size", "128"}},
		{"zero points of another shape", append(packed, described("x.weight_zero_point", I32, 4, 2)), Scheme{},
			[]string{"x.weight_zero_point", "[1 2]"}},
		{"reordered columns", append(packed, words("x.weight_g_idx", I32, []int{64}, index...)), Scheme{},
			[]string{"x.weight_g_idx", "reordered columns"}},
		{"columns in groups before theirs", append(packed, words("x.weight_g_idx", I32, []int{64},
			make([]uint32, 64)...)), Scheme{}, []string{"x.weight_g_idx", "column 32 in group 0"}},
		{"a short list of groups", append(packed, words("x.weight_g_idx", I32, []int{2}, 0, 0)), Scheme{},
			[]string{"x.weight_g_idx", "2 values"}},
		{"scales of infinity", with(packed, 1, SourceBytes("x.weight_scale", BF16, []int{4, 2},
			bytes.Repeat([]byte{0x80, 0x7f}, 8))), Scheme{}, []string{"x.weight_scale", "infinite"}},
		{"two forms", append(packed, described("x.weight", BF16, 4, 64)), Scheme{},
			[]string{"x.weight_packed", `"x.weight"`, "want one of them"}},
		{"AWQ without scales", awq[:2], Scheme{}, []string{"x.scales"}},
		{"AWQ without zero points", append(awq[:1:1], awq[2]), Scheme{}, []string{"qzeros"}},
		{"AWQ of other rows", with(awq, 0, described("x.qweight", I32, 64, 3)), Scheme{Method: "awq"},
			[]string{"x.qweight", "[64 3]"}},
		{"AWQ of uneven groups", with(awq, 0, described("x.qweight", I32, 63, 2)), Scheme{}, []string{"63 columns"}},
		{"AWQ zero points of another shape", with(awq, 1, described("x.qzeros", I32, 2, 3)), Scheme{},
			[]string{"x.qzeros", "[2 2]"}},
		{"AWQ scales of NaN", with(awq, 2, SourceBytes("x.scales", F16, []int{2, 16},
			bytes.Repeat([]byte{0, 0x7e}, 32))), Scheme{}, []string{"x.scales", "NaN"}},
		{"AWQ in groups that the configuration does not have", awq, Scheme{Groups: []Group{{4, 128}}},
			[]string{"x.scales", "groups of 32", "128"}},
		{"GPTQ of 2 bits", gptq, Scheme{Method: "gptq", Groups: []Group{{2, 32}}}, []string{"bits is 2"}},
		{"GPTQ with reordered columns", append(gptq, words("x.g_idx", I32, []int{64}, index...)),
			Scheme{Method: "gptq"}, []string{"x.g_idx", "reordered columns"}},
		{"a zero point of GPTQ that does not fit", []Source{described("x.qweight", I32, 8, 4),
			words("x.qzeros", I32, []int{1, 1}, 0xffffffff), described("x.scales", F16, 1, 4)},
			Scheme{Method: "gptq", Groups: []Group{{8, 32}}}, []string{"x.qzeros", "256"}},
		{"FP8 in other blocks than the configuration's", []Source{described("x.weight", F8E4M3, 256, 256),
			described("x.weight_scale_inv", F32, 2, 2)}, Scheme{Block: [2]int{32, 32}},
			[]string{"weight_block_size", "[32 32]", "128 x 128"}},
		{"a row of FP8 scales too few", []Source{described("x.weight", F8E4M3, 6, 64),
			described("x.weight_scale", F32, 5)}, Scheme{}, []string{"x.weight_scale", "[5]"}},
		{"FP8 scales of NaN", []Source{described("x.weight", F8E4M3, 1, 64), words("x.weight_scale", F32, nil, nan)},
			Scheme{}, []string{"x.weight_scale", "NaN"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := inMemory(t, tt.tensors...)
			c.Scheme = tt.scheme
			m, err := c.Matrix("x.weight")
			if err == nil {
				err = m.Arrange()
			}
			if !errors.Is(err, ErrScale) && !errors.Is(err, ErrDType) {
				t.Fatalf("%v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// For any tensors of a module, reading its matrix gives values of its shape or an error.
func FuzzForms(f *testing.F) {
	types := []DType{U8, I8, I32, I64, F32, F16, BF16, F8E4M3, F8E8M0}
	ends := []string{".weight", ".weight_packed", ".qweight", ".weight_scale", ".weight_scale_2",
		".weight_global_scale", ".scales", ".qzeros", ".weight_shape", ".weight_zero_point", ".g_idx", ".weight_g_idx",
		".scale"}
	f.Add([]byte{1, 2, 4, 8, 3, 6, 4, 2, 8, 3, 2, 0}, []byte{4, 0, 0, 0, 0, 0, 0, 0, 64})
	f.Add([]byte{0, 0, 4, 16, 3, 7, 4, 2, 4, 4, 0, 0}, []byte{0, 0, 128, 60})
	f.Add([]byte{2, 2, 64, 2, 7, 2, 2, 2, 6, 5, 2, 16}, []byte{1, 2, 3})
	f.Add([]byte{0, 7, 6, 64, 3, 4, 6, 1}, []byte{9})
	f.Fuzz(func(t *testing.T, tensors, data []byte) {
		var list []Source
		seen := map[byte]bool{}
		for i := 0; i+4 <= len(tensors) && len(list) < len(ends); i += 4 {
			end, d := tensors[i]%byte(len(ends)), types[tensors[i+1]%byte(len(types))]
			if seen[end] {
				continue
			}
			seen[end] = true
			shape := []int{int(tensors[i+2] % 65), int(tensors[i+3] % 65)}
			switch {
			case tensors[i+3] > 250:
				shape = nil
			case tensors[i+3] > 240:
				shape = shape[:1]
			}
			n, ok := dataBytes(d, shape)
			if !ok {
				continue
			}
			b := make([]byte, n)
			for j := range b {
				if len(data) > 0 {
					b[j] = data[j%len(data)]
				}
			}
			list = append(list, SourceBytes("x"+ends[end], d, shape, b))
		}
		var file bytes.Buffer
		if err := Write(&file, list, nil); err != nil {
			t.Skip()
		}
		c, err := FromBytes("fuzz", file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []Scheme{{}, {Method: "awq"}, {Method: "gptq", Groups: []Group{{8, 0}}, PlainZeros: true},
			{Block: [2]int{32, 32}}} {
			c.Scheme = s
			m, err := c.Matrix("x.weight")
			if err != nil {
				continue
			}
			v, err := m.ReadF32()
			if err == nil && len(v) != m.Rows*m.Cols {
				t.Fatalf("%d values of a matrix [%d, %d]", len(v), m.Rows, m.Cols)
			}
		}
	})
}
