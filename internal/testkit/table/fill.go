package table

import (
	"fmt"
	"reflect"
	"time"
)

// Fill gives every exported field below a pointer a value of its own, in the order of the fields: numbers and times
// count up, texts contain their number, booleans are true, slices and maps get two entries, and numbers of types with
// names for their values are 1. A table of what is written
// from such a value shows every field that is omitted or exchanged with another one.
func Fill(pointer any) {
	f := filler{}
	f.fill(reflect.ValueOf(pointer).Elem())
}

// filler counts the values that it has set.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, f.n, 0, time.UTC)))
		return
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(f.n) * int64(time.Millisecond))
		return
	}
	if _, named := v.Interface().(fmt.Stringer); named && (v.CanInt() || v.CanUint()) {
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.n) + 0.25)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", f.n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	}
}
