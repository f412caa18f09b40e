package main

import "fmt"

// isa is an instruction set: the names of its registers, how many float32 they
// hold, and which tiles fit in them.
type isa struct {
	name  string // suffix of files and functions
	reg   string // prefix of full-width registers
	half  string // prefix of half-width registers
	lanes int
	regs  int

	rowsMR int // maximum rows of x of the row kernels

	panels   [][2]int // packed tiles, rows x columns
	accMR    int      // rows of the accumulate tile
	accVecs  int      // registers along the columns of that tile
	wideVecs int      // registers along the columns of the tile for one row over narrow weights

	scoreKeys  int   // keys of a tile of scores of 16 heads
	scoreFetch int   // lines prefetched for every 8 elements of a tile
	valueHeads []int // heads of the tiles of values, 16 in total
}

var avx512 = &isa{
	name: "avx512", reg: "Z", half: "Y", lanes: 16, regs: 32,
	rowsMR: 4, panels: [][2]int{{4, 6}, {4, 4}},
	accMR: 6, accVecs: 4, wideVecs: 8,
	scoreKeys: 16, scoreFetch: 3, valueHeads: []int{8, 8},
}

var avx2 = &isa{
	name: "avx2", reg: "Y", half: "X", lanes: 8, regs: 16,
	rowsMR: 2, panels: [][2]int{{3, 4}},
	accMR: 6, accVecs: 2, wideVecs: 8,
	scoreKeys: 6, scoreFetch: 3, valueHeads: []int{6, 5, 5},
}

func (s *isa) wide() bool { return s == avx512 }

// bytes returns the number of bytes of a register.
func (s *isa) bytes() int { return 4 * s.lanes }

func (e *emitter) zero(i int) {
	if e.wide() {
		e.op("VPXORD V%d, V%d, V%d", i, i, i)
		return
	}
	e.op("VPXOR V%d, V%d, V%d", i, i, i)
}

// and writes a = b AND c, where c is memory or a register.
func (e *emitter) and(c string, b, a int) {
	mnemonic := "VPAND"
	if e.wide() {
		mnemonic = "VPANDD"
	}
	e.op("%s %s, V%d, V%d", mnemonic, c, b, a)
}

// spaced returns the address base + i*stride. one and three are registers with the stride and three times the stride;
// other multiples use scaled addresses or five.
func spaced(base, one, three, five string, disp, i int) string {
	d := ""
	if disp != 0 {
		d = fmt.Sprint(disp)
	}
	switch i {
	case 0:
		return fmt.Sprintf("%s(%s)", d, base)
	case 1, 2, 4:
		return fmt.Sprintf("%s(%s)(%s*%d)", d, base, one, i)
	case 3:
		return fmt.Sprintf("%s(%s)(%s*1)", d, base, three)
	case 5:
		return fmt.Sprintf("%s(%s)(%s*1)", d, base, five)
	}
	panic("no such row")
}

// weight is a storage format of weights.
type weight struct {
	name string
	size int // bytes per element
}

var (
	f32  = weight{"F32", 4}
	bf16 = weight{"BF16", 2}
	fp8  = weight{"FP8", 1}
	// e4m3 codes whose scale, and the decoder's factor 2^-8, are already in x.
	code = weight{"Code", 1}
)

// coded reports whether weights are e4m3 codes.
func (w weight) coded() bool { return w == fp8 || w == code }
