package cpu

import (
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Every row belongs to one share, blocks are not divided, and shares differ from equal shares by at most a block.
func TestSharesAreEqual(t *testing.T) {
	weight := func(d kernel.DType, rows, cols int) part {
		return part{to: rows, w: &host.Matrix{
			Weight: kernel.Weight{Data: kernel.Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}}}}
	}
	for _, parts := range [][]part{
		{weight(kernel.BF16, 512, 1024), weight(kernel.BF16, 576, 1024), weight(kernel.BF16, 128, 1024),
			weight(kernel.BF16, 64, 1024)},
		{weight(kernel.E4M3, 3072, 512), weight(kernel.BF16, 16, 512), weight(kernel.F32, 1, 512)},
		{weight(kernel.BF16, 128, 1024)}, {weight(kernel.BF16, 129280, 1024)}, {weight(kernel.E2M1x2, 1, 32)},
		{weight(kernel.F32, 24, 16384)},
	} {
		for _, workers := range []int{1, 2, 3, 64} {
			var s shares
			s.cut(parts, workers)
			total, block := 0, 0
			for i := range parts {
				total += parts[i].w.Out() * rowBytes(parts[i].w)
				block = max(block, shareRows(&parts[i])*rowBytes(parts[i].w))
			}
			most := max(sharesEach*workers, total/shareBytes)
			if workers == 2 && parts[0].w.Out() == 24 && s.count() != 6 {
				t.Errorf("24 long rows are %d shares, want 6", s.count())
			}
			if s.count() < 1 || s.count() > most || workers == 1 && s.count() > 1 {
				t.Fatalf("%d shares for %d workers", s.count(), workers)
			}
			sum := 0
			for i := range s.count() {
				bytes := 0
				for p := range parts {
					n0, n1 := s.rows(i, i+1, p, parts[p].w.Out())
					if n0%shareRows(&parts[p]) != 0 && n0 < n1 {
						t.Errorf("a share begins in row %d", n0)
					}
					bytes += max(0, n1-n0) * rowBytes(parts[p].w)
				}
				if sum += bytes; bytes == 0 || bytes > total/s.count()+2*block {
					t.Errorf("%d workers: share %d of %d has %d bytes of %d", workers, i, s.count(), bytes, total)
				}
			}
			if sum != total {
				t.Errorf("%d workers: shares have %d bytes of %d", workers, sum, total)
			}
		}
	}
}

// While a worker multiplies the last rows of its shares, it prefetches its next rows, and then the beginning of the
// next product.
func TestWorkersPrefetchWhatTheyReadNext(t *testing.T) {
	d := Open(vec.Best(), kernel.Options{Workers: 2})
	defer d.Close()
	weight := func(rows int) part {
		data := kernel.Tensor{Buf: make(kernel.HostBuffer, rows*1024), DType: kernel.E4M3, Rows: rows, Cols: 1024,
			Stride: 1024}
		return part{to: rows, w: &host.Matrix{Weight: kernel.Weight{Data: data}}}
	}
	st := &d.multiply
	st.parts = []part{weight(256), weight(256)}
	st.shares.cut(st.parts, 2)
	next := [][]byte{{1}, {2}}
	d.ahead.now.Store(&stage{spans: [][][]byte{{next[0]}, {next[1]}}})
	if st.shares.count() != 4 {
		t.Fatalf("%d shares, want two of each part", st.shares.count())
	}
	for _, c := range []struct {
		worker, end int
		want        *byte
	}{
		{0, 1, &host.Bytes(st.parts[0].w.Data)[128*1024]}, {0, 2, &next[0][0]},
		{1, 3, &host.Bytes(st.parts[1].w.Data)[128*1024]}, {1, 4, &next[1][0]},
		{1, 1, &next[1][0]}, // a share that the other worker computes
	} {
		if got := afterShares(d, c.worker, c.end); len(got) == 0 || &got[0] != c.want {
			t.Errorf("worker %d prefetches the wrong memory after share %d", c.worker, c.end)
		}
	}
	d.ahead.now.Store(nil)
	if got := afterShares(d, 0, 2); got != nil {
		t.Errorf("%d bytes to prefetch before the next product is known, want 0", len(got))
	}
}
