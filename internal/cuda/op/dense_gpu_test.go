package op

import (
	"errors"
	"fmt"
	"testing"

	"sparrow/kernel"
)

// Rows of two requests give equal results in one call and in one call for each request. The keys of the second request
// follow those of the first; rotary parts are inside gathered rows.
func TestGPUDenseAttend(t *testing.T) {
	b := onGPU(t)
	starts := []int32{0, 0, 0, 0, 40, 40, 40, 40, 40, 40, 0, 0, 0}
	lens := []int32{1, 2, 39, 40, 1, 63, 64, 65, 130, 129, 3, 4, 5}
	rows, keys := len(starts), 170
	for _, d := range []kernel.LatentDims{{Heads: 4, Nope: 64, Rope: 64, V: 64, Latent: 512},
		{Heads: 3, Nope: 128, Rope: 64, V: 128, Latent: 512}, {Heads: 2, Nope: 192, Rope: 64, V: 256, Latent: 512}} {
		q, out := b.random(rows, d.Heads*d.QK()), b.random(rows, d.Heads*d.V)
		kv, gathered := b.random(keys, d.KVB()), b.random(keys, d.Row())
		rope := both{gathered.ref.Columns(d.Latent, d.Row()), gathered.gpu.Columns(d.Latent, d.Row())}
		start, count := b.ints(rows, 1, starts), b.ints(rows, 1, lens)
		b.must(
			b.ref.Do(kernel.DenseArgs{Out: out.ref, Q: q.ref, KV: kv.ref, Rope: rope.ref, Start: start.ref,
				Lens: count.ref, Dims: d, Scale: 0.1}),
			b.gpu.Do(kernel.DenseArgs{Out: out.gpu, Q: q.gpu, KV: kv.gpu, Rope: rope.gpu, Start: start.gpu,
				Lens: count.gpu, Dims: d, Scale: 0.1}))
		what := fmt.Sprintf("%+v", d)
		b.nearByHead(what, out, d.Heads, 1./64)
		all := b.bytes(b.gpu, out.gpu)
		for r := range rows {
			one := b.random(1, d.Heads*d.V)
			b.must(b.gpu.Do(kernel.DenseArgs{Out: one.gpu, Q: q.gpu.Slice(r, r+1), KV: kv.gpu, Rope: rope.gpu,
				Start: start.gpu.Slice(r, r+1), Lens: count.gpu.Slice(r, r+1), Dims: d, Scale: 0.1}))
			if alone := b.bytes(b.gpu, one.gpu); string(alone) != string(all[r*len(alone):][:len(alone)]) {
				t.Errorf("%s: row %d alone differs from the row in the batch", what, r)
			}
		}
		last := b.ints(rows, 1, append([]int32{171}, lens[1:]...))
		b.must(b.gpu.Do(kernel.DenseArgs{Out: out.gpu, Q: q.gpu, KV: kv.gpu, Rope: rope.gpu, Start: start.gpu,
			Lens: last.gpu, Dims: d, Scale: 0.1}))
		if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("%s: keys outside their tensor: %v, want ErrArgument at the next sync", what, err)
		}
		b.must(b.gpu.Sync())
	}
	d := kernel.LatentDims{Heads: 1, Nope: 64, Rope: 64, V: 128, Latent: 512}
	args := kernel.DenseArgs{Out: b.random(1, 128).gpu, Q: b.random(1, 128).gpu, KV: b.random(1, 192).gpu,
		Rope: b.random(1, 64).gpu, Start: b.ints(1, 1, []int32{0}).gpu, Lens: b.ints(1, 1, []int32{1}).gpu, Dims: d,
		Scale: 1}
	if err := b.gpu.Do(args); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("values of 128 behind keys of 64 columns: %v, want ErrUnsupported", err)
	}
}
