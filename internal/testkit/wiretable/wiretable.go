// Package wiretable decodes a request's body with valid and invalid values in every field, and writes the results as
// lines of a table.
package wiretable

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
	"sparrow/internal/wire"
)

// values lists the values that are tried in every field.
var values = []string{"-1", "0", "1", "3", "0.5", "1e10", `""`, `"x"`, "true", `["x"]`, "[1]", `{"a":1}`, "null"}

// Object is a JSON object inside a body, and the names of the fields that it may have.
type Object struct {
	Path  []any // keys and indices that lead from the body to the object
	Names []string
	More  []string // values that are tried in addition to the usual values
	Only  []string // values that are tried instead of the usual values
}

// At returns the object at a path, with the names of the fields in known.
func At[T any](known wire.Fields[T], path ...any) Object {
	return Object{Path: path, Names: slices.Sorted(maps.Keys(known))}
}

// With returns the object with additional values to try.
func (o Object) With(values ...string) Object {
	o.More = values
	return o
}

// Lines returns a line for each field. The line has, for each value, the error or the differences from the decoded body
// without the value. The last lines are the messages of all errors, each once.
func Lines(t testing.TB, name, body string, decode func([]byte) (any, error), objects ...Object) []string {
	t.Helper()
	plain, bad := decode([]byte(body))
	if bad != nil {
		t.Fatalf("%s: %v", name, bad)
	}
	base := flatten(plain)
	var lines []string
	messages := map[string]bool{}
	for _, o := range objects {
		for _, field := range o.Names {
			var order []string
			by := map[string][]string{}
			before, after := around(t, body, o.Path, field)
			tried := values
			if o.Only != nil {
				tried = o.Only
			}
			for _, v := range append(slices.Clone(tried), o.More...) {
				text := ""
				switch got, err := decode([]byte(before + v + after)); e := err.(type) {
				case nil:
					text = difference(base, flatten(got))
				case *wire.Error:
					text = "refused"
					for _, p := range e.Problems {
						text += fmt.Sprintf(" %s (%v)", p.Param, p.Code)
						messages[name+" says: "+p.Message] = true
					}
				default:
					text = "refused " + table.Facts(err.Error())
				}
				if by[text] == nil {
					order = append(order, text)
				}
				by[text] = append(by[text], v)
			}
			line := fmt.Sprintf("%s %s", name, strings.Trim(fmt.Sprint(append(slices.Clone(o.Path), field)), "[]"))
			for _, text := range order {
				line += " | " + strings.Join(by[text], " ") + " => " + text
			}
			lines = append(lines, line)
		}
	}
	return append(lines, slices.Sorted(maps.Keys(messages))...)
}

// around returns the text of the body before and after the value of the given field of an inner object.
func around(t testing.TB, body string, path []any, field string) (before, after string) {
	t.Helper()
	var whole any
	if err := json.Unmarshal([]byte(body), &whole); err != nil {
		t.Fatal(err)
	}
	at := whole
	for _, p := range path {
		switch p := p.(type) {
		case string:
			at = at.(map[string]any)[p]
		case int:
			at = at.([]any)[p]
		}
	}
	const here = "the value of the field"
	at.(map[string]any)[field] = here
	out, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ = strings.Cut(string(out), `"`+here+`"`)
	return before, after
}

func difference(base, got map[string]string) string {
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if old, ok := base[path]; !ok || old != got[path] {
			parts = append(parts, path+" "+got[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(base)) {
		if _, ok := got[path]; !ok {
			parts = append(parts, path+" is gone")
		}
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// flatten lists the leaves of a value by their paths; zeros are omitted; for a pointer to a zero only the path is
// listed.
func flatten(v any) map[string]string {
	out := map[string]string{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				out[path+"*"] = ""
				walk(path, v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Slice, reflect.Array:
			if v.Kind() == reflect.Slice && !v.IsNil() {
				out[path+".len"] = fmt.Sprint(v.Len())
			}
			if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
				if v.Len() > 0 {
					out[path] = string(v.Bytes())
				}
				return
			}
			switch v.Type().Elem().Kind() {
			case reflect.Bool, reflect.Int, reflect.Int32, reflect.Float32, reflect.Float64, reflect.String:
				if v.Len() > 0 {
					out[path] = fmt.Sprint(v)
				}
				return
			}
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				walk(fmt.Sprintf("%s[%v]", path, k), v.MapIndex(k))
			}
		case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		default:
			if !v.IsZero() {
				out[path] = fmt.Sprint(v)
			}
		}
	}
	walk("", reflect.ValueOf(v))
	return out
}

// Text returns every leaf of a value that is not zero, with its path.
func Text(v any) string { return difference(nil, flatten(v)) }
