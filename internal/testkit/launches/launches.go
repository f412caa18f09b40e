// Package launches writes the arguments of CUDA kernels as text, for tables of launches.
package launches

import (
	"fmt"
	"reflect"

	"sparrow/kernel/cuda"
)

// Fields returns the nonzero fields of launch arguments. Addresses are numbered in the order in which they are first
// used; numbers holds the numbers so far.
func Fields(args any, numbers map[cuda.Ptr]int) string {
	return fields(reflect.ValueOf(args), "", numbers)
}

func fields(v reflect.Value, path string, numbers map[cuda.Ptr]int) (out string) {
	number := func(p cuda.Ptr) int {
		if _, ok := numbers[p]; !ok {
			numbers[p] = len(numbers)
		}
		return numbers[p]
	}
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case f.IsZero():
		case f.Type() == reflect.TypeFor[cuda.Ptr]():
			out += fmt.Sprintf(" %s m%d", name, number(cuda.Ptr(f.Uint())))
		case f.Type() == reflect.TypeFor[cuda.TensorMap]():
			m := f.Interface().(cuda.TensorMap)
			base, dims, strides := m.Plain()
			out += fmt.Sprintf(" %s m%d %v by %v", name, number(base), dims, strides)
		case f.Kind() == reflect.Array && f.Type().Elem() == reflect.TypeFor[cuda.Ptr]():
			for j := range f.Len() {
				if p := cuda.Ptr(f.Index(j).Uint()); p != 0 {
					out += fmt.Sprintf(" %s[%d] m%d", name, j, number(p))
				}
			}
		case f.Kind() == reflect.Struct:
			out += fields(f, name+".", numbers)
		case f.Kind() == reflect.Array && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				out += fields(f.Index(j), fmt.Sprintf("%s[%d].", name, j), numbers)
			}
		default:
			out += fmt.Sprintf(" %s %v", name, f)
		}
	}
	return out
}
