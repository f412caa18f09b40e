package main

import (
	"fmt"
	"math"
	"strings"
)

// Formats whose values are points of a small grid are multiplied straight from their blocks. The points are in tables
// of words: a word is a point of eight values of three levels, or of four values of eight, and permutations of these
// tables look up 32 of them at once. Gathers and loads one by one are several times as slow.
//
// Values come out in planes, and x is turned accordingly: byte q of its dword m is byte m of plane q. So each dword of
// the four planes of a block together is sixteen consecutive values, which share a scale: it is applied once to their
// sum.
//
//	word of an octet   nibble 2b + h has the levels of values 4b + 2h (two bits) and 4b + 2h + 1 (two bits)
//	word of a quad     nibble q has the level of value q
//
// One row of x by sixteen rows of weights. A row's block is looked up while that of the row before is multiplied:
// either is a chain of dependent instructions, too long for the processor to look beyond it.
//
//	AX arguments   BX bytes to the step   R8 a row's step   R13 bytes to prefetch ahead   R12 memory for sums and scales
//	SI x in planes   DI its scales   R14 pointers to rows   R15 a sum   DX a scale   R11 tables
//	R9, R10, CX temporaries
//	Z0 ... Z7 lookup   Z8 results   Z9 zero   Z10, Z11 of the tree   Z12 ... Z15 the tree   Z16 ... Z19 products
//	Z20 ... Z23 which bits of signs are a plane's   Z24, Z25 values of levels   Z26 lookup   Z28 ... Z31 found
type gridFormat struct {
	name   string
	bytes  int // bytes of a block
	points int // points of the grid
	quads  bool
	levels []int
	times  float32 // factor of d
	// indices writes the indices to the words of Z1; bits names the seventh bit of an index and the bits above it. The
	// 64 bytes from byte 2 on are in Z0.
	indices func(k *gridDot)
	bits    [3]string
	// signs writes the signs of octet w to both bytes of word w of a register.
	signs func(k *gridDot, to int)
	// scales writes the scales of sixteen values to the dwords of a register.
	scales func(k *gridDot, to int)
}

type gridDot struct {
	*emitter
	f *gridFormat
}

// found has the registers of a block after its lookup: levels (for quads in two registers), signs and scales.
type found struct{ low, high, signs, scales int }

// Even and odd rows use different registers.
var founds = [2]found{{2, 4, 3, 6}, {28, 29, 30, 31}}

// Registers of the products.
const (
	gridResults, gridZero            = 8, 9
	gridSum, gridOther, gridW, gridX = 16, 17, 18, 19
	gridSigns, gridLevels            = 20, 24
)

var gridFormats = []*gridFormat{
	{name: "IQ2XXS", bytes: 66, points: 256, levels: []int{8, 25, 43}, times: 0.125,
		indices: func(k *gridDot) { k.shuffle("gridIndices", 0, 1) }, bits: [3]string{"6", "15"}, // in both bytes
		signs:  func(k *gridDot, to int) { k.shuffle("gridSevensUpper", 0, to); k.sevens(to) },
		scales: func(k *gridDot, to int) { k.scalesAbove(0xF5, to) }},
	{name: "IQ2XS", bytes: 74, points: 512, levels: []int{8, 25, 43}, times: 0.125,
		indices: func(k *gridDot) { k.op("VMOVDQA64 Z0, Z1") }, bits: [3]string{"6", "7", "8"},
		signs:  func(k *gridDot, to int) { k.op("VPSRLW $9, Z0, Z%d", to); k.parity(to) },
		scales: func(k *gridDot, to int) { k.scalesNibbles(66, to) }},
	{name: "IQ3XXS", bytes: 98, points: 256, quads: true, levels: []int{4, 12, 20, 28, 36, 44, 52, 62}, times: 0.25,
		signs: func(k *gridDot, to int) {
			k.op("VPMOVZXDQ 66(R8), Z0")
			k.shuffle("gridSevens", 0, to)
			k.sevens(to)
		},
		scales: func(k *gridDot, to int) { k.scalesAbove(0xA0, to) }},
	{name: "IQ3S", bytes: 110, points: 512, quads: true, levels: []int{1, 3, 5, 7, 9, 11, 13, 15}, times: 1,
		signs: func(k *gridDot, to int) { k.op("VPMOVZXBW 74(R8), Z%d", to); k.twice(to) },
		scales: func(k *gridDot, to int) {
			k.op(`
				MOVL 106(R8), R9
				MOVQ $0x1E1E1E1E1E1E1E1E, R10
				PDEPQ R10, R9, R9
				MOVQ $0x0101010101010101, R10
				ORQ R10, R9
				VPBROADCASTQ R9, Z%d
				VPSHUFB gridPairs<>(SB), Z%d, Z%d`, to, to, to)
		}},
}

func (e *emitter) emitGrids() {
	e.gridData()
	for _, f := range gridFormats {
		(&gridDot{emitter: e, f: f}).write()
		(&gridDot{emitter: e, f: f}).unpack()
	}
	e.emitTurned()
	e.emitRowDots()
}

// bytesTable writes a table of n bytes.
func (e *emitter) bytesTable(name string, n int, at func(i int) int) {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(at(i))
	}
	e.table(name, data)
}

func (e *emitter) gridData() {
	e.bytesTable("gridIndices", 16, func(i int) int { return i/8*8 + i%8/2 })
	sevens := [8]int{0, 1, 0, 1, 1, 2, 2, 3} // positions of seven bits in the four bytes
	e.bytesTable("gridSevens", 16, func(i int) int { return i/8*8 + sevens[i%8] })
	e.bytesTable("gridSevensUpper", 16, func(i int) int { return i/8*8 + 4 + sevens[i%8] })
	shifts := [8]int{0, 0, 7, 0, 6, 0, 5, 0}
	e.bytesTable("gridShifts", 16, func(i int) int { return shifts[i%8] })
	e.bytesTable("gridParity", 16, func(i int) int { return (i ^ i>>1 ^ i>>2 ^ i>>3) & 1 << 7 })
	e.bytesTable("gridPairs", 64, func(i int) int {
		if i%4 != 0 {
			return 0x80
		}
		return i / 8
	})
	e.bytesTable("gridTurn", 16, func(i int) int { return i%4*4 + i/4 })
	e.bytesTable("gridTurned", 64, func(i int) int { return (i/4%4*4 + i/16) * (1 - min(1, i%4)) })
	same := func(name string, word uint32) {
		e.bytesTable(name, 8, func(i int) int { return int(word >> (8 * (i % 4))) })
	}
	same("gridNibble", 0x0F0F0F0F)
	same("gridSeven", 0x007F007F)
	same("gridTwice", 0x01010101)
	same("gridOne", 1)
	same("grid64", 0x40404040)
	same("gridNibbleScale", 0x1E)
	same("gridLowByte", 0x00FF00FF)
	for bit := range 16 {
		if bit >= 6 && bit <= 8 || bit == 14 {
			same(fmt.Sprintf("gridBit%d", bit), 0x00010001<<bit)
		}
	}
	for q := range 4 {
		same(fmt.Sprintf("gridSign%d", q), 0x10011001<<q)
	}
	for _, f := range gridFormats {
		same("gridFactor"+f.name, math.Float32bits(f.times))
		level := func(i, shift int) int {
			if l := i >> shift; l < len(f.levels) {
				return f.levels[l]
			}
			return 0
		}
		if f.quads {
			e.bytesTable("grid"+f.name, 16, func(i int) int { return level(i, 0) })
			continue
		}
		e.bytesTable("grid"+f.name, 32, func(i int) int {
			if i < 16 {
				return level(i&3, 0)
			}
			return level(i-16, 2)
		})
	}
}

func (k *gridDot) write() {
	f := k.f
	k.function("gridDot"+f.name, "blockArgs", fmt.Sprintf("one row of x by sixteen rows of %s.", f.name))
	k.op(`
		XORQ BX, BX
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_trees(AX), R12
		MOVQ blockArgs_grid(AX), R11`)
	k.constants()
	k.zero(gridResults)
	t := tree{emitter: k.emitter, first: 12}
	k.op(`
		MOVQ blockArgs_rows(AX), R8
		LEAQ 256(R12), DX`)
	k.emit(k.lines(func() { k.decode(0, founds[0]) }))
	loop, more := k.label("loop"), k.label("more")
	k.at(loop)
	// After the last row comes the first row of the next step, or the first row of this step again.
	k.op(`
		MOVQ blockArgs_rows(AX), R9
		CMPQ blockArgs_steps(AX), $1
		JE %s
		ADDQ $%d, R9`, more, f.bytes)
	k.at(more)
	k.op(`
		MOVQ R9, blockArgs_next(AX)
		LEAQ blockArgs_rows(AX), R14
		MOVQ R12, R15
		LEAQ 256(R12), DX
		MOVQ $4, blockArgs_count(AX)`)
	// Four rows at a time: the code for sixteen rows would not fit into the cache of decoded instructions.
	k.loop("rows", "blockArgs_count(AX)", func() {
		for r := range 4 {
			k.op(`
				MOVQ %d(R14), R8
				ADDQ BX, R8`, 8*(r+1))
			k.emit(k.lines(func() { k.decode(r+1, founds[(r+1)%2]) }), k.lines(func() {
				k.products(founds[r%2])
				if r < 3 {
					t.add(r, gridSum)
				} else {
					t.merge(0, gridSum)
					t.merge(1, gridSum)
				}
			}))
		}
		k.op(`
			VMOVDQA64 Z%d, (R15)
			ADDQ $8, DX
			ADDQ $32, R14
			ADDQ $64, R15`, gridSum)
	})
	k.fold(t, 0, gridSum)
	k.op(`
		VCVTDQ2PS Z%d, Z%d
		VCVTPH2PS 256(R12), Z10
		MOVWLZX 288(R12), R9
		MOVW R9, 256(R12)`, gridSum, gridSum)
	if f.times != 1 {
		k.op("VMULPS.BCST gridFactor%s<>(SB), Z10, Z10", f.name)
	}
	k.op(`
		VMULPS Z10, Z%d, Z%d
		VFMADD231PS.BCST (DI), Z%d, Z%d
		ADDQ $256, SI
		ADDQ $4, DI`, gridSum, gridSum, gridSum, gridResults)
	k.op(`
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, f.bytes, loop)
	k.store()
}

// fold leaves the sums of sixteen rows, of which each of four registers in memory has four, in register z.
func (k *gridDot) fold(t tree, at, z int) {
	for half := range 2 {
		k.op("VMOVDQA64 %d(R12), Z%d", at+128*half, t.first+2)
		k.op("VMOVDQA64 %d(R12), Z%d", at+128*half+64, z)
		t.merge(2, z)
		if half == 0 {
			k.op("VMOVDQA64 Z%d, Z%d", z, t.first+3)
		}
	}
	t.merge(3, z)
}

// store writes the results.
func (k *gridDot) store() {
	store := k.label("store")
	k.op(`
		MOVQ blockArgs_y(AX), DI
		MOVQ blockArgs_mask(AX), R9
		KMOVW R9, K1
		CMPQ blockArgs_add(AX), $0
		JE %s
		VADDPS.Z (DI), Z%d, K1, Z%d`, store, gridResults, gridResults)
	k.at(store)
	k.op("VMOVUPS Z%d, K1, (DI)", gridResults)
	k.ret()
}

// lines removes the instructions that body writes from the output and returns them.
func (k *gridDot) lines(body func()) []string {
	from := k.Len()
	body()
	text := string(k.Bytes()[from:])
	k.Truncate(from)
	return strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
}

// emit writes the instructions of several lists, which do not depend on each other, alternately.
func (k *gridDot) emit(lists ...[]string) {
	total := 0
	for _, l := range lists {
		total += len(l)
	}
	done := make([]int, len(lists))
	for range total {
		next := -1
		for i, l := range lists { // the list of which the smallest part is written
			if done[i] < len(l) && (next < 0 || done[i]*len(lists[next]) < done[next]*len(l)) {
				next = i
			}
		}
		k.raw("%s", strings.TrimSuffix(lists[next][done[next]], "\n"))
		done[next]++
	}
}

// decode looks up the block at R8. If r is not negative, it writes the block's d to entry r from DX on.
func (k *gridDot) decode(r int, to found) {
	for at := 0; at < k.f.bytes; at += 64 {
		k.op("PREFETCHT0 %d(R8)(R13*1)", at)
	}
	if r >= 0 {
		k.op(`
			MOVWLZX (R8), R9
			MOVW R9, %d(DX)`, 2*r)
	}
	k.op("VMOVDQU64 2(R8), Z0")
	if k.f.quads {
		k.quadLevels(to)
	} else {
		k.f.indices(k)
		k.lookup(to.high, k.f.bits)
		k.list(`
			VPANDD.BCST gridNibble<>(SB), Z{high}, Z{low}
			VPSRLW $4, Z{high}, Z{high}
			VPANDD.BCST gridNibble<>(SB), Z{high}, Z{high}`, "high", to.high, "low", to.low)
	}
	k.f.signs(k, to.signs)
	k.f.scales(k, to.scales)
}

// unpack writes the kernel that makes plain blocks of packed ones, with codes in planes; see unpacker.
//
//	R8 a block   DI its plain block   SI pointers to rows   R15 blocks left   R11 tables   Z8 64   Z9 zero
func (k *gridDot) unpack() {
	f, at := k.f, founds[0]
	k.function("gridUnpack"+f.name, "blockArgs", fmt.Sprintf("%s of sixteen rows to planes.", f.name))
	k.op(`
		MOVQ blockArgs_panel(AX), DI
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_grid(AX), R11
		LEAQ blockArgs_rows(AX), SI
		VPBROADCASTD grid64<>(SB), Z8`)
	k.constants()
	k.loop("row", "blockArgs_count(AX)", func() {
		k.op(`
			MOVQ (SI), R8
			ADDQ blockArgs_last(AX), R8
			ADDQ $8, SI
			MOVQ blockArgs_steps(AX), R15`)
		k.loop("block", "R15", func() {
			k.decode(-1, at)
			for q := range 4 {
				k.values(q, at)
				k.op("VPSUBB Z%d, Z%d, K%d, Z%d", gridW, gridZero, 6+q%2, gridW)
				k.op("VPADDB Z8, Z%d, Z%d", gridW, gridW)
				k.op("VMOVDQU64 Z%d, %d(DI)", gridW, 64*q)
			}
			k.op(`
				VPMOVDW Z%d, %d(DI)
				VPBROADCASTW (R8), X0
				VCVTPH2PS X0, X0
				VMULSS gridFactor%s<>(SB), X0, X0
				VMOVSS X0, %d(DI)`, at.scales, plainScales, f.name, plainD)
			k.op(`
				ADDQ $%d, R8
				ADDQ $%d, DI`, f.bytes, plainBytes)
		})
		k.op("ADDQ blockArgs_second(AX), DI")
	})
	k.ret()
}

// constants loads the constants of the products.
func (k *gridDot) constants() {
	for q := range 4 {
		k.op("VPBROADCASTD gridSign%d<>(SB), Z%d", q, gridSigns+q)
	}
	k.op("VBROADCASTI32X4 grid%s<>(SB), Z%d", k.f.name, gridLevels)
	if !k.f.quads {
		k.op("VBROADCASTI32X4 grid%s<>+16(SB), Z%d", k.f.name, gridLevels+1)
	}
	k.zero(gridZero)
}

// values writes the magnitudes of plane q to gridW, and the mask of negative values to mask 6 + q%2.
func (k *gridDot) values(q int, from found) {
	levels, values := []int{from.low, from.high}[q/2], gridLevels
	switch {
	case !k.f.quads:
		values += q % 2
	case q%2 == 1:
		k.op("VPSRLW $4, Z%d, Z%d", levels, levels)
	}
	k.op("VPSHUFB Z%d, Z%d, Z%d", levels, values, gridW)
	k.op("VPTESTMB Z%d, Z%d, K%d", gridSigns+q, from.signs, 6+q%2)
}

// products writes the scaled products of a block to the lanes of gridSum.
func (k *gridDot) products(from found) {
	sums := []int{gridSum, gridOther}
	for _, z := range sums {
		k.op("VMOVDQA64 Z%d, Z%d", gridZero, z)
	}
	for q := range 4 {
		k.values(q, from)
		k.op("VMOVDQU64 %d(SI), Z%d", 64*q, gridX)
		k.op("VPSUBB %d(SI), Z%d, K%d, Z%d", 64*q, gridZero, 6+q%2, gridX)
		k.op("VPDPBUSD Z%d, Z%d, Z%d", gridX, gridW, sums[q%2])
	}
	k.list(`
		VPADDD Z{gridOther}, Z{gridSum}, Z{gridSum}
		VPMULLD Z{scales}, Z{gridSum}, Z{gridSum}`, "gridOther", gridOther, "gridSum", gridSum, "scales", from.scales)
}

// quadLevels writes the levels of planes 0 and 1 to the nibbles of one register, and those of planes 2 and 3 to
// another.
func (k *gridDot) quadLevels(to found) {
	if k.f.points > 256 { // the ninth bits of indices
		k.op(`
			MOVQ 66(R8), R9
			MOVQ $0x5555555555555555, R10
			PEXTQ R10, R9, CX
			KMOVD CX, K3
			ADDQ R10, R10
			PEXTQ R10, R9, CX
			KMOVD CX, K4`)
	}
	even, odd := to.high, to.low
	k.op("VMOVDQA64 Z0, Z1")
	k.lookup(even, [3]string{"6", "7", "K3"})
	k.op("VPSRLW $8, Z0, Z1")
	k.lookup(odd, [3]string{"6", "7", "K4"})
	k.op(`
		VPSLLW $8, Z%d, Z1
		VPBROADCASTD gridLowByte<>(SB), Z0
		VPTERNLOGD $0xF8, Z0, Z%d, Z1`, odd, even) // even & 0xFF | odd << 8
	k.list(`
		VPSRLW $8, Z{even}, Z{even}
		VPTERNLOGD $0xF4, Z0, Z{odd}, Z{even}`, "even", even, "odd", odd) // even >> 8 | odd &^ 0xFF
	k.op("VMOVDQA64 Z1, Z%d", to.low)
}

// lookup writes the table words for the indices in Z1 to a register. It overwrites Z5, Z7, Z26, Z27 and K1, K2, K5.
// bits names the bits of an index from the seventh on, or a mask that has them.
func (k *gridDot) lookup(to int, bits [3]string) {
	pairs := k.f.points / 64
	masks := [3]string{"K1", "K2", "K5"}
	for i := range bits {
		if pairs>>(i+1) == 0 {
			break
		}
		if bits[i][0] == 'K' {
			masks[i] = bits[i]
			continue
		}
		if bits[i] == "15" {
			k.op("VPMOVW2M Z1, %s", masks[i])
			continue
		}
		k.op(`
			VPBROADCASTD gridBit%s<>(SB), Z5
			VPTESTMW Z5, Z1, %s`, bits[i], masks[i])
	}
	stack := []int{to, 5, 7, 26} // partial results
	depth := 0
	for p := range pairs {
		r := stack[depth]
		k.op("VMOVDQU64 %d(R11), Z%d", 128*p, r)
		k.op("VPERMT2W %d(R11), Z1, Z%d", 128*p+64, r)
		depth++
		for i := 0; p>>i&1 == 1; i++ {
			k.op("VMOVDQU16 Z%d, %s, Z%d", stack[depth-1], masks[i], stack[depth-2])
			depth--
		}
	}
}

// shuffle moves bytes within lanes of register z.
func (k *gridDot) shuffle(table string, z, to int) {
	k.op("VBROADCASTI32X4 %s<>(SB), Z%d", table, to)
	k.op("VPSHUFB Z%d, Z%d, Z%d", to, z, to)
}

// sevens separates four codes of seven signs, whose bytes are in the words of register z.
func (k *gridDot) sevens(z int) {
	k.op(`
		VBROADCASTI32X4 gridShifts<>(SB), Z5
		VPSRLVW Z5, Z%d, Z%d
		VPANDD.BCST gridSeven<>(SB), Z%d, Z%d`, z, z, z, z)
	k.parity(z)
}

// parity sets the eighth sign of each word of register z, so that the number of signs is even.
func (k *gridDot) parity(z int) {
	k.op(`
		VPSRLW $4, Z%d, Z5
		VPXORD Z5, Z%d, Z5
		VBROADCASTI32X4 gridParity<>(SB), Z7
		VPSHUFB Z5, Z7, Z5
		VPORD Z5, Z%d, Z%d`, z, z, z, z)
	k.twice(z)
}

// twice copies the lower byte of each word of register z to its upper byte.
func (k *gridDot) twice(z int) {
	k.op(`
		VPBROADCASTD gridTwice<>(SB), Z5
		VPMULLW Z5, Z%d, Z%d`, z, z)
}

// scalesAbove computes scales, 2s+1, from the upper four bits of the even or odd dwords of Z0.
func (k *gridDot) scalesAbove(order, to int) {
	k.list(`
		VPSHUFD ${order}, Z0, Z{to}
		VPSRLD $27, Z{to}, Z{to}
		VPORD.BCST gridOne<>(SB), Z{to}, Z{to}`, "order", order, "to", to)
}

// scalesNibbles computes sixteen scales, 2s+1, from the nibbles of eight bytes.
func (k *gridDot) scalesNibbles(at, to int) {
	k.list(`
		VPMOVZXBQ {at}(R8), Z{to}
		VPSLLQ $29, Z{to}, Z5
		VPSLLQ $1, Z{to}, Z{to}
		VPORD Z5, Z{to}, Z{to}
		VPANDD.BCST gridNibbleScale<>(SB), Z{to}, Z{to}
		VPORD.BCST gridOne<>(SB), Z{to}, Z{to}`, "at", at, "to", to)
}

// emitTurned writes the kernel that turns codes of x into planes.
//
//	SI codes   DI planes   R8 blocks of 256 left
func (e *emitter) emitTurned() {
	e.function("blockPlanesavx512", "blockTurnArgs", "turns blocks of 256 codes into planes of 64.")
	e.op(`
		MOVQ blockTurnArgs_from(AX), SI
		MOVQ blockTurnArgs_to(AX), DI
		MOVQ blockTurnArgs_lines(AX), R8
		VBROADCASTI32X4 gridTurn<>(SB), Z2
		VMOVDQU64 gridTurned<>(SB), Z3`)
	e.loop("block", "R8", func() {
		for i := range 4 {
			e.op(`
				VMOVDQU64 %d(SI), Z0
				VPSHUFB Z2, Z0, Z0
				VPERMD Z0, Z3, Z0`, 64*i)
			for q := range 4 {
				e.op("VEXTRACTI32X4 $%d, Z0, %d(DI)", q, 64*q+16*i)
			}
		}
		e.op(`
			ADDQ $256, SI
			ADDQ $256, DI`)
	})
	e.ret()
}
