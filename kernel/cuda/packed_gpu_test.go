package cuda

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sparrow/internal/num"
)

// Kernels for 64, 128 and 256 rows and kernels for pairs of blocks give bitwise equal results. The packed weights are
// random bytes; a mask makes their scales finite.
func TestGPUEveryPackedKernelGivesTheSameBits(t *testing.T) {
	r := onHopper(t)
	rng := rand.New(rand.NewPCG(46, 1))
	for f := range packedFormatsWide {
		mask := byte(0x77)
		if f == "mxfp4" {
			mask = 0xFE
		}
		for _, s := range []struct{ rows, columns, k int32 }{{300, 272, 2304}, {600, 128, 520}} {
			weight, input := make([]byte, f.Bytes(s.columns, s.k)), make([]uint16, s.rows*s.k)
			for i := range weight {
				weight[i] = byte(rng.Uint32()) & mask
			}
			for i := range input {
				input[i] = num.BF16(float32(rng.NormFloat64()))
			}
			x := PackedProduct{Format: f, Weight: upload(r, weight), Factors: upload(r, []float32{1, 1}),
				X: upload(r, input), XStride: int64(s.k), OutStride: int64(s.columns), Rows: s.rows, Columns: s.columns,
				K: s.k, OutF32: true, Arrived: upload(r, make([]uint32, PackedSlots))}
			var want []byte
			_, _, parts := x.size()
			for _, n := range []int32{packedFew64, packedMany, packedWide, packedPair} {
				if n == packedWide && parts > 1 { // experts have one part
					continue
				}
				bytes := 4 * int64(s.rows) * int64(s.columns)
				x.Out, x.Sums = r.poisoned(bytes), 0
				if sums := x.sumBytes(n); sums > 0 {
					x.Sums = r.poisoned(sums)
				}
				check(t, multiplyPackedBy(r.k, r.s, &x, n))
				got := r.download(x.Out, bytes)
				if want == nil {
					want = got
					continue
				}
				sameBytes(t, fmt.Sprintf("%s %v, %d parts, groups of %d rows", f, s, parts, n), got, want)
			}
		}
	}
}

// Kernels for 8 and 16 rows give bitwise equal results, with one and with two pieces of weight rows per warp, whatever
// the other rows are. Blocks of the kernel for matrices have one part of a group of stripes, several groups that are
// not divided, or parts of two groups. Two shapes have one part of k, as experts have, and an odd number of tiles, so
// that the last block of the kernel for experts can have fewer stripes. The packed weights are random bytes; a mask
// makes their scales finite.
func TestGPUEveryPackedKernelForFewRowsGivesTheSameBits(t *testing.T) {
	r := onHopper(t)
	rng := rand.New(rand.NewPCG(47, 1))
	for f := range packedFormatsFewMatrix {
		mask := uint64(0x3F3F3F3F3F3F3F3F)
		if strings.HasPrefix(string(f), "u4_") {
			mask = 0x7777777777777777 // stored scales are large numbers
		}
		for _, s := range []struct{ rows, columns, k int32 }{{16, 528, 2304}, {37, 1280, 520}, {37, 256, 4096},
			{3, 1024, 520}, {12, 8200, 4096}, {9, 51264, 1024}, {16, 25500, 8192}} {
			weight, input := make([]byte, f.Bytes(s.columns, s.k)), make([]uint16, s.rows*s.k)
			for i := 0; i < len(weight); i += 8 {
				binary.LittleEndian.PutUint64(weight[i:], rng.Uint64()&mask)
			}
			for i := range input {
				input[i] = num.BF16(float32(rng.NormFloat64()))
			}
			x := PackedProduct{Format: f, Weight: upload(r, weight), Factors: upload(r, []float32{1, 1}),
				X: upload(r, input), XStride: int64(s.k), OutStride: int64(s.columns), Rows: s.rows, Columns: s.columns,
				K: s.k, OutF32: true, Arrived: upload(r, make([]uint32, PackedSlots))}
			_, _, parts := x.size()
			run := func(n int32) []byte {
				bytes := 4 * int64(x.Rows) * int64(s.columns)
				x.Out, x.Sums = r.poisoned(bytes), 0
				if n == packedFewExperts {
					a := x.args()
					items := a.Tiles * ceilDiv(x.Rows, packedFew16)
					check(t, runPersistent(r.k, r.s, f.kernel(n), items, packedFormatsFewExperts[f], &a))
					return r.download(x.Out, bytes)
				}
				if sums := x.sumBytes(n); sums > 0 {
					x.Sums = r.poisoned(sums)
				}
				check(t, multiplyPackedBy(r.k, r.s, &x, n))
				return r.download(x.Out, bytes)
			}
			want := run(packedFew64)
			kernels := []int32{packedFew8, packedFew16}
			if packedFormatsFewExperts[f] > 0 && parts == 1 {
				kernels = append(kernels, packedFewExperts)
			}
			if s.rows <= packedFew16 {
				kernels = append(kernels, packedFewMatrix)
			}
			for _, n := range kernels {
				sameBytes(t, fmt.Sprintf("%s %v, kernel %s", f, s, f.kernel(n)), run(n), want)
			}
			x.Rows = 1
			for _, n := range kernels[2:] {
				sameBytes(t, fmt.Sprintf("%s %v, the first row alone, kernel %s", f, s, f.kernel(n)), run(n),
					want[:4*int64(s.columns)])
			}
		}
	}
}
