package gguf

import (
	"fmt"
	"maps"
	"slices"
)

// Metadata are a file's key-value pairs. Values are int64, uint64 (above the range of int64), float64, bool, string,
// or slices: []int64, []float64, []bool, []string, and []any for arrays of arrays and of uint64.
type Metadata map[string]any

// Keys lists the keys, sorted.
func (m Metadata) Keys() []string { return slices.Sorted(maps.Keys(m)) }

// Int is an integer, or false where there is none.
func (m Metadata) Int(key string) (int64, bool) { return get[int64](m, key) }

// Float is a number, or false where there is none. An integer counts.
func (m Metadata) Float(key string) (float64, bool) {
	if n, ok := m.Int(key); ok {
		return float64(n), true
	}
	return get[float64](m, key)
}

// Bool is a truth value, or false where there is none.
func (m Metadata) Bool(key string) (value, ok bool) { return get[bool](m, key) }

// Text is a string, or false where there is none.
func (m Metadata) Text(key string) (string, bool) { return get[string](m, key) }

// Texts is an array of strings, or false where there is none.
func (m Metadata) Texts(key string) ([]string, bool) { return get[[]string](m, key) }

// Ints is an array of integers, or false where there is none.
func (m Metadata) Ints(key string) ([]int64, bool) { return get[[]int64](m, key) }

// Floats is an array of numbers, or false where there is none.
func (m Metadata) Floats(key string) ([]float64, bool) { return get[[]float64](m, key) }

// Describe is a value in words, for errors: its type, and the value where it is short.
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
