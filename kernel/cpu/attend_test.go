package cpu_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/layout"
)

// sparseCase returns the arguments of attention over lists of several chunks. The list of the last row ends inside a
// chunk, and some entries are masked.
func sparseCase(t *testing.T, d kernel.Device, heads int, kind layout.Kind, damage func([]byte)) kernel.SparseArgs {
	t.Helper()
	const rows, entries, pages, tokens = 6, 1300, 20, 16
	r := rand.New(rand.NewPCG(5, uint64(kind)))
	l, err := layout.MainOf(kind)
	if err != nil {
		t.Fatal(err)
	}
	pool := kernel.Pool{Mem: newTensor(t, d, kernel.U8, pages, l.PageBytes(tokens)), Layout: kind, PageTokens: tokens}
	v := make([]float32, layout.RowDim)
	for s := range pages * tokens {
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		l.Encode(host.Page(pool, s/tokens), s%tokens, v)
	}
	if damage != nil {
		damage(host.Page(pool, 3)[5*l.RowBytes():][:l.RowBytes()])
	}
	a := kernel.SparseArgs{
		Out: newTensor(t, d, kernel.F32, rows, heads*layout.LatentDim), LSE: newTensor(t, d, kernel.F32, rows, heads),
		Max: newTensor(t, d, kernel.F32, rows, heads), Q: newTensor(t, d, kernel.F32, rows, heads*layout.RowDim),
		Pool: pool, Indices: newTensor(t, d, kernel.I32, rows, entries), Lens: newTensor(t, d, kernel.I32, rows, 1),
		Heads: heads, Scale: 0.1,
	}
	for i := range host.F32(a.Q) {
		host.F32(a.Q)[i] = float32(r.NormFloat64())
	}
	for i := range host.I32(a.Indices) {
		host.I32(a.Indices)[i] = int32(r.IntN(pages*tokens+20) - 20)
	}
	for i := 512; i < 1024; i++ {
		host.RowI32(a.Indices, 2)[i] = -1 // all entries of a chunk are masked
	}
	for i := range rows {
		host.I32(a.Lens)[i] = entries
	}
	host.I32(a.Lens)[rows-1] = 777
	return a
}

// A row's output is bitwise equal whether one worker computes it or several workers share it, and close to the
// reference.
func TestSparseAttendInChunks(t *testing.T) {
	thirds := func(row []byte) { // a scale that is not a power of two uses another code path
		binary.LittleEndian.PutUint32(row[layout.BlockScaleOffset+4:], math.Float32bits(1.0/3))
	}
	for _, tier := range vec.Tiers() {
		for _, c := range []struct {
			name   string
			kind   layout.Kind
			damage func([]byte)
		}{
			{"1152", layout.BF16Row1152, nil},
			{"656", layout.FP8Row656, nil},
			{"656 with odd scales", layout.FP8Row656, thirds},
			{"576", layout.FP8Row576, nil},
			{"f32", layout.F32Row2304, nil},
		} {
			t.Run(fmt.Sprintf("%s/%s", tier.Name, c.name), func(t *testing.T) {
				var first []byte
				for _, workers := range []int{1, 3} {
					d := cpu.Open(tier, kernel.Options{Workers: workers})
					defer d.Close()
					a := sparseCase(t, d, 2, c.kind, c.damage)
					if err := d.Do(a); err != nil {
						t.Fatal(err)
					}
					whole := append(bytes.Clone(host.Bytes(a.Out)), host.Bytes(a.LSE)...)
					if first == nil {
						first = whole
						nearReference(t, a)
					}
					if !bytes.Equal(whole, first) {
						t.Fatalf("the output of %d workers differs from that of one worker", workers)
					}
					for r := range a.Q.Rows {
						one := a
						one.Q, one.Indices, one.Lens = a.Q.Slice(r, r+1), a.Indices.Slice(r, r+1), a.Lens.Slice(r, r+1)
						one.Out, one.LSE, one.Max = newTensor(t, d, kernel.F32, 1, a.Out.Cols),
							newTensor(t, d, kernel.F32, 1, a.Heads), kernel.Tensor{}
						if err := d.Do(one); err != nil {
							t.Fatal(err)
						}
						if !bytes.Equal(host.Bytes(one.Out), host.Bytes(a.Out.Slice(r, r+1))) ||
							!bytes.Equal(host.Bytes(one.LSE), host.Bytes(a.LSE.Slice(r, r+1))) {
							t.Fatalf("%d workers: row %d differs from the row computed alone", workers, r)
						}
					}
				}
			})
		}
	}
}

// With many workers, the heads of a row are also divided among workers, in whole tiles of which the last is not full.
// The output is bitwise equal to that of one worker.
func TestSparseAttendSharesHeads(t *testing.T) {
	for _, tier := range vec.Tiers() {
		for _, kind := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656} {
			var first []byte
			for _, workers := range []int{1, 3, 9} { // an item has 40, 32 or 16 of the 40 heads
				d := cpu.Open(tier, kernel.Options{Workers: workers})
				defer d.Close()
				a := sparseCase(t, d, 40, kind, nil)
				for _, m := range []*kernel.Tensor{&a.Out, &a.LSE, &a.Max, &a.Q, &a.Indices, &a.Lens} {
					*m = m.Slice(5, 6)
				}
				if err := d.Do(a); err != nil {
					t.Fatal(err)
				}
				all := bytes.Join([][]byte{host.Bytes(a.Out), host.Bytes(a.LSE), host.Bytes(a.Max)}, nil)
				if first == nil {
					first = all
					nearReference(t, a)
				}
				if !bytes.Equal(all, first) {
					t.Errorf("%s, %v: %d workers and one worker give different outputs", tier.Name, kind, workers)
				}
			}
		}
	}
}

// nearReference compares the output of sparse attention with the reference.
func nearReference(t *testing.T, a kernel.SparseArgs) {
	t.Helper()
	d := &ref.Device{}
	want := a
	want.Out, want.LSE, want.Max = newTensor(t, d, kernel.F32, a.Out.Rows, a.Out.Cols),
		newTensor(t, d, kernel.F32, a.LSE.Rows, a.Heads), newTensor(t, d, kernel.F32, a.LSE.Rows, a.Heads)
	if err := d.Do(want); err != nil {
		t.Fatal(err)
	}
	for _, p := range [][2]kernel.Tensor{{a.Out, want.Out}, {a.LSE, want.LSE}, {a.Max, want.Max}} {
		for i, w := range host.F32(p[1]) {
			if g := host.F32(p[0])[i]; !(math.Abs(float64(g-w)) <= 2e-5*max(1, math.Abs(float64(w)))) {
				t.Fatalf("element %d is %v, the reference gives %v", i, g, w)
			}
		}
	}
}
