package main

import (
	"fmt"
	"slices"
)

// Kernels over the block formats of GGUF files. All of them take sixteen rows of weights at a time and leave the codes
// of 64 values of a row in one register, in order. A step is 256 values of formats with blocks of 256, or a pair of
// blocks of 32; if the number of blocks is odd, the last pair is one block twice, and x has a scale of zero for
// the second.
//
//	AX arguments   BX bytes from the start of the rows to the step   R8 a row's step   R13 bytes to prefetch ahead
//	DX from the first block of a pair to the second

// blockFormat is a block format.
type blockFormat struct {
	name   string
	values int // values of a block
	bytes  int // bytes of a block
	offset int // log2 of the number that unpack adds to values to make them unsigned
}

var (
	q80   = blockFormat{"Q80", 32, 34, 7}
	q40   = blockFormat{"Q40", 32, 18, 3}
	mxfp4 = blockFormat{"MXFP4", 32, 17, 4}
	q4k   = blockFormat{"Q4K", 256, 144, 0}
	q6k   = blockFormat{"Q6K", 256, 210, 5}
)

var blockFormats = []blockFormat{q80, q40, mxfp4, q4k, q6k}

// Formats of 32 values that AVX2 unpacks first: value i is d·(code - an offset) + m.
var (
	q41   = blockFormat{"Q41", 32, 20, 0}
	q50   = blockFormat{"Q50", 32, 22, 4}
	q51   = blockFormat{"Q51", 32, 24, 0}
	iq4nl = blockFormat{"IQ4NL", 32, 18, 7}
)

var nibbleFormats = []blockFormat{q41, q50, q51, iq4nl}

// fifth reports whether codes have a fifth bit, stored in four bytes before the nibbles, and m whether the format has
// m.
func (f blockFormat) fifth() bool { return f == q50 || f == q51 }
func (f blockFormat) m() bool     { return f == q41 || f == q51 }

func (f blockFormat) small() bool { return f.values == 32 }

// stepBytes returns the number of bytes of a step.
func (f blockFormat) stepBytes() int {
	if f.small() {
		return 2 * f.bytes
	}
	return f.bytes
}

// Registers of the unpacking code. Different formats may use one register differently.
const (
	bkNibble = 31 // 0x0F in every byte; Q8_0: 0x80
	bkShift  = 30 // shift of words that moves upper nibbles down
	bkTable  = 29 // MXFP4: the values; Q6_K: right shifts of the upper bits
	bkLeft   = 28 // Q6_K: left shifts of the upper bits
	bkUpper  = 27 // Q6_K: 0x30 in every byte
	bkPerm   = 23 // four registers: which scale belongs to each word of 64 values
)

// emitBlocks writes the kernels that multiply few rows of x directly by packed blocks.
func emitBlocks(e *emitter) {
	blockData(e)
	for _, f := range append(slices.Concat(blockFormats, nibbleFormats), plainRaised) {
		for _, rows := range []int{1, 4} {
			if f != q4k && (rows > 1 || !slices.Contains(laneFormats, f)) { // the others have kernels of lanes
				(&blockDot{emitter: e, f: f, rows: rows}).write()
			}
		}
	}
	emitQuant32(e)
	emitQuant256(e)
	emitTurn(e)
}

// emitBlockTiles writes the kernels for many rows of x.
func emitBlockTiles(e *emitter) {
	blockData(e)
	for _, f := range blockFormats {
		emitBlockFill(e, f)
	}
	emitTilesOf32(e)
	emitTilesOf256(e, q4k)
	emitTilesOf256(e, q6k)
}

func blockData(e *emitter) {
	words(e, "blockNibble", 0x0F0F0F0F)
	words(e, "blockSign", 0x80808080)
	words(e, "blockUpper", 0x30303030)
	words(e, "blockSix", 0x3F3F3F3F)
	words(e, "blockEight", 0x08080808)
	words(e, "blockSeven", 0x00070007)
	words(e, "blockLow7", 0x7F7F7F7F)
	words(e, "blockLowByte", 0x00FF00FF)
	wordTable(e, "blockHalves", func(i int) int { return i / 16 * 4 })      // 0 then 4
	wordTable(e, "blockQuarters", func(i int) int { return i / 8 % 2 * 4 }) // 0, 4, 0, 4
	wordTable(e, "blockLeft", func(i int) int { return 4 - i/16*2 })        // 4 then 2
	wordTable(e, "blockRight", func(i int) int { return i / 16 * 2 })       // 0 then 2
	values := [16]int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	plain, raised := make([]byte, 64), make([]byte, 64)
	for i := range plain {
		plain[i], raised[i] = byte(values[i%16]), byte(values[i%16]+16)
	}
	words(e, "blockSixteen", 0x10101010)
	iq4 := [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	bytesTable(e, "blockIQ4Raised", 64, func(i int) int { return iq4[i%16] + 128 })
	table(e, "blockE2M1", plain)
	table(e, "blockE2M1Raised", raised)
	for q := range 4 {
		// The words are scales 0 to 3, minimums 0 to 3, scales 4 to 7, minimums 4 to 7.
		wordTable(e, fmt.Sprintf("blockScales4K%d", q), func(i int) int { return scaleWord(2*q + i/16) })
		wordTable(e, fmt.Sprintf("blockScales6K%d", q), func(i int) int { return 4*q + i/8 })
	}
	wordTable(e, "blockMinsOver", func(i int) int { return 4 + scaleWord(i%8) })
	bf16 := make([]byte, 128)
	for i := range 64 {
		v := bf16OfInt(i)
		bf16[2*i], bf16[2*i+1] = byte(v), byte(v>>8)
	}
	table(e, "blockMinBF16", bf16)
	words(e, "blockSubnormal", 0x00200000)
	words(e, "blockOne", 1)
	words(e, "blockTwo", 2)
	words(e, "blockByte", 0xFF)
}

// scaleWord returns the word of scale j.
func scaleWord(j int) int { return j%4 + j/4*8 }

// bf16OfInt returns the bfloat16 of an integer below 128.
func bf16OfInt(v int) int {
	if v == 0 {
		return 0
	}
	top := 0
	for v>>(top+1) != 0 {
		top++
	}
	return (127+top)<<7 | v<<(7-top)&0x7F
}

// wordTable writes a vector of 32 words.
func wordTable(e *emitter, name string, word func(i int) int) {
	data := make([]byte, 64)
	for i := range 32 {
		data[2*i], data[2*i+1] = byte(word(i)), byte(word(i)>>8)
	}
	table(e, name, data)
}

// blockConstants loads the registers that unpacking needs.
func blockConstants(e *emitter, f blockFormat, raised bool) {
	load := func(name string, z int) { e.op("VMOVDQU64 %s<>(SB), Z%d", name, z) }
	switch f {
	case q80:
		load("blockSign", bkNibble)
	case q40, mxfp4, q41, q50, q51, iq4nl:
		load("blockNibble", bkNibble)
		load("blockQuarters", bkShift)
		e.op("MOVQ $0xFF00, R9") // selects the upper half of bytes
		e.op("KMOVW R9, K2")
		switch {
		case f.fifth():
			load("blockSixteen", bkTable)
		case f == iq4nl:
			load("blockIQ4Raised", bkTable)
		case f == q40 && !raised:
			load("blockEight", bkTable)
		case f == mxfp4 && raised:
			load("blockE2M1Raised", bkTable)
		case f == mxfp4:
			load("blockE2M1", bkTable)
		}
	case q4k:
		load("blockNibble", bkNibble)
		load("blockHalves", bkShift)
		for q := range 4 {
			load(fmt.Sprintf("blockScales4K%d", q), bkPerm+q)
		}
	case plainRaised:
		for q := range 4 {
			load(fmt.Sprintf("blockScales6K%d", q), bkPerm+q)
		}
	case q6k:
		load("blockNibble", bkNibble)
		load("blockRight", bkTable)
		load("blockLeft", bkLeft)
		load("blockUpper", bkUpper)
		for q := range 4 {
			load(fmt.Sprintf("blockScales6K%d", q), bkPerm+q)
		}
	}
}

// blockRow sets R8 to the address of the step in row r and prefetches bytes of a later step.
func blockRow(e *emitter, f blockFormat, r int) {
	e.op(`
		MOVQ blockArgs_rows+%d(AX), R8
		ADDQ BX, R8`, 8*r)
	for at := 0; at < f.stepBytes() && !f.plain(); at += 64 {
		e.op("PREFETCHT0 %d(R8)(R13*1)", at)
	}
}

// unpackPair writes the codes of a pair of blocks of 32 values to register z. If raised is set, an offset is added to
// them, so that they are unsigned.
func unpackPair(e *emitter, f blockFormat, z int, raised bool) {
	switch f {
	case q80:
		e.op("VMOVDQU %d(R8), Y%d", f.bytes-32, z)
		e.op("VINSERTI64X4 $1, %d(R8)(DX*1), Z%d, Z%d", f.bytes-32, z, z)
		if raised {
			e.op("VPXORD Z%d, Z%d, Z%d", bkNibble, z, z)
		}
	default:
		head := f.bytes - 16
		e.list(`
			VBROADCASTI32X4 {head}(R8), Z{z}
			VBROADCASTI32X4 {head}(R8)(DX*1), K2, Z{z}
			VPSRLVW Z{bkShift}, Z{z}, Z{z}
			VPANDD Z{bkNibble}, Z{z}, Z{z}`, "head", head, "z", z, "bkShift", bkShift, "bkNibble", bkNibble)
		switch {
		case f == mxfp4 || f == iq4nl:
			e.op("VPSHUFB Z%d, Z%d, Z%d", z, bkTable, z)
		case f.fifth():
			e.op(`
				MOVL %d(R8), R9
				MOVL %d(R8)(DX*1), R10
				SHLQ $32, R10
				ORQ R10, R9
				KMOVQ R9, K3`, head-4, head-4)
			e.op("VPADDB Z%d, Z%d, K3, Z%d", bkTable, z, z)
		case !raised:
			e.op("VPSUBB Z%d, Z%d, Z%d", bkTable, z, z)
		}
	}
}

// scalesOf writes the integer scales, and for Q4_K the minimums, of the step at R8 to register z as words.
func scalesOf(e *emitter, f blockFormat, z int) {
	if f.plain() {
		e.op("VMOVDQU %d(R8), Y%d", plainScales, z)
		return
	}
	if f == q6k {
		e.op("VPMOVSXBW 192(R8), Y%d", z)
		return
	}
	e.list(`
		MOVQ 4(R8), R9
		MOVL 12(R8), R10
		MOVQ R10, R11
		SHRQ $4, R11
		SHLQ $32, R11
		ORQ R10, R11
		ANDQ blockNibble<>(SB), R11
		MOVQ R9, R10
		SHRQ $2, R10
		ANDQ blockUpper<>(SB), R10
		ORQ R10, R11
		ANDQ blockSix<>(SB), R9
		VMOVQ R9, X{z}
		VPINSRQ $1, R11, X{z}, X{z}
		VPMOVZXBW X{z}, Y{z}`, "z", z)
}

// quarters calls use for each 64 codes of the step at R8, in order, in a register from z on. It overwrites six
// registers.
func quarters(e *emitter, f blockFormat, z int, use func(quarter, reg int)) {
	if f.plain() {
		for q := range 4 {
			e.op("VMOVDQU64 %d(R8), Z%d", 64*q, z+q)
			use(q, z+q)
		}
		return
	}
	if f == q4k {
		for q := range 4 {
			r := z + q%2
			e.op("VBROADCASTI64X4 %d(R8), Z%d", 16+32*q, r)
			e.list(`
				VPSRLVW Z{bkShift}, Z{r}, Z{r}
				VPANDD Z{bkNibble}, Z{r}, Z{r}`, "bkShift", bkShift, "r", r, "bkNibble", bkNibble)
			use(q, r)
		}
		return
	}
	for g := range 2 {
		low, high := z+2*g, z+2*g+1
		e.op("VMOVDQU64 %d(R8), Z%d", 64*g, high)
		e.op("VBROADCASTI64X4 %d(R8), Z%d", 128+32*g, z+4)
		e.op("VPANDD Z%d, Z%d, Z%d", bkNibble, high, low)
		e.op("VPSLLVW Z%d, Z%d, Z%d", bkLeft, z+4, z+5)
		e.op("VPTERNLOGD $0xF8, Z%d, Z%d, Z%d", bkUpper, z+5, low) // low | shifted & 0x30
		use(2*g, low)
		e.list(`
			VPSRLW $4, Z{high}, Z{high}
			VPANDD Z{bkNibble}, Z{high}, Z{high}
			VPSRLVW Z{bkTable}, Z{z+4}, Z{z+5}`, "high", high, "bkNibble", bkNibble, "bkTable", bkTable, "z", z)
		e.op("VPTERNLOGD $0xF8, Z%d, Z%d, Z%d", bkUpper, z+5, high)
		use(2*g+1, high)
	}
}

// gatherScales writes the float32 scales of sixteen blocks to register z and overwrites z+1; the scales of Q4_K's
// minimums go to register mins. second selects the second block of a pair. R9 is the address of the step in the first
// row.
func gatherScales(e *emitter, f blockFormat, second bool, z, mins, offsets int) {
	at := "(R9)"
	switch {
	case f == q6k:
		at = "206(R9)"
	case f.plain() && !f.small():
		e.op(`
			KXNORW K1, K1, K1
			VPGATHERDD %d(R9)(Z%d*1), K1, Z%d`, plainD, offsets, z)
		return
	}
	if second {
		e.op("LEAQ (R9)(DX*1), R10")
		at = "(R10)"
	}
	e.op(`
		KXNORW K1, K1, K1
		VPGATHERDD %s(Z%d*1), K1, Z%d`, at, offsets, z)
	widenScales(e, f, z, mins)
}

// widenScales converts the dwords that contain the scales of sixteen blocks to float32 scales.
func widenScales(e *emitter, f blockFormat, z, mins int) {
	switch f {
	case mxfp4:
		e.op(`
			VPANDD.BCST blockByte<>(SB), Z%d, Z%d
			VPCMPUD.BCST $1, blockTwo<>(SB), Z%d, K1`, z, z, z) // 0 and 1: 2^-128 and 2^-127, subnormal
		e.list(`
			VPBROADCASTD blockSubnormal<>(SB), Z{z+1}
			VPSLLVD Z{z}, Z{z+1}, Z{z+1}
			VPSUBD.BCST blockOne<>(SB), Z{z}, Z{z}
			VPSLLD $23, Z{z}, Z{z}
			VMOVDQA32 Z{z+1}, K1, Z{z}`, "z", z)
		return
	case q4k, q41, q51:
		e.list(`
			VPSRLD $16, Z{z}, Z{mins}
			VPMOVDW Z{mins}, Y{mins}
			VCVTPH2PS Y{mins}, Z{mins}`, "z", z, "mins", mins)
	case q6k:
		e.op("VPSRLD $16, Z%d, Z%d", z, z)
	}
	e.list(`
		VPMOVDW Z{z}, Y{z}
		VCVTPH2PS Y{z}, Z{z}`, "z", z)
}

// blockStart loads the registers that all kernels over blocks use.
func blockStart(e *emitter) {
	e.op(`
		XORQ BX, BX
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_second(AX), DX`)
}
