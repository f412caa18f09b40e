package gguf

import (
	"fmt"
	"maps"
	"slices"
)

// Metadata holds a file's key-value pairs. Values are int64, uint64 (only above the range of int64), float64, bool,
// string, or slices: []int64, []float64, []bool, []string, and []any for arrays of arrays and of uint64.
type Metadata map[string]any

// Keys returns the keys, sorted.
func (m Metadata) Keys() []string { return slices.Sorted(maps.Keys(m)) }

// Int returns the integer of a key; ok is false if there is none.
func (m Metadata) Int(key string) (int64, bool) { return get[int64](m, key) }

// Float returns the number of a key, which may be an integer; ok is false if there is none.
func (m Metadata) Float(key string) (float64, bool) {
	if n, ok := m.Int(key); ok {
		return float64(n), true
	}
	return get[float64](m, key)
}

// Bool returns the boolean of a key; ok is false if there is none.
func (m Metadata) Bool(key string) (value, ok bool) { return get[bool](m, key) }

// Text returns the string of a key; ok is false if there is none.
func (m Metadata) Text(key string) (string, bool) { return get[string](m, key) }

// Texts returns the strings of a key; ok is false if there are none.
func (m Metadata) Texts(key string) ([]string, bool) { return get[[]string](m, key) }

// Ints returns the integers of a key; ok is false if there are none.
func (m Metadata) Ints(key string) ([]int64, bool) { return get[[]int64](m, key) }

// Floats returns the numbers of a key; ok is false if there are none.
func (m Metadata) Floats(key string) ([]float64, bool) { return get[[]float64](m, key) }

// Describe returns the type of a value, and the value itself if it is short, for error messages.
func (m Metadata) Describe(key string) string {
	switch v := m[key].(type) {
	case nil:
		return "missing"
	case int64, uint64, float64, bool:
		return fmt.Sprint(v)
	case string:
		return fmt.Sprintf("a string of %d bytes", len(v))
	default:
		return fmt.Sprintf("%T", v)
	}
}

func get[T any](m Metadata, key string) (T, bool) {
	v, ok := m[key].(T)
	return v, ok
}
