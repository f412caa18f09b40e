package table

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"time"
)

// Fill gives every exported field below a pointer a value of its own: numbers and times from 100 to 9999, texts with
// such a number, true for booleans, two entries for slices and maps, and 1 for numbers of types with names for their
// values. A table of what is written from such a value shows every field that is omitted or exchanged with another one.
// Values depend on the names of fields, so that a new field does not change the values of others.
func Fill(pointer any) {
	f := filler{}
	f.fill("", reflect.ValueOf(pointer).Elem())
}

// filler is the set of the numbers that were used.
type filler map[int]bool

// number returns a number for a path that was not returned before.
func (f filler) number(path string) int {
	h := fnv.New32a()
	h.Write([]byte(path)) // cannot fail
	n := int(h.Sum32() % 9900)
	for f[n] {
		n = (n + 1) % 9900
	}
	f[n] = true
	return 100 + n
}

func (f filler) fill(path string, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		at := time.Date(2026, 1, 1, 0, 0, f.number(path), 0, time.UTC)
		v.Set(reflect.ValueOf(at))
		return
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(f.number(path)) * int64(time.Millisecond))
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
		v.SetInt(int64(f.number(path)))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.number(path)))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.number(path)) + 0.25)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", f.number(path)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				f.fill(path+"."+field.Name, v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(fmt.Sprint(path, i), v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(fmt.Sprint(path, i), v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(fmt.Sprint(path, i, " key"), key)
			f.fill(fmt.Sprint(path, i), value)
			v.SetMapIndex(key, value)
		}
	}
}
