package cuda

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// TensorMap is the 128-byte descriptor with which the copy engine addresses a tensor. It is passed by value, at the
// beginning of an argument struct, so that it is aligned to 64 bytes.
type TensorMap [128]byte

// MapType is the element type of a tensor map.
type MapType uint32

// Element types that the kernels use. FP8 values are copied as bytes.
const (
	MapU8   MapType = 0
	MapU16  MapType = 1
	MapU32  MapType = 2
	MapI32  MapType = 3
	MapF16  MapType = 6
	MapF32  MapType = 7
	MapBF16 MapType = 9
)

func (t MapType) bytes() uint64 {
	switch t {
	case MapU8:
		return 1
	case MapU16, MapF16, MapBF16:
		return 2
	default:
		return 4
	}
}

// Swizzle is the pattern in which the copy engine permutes 16-byte chunks of shared memory.
type Swizzle uint32

// Patterns, named by the number of bytes within which chunks are permuted.
const (
	SwizzleNone Swizzle = iota
	Swizzle32
	Swizzle64
	Swizzle128
)

// MapSpec describes a tensor and the box that one copy moves. Dimensions are listed from the innermost to the
// outermost.
type MapSpec struct {
	Type    MapType
	Base    Ptr      // multiple of 16
	Dims    []uint64 // elements
	Strides []uint64 // bytes from one index to the next, for dimensions 1 and up: multiples of 16
	Box     []uint32 // elements, at most 256 each
	Swizzle Swizzle
	L2      uint32 // promotion of reads: 0 none, 1 64 B, 2 128 B, 3 256 B
}

// check returns errors for invalid fields, for which the driver returns only "invalid value".
func (m *MapSpec) check() error {
	rank := len(m.Dims)
	if rank < 1 || rank > 5 || len(m.Box) != rank || len(m.Strides) != rank-1 {
		return argumentError("tensor map: there are %d dimensions, %d strides and %d box sizes; want 1 to 5 "+
			"dimensions and one stride less", rank,
			len(m.Strides), len(m.Box))
	}
	if !m.Base.aligned(16) {
		return argumentError("tensor map: base %#x is not a multiple of 16", uint64(m.Base))
	}
	for i, s := range m.Strides {
		if s%16 != 0 || s >= 1<<40 {
			return argumentError("tensor map: stride %d of dimension %d must be a multiple of 16 below 2^40", s, i+1)
		}
	}
	for i, b := range m.Box {
		if b == 0 || b > 256 || m.Dims[i] == 0 || m.Dims[i] > 1<<32 {
			return argumentError("tensor map: dimension %d: box %d (1 to 256) of %d elements (1 to 2^32)", i, b,
				m.Dims[i])
		}
	}
	inner := uint64(m.Box[0]) * m.Type.bytes()
	if span := uint64(16) << m.Swizzle; inner%16 != 0 || (m.Swizzle != SwizzleNone && inner > span) {
		return argumentError(
			"tensor map: inner box of %d bytes must be a multiple of 16 and at most the swizzle's span of %d", inner,
			span)
	}
	return nil
}

// plain returns the description of the tensor that portable kernels use instead of a tensor map: the base, five
// dimensions in elements, five strides in bytes (src/sm80/map.cuh).
func (m *MapSpec) plain() (t TensorMap) {
	binary.LittleEndian.PutUint64(t[:], uint64(m.Base))
	for i, n := range m.Dims {
		binary.LittleEndian.PutUint64(t[plainDims+8*i:], n)
	}
	for i, n := range m.Strides {
		binary.LittleEndian.PutUint64(t[plainStrides+8*i:], n)
	}
	return t
}

// Offsets in a plain tensor map.
const plainDims, plainStrides = 8, 48

// Plain returns the base, the dimensions and the strides of a map of a portable or detached device, whose maps are not
// descriptors for the copy engine.
func (t *TensorMap) Plain() (base Ptr, dims, strides []uint64) {
	for i := plainDims; i < plainStrides; i += 8 {
		if n := binary.LittleEndian.Uint64(t[i:]); n > 0 {
			dims = append(dims, n)
		}
	}
	for i := range max(len(dims)-1, 0) {
		strides = append(strides, binary.LittleEndian.Uint64(t[plainStrides+8*i:]))
	}
	return Ptr(binary.LittleEndian.Uint64(t[:])), dims, strides
}

// mapFrame is the memory that cuTensorMapEncodeTiled reads and writes.
type mapFrame struct {
	out     [2 * 128]byte // twice the map's size, so that it can be aligned to 128
	dims    [5]uint64
	strides [5]uint64
	box     [5]uint32
	steps   [5]uint32
}

// encodeTensorMap builds a descriptor on the host. It is valid as long as the tensor's memory is allocated.
func (d *Device) encodeTensorMap(m MapSpec) (TensorMap, error) {
	if err := m.check(); err != nil {
		return TensorMap{}, err
	}
	if d.portable {
		return m.plain(), nil
	}
	fr := frames.Get().(*frame)
	defer frames.Put(fr)
	f := &fr.tensor
	*f = mapFrame{steps: [5]uint32{1, 1, 1, 1, 1}}
	copy(f.dims[:], m.Dims)
	copy(f.strides[:], m.Strides) // the driver needs an address even for one dimension, which has no strides
	copy(f.box[:], m.Box)
	skip := -uintptr(unsafe.Pointer(&f.out[0])) & 127 // 0 to 127: the map fits after it
	const noInterleave, zeroFill = 0, 0
	err := d.do(fr, cuTensorMapEncodeTiled, uintptr(unsafe.Pointer(&f.out[skip])), uintptr(m.Type),
		uintptr(len(m.Dims)), uintptr(m.Base), uintptr(unsafe.Pointer(&f.dims[0])),
		uintptr(unsafe.Pointer(&f.strides[0])), uintptr(unsafe.Pointer(&f.box[0])),
		uintptr(unsafe.Pointer(&f.steps[0])), noInterleave, uintptr(m.Swizzle), uintptr(m.L2), zeroFill)
	if err != nil {
		return TensorMap{}, fmt.Errorf("cuda: tensor map %+v: %w", m, err)
	}
	return TensorMap(f.out[skip : skip+128]), nil
}
