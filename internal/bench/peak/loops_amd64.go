//go:build !purego

package peak

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"

	"sparrow/internal/vec"
)

// Number of operations of one round: 24 accumulators of 16 or 8 lanes, or 8 products of a 16 x 32 tile and a 32 x 16
// tile. A multiplication and an addition count as two operations.
const (
	step512 = 24 * 16 * 2
	step256 = 12 * 8 * 2
	stepAMX = 8 * 16 * 16 * 32 * 2
)

func loops() []Loop {
	var out []Loop
	for _, l := range []Loop{
		{Tier: "amx", Instruction: "TDPBF16PS", step: stepAMX, rounds: 512, run: func(n int) { amxLoop(n, &tiles) }},
		{Tier: "avx512", Instruction: "VFMADD231PS zmm", step: step512, rounds: 4000, run: func(n int) {
			fma512(n, &lanes)
		}},
		{Tier: "avx2", Instruction: "VFMADD231PS ymm", step: step256, rounds: 8000, run: func(n int) {
			fma256(n, &lanes)
		}},
	} {
		// A tier of package vec is listed only if the processor and the system support its instructions.
		if slices.ContainsFunc(vec.Tiers(), func(t *vec.Tier) bool { return t.Name == l.Tier }) {
			out = append(out, l)
		}
	}
	return out
}

// tileData holds the data that the AMX loop loads: the shapes of eight tiles, and one tile of numbers.
type tileData struct {
	palette     uint8
	_           [15]byte // start row, and reserved bytes
	bytesPerRow [16]uint16
	rows        [16]uint8
	numbers     [16][32]uint16 // bf16 numbers
}

// The inputs of the loops are small normal numbers: zeros would use less power and run faster than real data.
var (
	tiles = newTiles()
	lanes = [16]float32{1, 1e-8, 0.5, 1e-7, 0.25, 2e-8, 0.75, 3e-8, 1, 1e-8, 0.5, 1e-7, 0.25, 2e-8, 0.75, 3e-8}
)

func newTiles() (t tileData) {
	t.palette = 1
	for i := range 8 {
		t.bytesPerRow[i], t.rows[i] = 64, 16
	}
	for i := range t.numbers {
		for j := range t.numbers[i] {
			t.numbers[i][j] = 0x3800 | uint16(i*37+j*11)&0x8F // between 2^-15 and 2^-14
		}
	}
	return t
}

//go:noescape
func amxLoop(rounds int, t *tileData)

//go:noescape
func fma512(rounds int, lanes *[16]float32)

//go:noescape
func fma256(rounds int, lanes *[16]float32)

//go:noescape
func read512(p unsafe.Pointer, lines int)

//go:noescape
func read256(p unsafe.Pointer, lines int)

//go:noescape
func readFour512(p unsafe.Pointer, lines, apart int)

//go:noescape
func readFour256(p unsafe.Pointer, lines, apart int)

// read reads p in whole lines of 512 bytes.
func read(p []byte) {
	n := len(p) / line
	if n == 0 {
		return
	}
	// The loops read n lines of 512 bytes, which are inside p.
	if at := unsafe.Pointer(&p[0]); cpu.X86.HasAVX512F {
		read512(at, n)
	} else if cpu.X86.HasAVX2 {
		read256(at, n)
	} else {
		readGo(p)
	}
}

// readFour reads four consecutive ranges of n bytes at the same time, in whole lines.
func readFour(p []byte, n int) {
	_ = p[4*n-1]
	// The loops read 4 ranges of n bytes, which are inside p.
	if at := unsafe.Pointer(&p[0]); cpu.X86.HasAVX512F {
		readFour512(at, n/line, n)
	} else if cpu.X86.HasAVX2 {
		readFour256(at, n/line, n)
	} else {
		readGo(p[:4*n])
	}
}
