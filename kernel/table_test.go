package kernel_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/testkit/ops"
	"sparrow/internal/testkit/table"
	"sparrow/kernel"
)

// Each tensor of each operation is accepted or refused as in the golden table after each of these changes: it is
// missing or has another type; it has one row or column fewer or more; its stride is too small or its rows are apart;
// it ends beyond its buffer. Each number is accepted or refused as in the table if it is negative, zero, one, or
// changed by one.
func TestTableOfRefusals(t *testing.T) {
	m := &ops.Maker{TB: t, Memory: host.Memory{}, Preparer: host.Memory{}, Activation: kernel.BF16}
	var lines []string
	seen := map[reflect.Type]bool{}
	for _, c := range m.All() {
		if err := c.Op.Check(); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if typ := reflect.TypeOf(c.Op); seen[typ] && !strings.Contains(c.Name, ",") {
			continue
		} else {
			seen[typ] = true
		}
		op := reflect.New(reflect.TypeOf(c.Op)).Elem()
		op.Set(reflect.ValueOf(c.Op))
		check := func() string {
			err := op.Interface().(kernel.Op).Check()
			if err == nil {
				return "taken"
			}
			if !errors.Is(err, kernel.ErrArgument) {
				t.Errorf("%s: %v is not an ErrArgument", c.Name, err)
			}
			return "refused"
		}
		visit(op, "", func(path string, f reflect.Value) {
			old := reflect.New(f.Type()).Elem()
			old.Set(f)
			var parts []string
			for _, x := range wrong(f) {
				f.Set(x.v)
				parts = append(parts, x.name+": "+check())
				f.Set(old)
			}
			lines = append(lines, fmt.Sprintf("%s %s; %s", c.Name, path, strings.Join(parts, "; ")))
		})
	}
	table.Check(t, "refusals.txt", lines)
}

// visit calls do for the tensors and numbers of a struct.
func visit(v reflect.Value, path string, do func(path string, f reflect.Value)) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case f.Type() == reflect.TypeFor[kernel.Tensor]() || f.CanInt() || f.CanFloat():
			do(name, f)
		case f.Kind() == reflect.Struct:
			visit(f, name+".", do)
		}
	}
}

type value struct {
	name string
	v    reflect.Value
}

func wrong(f reflect.Value) (list []value) {
	add := func(name string, v any) {
		list = append(list, value{name, reflect.ValueOf(v).Convert(f.Type())})
	}
	switch {
	case f.CanFloat():
		add("-1", -1.0)
		return list
	case f.CanInt():
		for _, d := range []int64{-64, -1, 0, 1, f.Int() - 1, f.Int() + 1} {
			if d != f.Int() && !slices.ContainsFunc(list, func(v value) bool { return v.v.Int() == d }) {
				add(fmt.Sprint(d), d)
			}
		}
		return list
	}
	t := f.Interface().(kernel.Tensor)
	if !t.Given() {
		return list
	}
	change := func(name string, do func(t *kernel.Tensor)) {
		c := t
		do(&c)
		add(name, c)
	}
	change("missing", func(t *kernel.Tensor) { *t = kernel.Tensor{} })
	change("type", func(t *kernel.Tensor) {
		if t.DType = kernel.I8; f.Interface().(kernel.Tensor).DType == kernel.I8 {
			t.DType = kernel.F16
		}
	})
	change("a row less", func(t *kernel.Tensor) { t.Rows-- })
	change("a column less", func(t *kernel.Tensor) { t.Cols-- })
	change("a column more", func(t *kernel.Tensor) { t.Cols, t.Stride, t.Rows = t.Cols+1, t.Stride+1, min(t.Rows, 1) })
	if t.Rows > 1 {
		change("stride", func(t *kernel.Tensor) { t.Stride-- })
	}
	larger := func(t *kernel.Tensor) {
		t.Buf = make(kernel.HostBuffer, t.Off+int64(t.Rows)*int64(t.Stride)*int64(t.DType.Size()))
	}
	change("apart", func(t *kernel.Tensor) { t.Stride += 16; larger(t) })
	change("a row more", func(t *kernel.Tensor) { t.Rows++; larger(t) })
	change("end", func(t *kernel.Tensor) { t.Off++ })
	change("begin", func(t *kernel.Tensor) { t.Off = -1 })
	return list
}
