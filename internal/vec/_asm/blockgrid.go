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
// Values come out in four planes of 64 bytes: each dword of the planes together is sixteen consecutive values. An index
// of four bits has the level of a value and its sign, and looks up 64 plus the value, which is unsigned. The sums start
// at what the 64 add to them, negative.
//
//	word of an octet   nibble 2b + h of byte b has the levels (two bits) of values 4b + 2 + h and 4b + h
//	word of a quad     nibble q has the level of value q
//	signs of octets    bit j of byte b is the sign of value 4b + j; bit 7 is zero, others are arbitrary
//	signs of quads     bit 2, 3, 6, 7 of byte b is the sign of value 2b, 2b + 1, 2b + 4, 2b + 5
//
// One row of x by sixteen rows of weights. A row's block is looked up while that of the row before is multiplied:
// either is a chain of dependent instructions, too long for the processor to look beyond it. If 32 values share a
// scale, it is applied to two rows at a time.
//
//	AX arguments   BX bytes to the step   R8 a row's step   R13 bytes to prefetch   R12 memory for sums and scales
//	SI x in planes   DI its scales   R14 pointers to rows   R15 a sum   DX a scale   R11 tables
//	R9, R10, CX temporaries   K7 lanes of the second of two rows
//	Z0, Z1, Z5, Z7, Z26 lookup   Z8 results   Z9 initial sums   Z10 ... Z14 the tree
//	Z15, Z16 sums   Z17, Z27 scales of two rows   Z18, Z19 products   Z20 ... Z23 values of levels and signs
//	Z24, Z25 bits of indices   Z2, Z3, Z4, Z6 and Z28 ... Z31 found
type gridFormat struct {
	name   string
	bytes  int // bytes of a block
	points int // points of the grid
	quads  bool
	levels []int
	times  float32 // factor of d
	// bits names the seventh bit of an index and the bits above it.
	bits [3]string
	// signs writes the signs of octet w to word w of a register. The 64 bytes from byte 2 on are in Z0.
	signs func(k *gridDot, to int)
	// scales writes the scales of sixteen values to the dwords of a register.
	scales func(k *gridDot, to int)
	// both writes the scales of two rows to a register of gridScales: in each lane two scales of the first row and two
	// of the second. It is called for the r-th of four rows. If it is nil, scales are applied to each row.
	both func(k *gridDot, r int)
}

type gridDot struct {
	*emitter
	f *gridFormat
}

// found has the registers of a block's values after the lookup: levels (for octets one register, and one more for upper
// nibbles), signs and scales.
type found struct{ low, high, signs, scales int }

// Even and odd rows use different registers.
var founds = [2]found{{2, 4, 3, 6}, {28, 29, 30, 31}}

// Registers of the products.
const (
	gridResults, gridStart = 8, 9
	gridJoined, gridSum    = 14, 16
	gridW, gridTemp        = 18, 19
	gridValues, gridBits   = 20, 24
)

// Sums of even and odd rows, and scales of the first two and the last two of four rows.
var gridSums, gridScales = [2]int{gridSum, 15}, [2]int{17, 27}

var gridFormats = []*gridFormat{
	{name: "IQ2XXS", bytes: 66, points: 256, levels: []int{8, 25, 43}, times: 0.125, bits: [3]string{"6", "15"},
		signs: func(k *gridDot, to int) {
			k.shuffle("gridSevensUpper", 0, to)
			k.sevens(to)
		},
		scales: func(k *gridDot, to int) { k.scalesAbove(0xF5, to) },
		both:   func(k *gridDot, r int) { k.bothAbove(0xDD, r) }},
	{name: "IQ2XS", bytes: 74, points: 512, levels: []int{8, 25, 43}, times: 0.125, bits: [3]string{"6", "7", "8"},
		signs:  func(k *gridDot, to int) { k.parity(0, to) },
		scales: func(k *gridDot, to int) { k.scalesNibbles(66, to) }},
	{name: "IQ3XXS", bytes: 98, points: 256, quads: true, levels: []int{4, 12, 20, 28, 36, 44, 52, 62}, times: 0.25,
		signs: func(k *gridDot, to int) {
			k.op("VPMOVZXDQ 66(R8), Z0")
			k.shuffle("gridSevens", 0, to)
			k.sevens(to)
		},
		scales: func(k *gridDot, to int) { k.scalesAbove(0xA0, to) },
		both:   func(k *gridDot, r int) { k.bothAbove(0x88, r) }},
	{name: "IQ3S", bytes: 110, points: 512, quads: true, levels: []int{1, 3, 5, 7, 9, 11, 13, 15}, times: 1,
		signs: func(k *gridDot, to int) {
			k.op(`
				VPMOVZXBW 74(R8), Z5
				VPSLLW $2, Z5, Z%d
				VPSLLW $8, Z5, Z5
				VPTERNLOGD.BCST $0xE4, gridLowByte<>(SB), Z5, Z%d`, to, to) // the lower byte from the first shift
		},
		scales: func(k *gridDot, to int) {
			k.op("VPBROADCASTD 106(R8), Z%d", to)
			k.rotated("gridScales3S", to)
		},
		both: func(k *gridDot, r int) {
			to := gridScales[r/2]
			if r%2 == 0 {
				k.op("VPBROADCASTD 106(R8), Z%d", to)
				return
			}
			k.op("VPBROADCASTD 106(R8), K7, Z%d", to)
			k.rotated("gridScalesBoth", to)
		}},
}

func emitGrids(e *emitter) {
	gridData(e)
	for _, f := range gridFormats {
		(&gridDot{emitter: e, f: f}).write()
		(&gridDot{emitter: e, f: f}).unpack()
	}
	emitTurned(e)
	emitRowDots(e)
}

// bytesTable writes a table of n bytes.
func bytesTable(e *emitter, name string, n int, at func(i int) int) {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(at(i))
	}
	table(e, name, data)
}

func gridData(e *emitter) {
	bytesTable(e, "gridIndices", 16, func(i int) int { return i/8*8 + i%8/2 })
	sevens := [8]int{0, 1, 0, 1, 1, 2, 2, 3} // positions of the four 7-bit codes in their four bytes
	bytesTable(e, "gridSevens", 16, func(i int) int { return i/8*8 + sevens[i%8] })
	bytesTable(e, "gridSevensUpper", 16, func(i int) int { return i/8*8 + 4 + sevens[i%8] })
	shifts := [8]int{9, 0, 2, 0, 3, 0, 4, 0} // they move seven bits to the upper bits of a word
	bytesTable(e, "gridShifts", 16, func(i int) int { return shifts[i%8] })
	bytesTable(e, "gridParity", 16, func(i int) int { return (i ^ i>>1 ^ i>>2 ^ i>>3) & 1 * 0x88 })
	// A scale is a nibble of a dword that is rotated to the left: its bits 0 to 3 become bits 1 to 4.
	rotate := func(scale int) int { return (33 - 4*scale) & 31 }
	dwords := func(at func(i int) int) func(i int) int {
		return func(i int) int { return at(i/4) * (1 - min(1, i%4)) }
	}
	bytesTable(e, "gridScales3S", 64, dwords(func(i int) int { return rotate(i / 2) }))
	bytesTable(e, "gridScalesBoth", 64, dwords(func(i int) int { return rotate(i/4*2 + i%2) }))
	// Dwords with a byte of a quadword as byte 2, and right shifts that move a nibble of it to bits 1 to 4.
	bytesTable(e, "gridNibbles", 64, func(i int) int {
		if i%4 != 2 {
			return 0x80
		}
		return i / 8
	})
	bytesTable(e, "gridNibbleShifts", 8, dwords(func(i int) int { return 15 + 4*i }))
	bytesTable(e, "gridTurnOctets", 16, planeOctets)
	bytesTable(e, "gridTurnQuads", 16, planeQuads)
	bytesTable(e, "gridTurned", 64, func(i int) int { return (i/4%4*4 + i/16) * (1 - min(1, i%4)) })
	same := func(name string, word uint32) {
		bytesTable(e, name, 8, func(i int) int { return int(word >> (8 * (i % 4))) })
	}
	same("gridOne", 1)
	same("gridScale", 0x1E)
	same("gridLowByte", 0x00FF00FF)
	same("gridLower2", 0x03030303)
	same("gridUpper2", 0x0C0C0C0C)
	same("gridFourth", 0x08080808)
	same("gridLastOctet", 0x08000800)
	same("gridLastQuad", 0x80008000)
	for bit := 6; bit <= 8; bit++ {
		same(fmt.Sprintf("gridBit%d", bit), 0x00010001<<bit)
	}
	for _, f := range gridFormats {
		same("gridFactor"+f.name, math.Float32bits(f.times))
		// value returns 64 plus the value, or 64 minus it.
		value := func(level, sign int) int {
			if level >= len(f.levels) {
				return 0
			}
			return 64 + f.levels[level]*(1-2*sign)
		}
		if f.quads {
			bytesTable(e, "grid"+f.name, 16, func(i int) int { return value(i&7, i>>3) })
			continue
		}
		// Values 0 and 1 have levels in bits 2 and 3 of an index, values 2 and 3 in bits 0 and 1; bit j is the sign of
		// value j.
		bytesTable(e, "grid"+f.name, 64, func(i int) int {
			j := i / 16
			return value(i>>(2-j/2*2)&3, i>>j&1)
		})
	}
}

func (k *gridDot) write() {
	f := k.f
	k.function("gridDot"+f.name, "blockArgs", fmt.Sprintf("one row of x by sixteen rows of %s.", f.name))
	k.op(`
		XORQ BX, BX
		MOVQ blockArgs_ahead(AX), R13
		ADDQ blockArgs_rows(AX), R13
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_trees(AX), R12
		MOVQ blockArgs_grid(AX), R11
		MOVL $0xCCCC, R9
		KMOVW R9, K7`)
	k.constants()
	k.zero(gridResults)
	t := tree{emitter: k.emitter, first: 12}
	k.op(`
		MOVQ blockArgs_rows(AX), R8
		LEAQ 320(R12), DX`)
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
		MOVQ blockArgs_sums(AX), R9
		VPMOVSXWD (R9), Z%d
		VPSLLD $6, Z%d, Z%d
		VPXORD Z10, Z10, Z10
		VPSUBD Z%d, Z10, Z%d
		ADDQ $32, R9
		MOVQ R9, blockArgs_sums(AX)
		LEAQ blockArgs_rows(AX), R14
		MOVQ R12, R15
		LEAQ 320(R12), DX
		MOVQ $4, blockArgs_count(AX)`, gridStart, gridStart, gridStart, gridStart, gridStart)
	// Four rows at a time: the code for sixteen rows would not fit into the cache of decoded instructions.
	k.loop("rows", "blockArgs_count(AX)", func() {
		for r := range 4 {
			k.op(`
				MOVQ %d(R14), R8
				ADDQ BX, R8`, 8*(r+1))
			k.emit(k.lines(func() { k.decode(r+1, founds[(r+1)%2]) }), k.lines(func() { k.products(r) }),
				k.lines(func() { k.join((r + 3) % 4) }))
			if r == 0 {
				k.op("VMOVDQA64 Z%d, (R15)", gridJoined)
			}
		}
		k.op(`
			ADDQ $8, DX
			ADDQ $32, R14
			ADDQ $64, R15`)
	})
	k.join(3)
	k.op("VMOVDQA64 Z%d, (R15)", gridJoined)
	k.fold(t, 64, gridSum)
	k.op(`
		VCVTDQ2PS Z%d, Z%d
		VCVTPH2PS 320(R12), Z10
		MOVWLZX 352(R12), R9
		MOVW R9, 320(R12)`, gridSum, gridSum)
	if f.times != 1 {
		k.op("VMULPS.BCST gridFactor%s<>(SB), Z10, Z10", f.name)
	}
	k.op(`
		VMULPS Z10, Z%d, Z%d
		VFMADD231PS.BCST (DI), Z%d, Z%d
		ADDQ $%d, SI
		ADDQ $4, DI`, gridSum, gridSum, gridSum, gridResults, gridX)
	k.op(`
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, f.bytes, loop)
	k.store()
}

// gridX is the number of bytes of a block of x: planes for octets, then planes for quads.
const gridX = 512

// join adds the products of the r-th of four rows to those of the rows before it. After the last row, gridJoined has a
// sum of each row in each lane.
func (k *gridDot) join(r int) {
	if r%2 == 0 {
		k.op("VMOVDQA64 Z%d, Z12", gridSums[0])
		return
	}
	k.adjacent(12, gridSums[1])
	if k.f.both != nil {
		k.op("VPMULLD Z%d, Z%d, Z%d", gridScales[r/2], gridJoined, gridJoined)
	}
	if r == 1 {
		k.op("VMOVDQA64 Z%d, Z13", gridJoined)
		return
	}
	k.adjacent(13, gridJoined)
}

// adjacent writes the sums of pairs of adjacent dwords of two registers, two of each in each lane, to gridJoined.
func (k *gridDot) adjacent(a, b int) {
	k.op(`
		VSHUFPS $0x88, Z%d, Z%d, Z10
		VSHUFPS $0xDD, Z%d, Z%d, Z11
		VPADDD Z10, Z11, Z%d`, b, a, b, a, gridJoined)
}

// fold adds up the sums of sixteen rows, four of which are in each of four registers in memory, and leaves the result
// in register z.
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

// store writes the results of the rows that exist to y.
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

// emit writes the instructions of several lists alternately; the lists do not depend on each other.
func (k *gridDot) emit(lists ...[]string) {
	total := 0
	for _, l := range lists {
		total += len(l)
	}
	done := make([]int, len(lists))
	for range total {
		next := -1
		for i, l := range lists { // the next list is the one of which the smallest part was written
			if done[i] < len(l) && (next < 0 || done[i]*len(lists[next]) < done[next]*len(l)) {
				next = i
			}
		}
		k.raw("%s", strings.TrimSuffix(lists[next][done[next]], "\n"))
		done[next]++
	}
}

// decode looks up the block at R8. If r is not negative, it writes the block's d to entry r from DX on and prefetches.
func (k *gridDot) decode(r int, to found) {
	if r >= 0 {
		prefetch(k.emitter, "R8", k.f.bytes)
		k.op(`
			ADDQ $%d, R13
			MOVWLZX (R8), R9
			MOVW R9, %d(DX)`, k.f.bytes, 2*r)
	}
	k.op("VMOVDQU64 2(R8), Z0")
	if k.f.quads {
		k.quadLevels(to)
	} else {
		idx := 0
		if k.f.points == 256 {
			idx = 1
			k.shuffle("gridIndices", 0, 1)
		}
		k.lookup(idx, to.low, k.f.bits)
	}
	k.f.signs(k, to.signs)
	if k.f.both == nil || r < 0 {
		k.f.scales(k, to.scales)
	} else {
		k.f.both(k, r%4)
	}
}

// prefetch prefetches the next step of a row from the L2 cache into the L1 cache, and bytes of a later step, from R13
// on, into the L2 cache.
func prefetch(e *emitter, row string, bytes int) {
	n := (bytes + 63) / 64
	for i := range n {
		e.op(`
			PREFETCHT0 %d(%s)
			PREFETCHT1 %d(R13)`, bytes+(i+1)*bytes/n-1, row, i*bytes/n)
	}
}

// unpack writes the kernel that makes plain blocks of packed ones, with codes in planes; see unpacker.
//
//	R8 a block   DI its plain block   SI pointers to rows   R15 blocks left   R11 tables
func (k *gridDot) unpack() {
	f, at := k.f, founds[0]
	k.function("gridUnpack"+f.name, "blockArgs", fmt.Sprintf("%s of sixteen rows to planes.", f.name))
	k.op(`
		MOVQ blockArgs_panel(AX), DI
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_grid(AX), R11
		LEAQ blockArgs_rows(AX), SI`)
	k.constants()
	k.loop("row", "blockArgs_count(AX)", func() {
		k.op(`
			MOVQ (SI), R8
			ADDQ blockArgs_last(AX), R8
			ADDQ $8, SI
			MOVQ blockArgs_steps(AX), R15`)
		k.loop("block", "R15", func() {
			for at := 0; at < f.bytes; at += 64 {
				k.op("PREFETCHT0 %d(R8)(R13*1)", at)
			}
			k.decode(-1, at)
			k.values(at, func(q int) { k.op("VMOVDQU64 Z%d, %d(DI)", gridW, 64*q) })
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
	if k.f.quads {
		k.op("VPBROADCASTD gridFourth<>(SB), Z%d", gridBits)
		k.op("VBROADCASTI32X4 grid%s<>(SB), Z%d", k.f.name, gridValues)
		return
	}
	k.op("VPBROADCASTD gridUpper2<>(SB), Z%d", gridBits)
	k.op("VPBROADCASTD gridLower2<>(SB), Z%d", gridBits+1)
	for q := range 4 {
		k.op("VBROADCASTI32X4 grid%s<>+%d(SB), Z%d", k.f.name, 16*q, gridValues+q)
	}
}

// values calls use for each plane, with 64 plus its values in gridW.
func (k *gridDot) values(from found, use func(q int)) {
	if k.f.quads {
		signs := gridTemp
		for q := range 4 {
			levels := []int{from.low, from.high}[q/2]
			switch q {
			case 0:
				k.op("VPADDW Z%d, Z%d, Z%d", from.signs, from.signs, signs)
			case 1:
				signs = from.signs
			default:
				signs = gridTemp
				k.op("VPSRLW $%d, Z%d, Z%d", q+1, from.signs, signs)
			}
			if q%2 == 0 {
				k.op("VMOVDQA64 Z%d, Z%d", levels, gridW)
			} else {
				k.op("VPSRLW $4, Z%d, Z%d", levels, gridW)
			}
			k.op(`
				VPTERNLOGD $0xD8, Z%d, Z%d, Z%d
				VPSHUFB Z%d, Z%d, Z%d`, gridBits, signs, gridW, gridW, gridValues, gridW) // the fourth bits are signs
			use(q)
		}
		return
	}
	k.op("VPSRLW $4, Z%d, Z%d", from.low, from.high)
	for q := range 4 {
		k.op("VMOVDQA64 Z%d, Z%d", []int{from.low, from.high}[q%2], gridW)
		k.op(`
			VPTERNLOGD $0xE4, Z%d, Z%d, Z%d
			VPSHUFB Z%d, Z%d, Z%d`, gridBits+q/2, from.signs, gridW, gridW, gridValues+q, gridW) // two bits are levels
		use(q)
	}
}

// products writes the products of the r-th of four rows to the lanes of a register. If each row has its own scales, it
// applies them.
func (k *gridDot) products(r int) {
	from, sum, first := founds[r%2], gridSums[r%2], 0
	if k.f.quads {
		first = 256
	}
	k.op("VMOVDQA64 Z%d, Z%d", gridStart, sum)
	k.values(from, func(q int) { k.op("VPDPBUSD %d(SI), Z%d, Z%d", first+64*q, gridW, sum) })
	if k.f.both == nil {
		k.op("VPMULLD Z%d, Z%d, Z%d", from.scales, sum, sum)
	}
}

// quadLevels looks up the even quads of a block and the odd ones.
func (k *gridDot) quadLevels(to found) {
	even, odd := [3]string{"6", "7"}, [3]string{"6", "7"}
	if k.f.points > 256 { // bit 8 of the indices
		k.op(`
			MOVQ 66(R8), R9
			MOVQ $0x5555555555555555, R10
			PEXTQ R10, R9, CX
			KMOVD CX, K3
			ADDQ R10, R10
			PEXTQ R10, R9, CX
			KMOVD CX, K4`)
		even[2], odd[2] = "K3", "K4"
	}
	k.op("VPSRLW $8, Z0, Z1")
	k.lookup(0, to.low, even)
	k.lookup(1, to.high, odd)
}

// lookup writes the table words for the indices in register z to a register. It overwrites Z5, Z7, Z26 and K1, K2, K5.
// bits names the bits of an index from the seventh on, or a mask that has them.
func (k *gridDot) lookup(z, to int, bits [3]string) {
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
			k.op("VPMOVW2M Z%d, %s", z, masks[i])
			continue
		}
		k.op(`
			VPBROADCASTD gridBit%s<>(SB), Z5
			VPTESTMW Z5, Z%d, %s`, bits[i], z, masks[i])
	}
	stack := []int{to, 5, 7, 26} // partial results
	depth := 0
	for p := range pairs {
		r := stack[depth]
		k.op("VMOVDQU64 %d(R11), Z%d", 128*p, r)
		k.op("VPERMT2W %d(R11), Z%d, Z%d", 128*p+64, z, r)
		depth++
		for i := 0; p>>i&1 == 1; i++ {
			k.op("VMOVDQU16 Z%d, %s, Z%d", stack[depth-1], masks[i], stack[depth-2])
			depth--
		}
	}
}

// shuffle permutes the bytes within each lane of register z by a table.
func (k *gridDot) shuffle(table string, z, to int) {
	k.op("VBROADCASTI32X4 %s<>(SB), Z%d", table, to)
	k.op("VPSHUFB Z%d, Z%d, Z%d", to, z, to)
}

// sevens separates four codes of seven signs each, whose bytes are in the words of register z, and writes the signs.
func (k *gridDot) sevens(z int) {
	k.op(`
		VBROADCASTI32X4 gridShifts<>(SB), Z5
		VPSLLVW Z5, Z%d, Z%d`, z, z)
	k.parity(z, z)
}

// parity writes groups of eight signs. The first seven of a group are the upper bits of a word of register z, and the
// eighth makes the number of negative signs even.
func (k *gridDot) parity(z, to int) {
	low, last := 9, "Octet"
	if k.f.quads {
		low, last = 7, "Quad"
	}
	k.list(`
		VPSRLW $5, Z{z}, Z5
		VPSRLW $1, Z{z}, Z7
		VPSRLW ${low}, Z{z}, Z{to}`, "z", z, "to", to, "low", low)
	upper := 5
	if k.f.quads {
		upper = 7
	}
	k.op("VPTERNLOGD.BCST $0xE4, gridLowByte<>(SB), Z%d, Z%d", upper, to) // the lower byte of each word does not change
	k.list(`
		VPXORD Z5, Z7, Z7
		VBROADCASTI32X4 gridParity<>(SB), Z5
		VPSHUFB Z7, Z5, Z7
		VPTERNLOGD.BCST $0xF8, gridLast{last}<>(SB), Z7, Z{to}`, "last", last, "to", to)
}

// scalesAbove computes scales, 2s+1, where s is the upper four bits of each even or odd dword of Z0.
func (k *gridDot) scalesAbove(order, to int) {
	k.list(`
		VPSHUFD ${order}, Z0, Z{to}
		VPSRLD $27, Z{to}, Z{to}
		VPORD.BCST gridOne<>(SB), Z{to}, Z{to}`, "order", order, "to", to)
}

// bothAbove computes the scales of two rows like scalesAbove.
func (k *gridDot) bothAbove(order, r int) {
	if r%2 == 0 {
		k.op("VMOVDQA64 Z0, Z%d", founds[0].scales)
		return
	}
	k.list(`
		VSHUFPS ${order}, Z0, Z{from}, Z{to}
		VPSRLD $27, Z{to}, Z{to}
		VPORD.BCST gridOne<>(SB), Z{to}, Z{to}`, "order", order, "from", founds[0].scales, "to", gridScales[r/2])
}

// rotated computes scales, 2s+1, from dwords of a register that are rotated by the counts in a table.
func (k *gridDot) rotated(table string, z int) {
	k.op("VPROLVD %s<>(SB), Z%d, Z%d", table, z, z)
	k.scale(z)
}

// scale replaces dwords by 2s+1, where s is bits 1 to 4.
func (k *gridDot) scale(z int) {
	k.op(`
		VPANDD.BCST gridScale<>(SB), Z%d, Z%d
		VPORD.BCST gridOne<>(SB), Z%d, Z%d`, z, z, z, z)
}

// scalesNibbles computes sixteen scales, 2s+1, from the nibbles of eight bytes.
func (k *gridDot) scalesNibbles(at, to int) {
	k.list(`
		VPBROADCASTQ {at}(R8), Z{to}
		VPSHUFB gridNibbles<>(SB), Z{to}, Z{to}
		VPBROADCASTQ gridNibbleShifts<>(SB), Z5
		VPSRLVD Z5, Z{to}, Z{to}`, "at", at, "to", to)
	k.scale(to)
}

// planeOctets and planeQuads return which of sixteen values is byte i%4 of their dword in plane i/4.
func planeOctets(i int) int { return i%4*4 + i/4 }
func planeQuads(i int) int  { return i%4/2*8 + i/8*4 + i/4%2 + i%2*2 }

// emitTurned writes the kernel that turns codes of x into planes.
//
//	SI codes   DI planes   R8 blocks of 256 left
func emitTurned(e *emitter) {
	e.function("blockPlanesavx512", "blockTurnArgs", "turns blocks of 256 codes into planes of 64.")
	e.op(`
		MOVQ blockTurnArgs_from(AX), SI
		MOVQ blockTurnArgs_to(AX), DI
		MOVQ blockTurnArgs_lines(AX), R8
		VBROADCASTI32X4 gridTurnOctets<>(SB), Z2
		VBROADCASTI32X4 gridTurnQuads<>(SB), Z4
		VMOVDQU64 gridTurned<>(SB), Z3`)
	e.loop("block", "R8", func() {
		for i := range 4 {
			e.op("VMOVDQU64 %d(SI), Z0", 64*i)
			for j, order := range []int{2, 4} {
				e.op(`
					VPSHUFB Z%d, Z0, Z1
					VPERMD Z1, Z3, Z1`, order)
				for q := range 4 {
					e.op("VEXTRACTI32X4 $%d, Z1, %d(DI)", q, 256*j+64*q+16*i)
				}
			}
		}
		e.op(`
			ADDQ $256, SI
			ADDQ $%d, DI`, gridX)
	})
	e.ret()
}
