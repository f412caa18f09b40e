package op

import (
	"bytes"
	"slices"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// lookup is a lookup of rows of a table on a detached device.
type lookup struct {
	dev  *Device
	op   kernel.TableArgs
	ids  []int32
	seen []cuda.ReadTableArgs // arguments of the launches
}

const (
	lookedUpRows, lookedUpDim = 97, 64
	idColumns                 = 4 // of which a lookup reads those after the first
)

// newLookup prepares a lookup of three rows of an e4m3 table for each token. Row i of the table holds the byte i, and
// its scales i+1.
func newLookup(t *testing.T, tokens int) *lookup {
	t.Helper()
	gpu := cuda.OpenDetached(cuda.H200)
	d, err := On(gpu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &lookup{dev: d}
	tensor := func(t kernel.DType, rows, cols int, bytes []byte) kernel.Tensor {
		return kernel.Tensor{Buf: kernel.HostBuffer(bytes), DType: t, Rows: rows, Cols: cols, Stride: cols}
	}
	var values, scales []byte
	for i := range lookedUpRows {
		values = append(values, bytes.Repeat([]byte{byte(i)}, lookedUpDim)...)
		scales = append(scales, bytes.Repeat([]byte{byte(i + 1)}, lookedUpDim/kernel.TableScale)...)
	}
	table := &kernel.Table{Values: tensor(kernel.E4M3, lookedUpRows, lookedUpDim, values),
		Scales: tensor(kernel.E8M0, lookedUpRows, lookedUpDim/kernel.TableScale, scales)}
	ids, err := kernel.New(d, kernel.I32, tokens, idColumns)
	if err != nil {
		t.Fatal(err)
	}
	out, err := kernel.New(d, kernel.BF16, tokens, (idColumns-1)*lookedUpDim)
	if err != nil {
		t.Fatal(err)
	}
	l.op = kernel.TableArgs{Out: out, Table: table, IDs: ids.Columns(1, idColumns)}
	for i := range tokens * idColumns {
		l.ids = append(l.ids, int32(i*31%lookedUpRows))
	}
	if err := d.Tables().Prepare(table); err != nil {
		t.Fatal(err)
	}
	gpu.Watch(func(_ string, _ cuda.Launch, args any) {
		if a, ok := args.(cuda.ReadTableArgs); ok {
			l.seen = append(l.seen, a)
		}
	})
	return l
}

func (l *lookup) announce(t *testing.T) {
	t.Helper()
	if err := l.dev.Tables().Announce(l.op, l.ids[1:]); err != nil {
		t.Fatal(err)
	}
}

// run runs the lookup and returns the arguments of its launch.
func (l *lookup) run(t *testing.T) cuda.ReadTableArgs {
	t.Helper()
	l.seen = nil
	if err := kernel.Do(l.dev, l.op); err != nil {
		t.Fatal(err)
	}
	if len(l.seen) != 1 {
		t.Fatalf("%d launches", len(l.seen))
	}
	return l.seen[0]
}

// inPlace reports whether a launch reads the table itself, with the row numbers of the lookup.
func (l *lookup) inPlace(a cuda.ReadTableArgs) bool {
	own := l.dev.tables.all[l.op.Table]
	return a.Values == own.values.at && a.Scales == own.scales.at && a.IDs == at(l.op.IDs) &&
		a.IDStride == idColumns && a.Columns == idColumns-1 && a.Dim == lookedUpDim && a.TableRows == lookedUpRows
}

// A lookup of many rows that was announced reads a copy of the rows, in which the rows of a token are one row. The next
// lookup without an announcement reads the table. Two lookups in turn use different memory.
func TestManyRowsAreCopied(t *testing.T) {
	const tokens = copiedFrom/(idColumns-1) + 1
	l := newLookup(t, tokens)
	var places []cuda.Ptr
	for range 3 {
		for i := range l.ids {
			l.ids[i] = (l.ids[i] + 5) % lookedUpRows
		}
		want := slices.Clone(l.ids)
		l.announce(t)
		clear(l.ids) // the numbers are not used after the announcement
		a := l.run(t)
		copy(l.ids, want)
		c := &l.dev.tables.all[l.op.Table].copies[len(places)%2]
		places = append(places, a.Values)
		if a.Values != c.memory.Ptr() || a.Scales != a.Values.Add(tokens*(idColumns-1)*lookedUpDim) ||
			a.IDs != l.dev.count.Ptr() || a.IDStride != 1 || a.Columns != 1 || a.TableRows != tokens ||
			a.Dim != (idColumns-1)*lookedUpDim || a.Rows != tokens || a.OutStride != int64(l.op.Out.Stride) {
			t.Fatalf("launched with %+v", a)
		}
		values := c.memory.Bytes()
		scales := values[tokens*(idColumns-1)*lookedUpDim:]
		for i := range tokens * (idColumns - 1) {
			id := byte(want[i/(idColumns-1)*idColumns+1+i%(idColumns-1)])
			row := values[i*lookedUpDim:][:lookedUpDim]
			scale := scales[i*lookedUpDim/kernel.TableScale:][:lookedUpDim/kernel.TableScale]
			if bytes.Count(row, []byte{id}) != len(row) || bytes.Count(scale, []byte{id + 1}) != len(scale) {
				t.Fatalf("row %d is %v with scales %v, want %d", i, row, scale, id)
			}
		}
		if !l.inPlace(l.run(t)) {
			t.Error("a lookup that was not announced reads a copy")
		}
	}
	if places[0] == places[1] || places[0] != places[2] {
		t.Errorf("the copies are at %v", places)
	}
}

// A lookup reads the table itself if it has few rows, if a row number is outside the table, if a pass with few rows was
// prepared in the same input block, or if it is recorded in a graph.
func TestFewRowsAreReadInPlace(t *testing.T) {
	const tokens = copiedFrom/(idColumns-1) + 1
	few := newLookup(t, tokens-1)
	few.announce(t)
	if a := few.run(t); !few.inPlace(a) {
		t.Errorf("few rows: %+v", a)
	}
	for _, id := range []int32{-1, lookedUpRows} {
		l := newLookup(t, tokens)
		l.ids[len(l.ids)-1] = id
		l.announce(t)
		if a := l.run(t); !l.inPlace(a) {
			t.Errorf("row %d: %+v", id, a)
		}
	}
	l := newLookup(t, tokens)
	l.announce(t)
	many := l.op
	l.op.IDs, l.op.Out = many.IDs.Slice(0, 5), many.Out.Slice(0, 5)
	l.announce(t)
	l.op = many
	if a := l.run(t); !l.inPlace(a) {
		t.Errorf("after another pass: %+v", a)
	}
	l.announce(t)
	g, err := l.dev.Capture(func() error { return kernel.Do(l.dev, l.op) })
	if err != nil {
		t.Fatal(err)
	}
	if a := l.seen[len(l.seen)-1]; !l.inPlace(a) {
		t.Errorf("in a graph: %+v", a)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
