// Package footprint estimates the bytes of memory to which a value refers, for caches of arbitrary values with a limit
// in bytes.
package footprint

import "reflect"

// Of returns the approximate number of bytes of v and everything that its strings, slices, maps, pointers and
// interfaces refer to. Slices are counted with their capacity. Memory that is referenced twice is counted twice; a
// value must not refer to itself. Of a part of a longer string, only the part is counted.
func Of(v any) int { return counter{}.of(v) }

// Once is like Of for several values together: memory to which pointers, slices and maps refer is counted once.
func Once(values ...any) (n int) {
	c := counter{seen: map[uintptr]bool{}}
	for _, v := range values {
		n += c.of(v)
	}
	return n
}

// counter computes sizes; seen is the set of counted addresses, or nil to count duplicates again.
type counter struct{ seen map[uintptr]bool }

func (c counter) of(v any) int {
	r := reflect.ValueOf(v)
	if !r.IsValid() {
		return 0
	}
	return int(r.Type().Size()) + c.behind(r)
}

// known reports whether the value at an address was counted before.
func (c counter) known(at uintptr) bool {
	if c.seen == nil {
		return false
	}
	was := c.seen[at]
	c.seen[at] = true
	return was
}

// behind returns the bytes that a value refers to, without the value itself.
func (c counter) behind(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return allocated(v.Len())
	case reflect.Slice:
		if v.Cap() == 0 || c.known(v.Pointer()) {
			return 0
		}
		n = allocated(v.Cap() * int(v.Type().Elem().Size()))
		return n + c.elements(v)
	case reflect.Array:
		return c.elements(v)
	case reflect.Struct:
		for i := range v.NumField() {
			n += c.behind(v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() && !c.known(v.Pointer()) {
			n = allocated(int(v.Elem().Type().Size())) + c.behind(v.Elem())
		}
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		if n = c.behind(v.Elem()); v.Elem().Kind() != reflect.Pointer { // an interface contains a pointer directly
			n += allocated(int(v.Elem().Type().Size()))
		}
	case reflect.Map:
		if !v.IsNil() && !c.known(v.Pointer()) {
			return c.mapped(v)
		}
	}
	return n
}

func (c counter) elements(v reflect.Value) (n int) {
	if plain(v.Type().Elem().Kind()) {
		return 0
	}
	for i := range v.Len() {
		n += c.behind(v.Index(i))
	}
	return n
}

// mapped returns the bytes of a map. Its slots come in groups of eight and may be half empty.
func (c counter) mapped(v reflect.Value) int {
	const header, group = 48, 8
	if v.Len() == 0 {
		return header
	}
	n := header + allocated(max(2*v.Len(), group)*int(v.Type().Key().Size()+v.Type().Elem().Size()+1))
	for entries := v.MapRange(); entries.Next(); {
		n += c.behind(entries.Key()) + c.behind(entries.Value())
	}
	return n
}

// plain reports whether values of a kind refer to no other memory.
func plain(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

// allocated returns the size of an allocation of n bytes: size classes are up to an eighth apart, and small ones 16
// bytes.
func allocated(n int) int {
	if n == 0 {
		return 0
	}
	return n + n/8 + 16
}
