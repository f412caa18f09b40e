// Package footprint counts the memory that a value keeps alive, so that a cache with a bound in bytes can be held to
// it whatever its entries are. Values flow in, numbers of bytes flow out; nothing is changed or kept.
package footprint

import "reflect"

// Of returns about how many bytes of the heap v keeps alive: v itself and everything that its strings, slices, maps,
// pointers and interfaces refer to. Capacities count, not lengths. What is referred to twice counts twice; a value must
// not refer to itself. A string that is part of a longer one counts with its own length only.
func Of(v any) int {
	r := reflect.ValueOf(v)
	if !r.IsValid() {
		return 0
	}
	return int(r.Type().Size()) + behind(r)
}

// behind counts what a value refers to, without the value's own bytes.
func behind(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return allocated(v.Len())
	case reflect.Slice:
		n = allocated(v.Cap() * int(v.Type().Elem().Size()))
		return n + elements(v)
	case reflect.Array:
		return elements(v)
	case reflect.Struct:
		for i := range v.NumField() {
			n += behind(v.Field(i))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = allocated(int(v.Elem().Type().Size())) + behind(v.Elem())
		}
	case reflect.Map:
		return mapped(v)
	}
	return n
}

func elements(v reflect.Value) (n int) {
	if plain(v.Type().Elem().Kind()) {
		return 0
	}
	for i := range v.Len() {
		n += behind(v.Index(i))
	}
	return n
}

// mapped counts a map: slots come in groups of eight and may be half empty.
func mapped(v reflect.Value) int {
	if v.IsNil() {
		return 0
	}
	const header, group = 48, 8
	if v.Len() == 0 {
		return header
	}
	n := header + allocated(max(2*v.Len(), group)*int(v.Type().Key().Size()+v.Type().Elem().Size()+1))
	for entries := v.MapRange(); entries.Next(); {
		n += behind(entries.Key()) + behind(entries.Value())
	}
	return n
}

// plain reports whether values of a kind refer to nothing.
func plain(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

// allocated is what an allocation of n bytes takes: size classes are up to an eighth apart, and small ones 16 bytes.
func allocated(n int) int {
	if n == 0 {
		return 0
	}
	return n + n/8 + 16
}
