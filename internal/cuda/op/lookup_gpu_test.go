package op

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"sparrow/kernel"
)

// An announced lookup of many rows, which reads a copy, has the same bytes as one that reads the table in place, for
// tables of every type and in three passes, of which the last uses the memory of the first.
func TestGPUAnnouncedRows(t *testing.T) {
	b := onGPU(t)
	const rows, dim, columns, tokens = 1000, 256, 16, copiedFrom/8 + 3
	for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.E4M3} {
		values := make(kernel.HostBuffer, rows*dim*d.Size())
		if err := (kernel.Drawn{Seed: 3, Spread: 1}).Fill(values, d, 0); err != nil {
			t.Fatal(err)
		}
		table := &kernel.Table{Values: kernel.Tensor{Buf: values, DType: d, Rows: rows, Cols: dim, Stride: dim}}
		if d == kernel.E4M3 {
			scales := make(kernel.HostBuffer, rows*dim/kernel.TableScale)
			for i := range scales {
				scales[i] = byte(120 + i%11)
			}
			table.Scales = kernel.Tensor{Buf: scales, DType: kernel.E8M0, Rows: rows, Cols: dim / kernel.TableScale,
				Stride: dim / kernel.TableScale}
		}
		out, err := kernel.New(b.gpu, kernel.BF16, tokens, columns*dim)
		b.must(err)
		bytesOf := func(op kernel.TableArgs) []byte {
			b.must(b.gpu.Write(out, bytes.Repeat([]byte{0xFF}, int(out.Extent()))), kernel.Do(b.gpu, op))
			return b.bytes(b.gpu, out)
		}
		for pass := range 3 {
			numbers := make([]int32, tokens*columns)
			for i := range numbers {
				numbers[i] = rand.Int32N(rows)
			}
			op := kernel.TableArgs{Out: out, Table: table, IDs: b.ints(tokens, columns, numbers).gpu}
			want := bytesOf(op)
			b.must(b.gpu.Tables().Announce(op, numbers))
			if b.gpu.tables.all[table].copies[pass%2].ids == 0 {
				t.Fatal("the rows are not copied")
			}
			if !bytes.Equal(bytesOf(op), want) {
				t.Errorf("%v: pass %d differs", d, pass)
			}
		}
	}
}
