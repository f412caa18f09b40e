package weight

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// described returns a tensor of zeros.
func described(name string, d DType, shape ...int) Source {
	n, ok := dataBytes(d, shape)
	if !ok {
		panic("no such tensor")
	}
	return SourceBytes(name, d, shape, make([]byte, n))
}

// inMemory returns a checkpoint in memory with the given tensors.
func inMemory(t testing.TB, tensors ...Source) *Checkpoint {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	c, err := FromBytes("memory.safetensors", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dequantised returns the values of the matrix "x.weight" in a checkpoint of the given tensors.
func dequantised(t *testing.T, tensors ...Source) []float32 {
	t.Helper()
	m, err := inMemory(t, tensors...).Matrix("x.weight")
	if err != nil {
		t.Fatal(err)
	}
	values, err := m.ReadF32()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestMatrixFindsItsForm(t *testing.T) {
	tests := []struct {
		name       string
		tensors    []Source
		scale      string // name of the scale, or empty
		blockRows  int
		blockCols  int
		rows, cols int
		values     DType
	}{
		{"bf16 without scale", []Source{described("x.weight", BF16, 3, 5)}, "", 0, 0, 3, 5, BF16},
		{"f32 without scale", []Source{described("x.weight", F32, 3, 5)}, "", 0, 0, 3, 5, F32},
		{"f16 without scale", []Source{described("x.weight", F16, 3, 5)}, "", 0, 0, 3, 5, F16},
		{"fp8 of whole blocks", []Source{described("x.weight", F8E4M3, 256, 384),
			described("x.weight_scale_inv", F32, 2, 3)}, "x.weight_scale_inv", 128, 128, 256, 384, F8E4M3},
		{"fp8 with ragged last rows",
			[]Source{described("x.weight", F8E4M3, 576, 256), described("x.weight_scale_inv", F32, 5, 2)},
			"x.weight_scale_inv", 128, 128, 576, 256, F8E4M3},
		{"fp8 one value over a block",
			[]Source{described("x.weight", F8E4M3, 129, 129), described("x.weight_scale_inv", F32, 2, 2)},
			"x.weight_scale_inv", 128, 128, 129, 129, F8E4M3},
		{"fp8 smaller than a block",
			[]Source{described("x.weight", F8E4M3, 1, 127), described("x.weight_scale_inv", F32, 1, 1)},
			"x.weight_scale_inv", 128, 128, 1, 127, F8E4M3},
		{"fp8 of no rows", []Source{described("x.weight", F8E4M3, 0, 128), described("x.weight_scale_inv", F32, 0, 1)},
			"x.weight_scale_inv", 128, 128, 0, 128, F8E4M3},
		{"fp8 with the official scale name and e8m0",
			[]Source{described("x.weight", F8E4M3, 128, 128), described("x.scale", F8E8M0, 1, 1)}, "x.scale", 128, 128,
			128, 128, F8E4M3},
		{"fp8 with e8m0 bytes stored as U8",
			[]Source{described("x.weight", F8E4M3, 128, 128), described("x.scale", U8, 1, 1)}, "x.scale", 128, 128, 128,
			128, F8E4M3},
		{"fp8 under a name without .weight",
			[]Source{described("experts.down_proj", F8E4M3, 128, 128),
				described("experts.down_proj_scale_inv", F32, 1, 1)}, "experts.down_proj_scale_inv", 128, 128, 128, 128,
			F8E4M3},
		{"fp4 stored as I8", []Source{described("x.weight", I8, 3, 32), described("x.scale", F8E8M0, 3, 2)}, "x.scale",
			1, 32, 3, 64, F4E2M1x2},
		{"fp4 stored as U8 with a ragged last group",
			[]Source{described("x.weight", U8, 3, 17), described("x.weight_scale_inv", U8, 3, 2)}, "x.weight_scale_inv",
			1, 32, 3, 34, F4E2M1x2},
		{"fp4 stored as F4", []Source{described("x.weight", F4E2M1x2, 3, 64), described("x.scale", F8E8M0, 3, 2)},
			"x.scale", 1, 32, 3, 64, F4E2M1x2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := inMemory(t, tt.tensors...).Matrix(tt.tensors[0].Name)
			if err != nil {
				t.Fatal(err)
			}
			scale := ""
			if m.Scale != nil {
				scale = m.Scale.Name
			}
			if m.Data.Name != tt.tensors[0].Name || scale != tt.scale {
				t.Errorf("weight %q with scale %q, want scale %q", m.Data.Name, scale, tt.scale)
			}
			got := []int{m.BlockRows, m.BlockCols, m.Rows, m.Cols}
			if want := []int{tt.blockRows, tt.blockCols, tt.rows, tt.cols}; !slices.Equal(got, want) ||
				m.Values != tt.values {
				t.Errorf("block rows, block columns, rows, columns %v of %s, want %v of %s", got, m.Values, want,
					tt.values)
			}
			values, err := m.ReadF32()
			if err != nil || len(values) != tt.rows*tt.cols {
				t.Errorf("%d values, %v; want %d", len(values), err, tt.rows*tt.cols)
			}
		})
	}
}

func TestMatrixRefuses(t *testing.T) {
	tests := []struct {
		name    string
		tensors []Source
		is      error
		want    []string
	}{
		{"a weight that is not there", []Source{described("y.weight", BF16, 1, 1)}, ErrNotFound,
			[]string{`"x.weight"`}},
		{"a vector", []Source{described("x.weight", BF16, 4)}, ErrScale, []string{"[4]", "2"}},
		{"three dimensions", []Source{described("x.weight", F8E4M3, 2, 4, 4)}, ErrScale, []string{"[2 4 4]"}},
		{"fp8 without scale", []Source{described("x.weight", F8E4M3, 4, 4)}, ErrScale,
			[]string{"F8_E4M3", `"x.weight_scale_inv"`, `"x.scale"`, "[4 4]", "memory.safetensors"}},
		{"I8 without scale", []Source{described("x.weight", I8, 4, 4)}, ErrScale, []string{"I8", `"x.scale"`}},
		{"F4 without scale", []Source{described("x.weight", F4E2M1x2, 4, 4)}, ErrScale, []string{"F4"}},
		{"bf16 with a scale", []Source{described("x.weight", BF16, 4, 4), described("x.scale", F32, 1, 1)}, ErrScale,
			[]string{`"x.scale"`, "BF16"}},
		{"two scales", []Source{described("x.weight", F8E4M3, 4, 4), described("x.scale", F32, 1, 1),
			described("x.weight_scale_inv", F32, 1, 1)}, ErrScale,
			[]string{`"x.scale"`, `"x.weight_scale_inv"`, "want one scale"}},
		{"a scale with too few rows",
			[]Source{described("x.weight", F8E4M3, 129, 128), described("x.scale", F32, 1, 1)}, ErrScale,
			[]string{"[129 128]", "[1 1]", "[2 1]"}},
		{"a scale with too many columns",
			[]Source{described("x.weight", F8E4M3, 128, 128), described("x.scale", F32, 1, 2)}, ErrScale,
			[]string{"[128 128]", "[1 2]", "[1 1]"}},
		{"a transposed scale", []Source{described("x.weight", F8E4M3, 256, 128), described("x.scale", F32, 1, 2)},
			ErrScale, []string{"[1 2]", "[2 1]"}},
		{"one scale for the whole weight", []Source{described("x.weight", F8E4M3, 128, 128), described("x.scale", F32)},
			ErrScale, []string{"[]", "[1 1]"}},
		{"a scale of integers", []Source{described("x.weight", F8E4M3, 128, 128), described("x.scale", I32, 1, 1)},
			ErrScale, []string{"I32", "F8_E8M0"}},
		{"fp4 with the scales of groups of 16",
			[]Source{described("x.weight", U8, 2, 32), described("x.scale", F8E8M0, 2, 4)}, ErrScale,
			[]string{"[2 4]", "[2 2]", "1 x 32"}},
		{"fp4 with e4m3 scales", []Source{described("x.weight", U8, 2, 32), described("x.scale", F8E4M3, 2, 2)},
			ErrScale, []string{"F8_E4M3"}},
		{"int8 with one scale per 32 bytes",
			[]Source{described("x.weight", I8, 2, 64), described("x.scale", F32, 2, 2)}, ErrScale,
			[]string{"[2 2]", "[2 4]"}},
		{"e5m2", []Source{described("x.weight", F8E5M2, 4, 4)}, ErrDType, []string{"F8_E5M2", "BF16"}},
		{"integers", []Source{described("x.weight", I32, 4, 4)}, ErrDType, []string{"I32"}},
		{"an empty weight too wide to double",
			[]Source{described("x.weight", I8, 0, 1<<62), described("x.scale", U8, 0, 1)}, ErrScale,
			[]string{"too wide"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := inMemory(t, tt.tensors...).Matrix("x.weight")
			if !errors.Is(err, tt.is) {
				t.Fatalf("%v is not %v", err, tt.is)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// Each block of an FP8 matrix is multiplied by its own scale: a 130 x 129 matrix has four blocks, of 128 x 128, 128 x
// 1, 2 x 128 and 2 x 1 values.
func TestMatrixMultipliesEachBlockByItsScale(t *testing.T) {
	const rows, cols = 130, 129
	data := bytes.Repeat([]byte{0x40}, rows*cols) // e4m3 0x40 is 2
	data[129*cols+128] = 0xC4                     // e4m3 0xC4 is -3
	got := dequantised(t,
		SourceBytes("x.weight", F8E4M3, []int{rows, cols}, data),
		SourceBytes("x.scale", F8E8M0, []int{2, 2}, []byte{127, 128, 126, 130})) // 1, 2, 1/2, 8
	for r := range rows {
		for col := range cols {
			want := map[[2]bool]float32{{false, false}: 2, {false, true}: 4, {true, false}: 1,
				{true, true}: 16}[[2]bool{r >= 128, col >= 128}]
			if r == 129 && col == 128 {
				want = -24
			}
			if got[r*cols+col] != want {
				t.Fatalf("value [%d, %d] is %v, want %v", r, col, got[r*cols+col], want)
			}
		}
	}
}

// Each byte of FP4 values holds the earlier value in its low four bits. The matrix has two rows of 34 values, so the
// second group of each row has 2 values. Codes 1 to 7 are .5, 1, 1.5, 2, 3, 4 and 6; bit 3 is the sign.
func TestMatrixUnpacksFP4LowNibbleFirst(t *testing.T) {
	row0 := append(bytes.Repeat([]byte{0x21}, 16), 0x9F) // .5 1 .5 1 ... then -6 -.5
	row1 := append(bytes.Repeat([]byte{0x70}, 16), 0x43) // 0 6 0 6 ... then 1.5 2
	got := dequantised(t,
		SourceBytes("x.weight", I8, []int{2, 17}, append(row0, row1...)),
		SourceBytes("x.scale", U8, []int{2, 2}, []byte{128, 127, 126, 129})) // 2, 1, 1/2, 4
	var want []float32
	for range 16 {
		want = append(want, 1, 2)
	}
	want = append(want, -6, -.5)
	for range 16 {
		want = append(want, 0, 3)
	}
	want = append(want, 6, 8)
	if !slices.Equal(got, want) {
		t.Errorf("values %v\nwant   %v", got, want)
	}
}

func TestMatrixOfNothingIsReadAtOnce(t *testing.T) {
	if got := dequantised(t, described("x.weight", F8E4M3, 1<<62, 0),
		described("x.scale", F32, 1<<55, 0)); len(got) != 0 {
		t.Errorf("%d values", len(got))
	}
}
