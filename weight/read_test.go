package weight

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestReadF32Widens(t *testing.T) {
	inf := float32(math.Inf(1))
	tests := []struct {
		dtype DType
		data  []byte
		want  []float32
	}{
		{F32, []byte{0, 0, 0x80, 0x3F, 0, 0, 0x80, 0xFF}, []float32{1, -inf}},
		{F64, []byte{0, 0, 0, 0, 0, 0, 0xF8, 0x3F}, []float32{1.5}},
		{F16, []byte{0, 0x3C, 1, 0, 0, 0x7C}, []float32{1, 1.0 / (1 << 24), inf}},
		{BF16, []byte{0x80, 0x3F, 0x20, 0xC1}, []float32{1, -10}},
		{F8E4M3, []byte{0x38, 0x7E, 0x01, 0x80}, []float32{1, 448, 1.0 / 512, float32(math.Copysign(0, -1))}},
		{F8E5M2, []byte{0x3C, 0x7B, 0x01, 0xFC}, []float32{1, 57344, 1.0 / 65536, -inf}},
		{F8E8M0, []byte{127, 128, 0}, []float32{1, 2, float32(math.Ldexp(1, -127))}},
		{F4E2M1x2, []byte{0x10, 0xF7}, []float32{0, .5, 6, -6}},
	}
	for _, tt := range tests {
		t.Run(tt.dtype.String(), func(t *testing.T) {
			got, err := ReadF32(&Tensor{Name: "x", DType: tt.dtype, Shape: []int{len(tt.want)}, Data: tt.data})
			if err != nil {
				t.Fatal(err)
			}
			bits := func(v []float32) (b []uint32) {
				for _, f := range v {
					b = append(b, math.Float32bits(f))
				}
				return b
			}
			if !slices.Equal(bits(got), bits(tt.want)) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	for dtype, data := range map[DType]byte{F8E4M3: 0x7F, F8E8M0: 0xFF, F8E5M2: 0x7D} {
		got, err := ReadF32(&Tensor{DType: dtype, Shape: []int{1}, Data: []byte{data}})
		if err != nil || !math.IsNaN(float64(got[0])) {
			t.Errorf("%s byte %#x reads as %v, %v; want NaN", dtype, data, got, err)
		}
	}
}

func TestReadIntegers(t *testing.T) {
	tests := []struct {
		dtype DType
		data  []byte
		want  []int32
	}{
		{Bool, []byte{0, 1}, []int32{0, 1}},
		{U8, []byte{0, 255}, []int32{0, 255}},
		{I8, []byte{127, 128}, []int32{127, -128}},
		{U16, []byte{0xFF, 0xFF}, []int32{65535}},
		{I16, []byte{0xFE, 0xFF}, []int32{-2}},
		{U32, []byte{0xFF, 0xFF, 0xFF, 0x7F}, []int32{math.MaxInt32}},
		{I32, []byte{0, 0, 0, 0x80}, []int32{math.MinInt32}},
		{U64, []byte{9, 0, 0, 0, 0, 0, 0, 0}, []int32{9}},
		{I64, []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, []int32{-1}},
	}
	for _, tt := range tests {
		t.Run(tt.dtype.String(), func(t *testing.T) {
			x := &Tensor{Name: "x", DType: tt.dtype, Shape: []int{len(tt.want)}, Data: tt.data}
			got, err := ReadI32(x)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	big := []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0} // 1, 2^32
	if _, err := ReadI32(&Tensor{Name: "x", DType: I64, Shape: []int{2}, Data: big}); err == nil ||
		!strings.Contains(err.Error(), "element 1") {
		t.Errorf("2^32 as int32: %v", err)
	}
	if _, err := ReadI32(&Tensor{Name: "x", DType: U32, Shape: []int{1}, Data: []byte{0, 0, 0, 0x80}}); err == nil {
		t.Error("2^31 as int32 is accepted")
	}
	if _, err := ReadI32(&Tensor{Name: "x", DType: U64, Shape: []int{1},
		Data: []byte{0, 0, 0, 0, 0, 0, 0, 0x80}}); err == nil {
		t.Error("2^63 as int32 is accepted")
	}
	if _, err := ReadF32(&Tensor{Name: "x", DType: I32, Shape: []int{1}, Data: make([]byte, 4)}); !errors.Is(err,
		ErrDType) {
		t.Errorf("integers as floats: %v", err)
	}
	if _, err := ReadI32(&Tensor{Name: "x", DType: F32, Shape: []int{1}, Data: make([]byte, 4)}); !errors.Is(err,
		ErrDType) {
		t.Errorf("floats as integers: %v", err)
	}
	if _, err := ReadF32(&Tensor{Name: "x", DType: F32, Shape: []int{1}, Data: make([]byte, 3)}); !errors.Is(err,
		ErrMalformed) {
		t.Errorf("three bytes as float32: %v", err)
	}
}

func TestDTypes(t *testing.T) {
	names := strings.Fields(dtypeList)
	if len(names) != len(dtypes)-1 {
		t.Errorf("%d dtypes are listed, there are %d", len(names), len(dtypes)-1)
	}
	for _, name := range names {
		if d := dtypeNamed([]byte(name)); d.String() != name {
			t.Errorf("%s parses as %v", name, d)
		}
	}
	for d, want := range map[DType][2]int{F4E2M1x2: {4, 1}, Bool: {8, 1}, F8E8M0: {8, 1}, BF16: {16, 2}, F32: {32, 4},
		I64: {64, 8}} {
		if d.Bits() != want[0] || d.Size() != want[1] {
			t.Errorf("%s has %d bits in %d bytes, want %v", d, d.Bits(), d.Size(), want)
		}
	}
	for _, name := range []string{"", "invalid", "f32", "F6_E2M3"} {
		if d := dtypeNamed([]byte(name)); d != Invalid {
			t.Errorf("%q parses as %v", name, d)
		}
	}
	if d := DType(200); d.Bits() != 0 || d.Size() != 0 || d.String() != "DType(200)" {
		t.Errorf("a made-up dtype is %v of %d bits", d, d.Bits())
	}
}
