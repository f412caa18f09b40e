package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var (
	// ErrMalformed means that a file violates the format.
	ErrMalformed = errors.New("malformed GGUF file")
	// ErrUnsupported means that a valid file has contents that this package does not support.
	ErrUnsupported = errors.New("unsupported GGUF file")
)

// incomplete is the probable reason if a file ends early.
const incomplete = "the download may be incomplete"

// Limits of a file, far above those of real files. They bound the memory for hostile files, whose values take more
// memory in Go than in the file.
const (
	maxKey      = 1 << 16 // bytes of a key or a tensor name
	maxPairs    = 1 << 20
	maxTensors  = 1 << 20
	maxDims     = 4
	maxNesting  = 4
	maxAlign    = 1 << 20
	defaultPad  = 32
	magicNumber = "GGUF"
)

// scanner reads little-endian values, one after the other. After an error, later reads return zeros.
type scanner struct {
	path string
	data []byte
	at   int
	err  error
}

func (s *scanner) fail(format string, args ...any) { s.refuse(ErrMalformed, format, args...) }

func (s *scanner) refuse(why error, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("gguf: %s: byte %d: %w: %s", s.path, s.at, why, fmt.Sprintf(format, args...))
	}
}

// take returns the next n bytes, or nil after an error.
func (s *scanner) take(n uint64, what string) []byte {
	if s.err != nil {
		return nil
	}
	if left := uint64(len(s.data) - s.at); n > left {
		s.fail("%s takes %d bytes, but the file has only %d more: %s", what, n, left, incomplete)
		return nil
	}
	b := s.data[s.at : s.at+int(n)]
	s.at += int(n)
	return b
}

func (s *scanner) u32(what string) uint32 {
	if b := s.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (s *scanner) u64(what string) uint64 {
	if b := s.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a number of items. It is an error if it exceeds limit, or if items of size bytes exceed the file.
func (s *scanner) count(what string, size int, limit uint64) int {
	n := s.u64("the number of " + what)
	switch left := uint64(len(s.data) - s.at); {
	case s.err != nil:
		return 0
	case n > limit:
		s.fail("%d %s; at most %d are supported", n, what, limit)
		return 0
	case n > left/uint64(size):
		s.fail("%d %s need at least %d bytes each, but the file has only %d more bytes: "+
			"%s", n, what, size, left, incomplete)
		return 0
	}
	return int(n)
}

// text reads a string of at most limit bytes.
func (s *scanner) text(what string, limit uint64) string {
	n := s.u64("the length of " + what)
	if s.err == nil && n > limit {
		s.fail("%s has %d bytes; at most %d are supported", what, n, limit)
	}
	return string(s.take(n, what))
}

// Types of metadata values, as the format numbers them.
const (
	typeU8 = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
	types
)

// sizes holds the bytes of a value of each type; for strings and arrays the minimum.
var sizes = [types]int{typeU8: 1, typeI8: 1, typeU16: 2, typeI16: 2, typeU32: 4, typeI32: 4, typeF32: 4, typeBool: 1,
	typeString: 8, typeArray: 12, typeU64: 8, typeI64: 8, typeF64: 8}

// value reads a value of a type and returns it in the Go type of [Metadata].
func (s *scanner) value(kind uint32, depth int) any {
	switch kind {
	case typeString:
		return s.text("a string", math.MaxInt)
	case typeArray:
		return s.array(depth)
	}
	if kind >= types {
		s.fail("the value type is %d, want 0 to %d", kind, types-1)
		return nil
	}
	return scalar(kind, s.take(uint64(sizes[kind]), "a value"))
}

func scalar(kind uint32, b []byte) any {
	if b == nil {
		return nil
	}
	switch kind {
	case typeU8:
		return int64(b[0])
	case typeI8:
		return int64(int8(b[0]))
	case typeU16:
		return int64(binary.LittleEndian.Uint16(b))
	case typeI16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case typeU32:
		return int64(binary.LittleEndian.Uint32(b))
	case typeI32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case typeI64:
		return int64(binary.LittleEndian.Uint64(b))
	case typeU64:
		if v := binary.LittleEndian.Uint64(b); v > math.MaxInt64 {
			return v
		}
		return int64(binary.LittleEndian.Uint64(b))
	case typeF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case typeF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	default: // typeBool
		return b[0] != 0
	}
}

// array reads an array and returns it as a slice.
func (s *scanner) array(depth int) any {
	kind := s.u32("the type of an array")
	switch {
	case s.err != nil:
		return nil
	case kind >= types:
		s.fail("the array has value type %d, want 0 to %d", kind, types-1)
		return nil
	case depth == maxNesting:
		s.fail("arrays are nested deeper than %d levels, which is the limit", maxNesting)
		return nil
	}
	n := s.count("values of an array", sizes[kind], math.MaxInt)
	switch kind {
	case typeString:
		return values[string](s, kind, n, depth)
	case typeBool:
		return values[bool](s, kind, n, depth)
	case typeF32, typeF64:
		return values[float64](s, kind, n, depth)
	case typeArray, typeU64:
		return values[any](s, kind, n, depth)
	default:
		return values[int64](s, kind, n, depth)
	}
}

// values reads n values. Memory is allocated as values are read, because the file may have fewer than n.
func values[T any](s *scanner, kind uint32, n, depth int) []T {
	list := make([]T, 0, min(n, 1<<12))
	for range n {
		v, _ := s.value(kind, depth+1).(T)
		if s.err != nil {
			return nil
		}
		list = append(list, v)
	}
	return list
}
