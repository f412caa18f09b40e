package op

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sparrow/internal/testkit/ops"
	tables "sparrow/internal/testkit/table"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// place is a named range of device memory.
type place struct {
	name       string
	first, end cuda.Ptr
}

// Each operation launches the kernels that the golden table lists, with the grids and arguments of the table: a wrong
// tensor, stride, number of rows, scale or flag changes a line. Addresses are shown as offsets in tensors; other
// memory, such as scratch and weights, is numbered.
func TestTableOfLaunches(t *testing.T) {
	for _, tier := range []struct {
		name  string
		major int
	}{{"hopper", 9}, {"portable", 8}} {
		gpu := cuda.OpenDetached(cuda.Properties{Name: "detached", Major: tier.major, SMs: 132,
			SharedOptinBytes: 232448, MemoryBytes: 1 << 37, ClusterLaunch: tier.major == 9})
		d, err := On(gpu)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		var places []place
		m := &ops.Maker{TB: t, Memory: d, Preparer: d, Activation: kernel.BF16,
			Made: func(name string, x kernel.Tensor) {
				places = append(places, place{name, at(x), at(x).Add(x.Extent())})
			}}
		all := m.All()
		other := map[cuda.Ptr]string{}
		named := func(p cuda.Ptr) string {
			if p == 0 {
				return "0"
			}
			for _, x := range places {
				if p >= x.first && p < x.end {
					return fmt.Sprintf("%s+%d", x.name, p-x.first)
				}
			}
			if other[p] == "" {
				other[p] = fmt.Sprintf("m%d", len(other))
			}
			return other[p]
		}
		gpu.Watch(func(kernel string, l cuda.Launch, args any) {
			lines = append(lines, fmt.Sprintf("  %s grid %v block %v shared %d cluster %v%s", kernel, l.Grid, l.Block,
				l.Shared, l.Cluster, written(reflect.ValueOf(args), "", named)))
		})
		for _, c := range all {
			lines = append(lines, c.Name)
			clear(other)
			if err := kernel.Do(d, c.Op); err != nil {
				lines = append(lines, "  refused "+tables.Facts(err.Error()))
			}
			if err := d.Sync(); err != nil { // launches held operations
				t.Fatal(err)
			}
		}
		gpu.Watch(nil)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		tables.Check(t, "launches-"+tier.name+".txt", lines)
	}
}

// written returns the nonzero fields of launch arguments as text.
func written(v reflect.Value, path string, named func(cuda.Ptr) string) string {
	var out strings.Builder
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case f.IsZero() || f.Type() == reflect.TypeFor[cuda.TensorMap](): // the driver encodes tensor maps
		case f.Type() == reflect.TypeFor[cuda.Ptr]():
			fmt.Fprintf(&out, " %s %s", name, named(cuda.Ptr(f.Uint())))
		case f.Kind() == reflect.Struct:
			out.WriteString(written(f, name+".", named))
		case f.Kind() == reflect.Array && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				out.WriteString(written(f.Index(j), fmt.Sprintf("%s[%d].", name, j), named))
			}
		default:
			fmt.Fprintf(&out, " %s %v", name, f)
		}
	}
	return out.String()
}
