//go:build linux

package vec

import (
	"os"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fence allocates memory that ends, or begins, exactly at a protected page, so that an access outside the memory fails.
type fence struct {
	t      *testing.T
	before bool
}

// bytes returns n bytes next to the protected page.
func (f *fence) bytes(n int) []byte {
	f.t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			f.t.Error(err)
		}
	})
	for _, guard := range [][]byte{mem[:page], mem[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			f.t.Fatal(err)
		}
	}
	if f.before {
		return mem[page:][:n:n]
	}
	return mem[page+size-n:][:n:n]
}

// floats returns n float32 numbers next to the protected page. They are aligned because pages and n*4 are multiples of
// four bytes.
func (f *fence) floats(n int) []float32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&f.bytes(4 * n)[0])), n)
}

// No method reads or writes outside its slices: every operand is placed directly before or after a protected page, at
// sizes around the kernels' block sizes.
func TestNothingOutsideTheSlicesIsTouched(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		for _, before := range []bool{false, true} {
			f := &fence{t: t, before: before}
			for _, m := range []int{1, 2, 3, 4, 5, 9, 14} {
				for _, n := range []int{1, 3, 4, 7, 66} {
					for _, k := range []int{1, 7, 8, 15, 17, 33, 64, 129} {
						x, y := f.floats(m*k), f.floats(m*n)
						tier.MatMulF32(y, n, x, k, m, f.floats(n*k), k, n, k)
						tier.MatMulBF16(y, n, x, k, m, f.bytes(2*n*k), k, n, k)
						tier.MatMulF16(y, n, x, k, m, f.bytes(2*n*k), k, n, k)
						scale := f.floats(((n+1)/scaleBlock + 1) * ((k-1)/scaleBlock + 1))
						tier.MatMulFP8(y, n, x, k, m, f.bytes(n*k), k, n, k, scale, (k-1)/scaleBlock+1, 2)
						tier.AccumulateF32(x, k, y, n, m, f.floats(n*k), k, n, k)
						tier.AccumulateBF16(x, k, y, n, m, f.bytes(2*n*k), k, n, k)
						tier.AccumulateFP8(x, k, y, n, m, f.bytes(n*k), k, n, k, scale, (k-1)/scaleBlock+1, 2)
					}
				}
			}
			for _, n := range []int{1, 17, 40} {
				if !tier.AttendsDense(32) {
					break
				}
				tier.AttendDense(DenseHead{Nope: 33, Rope: 5, V: 32, Scale: 1, Seen: ascendingFrom(1, n), LdQ: 38,
					LdKeys: 33, LdRopes: 5, LdValues: 32, LdOut: 32, Q: f.floats(38 * n), Keys: f.floats(33 * n),
					Ropes: f.floats(5 * n), Values: f.floats(32 * n), Out: f.floats(32 * n)})
			}
			for n := range 80 {
				a, b, c := f.floats(n), f.floats(n), f.floats(n)
				tier.Dot(a, b)
				tier.Axpy(a, 2, b)
				tier.Max(a)
				tier.ExpSum(a, b, 1)
				tier.SiluMul(a, b, c)
				tier.ScaleMul(a, b, c, 2)
				if n > 0 {
					tier.WidenBF16(a, f.bytes(2*n))
					tier.WidenE4M3(a, f.bytes(n), 1)
					tier.WidenE4M3Groups(a, f.bytes(n), Groups{1, 1, 1, 1, 1, 1, 1, 1}, max(64, n/8+1))
					tier.NarrowBF16(f.bytes(2*n), a)
					tier.IndexScoresFP8(a, f.bytes(5*IndexDim), f.floats(5), f.bytes(n*IndexDim), f.bytes(4*n), 5, n)
				}
			}
		}
	})
}

// Attention in float32 reads rows only to their last byte, and prefetches rows that end the memory.
func TestFloatAttendTouchesNothingOutside(t *testing.T) {
	eachFloat(t, func(t *testing.T, a *FloatAttend) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		for _, before := range []bool{false, true} {
			f := &fence{t: t, before: before}
			for _, heads := range []int{1, 9, 17} {
				a.Query(0, f.floats(heads*a.width), heads, 1)
				for format := range floatFormats {
					for _, n := range []int{1, 3, 65} {
						places := make([]int, n)
						for i := range places {
							places[i] = i * rowSize(format, a.width)
						}
						a.Attend(0, f.bytes(n*rowSize(format, a.width)), places, places, format)
						a.Result(f.floats(heads*LatentDim), f.floats(heads), f.floats(heads))
					}
				}
			}
		}
	})
}

// Methods for e2m1 weights do not read or write outside their slices, for kernels that process blocks of 128 and for
// weights that are stored along the output.
func TestNibblesTouchNothingOutside(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		for _, before := range []bool{false, true} {
			f := &fence{t: t, before: before}
			for _, m := range []int{1, 3, 6, 9, 17, 40} {
				for _, n := range []int{1, 31, 64, 97} {
					for _, k := range []int{2, 30, 64, 128, 130, 254, 512} {
						groups := (k + GroupFP4 - 1) / GroupFP4
						x, y := f.floats(m*k), f.floats(m*n)
						scale := f.bytes(n * groups)
						for i := range scale {
							scale[i] = 127
						}
						tier.MatMulFP4(y, n, x, k, m, f.bytes(n*k/2), k/2, n, k, scale, groups)
					}
				}
				if tier.Tiled() {
					const d = 64
					tier.TiledLatent(f.floats(m*LatentDim), LatentDim, f.floats(m*d), d, m, f.bytes(2*d*LatentDim),
						LatentDim, d, d)
				}
			}
		}
	})
}

// Products with block formats do not read or write outside their slices, including the quantised rows and the results.
func TestBlockProductsTouchNothingOutside(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		for _, before := range []bool{false, true} {
			f := &fence{t: t, before: before}
			for _, format := range blockFormatsWithProducts() {
				for _, shape := range [][3]int{{1, 1, 1}, {2, 3, 3}, {5, 17, 1}, {18, 16, 5}, {1, 37, 17},
					{2, 33, 2}} {
					m, n, k := shape[0], shape[1], shape[2]*format.Values()
					ld := k / format.Values() * format.Bytes()
					x, w, y := f.floats(m*k), f.bytes(n*ld), f.floats(m*n)
					var rows BlockRows
					tier.ResetBlocks(&rows, m, k, BlockGroup(format), false)
					for i := range rows.Units() {
						tier.QuantUnit(&rows, i, x, k)
					}
					tier.MulBlocks(BlockCut{Y: y, Ldy: n, X: &rows, M1: m, N: n}, format, w, ld)
				}
			}
		}
	})
}
