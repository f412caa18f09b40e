package weight

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

// NotFinite is an element of a tensor that is NaN or infinite; trained weights have none.
type NotFinite struct {
	Tensor  string
	Element int
}

// FindNotFinite searches for an element that is not finite, in small tensors first, because norms and scales affect
// every row. It stops after the time most; all is true if every tensor was read.
func (c *Checkpoint) FindNotFinite(most time.Duration) (found *NotFinite, all bool) {
	names := c.Names()
	slices.SortStableFunc(names, func(a, b string) int { return len(c.tensors[a].Data) - len(c.tensors[b].Data) })
	start := time.Now()
	for _, name := range names {
		t := c.tensors[name]
		const piece = 1 << 22
		size := t.elementBytes()
		if size == 0 {
			continue
		}
		step := max(piece/size, 1) * size
		for at := 0; at < len(t.Data); at += step {
			if i := t.firstNotFinite(t.Data[at:min(at+step, len(t.Data))]); i >= 0 {
				return &NotFinite{Tensor: name, Element: at/size*t.valuesPerElement() + i}, false
			}
			if time.Since(start) > most {
				return nil, false
			}
		}
	}
	return nil, true
}

// finiteScales returns an error if a scale of the matrix is not finite.
func finiteScales(m *Matrix) error { return finite(m.Scale) }

// finite returns an error that names the first scale that is NaN or infinite. Scales of type U8 are e8m0 bytes.
func finite(scale *Tensor) error {
	at := -1
	switch scale.DType {
	case F8E8M0, U8:
		at = bytes.IndexByte(scale.Data, 0xff)
	case F8E4M3:
		for i, b := range scale.Data {
			if b&0x7f == 0x7f {
				at = i
				break
			}
		}
	default:
		at = scale.firstNotFinite(scale.Data)
	}
	if at < 0 {
		return nil
	}
	return fmt.Errorf("weight: element %d of %s (%s %s) is NaN or infinite, in %s: %w; download the checkpoint "+
		"again", at,
		scale.Name, scale.DType, shapeText(scale.Shape), scale.File, ErrScale)
}

// elementBytes returns the bytes of an element or, for block formats, of a block. It is 0 for types that are not
// floating point.
func (t *Tensor) elementBytes() int {
	if f, ok := t.DType.Block(); ok {
		return f.Bytes()
	}
	switch t.DType {
	case F64, F32, F16, BF16, F8E4M3, F8E5M2, F8E8M0:
		return t.DType.Size()
	}
	return 0
}

func (t *Tensor) valuesPerElement() int {
	if f, ok := t.DType.Block(); ok {
		return f.Values()
	}
	return 1
}

// firstNotFinite returns the index of the first value that is NaN or infinite, or -1.
func (t *Tensor) firstNotFinite(data []byte) int {
	le := binary.LittleEndian
	if f, ok := t.DType.Block(); ok {
		v := make([]float32, len(data)/f.Bytes()*f.Values())
		f.Decode(v, data)
		return slices.IndexFunc(v, func(x float32) bool { return !(x-x == 0) })
	}
	switch t.DType {
	case F64:
		return search(data, 8, func(b []byte) bool { return le.Uint64(b)<<1 >= math.Float64bits(math.Inf(1))<<1 })
	case F32:
		return search(data, 4, func(b []byte) bool { return le.Uint32(b)<<1 >= 0x7f800000<<1 })
	case BF16:
		return search(data, 2, func(b []byte) bool { return le.Uint16(b)<<1 >= 0x7f80<<1 })
	case F16:
		return search(data, 2, func(b []byte) bool { return le.Uint16(b)<<1 >= 0x7c00<<1 })
	case F8E5M2:
		return search(data, 1, func(b []byte) bool { return b[0]<<1 >= 0x7c<<1 })
	case F8E4M3:
		return search(data, 1, func(b []byte) bool { return b[0]<<1 == 0x7f<<1 })
	default: // F8E8M0
		return search(data, 1, func(b []byte) bool { return b[0] == 0xff })
	}
}

// search returns the index of the first element of size bytes for which bad is true, or -1.
func search(data []byte, size int, bad func([]byte) bool) int {
	for i := 0; i+size <= len(data); i += size {
		if bad(data[i : i+size]) {
			return i / size
		}
	}
	return -1
}
