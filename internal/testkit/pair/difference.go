package pair

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Differences holds the differences between two devices, operation by operation.
type Differences map[string]*Difference // by operation and argument, such as "NormArgs.Out"

// Difference holds the differences of one argument of one kind of operation, over all calls.
type Difference struct {
	DType    kernel.DType
	Calls    int
	Elements int     // number of compared elements
	Unequal  int     // number of elements that differ
	Worst    float64 // largest difference of a call, as a fraction of the largest value of that call
	// Row is the largest root mean square of the differences of a row (for attention, of one head of a row), as a
	// fraction of the root mean square of its values. It shows an error that affects only a small part of a call.
	Row  float64
	diff float64 // sum of the squares of all differences
	size float64 // sum of the squares of all values
}

// Noise returns the root mean square of the differences, as a fraction of that of the values.
func (d *Difference) Noise() float64 {
	if d.diff == 0 {
		return 0
	}
	return math.Sqrt(d.diff / d.size)
}

// Print writes the differences to w as a table.
func (s Differences) Print(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "argument\tcalls\telements\tunequal\tworst\tnoise\tof a row")
	for _, name := range slices.Sorted(maps.Keys(s)) {
		d := s[name]
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%.2e\t%.2e\t%.2e\n", name, d.Calls, d.Elements, d.Unequal, d.Worst,
			d.Noise(), d.Row)
	}
	out.Flush()
}

// Settle compares an operation's tensors on both devices, after both have run it, and copies those of the first to
// the second.
func (d *Device) Settle(c Call, to Differences) error {
	var err error
	tensors(reflect.ValueOf(c.Op), c.Operation(), func(field string, t kernel.Tensor) {
		if err != nil {
			return
		}
		x := to[field]
		if x == nil {
			x = &Difference{DType: t.DType}
			to[field] = x
		}
		n := d.written(c.Op, field, t)
		if err = d.settle(t, n, x); err != nil {
			err = fmt.Errorf("%s: %w", field, err)
		}
		x.Elements += n.elements
	})
	return err
}

// headsOf returns the number of heads whose outputs are adjacent in a row; 1 except for attention.
func headsOf(op any, field string) int {
	if !strings.HasSuffix(field, ".Out") {
		return 1
	}
	switch a := op.(type) {
	case kernel.SparseArgs:
		return a.Heads
	case kernel.DenseArgs:
		return a.Dims.Heads
	case kernel.LatentArgs:
		return a.Heads
	case kernel.DualArgs:
		return a.Heads
	case kernel.FlatArgs:
		return a.Heads
	}
	return 1
}

// written describes the part of a tensor that an operation writes.
type written struct {
	heads    int             // number of heads with outputs in a row
	columns  func(r int) int // returns the number of written columns of row r
	elements int             // number of written elements
}

// written returns the part of a tensor that an operation writes: the whole tensor, except for scores, which end at the
// last key of a row, and for pools, of which only some rows change.
func (d *Device) written(args any, field string, t kernel.Tensor) written {
	n := written{headsOf(args, field), func(int) int { return t.Cols }, t.Rows * t.Cols}
	rows := func(slots kernel.Tensor, p kernel.Pool) {
		if strings.HasSuffix(field, ".Pool.Mem") {
			n.elements = slots.Rows * p.Mem.Cols / p.PageTokens
		}
	}
	switch a := args.(type) {
	case kernel.StoreArgs:
		rows(a.Slots, a.Pool)
	case kernel.IndexStoreArgs:
		rows(a.Slots, a.Pool)
	case kernel.EntryStoreArgs:
		rows(a.Slots, a.Pool)
	case kernel.KeyStoreArgs:
		rows(a.Slots, a.Pool)
	case kernel.ScoreArgs:
		if !strings.HasSuffix(field, ".Out") {
			break
		}
		lens := host.I32(Second(a.Lens))
		n.columns = func(r int) int {
			if k := int(lens[r*a.Lens.Stride]); k > a.SkipUpTo {
				return k
			}
			return 0
		}
		n.elements = 0
		for r := range t.Rows {
			n.elements += n.columns(r)
		}
	}
	return n
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

// settle compares one tensor on both devices, adds the differences to x, and copies the tensor of the first device to
// the second.
func (d *Device) settle(t kernel.Tensor, n written, x *Difference) error {
	raw := make([]byte, t.Extent())
	if err := d.first.Read(raw, First(t)); err != nil {
		return err
	}
	x.Calls++
	size := t.DType.Size()
	var most, worst float64
	var g, w []float64
	for r := range t.Rows {
		got, want := raw[r*t.Stride*size:][:t.Cols*size], host.Bytes(Second(t).Slice(r, r+1))
		equal := bytes.Equal(got, want)
		if t.DType == kernel.U8 && equal { // equal pools need no comparison of values; they have most bytes of a call
			continue
		}
		columns := n.columns(r)
		w = values(w[:0], t.DType, want[:columns*size])
		if !equal {
			g = values(g[:0], t.DType, got[:columns*size])
		}
		for start := 0; start < columns; start += t.Cols / n.heads {
			var part share
			end := min(start+t.Cols/n.heads, columns)
			for _, w := range w[start:end] {
				if !math.IsInf(w, 0) && !math.IsNaN(w) {
					most, part.size = max(most, math.Abs(w)), part.size+w*w
				}
			}
			for c := start; c < end && !equal; c++ {
				diff := math.Abs(g[c] - w[c])
				switch {
				case g[c] == w[c] || math.IsNaN(g[c]) && math.IsNaN(w[c]):
					continue
				case math.IsNaN(diff):
					diff = math.Inf(1)
				}
				x.Unequal++
				worst, part.diff = max(worst, diff), part.diff+diff*diff
			}
			x.diff, x.size, x.Row = x.diff+part.diff, x.size+part.size, max(x.Row, part.noise())
		}
		copy(want, got)
	}
	if worst > 0 {
		x.Worst = max(x.Worst, worst/most)
	}
	return nil
}

// share holds the sums of squares of a part of a row: of differences and of values.
type share struct{ diff, size float64 }

// noise returns the root mean square of the differences, relative to that of the values.
func (s share) noise() float64 {
	if s.diff == 0 {
		return 0
	}
	return math.Sqrt(s.diff / s.size)
}

// values appends the elements of a row.
func values(to []float64, d kernel.DType, row []byte) []float64 {
	switch d {
	case kernel.F32:
		for ; len(row) > 0; row = row[4:] {
			to = append(to, float64(math.Float32frombits(binary.LittleEndian.Uint32(row))))
		}
	case kernel.BF16:
		for ; len(row) > 0; row = row[2:] {
			to = append(to, float64(num.FromBF16(binary.LittleEndian.Uint16(row))))
		}
	case kernel.I32:
		for ; len(row) > 0; row = row[4:] {
			to = append(to, float64(int32(binary.LittleEndian.Uint32(row))))
		}
	case kernel.E4M3:
		for _, b := range row {
			to = append(to, float64(num.FromE4M3(b)))
		}
	default:
		for _, b := range row {
			to = append(to, float64(b))
		}
	}
	return to
}
