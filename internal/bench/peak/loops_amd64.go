//go:build !purego

package peak

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"

	"sparrow/internal/vec"
)

// Floating-point operations per round of a loop: 24 fused multiply-adds of 16 or 8 lanes, or 8 products of a 16 x 32
// tile and a 32 x 16 tile. A multiplication and an addition count as two.
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
		// vec.Tiers lists a tier only if the processor and the operating system support it.
		if slices.ContainsFunc(vec.Tiers(), func(t *vec.Tier) bool { return t.Name == l.Tier }) {
			out = append(out, l)
		}
	}
	return out
}

// tileData is the memory that the AMX loop loads: the configuration of eight tiles, and one tile of values.
type tileData struct {
	palette     uint8
	_           [15]byte // start row and reserved bytes
	bytesPerRow [16]uint16
	rows        [16]uint8
	numbers     [16][32]uint16 // bf16 values
}

// Inputs of the loops. They are small normal numbers, because zeros use less power and run faster than real data.
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
			t.numbers[i][j] = 0x3800 | uint16(i*37+j*11)&0x8F // bf16 values between 2^-15 and 2^-14
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

// read reads the whole 512-byte lines of p.
func read(p []byte) {
	n := len(p) / line
	if n == 0 {
		return
	}
	// n lines of 512 bytes are within p.
	if at := unsafe.Pointer(&p[0]); cpu.X86.HasAVX512F {
		read512(at, n)
	} else if cpu.X86.HasAVX2 {
		read256(at, n)
	} else {
		readGo(p)
	}
}

// readFour reads four consecutive ranges of n bytes of p concurrently, in whole 512-byte lines.
func readFour(p []byte, n int) {
	_ = p[4*n-1]
	// 4 ranges of n bytes are within p.
	if at := unsafe.Pointer(&p[0]); cpu.X86.HasAVX512F {
		readFour512(at, n/line, n)
	} else if cpu.X86.HasAVX2 {
		readFour256(at, n/line, n)
	} else {
		readGo(p[:4*n])
	}
}
