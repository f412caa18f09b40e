package main

import (
	"fmt"
	"math"
)

// Grids with byte permutations (AVX-512 VBMI and GFNI): one row of x by sixteen rows of weights, like blockgrid.go, in
// about half the operations.
//
// A point of eight values of three levels is two bytes, and so is a point of four values of eight levels. The first
// bytes of all points are one table, the second bytes another. A permutation looks up 64 indices among 64 points, so
// two rows are looked up together: octets of the first row are in the lower half of a register, octets of the second
// row in the upper half. Quads have two registers: one for the first quads of all octets, one for the second.
//
// An affine map of bits turns sign codes into sign bits, including the sign that makes their number even. Levels and
// signs together are an index of six bits, which looks up 64 plus a value or 64 minus a value. These are unsigned, and
// sums start at what the 64 add to them, negative.
//
//	octets   a byte has the levels (two bits) of four values; an index has two of them, and two signs from bit 4 on
//	quads    a byte has the levels (three bits, from bits 0 and 4 on) of two values; an index has one, and three signs
//
// Plane v of x has values v of all octets, so a dword of products has the same value of four octets. If 32 values have
// a scale, it is applied to sums of dwords. If 16 values have a scale, it is applied to sums of two products: two
// octets are a word.
//
// Two rows are looked up while the two rows before are multiplied.
//
//	AX arguments   BX bytes to the step   R8, R9 the step of two rows   R13 bytes to prefetch   R11 tables
//	SI planes of x   DI scales of x   R12 memory for sums and scales   R14 pointers to rows   R15 sums
//	R10, CX, DX temporaries   K1 ... K6 bits of indices   K7 lanes of the second row
//	Z0, Z1, Z6, Z7 lookup   Z2 ... Z5, Z24, Z25 and Z26 ... Z31 found   Z8 results   Z9 initial sums
//	Z10 ... Z14 of the tree   Z15, Z23 sums of two rows   Z16 bits of levels   Z17 ... Z19 values
//	Z20 ... Z22, and for octets Z24 and Z25, temporaries and constants   Z19, Z26, Z27 of IQ2_XXS: tables
type byteFormat struct {
	gridFormat
	codes  int    // lowest bit of the seven bits of a sign code; -1 if each value has a sign bit
	second uint64 // value of K7
	// read writes the indices of two rows to registers, octets to Z7 and the second quads to Z0, and masks with the
	// eighth and higher bits of octets' indices to K4 and K5. It also writes codes and scales.
	read func(k *byteDot, to byteFound)
}

type byteDot struct {
	gridDot
	b      *byteFormat
	tables string // register with the address of the tables
	held   []int  // registers of the first segments of 64 points; the others are read from memory
}

// byteFound has the registers that describe the values of two rows. If 32 values have a scale, these are the first and
// the second bytes of points, sign codes, scales and, for quads, the bytes of second quads. If 16 values have a scale,
// these are the bytes of points, two registers of signs, and scales.
type byteFound [6]int

// Even and odd pairs of rows use different registers.
var byteFounds = [2]byteFound{{2, 3, 4, 5, 24, 25}, {28, 29, 30, 31, 26, 27}}

// Registers. Those of temporaries and constants are different for each kind of format.
const (
	byteSelect, byteValues          = 16, 17
	octetEven, octetOdd, octetCodes = 20, 21, 22
	octetIndex, octetW              = 24, 25
	quadSplit, quadSigns, quadW     = 20, 21, 22
	halfIndex, halfW                = 20, 22
)

var byteSums = [2]int{15, 23}

// byteX is the number of bytes of the planes of a block of x.
const byteX = 512

// byteScalesAt is the offset of d of eight rows in the memory for sums; that of the other eight is 64 bytes later.
const byteScalesAt = 320

var byteFormats = []*byteFormat{
	{gridFormat: gridFormat{name: "IQ2XXS", bytes: 66, points: 256, levels: []int{8, 25, 43}, times: 0.125},
		read: (*byteDot).iq2xxs},
	{gridFormat: gridFormat{name: "IQ2XS", bytes: 74, points: 512, levels: []int{8, 25, 43}, times: 0.125},
		codes: 1, second: 0xF0, read: (*byteDot).iq2xs},
	{gridFormat: gridFormat{name: "IQ2S", bytes: 82, points: 1024, levels: []int{8, 25, 43}, times: 0.125},
		codes: -1, second: 0xF0, read: (*byteDot).iq2s},
	{gridFormat: gridFormat{name: "IQ3XXS", bytes: 98, points: 256, quads: true,
		levels: []int{4, 12, 20, 28, 36, 44, 52, 62}, times: 0.25}, read: (*byteDot).iq3xxs},
	{gridFormat: gridFormat{name: "IQ3S", bytes: 110, points: 512, quads: true,
		levels: []int{1, 3, 5, 7, 9, 11, 13, 15}, times: 1}, codes: -1, second: 0xFF00, read: (*byteDot).iq3s},
}

// halves reports whether 16 values have a scale.
func (f *byteFormat) halves() bool { return f.points > 256 && !f.quads }

func emitGridBytes(e *emitter) {
	byteData(e)
	for _, f := range byteFormats {
		k := newByteDot(e, f, "R11")
		if !f.halves() && !f.quads {
			k.held = []int{19, 26, 27}
		}
		k.write()
	}
	emitBytePlanes(e)
	emitByteFills(e)
}

func newByteDot(e *emitter, f *byteFormat, tables string) *byteDot {
	return &byteDot{gridDot: gridDot{emitter: e, f: &f.gridFormat}, b: f, tables: tables}
}

// sign returns the bits of a sign code whose sum is the sign of value j of an octet.
func (f *byteFormat) sign(j int) byte {
	switch {
	case f.codes < 0:
		return 1 << j
	case j < 7:
		return 1 << (f.codes + j)
	}
	return 127 << f.codes
}

// affine writes the matrix of an affine map to a table: bit from+i of a result is the sign of the i-th value.
func (f *byteFormat) affine(e *emitter, name string, from int, values ...int) {
	bytesTable(e, name, 8, func(row int) int { // row 0 makes bit 7
		if i := 7 - row - from; i >= 0 && i < len(values) {
			return int(f.sign(values[i]))
		}
		return 0
	})
}

// names of tables of a format.
func (f *byteFormat) signTable(i int) string  { return fmt.Sprintf("byteSigns%s%d", f.name, i) }
func (f *byteFormat) valueTable(i int) string { return fmt.Sprintf("byteValues%s%d", f.name, i) }

func byteData(e *emitter) {
	// Even and odd bits, and even and odd dwords of two registers.
	for odd := range 2 {
		bytesTable(e, fmt.Sprintf("byteBits%d", odd), 8, func(int) int { return 0x55 << odd })
		bytesTable(e, fmt.Sprintf("byteDwords%d", odd), 64, func(i int) int {
			return (i/4*2 + odd) * (1 - min(1, i%4))
		})
	}
	// Even bytes, then odd bytes.
	bytesTable(e, "byteSplit", 64, func(i int) int { return i%32*2 + i/32 })
	// Positions of the codes of signs in a quadword.
	bytesTable(e, "byteCodes", 64, func(i int) int { return i%8/4*32 + i%4*7 })
	// Scales of 16 values are nibbles; their bits 0 to 3 become bits 1 to 4 of a word.
	bytesTable(e, "byteScales", 64, func(i int) int { return (4*(i%32/2) - 1) & 63 })
	bytesTable(e, "byteScales3S", 64, func(i int) int { return (33 - i/4%8*4) & 31 * (1 - min(1, i%4)) })
	same := func(name string, word uint32) {
		bytesTable(e, name, 8, func(i int) int { return int(word >> (8 * (i % 4))) })
	}
	same("byteOne", 1)
	same("byteScale", 0x1E)
	same("byteOnes", 0x00010001)
	same("byteScaleWord", 0x001E001E)
	same("byteMinus64", 0xFFC0FFC0)
	same("byteLower3", 0x07070707)
	same("byteLower4", 0x0F0F0F0F)
	for _, f := range byteFormats {
		same("byteFactor"+f.name, math.Float32bits(f.times))
		bits, from, most := 2, 4, 2
		if f.quads {
			bits, from, most = 3, 3, 3
		}
		for t := range most {
			bytesTable(e, f.valueTable(t), 64, func(i int) int {
				level := i >> (t * bits) & (1<<bits - 1)
				if f.quads {
					level = i & 7
				}
				if level >= len(f.levels) {
					return 0
				}
				return 64 + f.levels[level]*(1-2*(i>>(from+t)&1))
			})
		}
		switch {
		case f.quads:
			f.affine(e, f.signTable(0), 3, 0, 1, 2)
			f.affine(e, f.signTable(1), 3, 3, 4, 5)
			f.affine(e, f.signTable(2), 3, 6, 7)
		case f.halves():
			f.affine(e, f.signTable(0), 4, 0, 1, 2, 3)
			f.affine(e, f.signTable(1), 4, 4, 5, 6, 7)
		default:
			for i := range 4 {
				f.affine(e, f.signTable(i), 4, 2*i, 2*i+1)
			}
		}
	}
}

func (k *byteDot) write() {
	f := k.b
	k.function("byteDot"+f.name, "blockArgs", fmt.Sprintf("one row of x by sixteen rows of %s.", f.name))
	k.op(`
		XORQ BX, BX
		MOVQ blockArgs_ahead(AX), R13
		ADDQ blockArgs_rows(AX), R13
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_trees(AX), R12
		MOVQ blockArgs_grid(AX), R11`)
	k.constants()
	if f.second != 0 {
		k.op(`
			MOVQ $%d, R9
			KMOVQ R9, K7`, f.second)
	}
	for segment, z := range k.held {
		k.op("VMOVDQU64 %d(%s), Z%d", 64*segment, k.tables, z)
	}
	k.zero(gridResults)
	k.op("LEAQ blockArgs_rows(AX), R14")
	k.emit(k.lines(func() { k.decode(0, byteFounds[0], false) }))
	loop, more := k.label("loop"), k.label("more")
	k.at(loop)
	// After the last rows come the first two rows of the next step, or those of this step again.
	k.op(`
		MOVQ blockArgs_rows(AX), R9
		MOVQ blockArgs_rows+8(AX), R10
		CMPQ blockArgs_steps(AX), $1
		JE %s
		ADDQ $%d, R9
		ADDQ $%d, R10`, more, f.bytes, f.bytes)
	k.at(more)
	k.op(`
		MOVQ R9, blockArgs_next(AX)
		MOVQ R10, blockArgs_next+8(AX)
		MOVQ blockArgs_sums(AX), R9`)
	k.start()
	k.op(`
		ADDQ $32, R9
		MOVQ R9, blockArgs_sums(AX)
		LEAQ blockArgs_rows(AX), R14
		MOVQ R12, R15
		MOVQ $2, blockArgs_count(AX)`)
	k.loop("rows", "blockArgs_count(AX)", func() {
		for p := range 4 {
			k.emit(k.lines(func() { k.decode(p+1, byteFounds[(p+1)%2], true) }), k.lines(func() { k.products(p) }),
				k.lines(func() { k.join((p + 3) % 4) }))
			if p == 0 {
				k.op("VMOVDQA64 Z%d, (R15)", gridJoined)
			}
		}
		k.op(`
			ADDQ $64, R14
			ADDQ $64, R15`)
	})
	k.join(3)
	k.list(`
		VMOVDQA64 64(R12), Z13
		VSHUFI32X4 $0x88, Z{joined}, Z13, Z10
		VSHUFI32X4 $0xDD, Z{joined}, Z13, Z11
		VPADDD Z10, Z11, Z10
		VCVTDQ2PS Z10, Z10
		VMOVDQU {d}(R12), X11
		VINSERTI128 $1, {d+64}(R12), Y11, Y11
		VCVTPH2PS Y11, Z11`, "joined", gridJoined, "d", byteScalesAt)
	if f.times != 1 {
		k.op("VMULPS.BCST byteFactor%s<>(SB), Z11, Z11", f.name)
	}
	k.op(`
		VMULPS Z11, Z10, Z10
		VFMADD231PS.BCST (DI), Z10, Z%d
		ADDQ $%d, SI
		ADDQ $4, DI
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, gridResults, byteX, f.bytes, loop)
	k.store()
}

// constants loads the constants of a format.
func (k *byteDot) constants() {
	f, lower, tables := k.b, "byteLower4", 2
	if f.quads {
		lower, tables = "byteLower3", 3
	}
	k.op("VPBROADCASTD %s<>(SB), Z%d", lower, byteSelect)
	for t := range tables {
		k.op("VMOVDQU64 %s<>(SB), Z%d", f.valueTable(t), byteValues+t)
	}
	switch {
	case f.quads:
		k.op("VMOVDQU64 byteSplit<>(SB), Z%d", quadSplit)
	case !f.halves():
		k.op("VMOVDQU64 byteDwords0<>(SB), Z%d", octetEven)
		k.op("VMOVDQU64 byteDwords1<>(SB), Z%d", octetOdd)
		k.op("VMOVDQU64 byteCodes<>(SB), Z%d", octetCodes)
	}
}

// start computes the initial sums of a step: -64 times the sums of the codes of x that a dword belongs to. The sums of
// each 16 codes are at R9. If 16 values have a scale, these are the negative sums of the codes of words.
func (k *byteDot) start() {
	if !k.b.halves() {
		k.op(`
			VBROADCASTI64X4 (R9), Z10
			VPBROADCASTD byteMinus64<>(SB), Z11
			VPMADDWD Z11, Z10, Z%d`, gridStart)
		return
	}
	k.op(`
		VBROADCASTI64X4 (R9), Z10
		VPXORD Z11, Z11, Z11
		VPSUBW Z10, Z11, Z%d`, gridStart)
}

// join adds the products of the p-th of four pairs of rows to those of the pairs before it. After the last pair,
// gridJoined has sums of the four pairs in each 128 bits: of the first rows in the lower half, of the second rows in
// the upper half.
func (k *byteDot) join(p int) {
	switch p {
	case 0, 2:
		k.op("VMOVDQA64 Z%d, Z12", byteSums[0])
	case 1:
		k.adjacent(12, byteSums[1])
		k.op("VMOVDQA64 Z%d, Z13", gridJoined)
	case 3:
		k.adjacent(12, byteSums[1])
		k.adjacent(13, gridJoined)
	}
}

// decode looks up the p-th pair of rows from R14 on. If ahead is true, it prefetches.
func (k *byteDot) decode(p int, to byteFound, ahead bool) {
	f := k.b
	for i, row := range []string{"R8", "R9"} {
		k.op(`
			MOVQ %d(R14), %s
			ADDQ BX, %s`, 16*p+8*i, row, row)
	}
	if ahead {
		n := 1
		if f.quads {
			n = 2
		}
		for i := range n {
			for _, row := range []string{"R8", "R9"} {
				k.op("PREFETCHT0 %d(%s)", f.bytes+(i+1)*f.bytes/n-1, row)
			}
		}
		n = (2*f.bytes + 63) / 64
		for i := range n {
			k.op("PREFETCHT1 %d(R13)", i*2*f.bytes/n)
		}
		k.op("ADDQ $%d, R13", 2*f.bytes)
	}
	f.read(k, to)
	switch {
	case f.quads:
		if f.points > 256 {
			k.upperBits(0, 4)
		}
		k.lookup(7, to[0], to[1], 6)
		if f.points > 256 {
			k.upperBits(1, 4)
		}
		k.lookup(0, to[4], to[5], 6)
	case f.halves():
		k.lookup(7, to[0], to[1], 6)
		k.signs(0, 0, to[2])
		k.signs(1, 0, to[3])
	default:
		k.lookup(7, to[0], to[1], 6)
	}
}

// signs applies the i-th affine map to sign codes.
func (k *byteDot) signs(i, codes, to int) {
	k.op("VGF2P8AFFINEQB.BCST $0, %s<>(SB), Z%d, Z%d", k.b.signTable(i), codes, to)
}

// lookup writes the first and the second bytes of points to two registers; indices are in another, and their eighth and
// ninth bits in K4 and K5. It overwrites a register and K1 ... K6.
func (k *byteDot) lookup(z, first, second, temp int) {
	k.op(`
		VPSLLW $1, Z%d, Z%d
		VPMOVB2M Z%d, K1
		VPMOVB2M Z%d, K2
		KANDQ K1, K2, K3`, z, temp, temp, z)
	// among looks up 64 points each for indices whose bits 6 and 7 are 0 to 3.
	among := func(s, to int, masks [4]string) {
		for t, mask := range masks {
			table := fmt.Sprintf("%d(%s)", 64*(4*s+t), k.tables)
			if n := 4*s + t; n < len(k.held) {
				table = fmt.Sprintf("Z%d", k.held[n])
			}
			k.op("VPERMB %s, Z%d, %sZ%d", table, z, mask, to)
		}
	}
	all := [4]string{"", "K1, ", "K2, ", "K3, "}
	to := [2]int{first, second}
	tables := k.b.points / 256 // segments of 256 points in a table
	for i := range 2 {
		among(tables*i, to[i], all)
	}
	switch tables {
	case 2:
		for m := 1; m <= 3; m++ {
			k.op("KANDQ K4, K%d, K%d", m, m)
		}
		for i := range 2 {
			among(tables*i+1, to[i], [4]string{"K4, ", "K1, ", "K2, ", "K3, "})
		}
	case 4:
		k.op("KANDQ K4, K5, K6")
		for s := 1; s < 4; s++ {
			for i := range 2 {
				among(tables*i+s, temp, all)
				k.op("VMOVDQU8 Z%d, K%d, Z%d", temp, 3+s, to[i])
			}
		}
	}
}

// upperBits writes every second bit of the eight bytes from byte 66 on of two rows, from bit 0 or 1 on, to a mask
// register.
func (k *byteDot) upperBits(odd, mask int) {
	k.op(`
		MOVQ 66(R8), CX
		MOVQ 66(R9), DX
		PEXTQ byteBits%d<>(SB), CX, CX
		PEXTQ byteBits%d<>(SB), DX, DX
		SHLQ $32, DX
		ORQ CX, DX
		KMOVQ DX, K%d`, odd, odd, mask)
}

// both writes 32 bytes of each row to a register.
func (k *byteDot) both(at, to int) {
	k.op(`
		VMOVDQU64 %d(R8), Y%d
		VINSERTI64X4 $1, %d(R9), Z%d, Z%d`, at, to, at, to, to)
}

// split writes the even bytes of the 64 bytes from byte 2 of two rows on to Z7, and the odd bytes to Z0.
func (k *byteDot) split(order int) {
	k.list(`
		VMOVDQU64 2(R8), Z0
		VMOVDQU64 2(R9), Z1
		VPERMB Z0, Z{order}, Z0
		VPERMB Z1, Z{order}, Z1
		VINSERTI64X4 $1, Y1, Z0, Z7
		VSHUFI64X2 $0xEE, Z1, Z0, Z0`, "order", order)
}

func (k *byteDot) iq2xxs(to byteFound) {
	k.list(`
		VMOVDQU64 2(R8), Z7
		VMOVDQU64 2(R9), Z1
		VMOVDQA64 Z7, Z{codes}
		VPERMT2D Z1, Z{even}, Z7
		VPERMT2D Z1, Z{odd}, Z{codes}`, "codes", to[2], "even", octetEven, "odd", octetOdd)
	k.upperScales(to)
	k.op("VPMULTISHIFTQB Z%d, Z%d, Z%d", to[2], octetCodes, to[2])
}

func (k *byteDot) iq3xxs(to byteFound) {
	k.split(quadSplit)
	k.both(66, to[2])
	k.upperScales(to)
	k.op(`
		VMOVDQU64 byteCodes<>(SB), Z6
		VPMULTISHIFTQB Z%d, Z6, Z%d`, to[2], to[2])
}

// upperScales computes scales, 2s+1, where s is the upper four bits of each dword of codes.
func (k *byteDot) upperScales(to byteFound) {
	k.op("VPSRLD $27, Z%d, Z%d", to[2], to[3])
	k.op("VPORD.BCST byteOne<>(SB), Z%d, Z%d", to[3], to[3])
}

func (k *byteDot) iq3s(to byteFound) {
	k.split(quadSplit)
	k.both(74, to[2])
	k.list(`
		VPBROADCASTD 106(R8), Z{to}
		VPBROADCASTD 106(R9), K7, Z{to}
		VPROLVD byteScales3S<>(SB), Z{to}, Z{to}`, "to", to[3])
	k.scale(to[3])
}

func (k *byteDot) iq2xs(to byteFound) {
	k.op("VMOVDQU64 byteSplit<>(SB), Z6")
	k.split(6)
	k.op(`
		VPSLLW $7, Z0, Z6
		VPMOVB2M Z6, K4`)
	k.scalesHalves(66, to)
}

func (k *byteDot) iq2s(to byteFound) {
	k.both(2, 7)
	k.both(34, 0)
	k.upperBits(0, 4)
	k.upperBits(1, 5)
	k.scalesHalves(74, to)
}

// scalesHalves computes the scales of 16 values, 2s+1, from the nibbles of eight bytes of two rows.
func (k *byteDot) scalesHalves(at int, to byteFound) {
	k.op(`
		VPBROADCASTQ %d(R8), Z1
		VPBROADCASTQ %d(R9), K7, Z1
		VMOVDQU64 byteScales<>(SB), Z6
		VPMULTISHIFTQB Z1, Z6, Z%d
		VPBROADCASTD byteScaleWord<>(SB), Z6
		VPTERNLOGD.BCST $0xEA, byteOnes<>(SB), Z6, Z%d`, at, at, to[4], to[4]) // bits of Z6, or one
}

// scale replaces dwords by 2s+1, where s is bits 1 to 4. It overwrites Z6.
func (k *byteDot) scale(z int) {
	k.op("VPBROADCASTD byteScale<>(SB), Z6")
	k.op("VPTERNLOGD.BCST $0xEA, byteOne<>(SB), Z6, Z%d", z) // bits of Z6, or one
}

// products writes the scaled sums of products of the p-th of four pairs of rows to a register, and their d to memory.
func (k *byteDot) products(p int) {
	from, sum := byteFounds[p%2], byteSums[p%2]
	for i := range 2 {
		k.op(`
			MOVQ %d(R14), R10
			MOVWLZX (R10)(BX*1), R10
			MOVW R10, %d(R15)`, 16*p+8*i, byteScalesAt+2*p+8*i)
	}
	if k.b.halves() {
		k.op(`
			VPMADDWD Z%d, Z%d, Z%d
			VPSLLD $6, Z%d, Z%d`, gridStart, from[4], sum, sum, sum)
		k.values(from, func(v, z int) {
			k.op("VPMADDUBSW %d(SI), Z%d, Z%d", 64*v, z, z)
			k.op("VPDPWSSD Z%d, Z%d, Z%d", from[4], z, sum)
		})
		return
	}
	k.op("VMOVDQA64 Z%d, Z%d", gridStart, sum)
	k.values(from, func(v, z int) { k.op("VPDPBUSD %d(SI), Z%d, Z%d", 64*v, z, sum) })
	k.op("VPMULLD Z%d, Z%d, Z%d", from[3], sum, sum)
}

// values calls use with a register of values for each plane, in any order. It overwrites registers of levels and signs.
func (k *byteDot) values(from byteFound, use func(plane, z int)) {
	lookup := func(index, t, w, plane int) {
		k.op("VPERMB Z%d, Z%d, Z%d", byteValues+t, index, w)
		use(plane, w)
	}
	switch {
	case k.b.quads:
		for v := 0; v < 8; v += 2 {
			levels := from[[4]int{0, 1, 4, 5}[v/2]]
			k.op("VPSRLW $4, Z%d, Z%d", levels, quadW)
			for i, reg := range []int{levels, quadW} {
				if (v+i)%3 == 0 {
					k.signs((v+i)/3, from[2], quadSigns)
				}
				// levels where byteSelect has bits
				k.op("VPTERNLOGD $0xE4, Z%d, Z%d, Z%d", byteSelect, quadSigns, reg)
			}
			lookup(quadW, (v+1)%3, quadW, v+1)
			lookup(levels, v%3, levels, v)
		}
	case k.b.halves():
		for h := range 2 {
			levels, signs := from[h], from[2+h]
			k.op("VPSRLW $4, Z%d, Z%d", levels, halfW)
			k.op("VPSRLW $2, Z%d, Z%d", signs, halfIndex)
			k.op("VPTERNLOGD $0xD8, Z%d, Z%d, Z%d", byteSelect, halfW, halfIndex)
			k.op("VPTERNLOGD $0xD8, Z%d, Z%d, Z%d", byteSelect, levels, signs)
			for v := range 4 {
				lookup([]int{signs, halfIndex}[v/2], v%2, halfW, 4*h+v)
			}
		}
	default:
		for n := range 4 {
			levels := from[n/2]
			k.signs(n, from[2], octetIndex)
			k.op("VPTERNLOGD $0xD8, Z%d, Z%d, Z%d", byteSelect, levels, octetIndex)
			if n%2 == 0 {
				k.op("VPSRLW $4, Z%d, Z%d", levels, levels)
			}
			for v := range 2 {
				lookup(octetIndex, v, octetW, 2*n+v)
			}
		}
	}
}

// emitBytePlanes writes the kernel that turns codes of x into planes.
//
//	SI codes   DI planes   R8 blocks of 256 left   R9 planes left   DX positions of a plane's values
//	Z0 ... Z3 codes   Z4 positions   Z5, Z6 temporaries   K1 positions of 128 and more
func emitBytePlanes(e *emitter) {
	const planes = byteX / 64
	bytesTable(e, "bytePositions", byteX, func(i int) int { return i%32*8 + i/64 })
	e.function("bytePlanesavx512", "blockTurnArgs", "turns blocks of 256 codes into planes of 64.")
	e.op(`
		MOVQ blockTurnArgs_from(AX), SI
		MOVQ blockTurnArgs_to(AX), DI
		MOVQ blockTurnArgs_lines(AX), R8`)
	e.loop("block", "R8", func() {
		for i := range 4 {
			e.op("VMOVDQU64 %d(SI), Z%d", 64*i, i)
		}
		e.op(`
			LEAQ bytePositions<>(SB), DX
			MOVQ $%d, R9`, planes)
		e.loop("plane", "R9", func() {
			e.op(`
				VMOVDQU64 (DX), Z4
				VPMOVB2M Z4, K1
				VMOVDQA64 Z4, Z5
				VPERMI2B Z1, Z0, Z4
				VPERMI2B Z3, Z2, Z5
				VMOVDQU8 Z5, K1, Z4
				VMOVDQU64 Z4, (DI)
				ADDQ $64, DX
				ADDQ $64, DI`)
		})
		e.op("ADDQ $256, SI")
	})
	e.ret()
}
