package main

import (
	"fmt"
	"strings"
)

// Formats of 256 values with integer scales that are multiplied straight from their blocks for one row of x. Each
// step's x is in four registers, in the order in which a format's values come out of its bytes. Two rows are computed
// at a time, their instructions in turn: a row alone is a chain of dependent instructions.
//
//	AX arguments   BX bytes to the step   R8, R10 steps of two rows   R13 bytes to prefetch ahead
//	SI codes of x   DI its scales   CX its sums   R12 memory for sums, minimums and scales
//	R14 pointers to rows   R15 a sum, with d   DX grid   R9, R11 temporaries   K1 ... K3 lanes 1 to 3
//	Z0 ... Z5, Z16 ... Z21 temporaries   Z6, Z22 sums of a row   Z7, Z23 its minimums   Z8 results   Z9 zero
//	Z10, Z11 of the trees   Z12, Z13 sums   Z14, Z15 minimums   Z24 ... Z27 of a format   Z28 ... Z31 x
type rowFormat struct {
	name   string
	bytes  int // bytes of a block
	scale  int // byte of d, followed by that of the minimums if there are any; -1 for IQ1_M
	mins   bool
	shift  int    // log2 of the factor that sums are multiplied by
	times  string // factor of d; empty for none
	octets bool   // values are points of a grid of eight bytes
	load   [4]string
	x      func(k *rowDot)         // arranges x and the other data of a step
	row    func(k *rowDot, s *set) // adds the products of a row of weights
}

// set holds the registers for one of two rows: t and the five registers after it are temporaries.
type set struct {
	row, r       string
	t, sum, mins int
	indices      int    // byte of R12 at which indices are stored
	mask, part   string // names of the mask registers for signs
}

var rowSets = [2]*set{{"R8", "R9", 0, 6, 7, 1024, "K4", "K6"}, {"R10", "R11", 16, 22, 23, 1088, "K5", "K7"}}

// names replaces the names of a set's registers: Zt0 is its first temporary, Zsum and Zmins have its sums and minimums,
// and X and Y are their lower parts.
func (s *set) names() *strings.Replacer {
	pairs := []string{"ROW", s.row, "TMP", s.r, "MASK", s.mask, "PART", s.part}
	for _, width := range []string{"X", "Y", "Z"} {
		for i := range 6 {
			pairs = append(pairs, fmt.Sprintf("%st%d", width, i), fmt.Sprint(width, s.t+i))
		}
		pairs = append(pairs, width+"sum", fmt.Sprint(width, s.sum), width+"mins", fmt.Sprint(width, s.mins))
	}
	return strings.NewReplacer(pairs...)
}

// in writes instructions with the register names of a set (see names).
func (k *rowDot) in(s *set, format string, args ...any) {
	k.op("%s", s.names().Replace(fmt.Sprintf(format, args...)))
}

const (
	rowZero, rowConst, rowX = 9, 24, 28
)

type rowDot struct {
	gridDot
	r *rowFormat
}

var rowFormats = []*rowFormat{
	{name: "Q2K", bytes: 84, scale: 80, mins: true, load: rowTables("rowScales2K"), x: (*rowDot).halvesX,
		row: (*rowDot).q2k},
	{name: "Q3K", bytes: 110, scale: 108, shift: 8, load: rowTables("rowScales3K"), x: (*rowDot).halvesX,
		row: (*rowDot).q3k},
	{name: "IQ2S", bytes: 82, scale: 0, times: "rowEighth", octets: true, load: rowTables("rowScales2S"),
		x: (*rowDot).plainX, row: (*rowDot).iq2s},
	{name: "IQ1S", bytes: 50, scale: 0, times: "rowEighth", octets: true, load: rowTables("rowScales1S"),
		x: (*rowDot).plainX, row: (*rowDot).iq1s},
	{name: "IQ1M", bytes: 56, scale: -1, times: "rowEighth", octets: true, load: rowTables("rowScales2S"),
		x: (*rowDot).plainX, row: (*rowDot).iq1m},
	{name: "TQ20", bytes: 66, scale: 64, x: (*rowDot).ternaryX, row: (*rowDot).tq2},
}

func rowTables(name string) (list [4]string) {
	for i := range list {
		list[i] = fmt.Sprintf("%s%d", name, i)
	}
	return list
}

func emitRowDots(e *emitter) {
	rowData(e)
	for _, f := range rowFormats {
		k := &rowDot{gridDot{emitter: e}, f}
		k.write()
	}
}

func rowData(e *emitter) {
	for q := range 4 {
		run := func(i int) int { return i/32*8 + 2*q + i/16%2 } // the run of sixteen values that byte i belongs to
		bytesTable(e, fmt.Sprintf("rowScales2K%d", q), 64, func(i int) int { return run(i) | i%2*0x80 })
		bytesTable(e, fmt.Sprintf("rowScales3K%d", q), 64, func(i int) int { return run(i) | (1-i%2)*0x80 })
		bytesTable(e, fmt.Sprintf("rowScales2S%d", q), 64, func(i int) int { return 4*q + i/16 | i%2*0x80 })
		bytesTable(e, fmt.Sprintf("rowScales1S%d", q), 64, func(i int) int { return 2*(2*q+i/32) + i%2 })
	}
	same := func(name string, word uint32) {
		bytesTable(e, name, 8, func(i int) int { return int(word >> (8 * (i % 4))) })
	}
	same("rowNibble", 0x0F0F0F0F)
	same("rowTwo", 0x03030303)
	same("rowFour", 0x04040404)
	same("rowThirty", 0x30303030)
	same("row32", 0x20202020)
	// Q3_K: the upper nibbles go to the upper half of a lane, and two bits to bits 4 and 5.
	bytesTable(e, "rowHalves", 16, func(i int) int { return []int{0, 4}[i/8] * (1 - min(1, i%8)) })
	bytesTable(e, "rowRotate", 16, func(i int) int { return []int{4, 2, 0, 30}[i/4] * (1 - min(1, i%4)) })
	// Right shifts of words; the shifts are larger in the upper half of a register.
	bytesTable(e, "rowUpper4", 64, func(i int) int { return i / 32 * 4 * (1 - i%2) })
	same("rowEighth", 0x3E000000)
	same("rowOnes", 0x01010101)
	same("rowLowByte", 0x00FF00FF)
	same("rowNibbleScales", 0x1E1E1E1E)
	same("rowUpper2", 0x03000300)
	same("rowUpper3", 0x07000700)
	same("rowScale1S", 0x000E000E)
	same("rowWords", 0x00010001)
	same("rowSeven", 0x00070007)
	same("rowTop", 0xF000F000)
	same("rowBelow", 0x0FFF0FFF)
	same("rowScales1M", 0x0E0E0E0E)
	same("rowDelta", 0x08000800)
	same("rowTwos", 0x02020202)
	bytesTable(e, "rowOctets1M", 64, func(i int) int { return i/4 | (1-i%2)*0x80 })
	bytesTable(e, "rowShifts1M", 8, func(i int) int { return i / 2 % 2 * 4 * (1 - i%2) })
	// Upper bits of indices: those of octet 4g + k are in byte, or word, g.
	bytesTable(e, "rowOctets2S", 64, func(i int) int { return i/8 | (1-i%2)*0x80 })
	bytesTable(e, "rowShifts2S", 8, func(i int) int { return i / 2 * 2 * (1 - i%2) })
	bytesTable(e, "rowOctets1S", 64, func(i int) int { return 2*(i/8) + i%2 })
	bytesTable(e, "rowShifts1S", 8, func(i int) int { return i / 2 * 3 * (1 - i%2) })
	bytesTable(e, "rowTwice2S", 16, func(i int) int { return i / 2 })
	bytesTable(e, "rowTwice1S", 32, func(i int) int { return 2*(i/4) + i%2 })
}

func (k *rowDot) write() {
	f := k.r
	k.function("rowDot"+f.name, "blockArgs", fmt.Sprintf("one row of x by sixteen rows of %s.", f.name))
	k.op(`
		XORQ BX, BX
		MOVQ blockArgs_ahead(AX), R13
		ADDQ blockArgs_rows(AX), R13
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_sums(AX), CX
		MOVQ blockArgs_trees(AX), R12
		MOVQ blockArgs_grid(AX), DX`)
	if f.octets {
		for i := range 3 {
			k.op(`
				MOVL $%d, R9
				KMOVB R9, K%d`, 2<<i, 1+i)
		}
	}
	for i, name := range f.load {
		if name != "" {
			k.op("VMOVDQU64 %s<>(SB), Z%d", name, rowConst+i)
		}
	}
	k.zero(gridResults)
	k.zero(rowZero)
	loop := k.label("loop")
	k.at(loop)
	f.x(k)
	k.op(`
		LEAQ blockArgs_rows(AX), R14
		MOVQ R12, R15
		MOVQ $4, blockArgs_count(AX)`)
	sums, mins := tree{emitter: k.emitter, first: 12}, tree{emitter: k.emitter, first: 14}
	k.loop("rows", "blockArgs_count(AX)", func() {
		for r := 0; r < 4; r += 2 {
			var lists [2][]string
			for i, s := range rowSets {
				lists[i] = k.lines(func() { k.one(r+i, s) })
			}
			k.emit(lists[:]...)
			for i, s := range rowSets {
				k.join(sums, r+i, s.sum)
				if f.mins {
					k.join(mins, r+i, s.mins)
				}
			}
		}
		k.op("VMOVDQA64 Z%d, (R15)", rowSets[1].sum)
		if f.mins {
			k.op("VMOVDQA64 Z%d, 256(R15)", rowSets[1].mins)
		}
		k.op(`
			ADDQ $32, R14
			ADDQ $64, R15`)
	})
	k.fold(sums, 0, 6)
	if f.shift > 0 {
		k.op("VPSRAD $%d, Z6, Z6", f.shift)
	}
	k.op(`
		VCVTDQ2PS Z6, Z6
		VMOVDQU 512(R12), X0`)
	for i := 1; i < 4; i++ {
		k.op("VINSERTI32X4 $%d, %d(R12), Z0, Z0", i, 512+64*i)
	}
	if f.mins {
		k.fold(sums, 256, 7)
		k.op(`
			VCVTDQ2PS Z7, Z7
			VPSRLD $16, Z0, Z1
			VPMOVDW Z1, Y1
			VCVTPH2PS Y1, Z1
			VMULPS Z7, Z1, Z7`)
	}
	k.op(`
		VPMOVDW Z0, Y0
		VCVTPH2PS Y0, Z0`)
	if f.times != "" {
		k.op("VMULPS.BCST %s<>(SB), Z0, Z0", f.times)
	}
	if f.mins {
		k.op("VFMSUB213PS Z7, Z0, Z6")
	} else {
		k.op("VMULPS Z0, Z6, Z6")
	}
	k.op(`
		VFMADD231PS.BCST (DI), Z6, Z%d
		ADDQ $256, SI
		ADDQ $4, DI
		ADDQ $32, CX
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, gridResults, f.bytes, loop)
	k.store()
}

// join adds the r-th of four rows to a tree of two levels.
func (k *rowDot) join(t tree, r, z int) {
	if r < 3 {
		t.add(r, z)
		return
	}
	t.merge(0, z)
	t.merge(1, z)
}

// one computes the products of the r-th of four weight rows.
func (k *rowDot) one(r int, s *set) {
	k.in(s, `
		MOVQ %d(R14), ROW
		ADDQ BX, ROW`, 8*r)
	prefetch(k.gridDot.emitter, s.row, k.r.bytes)
	k.in(s, "ADDQ $%d, R13", k.r.bytes)
	switch {
	case k.r.mins:
		k.in(s, "MOVL %d(ROW), TMP", k.r.scale)
	case k.r.scale < 0: // IQ1_M: d is in the upper bits of four words
		k.in(s, `
			MOVQ 48(ROW), TMP
			PEXTQ rowTop<>(SB), TMP, TMP`)
	default:
		k.in(s, "MOVWLZX %d(ROW), TMP", k.r.scale)
	}
	k.in(s, "MOVL TMP, %d(R15)", 512+4*r)
	k.r.row(k, s)
}

// plainX loads x in order.
func (k *rowDot) plainX() {
	for i := range 4 {
		k.op("VMOVDQU64 %d(SI), Z%d", 64*i, rowX+i)
	}
}

// halvesX loads x in the order of two-bit values: a plane has 32 values of each half of a block.
func (k *rowDot) halvesX() {
	for i := range 4 {
		k.op("VMOVDQU64 %d(SI), Y%d", 32*i, rowX+i)
		k.op("VINSERTI64X4 $1, %d(SI), Z%d, Z%d", 128+32*i, rowX+i, rowX+i)
	}
}

// plane adds the products of plane q, whose codes are in register t+2, scaled by the bytes of register t+1.
func (k *rowDot) plane(q int, s *set) {
	k.in(s, `
		VPSHUFB Z%d, Zt1, Zt3
		VPMADDUBSW Z%d, Zt2, Zt2
		VPDPWSSD Zt3, Zt2, Zsum`, rowConst+q, rowX+q)
}

func (k *rowDot) q2k(s *set) {
	t := s.t
	k.in(s, `
		VMOVDQU64 16(ROW), Zt0
		VBROADCASTI32X4 (ROW), Zt1
		VPANDD.BCST rowNibble<>(SB), Zt1, Zt1
		VPMOVZXBW (ROW), Ymins
		VPSRLW $4, Ymins, Ymins
		VPMADDWD (CX), Ymins, Ymins
		VMOVDQA64 Z%d, Zsum`, rowZero)
	for q := range 4 {
		from := t
		if q > 0 {
			from = t + 2
			k.in(s, "VPSRLW $%d, Zt0, Z%d", 2*q, from)
		}
		k.in(s, "VPANDD.BCST rowTwo<>(SB), Z%d, Zt2", from)
		k.plane(q, s)
	}
}

func (k *rowDot) q3k(s *set) {
	t := s.t
	k.in(s, `
		VPBROADCASTQ 96(ROW), Zt1
		VPBROADCASTD 104(ROW), Zt2
		VBROADCASTI32X4 rowHalves<>(SB), Zt3
		VPSRLVQ Zt3, Zt1, Zt1
		VBROADCASTI32X4 rowRotate<>(SB), Zt3
		VPROLVD Zt3, Zt2, Zt2
		VPANDD.BCST rowNibble<>(SB), Zt1, Zt1
		VPTERNLOGD.BCST $0xF8, rowThirty<>(SB), Zt2, Zt1
		VPBROADCASTD row32<>(SB), Zt3
		VPSUBB Zt3, Zt1, Zt1`)
	// The codes are the values plus four.
	k.in(s, `
		VPMOVSXBW Xt1, Yt3
		VPMADDWD (CX), Yt3, Yt3
		VPSLLD $%d, Yt3, Yt3
		VPSUBD Zt3, Z%d, Zsum
		VMOVDQU64 32(ROW), Zt0
		VBROADCASTI64X4 (ROW), Zt4
		VPSRLVW rowUpper4<>(SB), Zt4, Zt4`, 2+k.r.shift, rowZero)
	for q := range 4 {
		from, high := t, t+4
		if q > 0 {
			from = t + 2
			k.in(s, "VPSRLW $%d, Zt0, Z%d", 2*q, from)
		}
		k.in(s, "VPANDD.BCST rowTwo<>(SB), Z%d, Zt2", from)
		if q != 2 {
			high = t + 5
			k.shifted(t+4, high, 2-q)
		}
		k.in(s, "VPTERNLOGD.BCST $0xF8, rowFour<>(SB), Z%d, Zt2", high)
		k.plane(q, s)
	}
}

// shifted shifts the words of register z to the left, or to the right if left is negative.
func (k *rowDot) shifted(z, to, left int) {
	if left < 0 {
		k.op("VPSRLW $%d, Z%d, Z%d", -left, z, to)
		return
	}
	k.op("VPSLLW $%d, Z%d, Z%d", left, z, to)
}

// points loads 64 values, eight points of the grid, into register t+2; the indices of the points are in memory.
func (k *rowDot) points(q int, s *set) {
	for o := range 8 {
		k.in(s, "MOVWLZX %d(R12), TMP", s.indices+16*q+2*o)
		y := s.t + 2 + o/4
		if o%4 == 0 {
			k.in(s, "VPBROADCASTQ (DX)(TMP*8), Y%d", y)
		} else {
			k.in(s, "VPBROADCASTQ (DX)(TMP*8), K%d, Y%d", o%4, y)
		}
	}
	k.in(s, "VINSERTI64X4 $1, Y%d, Z%d, Z%d", s.t+3, s.t+2, s.t+2)
}

func (k *rowDot) iq2s(s *set) {
	t := s.t
	k.in(s, `
		VPMOVZXBW 2(ROW), Zt0
		VPBROADCASTQ 66(ROW), Zt1
		VPSHUFB rowOctets2S<>(SB), Zt1, Zt1
		VPBROADCASTQ rowShifts2S<>(SB), Zt2
		VPSRLVW Zt2, Zt1, Zt1
		VPTERNLOGD.BCST $0xF8, rowUpper2<>(SB), Zt1, Zt0
		VMOVDQU64 Zt0, %d(R12)`, s.indices)
	// Sixteen scales of four bits, 2s+1.
	k.in(s, "VPBROADCASTQ 74(ROW), Zt1")
	k.shuffle("rowTwice2S", t+1, t+2)
	k.in(s, `
		VPSRLW $3, Zt2, Zt1
		VPADDW Zt2, Zt2, Zt2
		VPBROADCASTD rowLowByte<>(SB), Zt3
		VPTERNLOGD $0xD8, Zt3, Zt2, Zt1`) // t+2 for bits that are set in t+3
	k.in(s, `
		VPANDD.BCST rowNibbleScales<>(SB), Zt1, Zt1
		VPORD.BCST rowOnes<>(SB), Zt1, Zt1
		VMOVDQA64 Z%d, Zsum`, rowZero)
	for q := range 4 {
		k.points(q, s)
		k.in(s, `
			KMOVQ %d(ROW), MASK
			VMOVDQA64 Z%d, Zt3
			VPSUBB Z%d, Z%d, MASK, Zt3
			VPMADDUBSW Zt3, Zt2, Zt2`, 34+8*q, rowX+q, rowX+q, rowZero)
		k.in(s, `
			VPSHUFB Z%d, Zt1, Zt3
			VPDPWSSD Zt3, Zt2, Zsum`, rowConst+q)
	}
}

// iq1s multiplies IQ1_S: eight is added to the points of the grid, and each group of 32 values is raised or lowered by
// one.
func (k *rowDot) iq1s(s *set) {
	k.in(s, `
		VPMOVZXBW 2(ROW), Zt0
		VBROADCASTI32X4 34(ROW), Zt1
		VPSHUFB rowOctets1S<>(SB), Zt1, Zt2
		VPBROADCASTQ rowShifts1S<>(SB), Zt3
		VPSRLVW Zt3, Zt2, Zt2
		VPSLLW $8, Zt2, Zt2
		VPTERNLOGD.BCST $0xF8, rowUpper3<>(SB), Zt2, Zt0
		VMOVDQU64 Zt0, %d(R12)
		VPSRAW $15, Yt1, Yt2
		VPSRLW $11, Zt1, Zt1
		VPANDD.BCST rowScale1S<>(SB), Zt1, Zt1
		VPORD.BCST rowWords<>(SB), Zt1, Zt1
		VPADDW Yt2, Yt2, Yt2
		VPBROADCASTD rowSeven<>(SB), Yt3
		VPSUBW Yt3, Yt2, Yt2
		VPMULLW Yt1, Yt2, Yt2
		VPSHUFB rowTwice1S<>(SB), Yt2, Yt2
		VPMADDWD (CX), Yt2, Ysum`, s.indices)
	for q := range 4 {
		k.points(q, s)
		k.in(s, `
			VPSHUFB Z%d, Zt1, Zt3
			VPMADDUBSW Z%d, Zt2, Zt2
			VPDPWSSD Zt3, Zt2, Zsum`, rowConst+q, rowX+q)
	}
}

// iq1m multiplies IQ1_M: eight is added to the points of the grid, and each group of eight values is raised or lowered
// by one.
func (k *rowDot) iq1m(s *set) {
	k.in(s, `
		VPMOVZXBW (ROW), Zt0
		VBROADCASTI32X4 32(ROW), Zt1
		VPSHUFB rowOctets1M<>(SB), Zt1, Zt1
		VPBROADCASTQ rowShifts1M<>(SB), Zt2
		VPSRLVW Zt2, Zt1, Zt1
		VPTERNLOGD.BCST $0xF8, rowUpper3<>(SB), Zt1, Zt0
		VMOVDQU64 Zt0, %d(R12)
		VPBROADCASTD rowDelta<>(SB), Zt2
		VPTESTNMW Zt2, Zt1, MASK`, s.indices)
	// Sixteen scales of three bits, 2s+1.
	for i := range 2 {
		k.in(s, `
			MOVQ 48(ROW), TMP
			PEXTQ rowBelow<>(SB), TMP, TMP`)
		if i == 1 {
			k.in(s, "SHRQ $24, TMP")
		}
		k.in(s, `
			PDEPQ rowScales1M<>(SB), TMP, TMP
			VPINSRQ $%d, TMP, Xt1, Xt1`, i)
	}
	k.in(s, `
		VPORD.BCST rowOnes<>(SB), Xt1, Xt1
		VSHUFI32X4 $0, Zt1, Zt1, Zt1`)
	// The codes are the values plus nine.
	k.in(s, `
		VPMOVZXBW Xt1, Yt2
		VPMADDWD (CX), Yt2, Yt2
		VPSLLD $3, Yt2, Yt3
		VPADDD Yt3, Yt2, Yt2
		VPSUBD Zt2, Z%d, Zsum`, rowZero)
	for q := range 4 {
		k.points(q, s)
		k.in(s, `
			KSHIFTRD $%d, MASK, PART
			VPADDQ.BCST rowTwos<>(SB), Zt2, PART, Zt2
			VPSHUFB Z%d, Zt1, Zt3
			VPMADDUBSW Z%d, Zt2, Zt2
			VPDPWSSD Zt3, Zt2, Zsum`, 8*q, rowConst+q, rowX+q)
	}
}

// ternaryX loads x like halvesX. The codes are the values plus one, and Z24 holds the negative of what that adds to the
// sums.
func (k *rowDot) ternaryX() {
	k.halvesX()
	k.op(`
		VPBROADCASTD rowOnes<>(SB), Z0
		VPXORD Z1, Z1, Z1`)
	for q := range 4 {
		k.op("VPDPBUSD Z%d, Z0, Z1", rowX+q)
	}
	k.op("VPSUBD Z1, Z%d, Z%d", rowZero, rowConst)
}

func (k *rowDot) tq2(s *set) {
	t := s.t
	k.in(s, `
		VMOVDQU64 (ROW), Zt0
		VMOVDQA64 Z%d, Zsum`, rowConst)
	for q := range 4 {
		from := t
		if q > 0 {
			from = t + 1 + q%2
			k.in(s, "VPSRLW $%d, Zt0, Z%d", 2*q, from)
		}
		k.in(s, "VPANDD.BCST rowTwo<>(SB), Z%d, Z%d", from, t+1+q%2)
		k.in(s, "VPDPBUSD Z%d, Z%d, Zsum", rowX+q, t+1+q%2)
	}
}
