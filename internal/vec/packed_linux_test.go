package vec

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sparrow/internal/block"
)

// packedWeights are weights of one format for [BenchmarkPackedRows].
type packedWeights struct {
	name  string
	quant int // how x is quantised
	bytes int // bytes of a row of codes
	mul   func(t *Tier, c BlockCut, data []byte)
}

// BenchmarkPackedRows measures products with packed weights on one thread: of one row with weights in the L2 cache and
// with weights in memory, relative to a plain read, and how much longer sixteen rows take. Times are processor time of
// the thread, because other programs interrupt it, and the best of all rounds.
func BenchmarkPackedRows(b *testing.B) {
	const k, near, far, part = 4096, 200 << 10, 192 << 20, 8 << 20
	mem := make([]float32, far/4)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), far) // the memory of mem, as bytes
	r := newRand(51)
	x, y := normals(r, 16*k), make([]float32, 16*part/512)
	scale := make([]byte, part/8)
	for i := range scale {
		scale[i] = []byte{0, 0x3C}[i%2]
	}
	var list []packedWeights
	for _, f := range blockFormatsWithProducts() {
		size := k / f.Values() * f.Bytes()
		list = append(list, packedWeights{f.String(), BlockGroup(f), size, func(t *Tier, c BlockCut, data []byte) {
			t.MulBlocks(c, f, data, size)
		}})
	}
	for _, g := range []struct {
		name  string
		codes Codes
		group int
		of    ScaleType
	}{{"int4 g32", CodesU4, 32, ScaleBF16}, {"int4 g128", CodesU4, 128, ScaleBF16},
		{"int8 g128", CodesU8, 128, ScaleBF16}, {"nvfp4", CodesE2M1, 16, ScaleE4M3}} {
		w := GroupWeights{Codes: g.codes, Group: g.group, Ld: k, Scale: scale, Type: g.of, LdScale: k / g.group}
		if g.codes.nibbles() {
			w.Ld = k / 2
		}
		list = append(list, packedWeights{g.name, g.codes.Quant(), w.Ld, func(t *Tier, c BlockCut, data []byte) {
			w.Data = data
			t.MulGroups(c, w)
		}})
	}
	ones := make([]float32, part/k/32*k/32)
	for i := range ones {
		ones[i] = 1
	}
	list = append(list, packedWeights{"e4m3", QuantBytes, k, func(t *Tier, c BlockCut, data []byte) {
		t.MatMulFP8(c.Y, c.Ldy, x, k, c.M1, data, k, c.N, k, ones, k/scaleBlock, 0)
	}})
	list = append(list, packedWeights{"e4m3 32x32", QuantBytes, k, func(t *Tier, c BlockCut, data []byte) {
		t.MatMulFP8Blocks(c.Y, c.Ldy, x, k, c.M1, data, k, c.N, k, FP8Blocks{Scale: ones, Ld: k / 32, Rows: 32,
			Cols: 32})
	}})
	for _, w := range list {
		fillPacked(w, bytes)
		n := part / w.bytes / 16 * 16
		eachBenchTier(b, w.name, func(b *testing.B, tier *Tier) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			rows := func(m int) *BlockRows {
				var q BlockRows
				tier.ResetBlocks(&q, m, k, w.quant, false)
				for i := range q.Units() {
					tier.QuantUnit(&q, i, x, k)
				}
				return &q
			}
			one, many, turn := rows(1), rows(16), 0
			next := func() []byte { // weights that are not in a cache
				turn = (turn + 1) % (far/part - 1)
				return bytes[turn*part:][:part]
			}
			mul := func(q *BlockRows, m, n int, data []byte) time.Duration {
				start := threadTime(b)
				w.mul(tier, BlockCut{Y: y, Ldy: n, X: q, M1: m, N: n}, data)
				return threadTime(b) - start
			}
			var best [4]time.Duration
			note := func(i int, d time.Duration) {
				if best[i] == 0 || d < best[i] {
					best[i] = d
				}
			}
			inCache := near / w.bytes / 16 * 16
			for b.Loop() {
				floats := unsafe.Slice((*float32)(unsafe.Pointer(&next()[0])), part/4)
				start := threadTime(b)
				tier.Max(floats) // one stream
				note(0, threadTime(b)-start)
				floats = unsafe.Slice((*float32)(unsafe.Pointer(&next()[0])), part/4)
				start = threadTime(b)
				tier.MatMulF32(y, part/4/k, x, k, 1, floats, k, part/4/k, k) // four streams
				note(0, threadTime(b)-start)
				note(1, mul(one, 1, n, next()))
				note(2, mul(many, 16, n, next()))
				mul(one, 1, inCache, bytes)
				note(3, mul(one, 1, inCache, bytes))
			}
			b.ReportMetric(float64(inCache*w.bytes)/float64(best[3]), "cache-GB/s")
			b.ReportMetric(100*float64(best[0])/float64(best[1])*float64(n*w.bytes)/part, "%read")
			b.ReportMetric(float64(best[2])/float64(best[1]), "x-for-16-rows")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fillPacked fills memory with copies of some random rows.
func fillPacked(w packedWeights, to []byte) {
	r, some := newRand(52), to[:64*w.bytes]
	for i := range some {
		some[i] = byte(r.Uint32())
		if strings.HasPrefix(w.name, "e4m3") {
			some[i] &^= 1 // not NaN
		}
	}
	for _, f := range block.Formats() {
		if f.String() == w.name {
			f.Random(some, r)
		}
	}
	for n := len(some); n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}

// eachBenchTier runs a benchmark for every tier with products of packed weights.
func eachBenchTier(b *testing.B, name string, run func(b *testing.B, tier *Tier)) {
	for _, tier := range Tiers() {
		if tier != portable && tier.Blocks() {
			b.Run(tier.Name+"/"+name, func(b *testing.B) { run(b, tier) })
		}
	}
}

// threadTime returns the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
