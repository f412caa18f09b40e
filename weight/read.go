package weight

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
)

// ReadF32 returns the values of a floating-point tensor as float32. The conversion is exact except for F64. It is for
// small tensors and tests; large tensors are used without a copy.
func ReadF32(t *Tensor) ([]float32, error) {
	if t.DType == U8 || t.DType == I8 {
		return nil, notFloats(t)
	}
	return readFloats(t, t.DType)
}

// readFloats converts the bytes of t, as values of type d, to float32. d may be a type of integers.
func readFloats(t *Tensor, d DType) ([]float32, error) {
	le := binary.LittleEndian
	if f, ok := d.Block(); ok {
		if len(t.Data)%f.Bytes() != 0 {
			return nil, fmt.Errorf("weight: tensor %q: %w: %d bytes are not a whole number of blocks of %s", t.Name,
				ErrMalformed, len(t.Data), f)
		}
		out := make([]float32, len(t.Data)/f.Bytes()*f.Values())
		f.Decode(out, t.Data)
		return out, nil
	}
	switch d {
	case F32:
		return decode(t, 4, func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) })
	case F64:
		return decode(t, 8, func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) })
	case F16:
		return decode(t, 2, func(b []byte) float32 { return num.FromF16(le.Uint16(b)) })
	case BF16:
		return decode(t, 2, func(b []byte) float32 { return num.FromBF16(le.Uint16(b)) })
	case F8E4M3:
		return decode(t, 1, func(b []byte) float32 { return num.FromE4M3(b[0]) })
	case F8E5M2: // the byte is the high byte of a float16
		return decode(t, 1, func(b []byte) float32 { return num.FromF16(uint16(b[0]) << 8) })
	case F8E8M0:
		return decode(t, 1, func(b []byte) float32 { return num.FromE8M0(b[0]) })
	case F4E2M1x2:
		out := make([]float32, 0, 2*len(t.Data))
		for _, b := range t.Data {
			even, odd := num.UnpackE2M1(b)
			out = append(out, num.FromE2M1(even), num.FromE2M1(odd))
		}
		return out, nil
	case U4x2:
		out := make([]float32, 0, 2*len(t.Data))
		for _, b := range t.Data {
			out = append(out, float32(b&15), float32(b>>4))
		}
		return out, nil
	case U8:
		return decode(t, 1, func(b []byte) float32 { return float32(b[0]) })
	case I8:
		return decode(t, 1, func(b []byte) float32 { return float32(int8(b[0])) })
	}
	return nil, notFloats(t)
}

func notFloats(t *Tensor) error {
	return fmt.Errorf("weight: tensor %q in %s: %w %s; floats are F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 F4 "+
		"and block formats (integers: ReadI32)", t.Name, t.File, ErrDType, t.DType)
}

// ReadI32 returns the values of an integer or boolean tensor as int32. A value outside its range is an error.
func ReadI32(t *Tensor) ([]int32, error) {
	le := binary.LittleEndian
	var widen func(b []byte) int64
	switch t.DType {
	case Bool, U8:
		widen = func(b []byte) int64 { return int64(b[0]) }
	case I8:
		widen = func(b []byte) int64 { return int64(int8(b[0])) }
	case U16:
		widen = func(b []byte) int64 { return int64(le.Uint16(b)) }
	case I16:
		widen = func(b []byte) int64 { return int64(int16(le.Uint16(b))) }
	case U32:
		widen = func(b []byte) int64 { return int64(le.Uint32(b)) }
	case I32:
		widen = func(b []byte) int64 { return int64(int32(le.Uint32(b))) }
	case U64, I64:
		widen = func(b []byte) int64 { return int64(le.Uint64(b)) }
	default:
		return nil,
			fmt.Errorf(
				"weight: tensor %q in %s: %w %s; integers are BOOL U8 I8 U16 I16 U32 I32 U64 I64 (floats: ReadF32)",
				t.Name, t.File, ErrDType, t.DType)
	}
	bad := -1
	i := 0
	out, err := decode(t, t.DType.Size(), func(b []byte) int32 {
		v := widen(b)
		// A U64 above the range of int64 is negative here.
		if v < math.MinInt32 || v > math.MaxInt32 || t.DType == U64 && v < 0 {
			if bad < 0 {
				bad = i
			}
		}
		i++
		return int32(v)
	})
	if err == nil && bad >= 0 {
		return nil, fmt.Errorf("weight: tensor %q in %s: element %d (%s) does not fit 32 bits with a sign", t.Name,
			t.File, bad, t.DType)
	}
	return out, err
}

// decode calls one for every element of size bytes, and returns the results.
func decode[T any](t *Tensor, size int, one func([]byte) T) ([]T, error) {
	if len(t.Data)%size != 0 {
		return nil, fmt.Errorf("weight: tensor %q: %w: %d bytes are not a whole number of %s", t.Name, ErrMalformed,
			len(t.Data), t.DType)
	}
	out := make([]T, len(t.Data)/size)
	for i := range out {
		out[i] = one(t.Data[i*size:])
	}
	return out, nil
}

// ReadF32 dequantises the whole matrix, [Rows, Cols]. It is for tests and small matrices.
func (m Matrix) ReadF32() ([]float32, error) { return m.ReadRows(0, m.Rows) }

// ReadRows dequantises rows first to end-1, [end-first, Cols].
func (m Matrix) ReadRows(first, end int) ([]float32, error) {
	if m.Rows == 0 || m.Cols == 0 {
		return nil, nil
	}
	if err := m.Arrange(); err != nil {
		return nil, err
	}
	part := *m.Data
	part.Data = m.Data.Data[first*m.RowBytes : end*m.RowBytes]
	out, err := readFloats(&part, m.Values)
	if err != nil || len(out) == 0 {
		return out, err
	}
	if wide := len(out) / (end - first); wide > m.Cols { // rows are padded with further columns
		for r := range end - first {
			copy(out[r*m.Cols:][:m.Cols], out[r*wide:])
		}
		out = out[:(end-first)*m.Cols]
	}
	if m.Scale == nil {
		return out, nil
	}
	return out, m.scaleRows(out, first, end)
}

// Scales returns the scales of all blocks times Factor, in the order of Scale. NaN and infinite scales are an error.
func (m *Matrix) Scales() ([]float32, error) {
	if err := finite(m.Scale); err != nil {
		return nil, err
	}
	return m.readScales(m.Scale)
}

// readScales converts scales, or some rows of them, to float32.
func (m *Matrix) readScales(t *Tensor) ([]float32, error) {
	d := t.DType
	if d == U8 {
		d = F8E8M0
	}
	scales, err := readFloats(t, d)
	if err == nil && m.Factor != 0 {
		for i := range scales {
			scales[i] *= m.Factor
		}
	}
	return scales, err
}

// scaleRows subtracts the zero points from the values of rows, and multiplies them by the scales.
func (m *Matrix) scaleRows(out []float32, first, end int) error {
	perRow := blocks(m.Cols, m.BlockCols)
	scale, size := *m.Scale, len(m.Scale.Data)/blocks(m.Rows, m.BlockRows)
	scale.Data = m.Scale.Data[first/m.BlockRows*size : blocks(end, m.BlockRows)*size]
	scales, err := m.readScales(&scale)
	if err != nil {
		return err
	}
	zero := float32(0) // zero point if there are none
	switch m.Values {
	case U4x2:
		zero = 8
	case U8:
		zero = 128
	}
	for r := range end - first {
		row := out[r*m.Cols:][:m.Cols]
		at := ((first+r)/m.BlockRows - first/m.BlockRows) * perRow
		for c := range row {
			g := c / m.BlockCols
			if m.Zero != nil {
				zero = float32(m.Zero.Data[(first+r)*perRow+g])
			}
			row[c] = (row[c] - zero) * scales[at+g]
		}
	}
	return nil
}
