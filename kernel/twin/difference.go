package twin

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Differences are how two devices differ, operation by operation.
type Differences map[string]*Difference // by operation and argument, such as "NormArgs.Out"

// Difference is how one argument of one kind of operation differs, over all calls.
type Difference struct {
	Calls    int
	Elements int     // compared
	Unequal  int     // of them
	Worst    float64 // the largest difference of a call, as a share of the largest value of that call
	Noise    float64 // the largest root mean square of a call's differences, as a share of that of its values
}

// Print writes the differences as a table.
func (s Differences) Print(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "argument\tcalls\telements\tunequal\tworst\tnoise")
	for _, name := range slices.Sorted(maps.Keys(s)) {
		d := s[name]
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%.2e\t%.2e\n", name, d.Calls, d.Elements, d.Unequal, d.Worst, d.Noise)
	}
	out.Flush()
}

// Settle compares an operation's tensors on both devices, after both have run it, and gives the second those of the
// first.
func (d *Device) Settle(c Call, to Differences) error {
	var err error
	tensors(reflect.ValueOf(c.Args), c.Operation(), func(field string, t kernel.Tensor) {
		if err == nil {
			err = d.settle(field, t, valid(c.Args, field, t), to)
		}
	})
	return err
}

// tensors calls visit for every tensor of an operation's arguments.
func tensors(v reflect.Value, path string, visit func(string, kernel.Tensor)) {
	if t, ok := v.Interface().(kernel.Tensor); ok {
		if t.Given() {
			visit(path, t)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			tensors(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			tensors(v.Index(i), path, visit)
		}
	}
}

// valid is how many columns of row r of a tensor hold results: scores end at the keys that a row sees.
func valid(args any, field string, t kernel.Tensor) func(r int) int {
	a, ok := args.(kernel.ScoreArgs)
	if !ok || !strings.HasSuffix(field, ".Out") {
		return func(int) int { return t.Cols }
	}
	lens := host.I32(onSecond(a.Lens))
	return func(r int) int {
		if n := int(lens[r*a.Lens.Stride]); n > a.SkipUpTo {
			return n
		}
		return 0
	}
}

// settle does it for one tensor.
func (d *Device) settle(field string, t kernel.Tensor, valid func(r int) int, to Differences) error {
	raw := make([]byte, t.Extent())
	if err := d.first.Read(raw, onFirst(t)); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	size := t.DType.Size()
	var sum, square, most, worst float64
	elements, unequal := 0, 0
	for r := range t.Rows {
		got, want := raw[r*t.Stride*size:][:t.Cols*size], host.Bytes(onSecond(t).Slice(r, r+1))
		for c := range valid(r) {
			g, w := value(t.DType, got[c*size:]), value(t.DType, want[c*size:])
			elements++
			if g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
				unequal++
			}
			diff := math.Abs(g - w)
			if math.IsNaN(diff) || math.IsInf(diff, 0) {
				continue
			}
			worst, most = max(worst, diff), max(most, math.Abs(w))
			sum, square = sum+diff*diff, square+w*w
		}
		copy(want, got)
	}
	x := to[field]
	if x == nil {
		x = &Difference{}
		to[field] = x
	}
	x.Calls, x.Elements, x.Unequal = x.Calls+1, x.Elements+elements, x.Unequal+unequal
	if most > 0 {
		x.Worst, x.Noise = max(x.Worst, worst/most), max(x.Noise, math.Sqrt(sum/square))
	}
	return nil
}

// value is one element of a tensor.
func value(d kernel.DType, b []byte) float64 {
	switch d {
	case kernel.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case kernel.BF16:
		return float64(num.FromBF16(binary.LittleEndian.Uint16(b)))
	case kernel.I32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case kernel.E4M3:
		return float64(num.FromE4M3(b[0]))
	}
	return float64(b[0])
}
