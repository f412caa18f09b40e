package verify

import (
	"reflect"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// number sets every number of a value, and of the values below it, to a different one.
func number(v reflect.Value, next *int) {
	switch {
	case v.Kind() == reflect.Pointer && v.CanSet():
		v.Set(reflect.New(v.Type().Elem()))
		number(v.Elem(), next)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			number(v.Field(i), next)
		}
	case v.Kind() == reflect.Slice && v.CanSet() && v.Type().Elem().Kind() != reflect.String:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			number(v.Index(i), next)
		}
	case v.CanSet() && v.CanInt():
		*next++
		v.SetInt(int64(*next))
	case v.CanSet() && v.CanFloat():
		*next++
		v.SetFloat(float64(*next) / 1024)
	}
}

// The report of cases whose numbers all differ is that of the golden file: a number that is printed at the place of
// another changes a line. Values that the verdict does not depend on are in parentheses.
func TestReportsAreWritten(t *testing.T) {
	var full Case
	next := 0
	number(reflect.ValueOf(&full).Elem(), &next)
	full.Name, full.Rule, full.checked = "full", "rounded", maxErrorColumn|overlapColumn|greedyColumn
	if full.Reference != nil {
		var d OperationDifference
		number(reflect.ValueOf(&d).Elem(), &next)
		full.Reference.Operations = map[string]OperationDifference{"multiply": d}
	}
	bad := Case{Name: "bad", Rule: "exact", Problems: []string{"one", "two"}, checked: medianErrorColumn | hiddenColumn}
	var lines []string
	for _, r := range []Report{
		{Model: "m", Kernels: "k", Layout: "l", Prefill: "p", Decode: "d", Chunk: 7, Forms: []string{"f", "g"},
			Cases: []Case{full, bad}},
		{Model: "m", Kernels: "k", Layout: "l", Prefill: "p", Decode: "d", Cases: []Case{{Name: "zero"}}},
	} {
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
	}
	table.Check(t, "report.txt", lines)
}
