package cpu_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/layout"
)

// Gathered index keys equal the keys of the slots read one by one: for runs inside a page, runs that end at the end of
// a page, runs next to a run of another page, and single slots.
func TestGatherIndexCopiesRuns(t *testing.T) {
	const pages, size, n = 9, 64, 300
	d := cpu.Open(vec.Best(), kernel.Options{Workers: 3})
	defer d.Close()
	random := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []layout.Kind{layout.IndexPage132, layout.IndexPage68, layout.IndexF32Row512} {
		l, err := layout.IndexOf(kind)
		if err != nil {
			t.Fatal(err)
		}
		pool := kernel.Pool{Layout: kind, PageTokens: size, Mem: newTensor(t, d, kernel.U8, pages, l.PageBytes(size))}
		for i := range host.Bytes(pool.Mem) {
			host.Bytes(pool.Mem)[i] = byte(random.Uint32())
		}
		slots := newTensor(t, d, kernel.I32, n, 1)
		at := int32(0)
		for i := range host.I32(slots) {
			if at++; random.IntN(20) == 0 || at >= pages*size {
				at = random.Int32N(pages * size)
			}
			host.I32(slots)[i] = at
		}
		var got [2][]byte
		for i := range got {
			out := kernel.Pool{Layout: kind, PageTokens: n, Mem: newTensor(t, d, kernel.U8, 1, l.PageBytes(n))}
			if i == 0 {
				err = d.Do(kernel.IndexGatherArgs{Out: out, Slots: slots, Pool: pool})
			}
			for r := 0; i == 1 && r < n && err == nil; r++ {
				err = host.MoveIndex(out, r, pool, host.I32(slots)[r], 1)
			}
			if err != nil {
				t.Fatal(err)
			}
			got[i] = host.Bytes(out.Mem)
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Errorf("%v: keys differ from those copied one by one", kind)
		}
	}
}
