package host

import (
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Widen converts a row of a weight with scales to float32: every value minus its zero point, times its scale, rounded
// once. If the weight has a factor, the product of scale and factor is rounded first.
func (m *Matrix) Widen(dst []float32, row int) {
	at, _ := m.ScaleRow(row)
	data := Bytes(m.Data.Slice(row, row+1))
	scales := m.Scale.Slice(at, at+1)
	var zeros []byte
	if m.Zero.Given() {
		zeros = Bytes(m.Zero.Slice(row, row+1))
	}
	each := m.BlockCols / m.Data.DType.Values() // number of bytes of a group
	zero := float32(m.Middle())
	for g := range scales.Cols {
		if zeros != nil {
			zero = float32(zeros[g])
		}
		n := min(each, len(data))
		values := n * m.Data.DType.Values()
		widenGroup(dst[:values], data[:n], m.Data.DType, zero, m.scale(scales, g))
		dst, data = dst[values:], data[n:]
	}
}

// scale returns element g of a row of scales, with the weight's factor.
func (m *Matrix) scale(row kernel.Tensor, g int) (s float32) {
	switch row.DType {
	case kernel.F32:
		s = F32(row)[g]
	case kernel.BF16:
		s = num.FromBF16(U16(row)[g])
	case kernel.F16:
		s = num.FromF16(U16(row)[g])
	case kernel.E4M3:
		s = num.FromE4M3(Bytes(row)[g])
	default:
		s = num.FromE8M0(Bytes(row)[g])
	}
	if m.Factor != 0 {
		s *= m.Factor
	}
	return s
}

// widenGroup converts the values of one group to float32, byte by byte.
func widenGroup(dst []float32, data []byte, d kernel.DType, zero, scale float32) {
	switch d {
	case kernel.E4M3:
		for i, b := range data {
			dst[i] = num.FromE4M3(b) * scale
		}
	case kernel.E2M1x2:
		for i, b := range data {
			even, odd := num.UnpackE2M1(b)
			dst[2*i], dst[2*i+1] = num.FromE2M1(even)*scale, num.FromE2M1(odd)*scale
		}
	case kernel.U4x2:
		for i, b := range data {
			dst[2*i], dst[2*i+1] = (float32(b&15)-zero)*scale, (float32(b>>4)-zero)*scale
		}
	case kernel.U8:
		for i, b := range data {
			dst[i] = (float32(b) - zero) * scale
		}
	default: // values of type I8
		for i, b := range data {
			dst[i] = float32(int8(b)) * scale
		}
	}
}
