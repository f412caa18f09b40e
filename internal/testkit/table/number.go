package table

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// Numbers returns a line for each settable number of a struct, with the result of call for each wrong value of the
// number: a missing, negative or larger one, one less or one more, and addresses (of a type Ptr) of other alignments.
// The struct is unchanged afterwards.
func Numbers(name string, v reflect.Value, call func() string) (lines []string) {
	eachNumber(v, "", func(path string, f reflect.Value) {
		var parts []string
		old := reflect.New(f.Type()).Elem()
		old.Set(f)
		for _, x := range others(f) {
			f.Set(x)
			parts = append(parts, fmt.Sprintf("%v: %s", x, call()))
		}
		f.Set(old)
		lines = append(lines, fmt.Sprintf("%s %s %v; %s", name, path, old, strings.Join(parts, "; ")))
	})
	return lines
}

// eachNumber calls visit for each settable number of a struct.
func eachNumber(v reflect.Value, path string, visit func(path string, f reflect.Value)) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case !f.CanSet():
		case f.Kind() == reflect.Struct:
			eachNumber(f, name+".", visit)
		case f.CanInt() || f.CanUint() || f.CanFloat():
			visit(name, f)
		}
	}
}

// others returns wrong values for the number f.
func others(f reflect.Value) (list []reflect.Value) {
	add := func(v any) { list = append(list, reflect.ValueOf(v).Convert(f.Type())) }
	switch {
	case f.CanFloat():
		for _, x := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			add(x)
		}
	case f.Type().Name() == "Ptr":
		for _, x := range []uint64{0, 2, 4, 8} {
			add(x)
		}
	case f.CanUint():
		for _, x := range []uint64{0, f.Uint() + 1} {
			add(x)
		}
	default:
		for _, x := range []int64{-1, 0, f.Int() - 1, f.Int() + 1, 1 << 30} {
			if !slices.ContainsFunc(list, func(v reflect.Value) bool { return v.Int() == x }) && x != f.Int() &&
				!f.OverflowInt(x) {
				add(x)
			}
		}
	}
	return list
}
