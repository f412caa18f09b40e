package cuda

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"sparrow/sample"
)

func TestGPUSampleEqualsTheHost(t *testing.T) {
	r := onGPU(t)
	rng := rand.New(rand.NewPCG(21, 4))
	for _, columns := range []int{1, 100, 3000, 129280, MaxSampleColumns} {
		cases := drawCases(t, rng, 64, columns)
		scratch, err := sample.NewScratch(columns)
		check(t, err)
		for i := range cases {
			c := &cases[i]
			words := make([]int32, sample.DrawWords)
			c.draw.Put(words)
			a := SampleArgs{Logits: upload(r, c.logits), Draws: upload(r, words), Best: upload(r, []int32{c.best}),
				IDs: r.poisoned(4), Stride: int64(len(c.logits)), IDStride: 1, Rows: 1, Columns: int32(len(c.logits))}
			check(t, SampleRows(r.k, r.s, &a))
			got := int32(binary.LittleEndian.Uint32(r.download(a.IDs, 4)))
			if want := scratch.Choose(c.logits, c.best, c.draw); got != want {
				t.Errorf("case %d, %d columns, %+v: %d, want %d", i, len(c.logits), c.draw, got, want)
			}
		}
	}
	// Sampling gives equal tokens for rows together and alone.
	const rows, columns, stride = 70, 20000, 20003
	logits, words := make([]float32, rows*stride), make([]int32, rows*sample.DrawWords)
	want, best := make([]int32, rows), make([]int32, rows)
	scratch, err := sample.NewScratch(columns)
	check(t, err)
	for i, c := range drawCases(t, rng, 8*rows, columns) {
		if i%8 != 0 { // the other rows have fewer columns
			continue
		}
		i /= 8
		copy(logits[i*stride:], c.logits)
		c.draw.Put(words[i*sample.DrawWords:])
		best[i], want[i] = c.best, scratch.Choose(c.logits, c.best, c.draw)
	}
	ids := upload(r, best) // the result replaces ids in place
	a := SampleArgs{Logits: upload(r, logits), Draws: upload(r, words), Best: ids, IDs: ids, Stride: stride,
		IDStride: 1, Rows: rows, Columns: columns}
	check(t, SampleRows(r.k, r.s, &a))
	got := r.download(a.IDs, 4*rows)
	for i := range want {
		if id := int32(binary.LittleEndian.Uint32(got[4*i:])); id != want[i] {
			t.Errorf("row %d: %d, want %d", i, id, want[i])
		}
	}
}
