package main

import (
	"cmp"
	"fmt"
)

// laneDot is a kernel that multiplies one row of x by sixteen rows of weights. Lanes are weight rows: the bytes of a
// step, 256 values of each row, are transposed as dwords, and a dword of sixteen rows is multiplied by four values of x
// that all lanes share. So no product has to be added up across lanes. Scales of sixteen rows come out in a register,
// and the integer scales of a block are applied to sums of sixteen rows at a time.
//
//	AX arguments   R8 ... R11 every fourth row   R14, R15 one, three strides of rows   R12 memory for sums and bits
//	R13 bytes to prefetch ahead   DX where to prefetch
//	SI codes of x   DI its scales   CX its sums   K4 ... K6 the first one, two, three bytes of dwords
//	Z0 ... Z16 dwords   Z17 results   Z18, Z19 sums of low and high nibbles   Z20, Z21 d and m or dmin
//	Z22, Z23 low and high nibbles, or low nibbles and the table of values   Z24 ... Z31 of a format
type laneDot struct {
	*emitter
	f     blockFormat
	fill  bool // write the codes and scales to a panel instead of multiplying them, see blockpanel.go
	spare int  // the register that is not used by dwords
	extra int  // the last register of dwords; 16 if it is zero
	done  int  // dwords that have been processed
}

// Formats of blocks of 256 with integer scales.
var (
	q5k   = blockFormat{"Q5K", 256, 176, 0}
	iq4xs = blockFormat{"IQ4XS", 256, 136, 7}
)

var laneFormats = []blockFormat{q40, q41, q50, q51, iq4nl, mxfp4, q4k, q5k, iq4xs}

const (
	laneResult, laneLow, laneHigh     = 17, 18, 19
	laneD, laneM, laneNibble, laneTop = 20, 21, 22, 23
	laneTable                         = laneTop
	laneBits                          = 64 // offset from R12 of bits or values for them
	laneFirst                         = 3  // number of the mask register before the first of K4 to K6
)

func emitLanes(e *emitter) {
	blockData(e)
	words(e, "laneTop", 0xF0F0F0F0)
	words(e, "laneNibble2", 0x0F0F)
	words(e, "laneTop2", 0xF0F0)
	words(e, "laneFifth", 0x10101010)
	words(e, "laneOnes", 0x00010001)
	words(e, "laneEven", 0x00FF00FF)
	words(e, "laneFour", 0x0F)
	words(e, "laneTwo", 0x30)
	words(e, "lane32", 32)
	// Values b and b + 8 of sixteen, and words b and b + 8.
	bytesTable(e, "lanePlanes", 32, func(i int) int { return i%16/2 + i%2*8 })
	bytesTable(e, "laneTurn", 32, func(i int) int { return (i/4 + i/2%2*8) * (1 - i%2) })
	for _, f := range laneFormats {
		(&laneDot{emitter: e, f: f}).write()
		if !f.small() {
			(&laneDot{emitter: e, f: f, fill: true}).write()
		}
	}
	e.fillData()
	for _, f := range []blockFormat{q2k, q3k} {
		(&laneDot{emitter: e, f: f, fill: true}).write()
	}
}

// lookup reports whether nibbles are indices of a table of values.
func (k *laneDot) lookup() bool { return k.f == mxfp4 || k.f == iq4nl || k.f == iq4xs }

// step returns the number of bytes of 256 values.
func (k *laneDot) step() int { return 256 / k.f.values * k.f.bytes }

func (k *laneDot) write() {
	if k.fill {
		k.function("laneFill"+k.f.name, "blockArgs", fmt.Sprintf("sixteen rows of %s to a panel.", k.f.name))
	} else {
		k.function("laneDot"+k.f.name, "blockArgs", fmt.Sprintf("one row of x by sixteen rows of %s.", k.f.name))
	}
	k.op(`
		MOVQ blockArgs_rows(AX), R8
		MOVQ blockArgs_stride(AX), R14
		LEAQ (R14)(R14*2), R15
		LEAQ (R8)(R14*4), R9
		LEAQ (R9)(R14*4), R10
		LEAQ (R10)(R14*4), R11
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_trees(AX), R12
		VPBROADCASTD blockNibble<>(SB), Z%d`, laneNibble)
	if k.fill {
		k.op("MOVQ blockArgs_panel(AX), DI")
	} else {
		k.op(`
			MOVQ blockArgs_x(AX), SI
			MOVQ blockArgs_scales(AX), DI
			MOVQ blockArgs_sums(AX), CX
			MOVQ blockArgs_y(AX), DX
			VMOVUPS (DX), Z%d`, laneResult)
	}
	switch {
	case k.f == mxfp4:
		k.op("VBROADCASTI32X4 blockE2M1Raised<>(SB), Z%d", laneTable)
	case k.lookup():
		k.op("VBROADCASTI32X4 blockIQ4Raised<>(SB), Z%d", laneTable)
	default:
		k.op("VPBROADCASTD laneTop<>(SB), Z%d", laneTop)
	}
	for n := 1; n < 4 && k.lookup() && k.f.small(); n++ {
		k.op(`
			MOVQ $%#x, DX
			KMOVQ DX, K%d`, 0x1111111111111111*uint64(1<<n-1), laneFirst+n)
	}
	if k.f.fifth() || k.f == q5k {
		k.op("VPBROADCASTD laneFifth<>(SB), Z31")
	}
	if k.f == q2k || k.f == q3k {
		k.op("VPBROADCASTD fillTwo<>(SB), Z31")
	}
	if k.f == q2k {
		for i := range 4 {
			k.broadcast(fmt.Sprintf("fillTwice%d", i), 26+i)
		}
	}
	if k.f == q3k {
		k.op("VPBROADCASTD fillFour<>(SB), Z26")
	}
	loop := k.label("loop")
	k.op("PCALIGN $64")
	k.at(loop)
	scales := 4
	switch {
	case k.f.small():
		k.small()
		scales = 32
	case k.f == iq4xs:
		k.nonlinear()
	case k.f == q2k:
		k.fillQ2K()
	case k.f == q3k:
		k.fillQ3K()
	default:
		k.super()
	}
	if k.fill {
		k.ret()
		return
	}
	k.op(`
		ADDQ $256, SI
		ADDQ $%d, DI
		ADDQ $32, CX
		ADDQ $%d, R8
		ADDQ $%d, R9
		ADDQ $%d, R10
		ADDQ $%d, R11
		DECQ blockArgs_steps(AX)
		JNZ %s`, scales, k.step(), k.step(), k.step(), k.step(), loop)
	k.op(`
		MOVQ blockArgs_y(AX), DX
		VMOVUPS Z%d, (DX)`, laneResult)
	k.ret()
}

// dwords calls use with each dword of the step, in order: a register with this dword of sixteen rows, and its index.
func (k *laneDot) dwords(use func(z, c int)) {
	k.done = 0
	end := k.step() &^ 3
	for at := 0; at < end; {
		size := 32
		for size > 16 && at+size > end {
			size /= 2
		}
		from := min(at, end-size)
		for i, z := range k.transposed(from, size) {
			if c := from/4 + i; c >= k.done {
				use(z, c)
				k.done++
			}
		}
		at = from + size
	}
}

// transposed loads size bytes of sixteen rows and returns the registers of their dwords.
func (k *laneDot) transposed(from, size int) []int {
	each := 64 / size // rows of a register
	bases := [4]string{"R8", "R9", "R10", "R11"}
	for r := range 16 {
		to, part := r/(4*each)*4+r%4, r/4%each
		if from == 0 {
			if r%4 == 0 {
				k.op("LEAQ (%s)(R13*1), DX", bases[r/4])
			}
			for at := 0; at < k.step(); at += 64 {
				k.op("PREFETCHT0 %s", spaced("DX", "R14", "R15", "", at, r%4))
			}
		}
		row := spaced(bases[r/4], "R14", "R15", "", from, r%4)
		switch {
		case size == 64:
			k.op("VMOVDQU64 %s, Z%d", row, to)
		case part == 0:
			k.op("VMOVDQU %s, %s%d", row, map[int]string{32: "Y", 16: "X"}[size], to)
		case size == 32:
			k.op("VINSERTI64X4 $%d, %s, Z%d, Z%d", part, row, to, to)
		default:
			k.op("VINSERTI32X4 $%d, %s, Z%d, Z%d", part, row, to, to)
		}
	}
	return k.turned(size)
}

// turned transposes size bytes of sixteen rows, which are in the first registers, and returns the registers of their
// dwords. Each register has the bytes of one row, or of rows four apart, and groups of four rows are adjacent.
func (k *laneDot) turned(size int) []int {
	z := make([]int, size/4)
	for i := range z {
		z[i] = i
	}
	k.spare = cmp.Or(k.extra, 16)
	// Lane l of register 4q+j holds dword 4l+j of four rows.
	for q := 0; q < len(z); q += 4 {
		for i := q; i < q+4; i += 2 {
			k.pair("VPUNPCKLDQ", "VPUNPCKHDQ", &z[i], &z[i+1])
		}
		k.pair("VPUNPCKLQDQ", "VPUNPCKHQDQ", &z[q], &z[q+2])
		k.pair("VPUNPCKLQDQ", "VPUNPCKHQDQ", &z[q+1], &z[q+3])
		z[q+1], z[q+2] = z[q+2], z[q+1]
	}
	list := make([]int, len(z))
	for j := range 4 {
		switch size {
		case 16:
			list[j] = z[j]
		case 32:
			k.pair("VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,", &z[j], &z[4+j])
			list[j], list[4+j] = z[j], z[4+j]
		default:
			for q := 0; q < 16; q += 8 {
				k.pair("VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,", &z[q+j], &z[q+4+j])
			}
			for half := range 2 {
				a, b := &z[4*half+j], &z[8+4*half+j]
				k.pair("VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,", a, b)
				list[4*half+j], list[8+4*half+j] = *a, *b
			}
		}
	}
	return list
}

// pair replaces registers a and b by two combinations of them.
func (k *laneDot) pair(first, second string, a, b *int) {
	k.op("%s Z%d, Z%d, Z%d", first, *b, *a, k.spare)
	k.op("%s Z%d, Z%d, Z%d", second, *b, *a, *a)
	*a, *b, k.spare = k.spare, *a, *b
}

// nibbles adds the products of the first n bytes of the dwords in register z and x, whose values begin at byte x for
// low nibbles and at byte high for high nibbles. The other bytes are zero if cleared is set. Sums of high nibbles are
// sixteen times as large if nibbles are not indices of a table.
func (k *laneDot) nibbles(z, n int, cleared bool, x, high int) {
	const a, b = 24, 25
	if k.lookup() {
		k.op(`
			VPSRLW $4, Z%d, Z%d
			VPANDD Z%d, Z%d, Z%d
			VPANDD Z%d, Z%d, Z%d`, z, b, laneNibble, z, a, laneNibble, b, b)
		for _, t := range []int{a, b} {
			if n < 4 {
				k.op("VPSHUFB.Z Z%d, Z%d, K%d, Z%d", t, laneTable, laneFirst+n, t)
			} else {
				k.op("VPSHUFB Z%d, Z%d, Z%d", t, laneTable, t)
			}
		}
	} else if n < 4 && !cleared {
		k.op(`
			VPANDD.BCST laneNibble%d<>(SB), Z%d, Z%d
			VPANDD.BCST laneTop%d<>(SB), Z%d, Z%d`, n, z, a, n, z, b)
	} else if k.fill {
		k.op(`
			VPSRLW $4, Z%d, Z%d
			VPANDD Z%d, Z%d, Z%d
			VPANDD Z%d, Z%d, Z%d`, z, b, laneNibble, z, a, laneNibble, b, b)
	} else {
		k.op(`
			VPANDD Z%d, Z%d, Z%d
			VPANDD Z%d, Z%d, Z%d`, laneNibble, z, a, laneTop, z, b)
	}
	k.products(a, b, x, high)
}

// products adds the products of unpacked codes and x, or stores the codes.
func (k *laneDot) products(a, b, x, high int) {
	if k.fill {
		k.op(`
			VMOVDQU64 Z%d, %d(DI)
			VMOVDQU64 Z%d, %d(DI)`, a, 16*x, b, 16*high)
		return
	}
	k.op(`
		VPDPBUSD.BCST %d(SI), Z%d, Z%d
		VPDPBUSD.BCST %d(SI), Z%d, Z%d`, x, a, laneLow, high, b, laneHigh)
}

// half widens the float16 numbers in the lower or upper halves of the dwords in register z.
func (k *laneDot) half(z int, upper bool, to int) {
	if upper {
		k.op("VPSRLD $16, Z%d, Z%d", z, to)
		z = to
	}
	k.op(`
		VPMOVDW Z%d, Y%d
		VCVTPH2PS Y%d, Z%d`, z, to, to, to)
}

// small multiplies eight blocks of 32 values.
func (k *laneDot) small() {
	f := k.f
	k.op("VMOVDQU (CX), Y0")
	if f.m() {
		k.op(`
			VCVTDQ2PS Y0, Y0
			VMOVUPS Y0, 32(R12)`)
	}
	if f.offset > 0 { // the offset that was added to the values
		k.op(`
			VPSLLD $%d, Y0, Y0
			VPXOR Y1, Y1, Y1
			VPSUBD Y0, Y1, Y0
			VMOVDQU Y0, (R12)`, f.offset)
	}
	if f.fifth() {
		k.op(`
			VMOVDQU lanePlanes<>(SB), Y0
			VMOVDQU laneTurn<>(SB), Y1`)
		for b := range 8 {
			k.op(`
				VMOVDQU %d(SI), Y2
				VPSHUFB Y0, Y2, Y2
				VPERMW Y2, Y1, Y2
				VMOVDQU Y2, %d(R12)`, 32*b, laneBits+32*b)
		}
	}
	k.dwords(func(z, c int) {
		for at := 4 * c; at < 4*c+4; {
			b, i, pos := at/f.bytes, at%f.bytes, at%4
			first := f.bytes - 16 // first byte with nibbles
			if i < first {
				at += k.head(z, b, i, pos, first)
				continue
			}
			n := min(4-pos, f.bytes-i)
			from := z
			if pos > 0 {
				from = 26
				k.op("VPSRLD $%d, Z%d, Z%d", 8*pos, z, from)
			}
			x := 32*b + i - first
			k.nibbles(from, n, pos > 0, x, x+16)
			if at += n; i+n == f.bytes {
				k.finish(b)
			}
		}
	})
}

// head processes the bytes of a dword in register z that precede the nibbles of block b, from byte i of the block and
// byte pos of the dword on. It returns the number of bytes.
func (k *laneDot) head(z, b, i, pos, first int) int {
	f := k.f
	if i == 0 {
		if f == mxfp4 {
			from := z
			if pos > 0 {
				k.op("VPSRLD $%d, Z%d, Z%d", 8*pos, z, laneD)
				from = laneD
			}
			k.op("VPANDD.BCST blockByte<>(SB), Z%d, Z%d", from, laneD)
			widenScales(k.emitter, f, laneD, laneM)
		} else {
			k.half(z, pos > 0, laneD)
		}
		if f.m() {
			k.half(z, true, laneM)
		}
		k.zero(laneHigh)
		if f.offset > 0 {
			k.op("VPBROADCASTD %d(R12), Z%d", 4*b, laneLow)
		} else {
			k.zero(laneLow)
		}
		if !f.fifth() {
			return min(4-pos, first)
		}
		if pos == 0 && !f.m() { // the first half of the fifth bits
			k.op("VPSRLD $16, Z%d, Z30", z)
		}
		return 4 - pos
	}
	// The fifth bits of values b, b + 8, b + 16 and b + 24.
	n, from := 4, z
	if pos == 0 && i == 4 && !f.m() {
		k.op(`
			VPSLLD $16, Z%d, Z24
			VPORD Z24, Z30, Z30`, z)
		n, from = 2, 30
	}
	k.zero(29)
	for bit := range 8 {
		shifted := 24 + bit%2
		switch {
		case bit < 4:
			k.op("VPSLLD $%d, Z%d, Z%d", 4-bit, from, shifted)
		case bit > 4:
			k.op("VPSRLD $%d, Z%d, Z%d", bit-4, from, shifted)
		}
		if bit == 4 {
			k.op("VPANDD Z31, Z%d, Z%d", from, shifted)
		} else {
			k.op("VPANDD Z31, Z%d, Z%d", shifted, shifted)
		}
		k.op("VPDPBUSD.BCST %d(R12), Z%d, Z29", laneBits+32*b+4*bit, shifted)
	}
	return n
}

// finish adds the scaled sums of a block of 32 to the results.
func (k *laneDot) finish(b int) {
	if !k.lookup() {
		k.op("VPSRAD $4, Z%d, Z%d", laneHigh, laneHigh)
	}
	k.op("VPADDD Z%d, Z%d, Z%d", laneHigh, laneLow, laneLow)
	if k.f.fifth() {
		k.op("VPADDD Z29, Z%d, Z%d", laneLow, laneLow)
	}
	k.op(`
		VCVTDQ2PS Z%d, Z%d
		VMULPS.BCST %d(DI), Z%d, Z24`, laneLow, laneLow, 4*b, laneD)
	k.op("VFMADD231PS Z24, Z%d, Z%d", laneLow, laneResult)
	if k.f.m() {
		k.op(`
			VMULPS.BCST %d(DI), Z%d, Z24
			VFMADD231PS.BCST %d(R12), Z24, Z%d`, 4*b, laneM, 32+4*b, laneResult)
	}
}

// times adds the sum in register z, multiplied by byte i of the dwords in register scales, to register to.
func (k *laneDot) times(z, scales, i, to int) {
	const t = 25
	from := scales
	if i > 0 {
		k.op("VPSRLD $%d, Z%d, Z%d", 8*i, scales, t)
		from = t
	}
	if i < 3 {
		k.op("VPANDD.BCST blockByte<>(SB), Z%d, Z%d", from, t)
	}
	k.op(`
		VPMULLD Z%d, Z%d, Z%d
		VPADDD Z%d, Z%d, Z%d`, t, z, z, z, to, to)
}

// super multiplies a block of 256 values of Q4_K or Q5_K.
func (k *laneDot) super() {
	const scales, least, sum, more = 26, 28, 29, 30
	if !k.fill {
		// Pairs of sums of 32 values, 0 and 2, 1 and 3, 4 and 6, 5 and 7.
		k.op(`
			VPBROADCASTD laneOnes<>(SB), Y0
			VPMADDWD (CX), Y0, Y0
			VPSHUFD $0xEE, Y0, Y1
			VPSLLD $16, Y1, Y1
			VPBLENDW $0xAA, Y1, Y0, Y0
			VMOVDQU Y0, (R12)`)
		k.zero(sum)
		k.zero(more)
	}
	start := 4
	if k.f == q5k {
		start = 12
	}
	k.dwords(func(z, c int) {
		switch {
		case c == 0:
			k.half(z, false, laneD)
			k.half(z, true, laneM)
			if k.fill {
				k.op(`
					VMOVUPS Z%d, %d(DI)
					VMOVUPS Z%d, %d(DI)`, laneD, panelD, laneM, panelMin)
			}
			return
		case c < 3: // scales, then minimums: six bits of the first four, two bits of the others
			k.op("VMOVDQA64 Z%d, Z%d", z, 25+c)
			return
		case c == 3: // four bits of the other scales and minimums
			k.superScales(z)
			return
		case c < start:
			k.op("VMOVDQU64 Z%d, %d(R12)", z, laneBits+64*c)
			return
		}
		i, g := (c-start)%8, (c-start)/8
		if i == 0 && !k.fill {
			k.zero(laneLow)
			k.zero(laneHigh)
		}
		x := 64*g + 4*i
		if k.f == q4k {
			k.nibbles(z, 4, true, x, x+32)
		} else {
			k.fifths(z, i, g, x)
		}
		if i < 7 || k.fill {
			return
		}
		if g == 2 {
			k.op("VMOVDQU64 %d(R12), Z%d", laneBits, scales)
		}
		k.times(laneLow, scales, g%2*2, sum)
		if k.f == q4k {
			k.times(laneHigh, scales, g%2*2+1, more)
		} else {
			k.times(laneHigh, scales, g%2*2+1, sum)
		}
	})
	if k.fill {
		return
	}
	if k.f == q4k {
		k.op(`
			VPSRAD $4, Z%d, Z%d
			VPADDD Z%d, Z%d, Z%d`, more, more, more, sum, sum)
	}
	k.op(`
		VCVTDQ2PS Z%d, Z%d
		VCVTDQ2PS Z%d, Z%d
		VMULPS Z%d, Z%d, Z%d`, sum, sum, least, least, least, laneM, least)
	k.op(`
		VFMSUB213PS Z%d, Z%d, Z%d
		VFMADD231PS.BCST (DI), Z%d, Z%d`, least, laneD, sum, sum, laneResult)
}

// superScales takes the scales and minimums of a block apart. Z26 and Z27 hold the dwords with the first four of each,
// and register z those with bits of the others. The first four scales stay in Z26, the others go to memory; Z28 becomes
// the sum of the products of minimums and sums of x.
func (k *laneDot) superScales(z int) {
	k.op(`
		VPSRLD $2, Z26, Z24
		VPANDD Z%d, Z%d, Z25
		VPTERNLOGD.BCST $0xF8, blockUpper<>(SB), Z24, Z25
		VMOVDQU64 Z25, %d(R12)
		VPANDD.BCST blockSix<>(SB), Z26, Z26`, laneNibble, z, laneBits)
	k.op(`
		VPSRLD $4, Z%d, Z24
		VPANDD Z%d, Z24, Z24
		VPSRLD $2, Z27, Z25
		VPTERNLOGD.BCST $0xF8, blockUpper<>(SB), Z25, Z24
		VPANDD.BCST blockSix<>(SB), Z27, Z27
		VPXORD Z28, Z28, Z28`, z, laneNibble)
	if k.fill {
		k.op("VMOVDQU64 %d(R12), Z25", laneBits)
		for j := range 8 {
			k.storeScale([]int{26, 25}[j/4], j%4, j, false)
			k.storeScale([]int{27, 24}[j/4], j%4, j, true)
		}
		return
	}
	for half, from := range []int{27, 24} {
		for odd := range 2 {
			if odd == 1 {
				k.op("VPSRLD $8, Z%d, Z%d", from, from)
			}
			k.op(`
				VPANDD.BCST laneEven<>(SB), Z%d, Z25
				VPDPWSSD.BCST %d(R12), Z25, Z28`, from, 16*half+4*odd)
		}
	}
}

// storeScale stores byte i of the dwords in register z in a panel: as scale j, or as minimum j in both words.
func (k *laneDot) storeScale(z, i, j int, least bool) {
	const t, u = 29, 30
	from := z
	if i > 0 {
		k.op("VPSRLD $%d, Z%d, Z%d", 8*i, z, t)
		from = t
	}
	k.op("VPANDD.BCST blockByte<>(SB), Z%d, Z%d", from, t)
	if !least {
		k.op("VMOVDQU64 Z%d, %d(DI)", t, panelScales+128*j)
		return
	}
	k.op(`
		VPSLLD $16, Z%d, Z%d
		VPORD Z%d, Z%d, Z%d
		VMOVDQU64 Z%d, %d(DI)`, t, u, u, t, t, t, panelPairs+64*j)
}

// fifths is nibbles for dword i of group g of Q5_K, whose fifth bits are bits 2g and 2g+1 of dword i of the bits.
func (k *laneDot) fifths(z, i, g, x int) {
	const a, b, bits = 24, 25, 30
	k.op(`
		VPSRLW $4, Z%d, Z%d
		VPANDD Z%d, Z%d, Z%d
		VPANDD Z%d, Z%d, Z%d`, z, b, laneNibble, z, a, laneNibble, b, b)
	for half, to := range []int{a, b} {
		at, bit := fmt.Sprintf("%d(R12)", laneBits+64*(4+i)), 2*g+half
		loadShifted(k.emitter, 'D', at, bit, 4, bits)
		k.op("VPTERNLOGD $0xF8, Z31, Z%d, Z%d", bits, to)
	}
	k.products(a, b, x, x+32)
}

// nonlinear multiplies a block of 256 values of IQ4_XS.
func (k *laneDot) nonlinear() {
	const upper, lower, sum = 26, 27, 29
	if !k.fill {
		k.op(`
			VPBROADCASTD laneOnes<>(SB), Y0
			VPMADDWD (CX), Y0, Y0
			VPSLLD $%d, Y0, Y0
			VPXOR Y1, Y1, Y1
			VPSUBD Y0, Y1, Y0
			VMOVDQU Y0, (R12)`, k.f.offset)
		k.zero(sum)
	}
	k.dwords(func(z, c int) {
		switch c {
		case 0:
			k.half(z, false, laneD)
			if k.fill {
				k.op("VMOVUPS Z%d, %d(DI)", laneD, panelD)
			}
			k.op("VMOVDQA64 Z%d, Z%d", z, upper)
			return
		case 1:
			k.op("VMOVDQA64 Z%d, Z%d", z, lower)
			return
		}
		i, b := (c-2)%4, (c-2)/4
		if i == 0 && !k.fill {
			k.op("VPBROADCASTD %d(R12), Z%d", 4*b, laneLow)
			k.zero(laneHigh)
		}
		x := 32*b + 4*i
		k.nibbles(z, 4, true, x, x+16)
		if i < 3 {
			return
		}
		// Scale b has four bits in the lower part and two in the upper part; it is stored plus 32.
		k.op(`
			VPSRLD $%d, Z%d, Z24
			VPANDD.BCST laneFour<>(SB), Z24, Z24
			VPSRLD $%d, Z%d, Z25
			VPTERNLOGD.BCST $0xF8, laneTwo<>(SB), Z25, Z24
			VPSUBD.BCST lane32<>(SB), Z24, Z24`, 4*b, lower, 12+2*b, upper)
		if k.fill {
			k.op(`
				VMOVDQU64 Z24, %d(DI)
				VPSLLD $16, Z24, Z24
				VPSRLD $16, Z24, Z25
				VPORD Z24, Z25, Z24
				VMOVDQU64 Z24, %d(DI)`, panelScales+128*b, panelPairs+64*b)
			return
		}
		k.op(`
			VPADDD Z%d, Z%d, Z%d
			VPMULLD Z24, Z%d, Z24
			VPADDD Z24, Z%d, Z%d`, laneHigh, laneLow, laneLow, laneLow, sum, sum)
	})
	if k.fill {
		return
	}
	k.op(`
		VCVTDQ2PS Z%d, Z%d
		VMULPS Z%d, Z%d, Z%d
		VFMADD231PS.BCST (DI), Z%d, Z%d`, sum, sum, laneD, sum, sum, sum, laneResult)
}

// loadShifted loads the words (W) or dwords (D) at an address to register z, shifted so that bit from becomes bit to.
func loadShifted(e *emitter, unit byte, at string, from, to, z int) {
	switch {
	case from < to:
		e.op("VPSLL%c $%d, %s, Z%d", unit, to-from, at, z)
	case from > to:
		e.op("VPSRL%c $%d, %s, Z%d", unit, from-to, at, z)
	default:
		e.op("VMOVDQU64 %s, Z%d", at, z)
	}
}
