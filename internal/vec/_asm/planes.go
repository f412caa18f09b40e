package main

import "fmt"

// Products with e2m1 weights multiply integers. Twice a value of e2m1 is an integer of up to 12. A row of x is
// converted to integers of 16 bits times a power of two. Each integer is divided into two planes, which are numbers of
// eight bits with a sign: of an integer p, bytes 0 and 1 of p + 0x8080, each less 128. The planes of a row are separate
// columns of the tiles, and the sums of a tile are exact.
//
// A step of the tiles is 64 elements: of every 128 elements first the even ones, then the odd ones, as the codes of
// weights are in bytes. Line l of a step holds elements 8l, 8l+2, 8l+4 and 8l+6, or those after them. A step is 16
// lines of 2n words for n rows (the first planes of all rows, then the second), and for sixteen rows two tiles, one of
// each plane. That of a single row, which is multiplied without tiles, is the sixteen words of each plane.
func emitPlanes(e *emitter) {
	e.raw("")
	e.constant("planeSigns", 0x8080)
	e.constant("planeMagnitude", 0x7FFFFFFF)
	e.constant("planeSecond", 0x43800000) // 2^8
	order := make([]byte, 64)
	for i := range order[:32] {
		plane, step, line, element := i/16, i%16/8, i%8/4, i%4
		order[i] = byte(4*(8*line+2*element+step) + plane)
	}
	table(e, "planeOrder", order)
	for half := range 2 {
		laneWords(e, fmt.Sprintf("planeSums%d", half), func(i int) int { return 2*i + half })
	}
	planePeaks(e)
	for _, rows := range []int{16, 8, 4, 1} {
		packPlanes(e, rows)
		foldPlanes(e, rows)
	}
}

// planePeaks writes the kernel that finds the largest magnitude of every row, as the bits of a float32. Those of NaN
// and infinity are larger than all others.
//
//	AX arguments   BX row   SI elements left   R10 rows left   R11, R12 cursors in rows and peaks
func planePeaks(e *emitter) {
	const bits = 31
	whole, rest, done := e.label("whole"), e.label("rest"), e.label("done")
	e.function("planePeaks", "packArgs", "the largest magnitude of every row.")
	e.op(`
		MOVQ packArgs_count(AX), R10
		LEAQ packArgs_rows(AX), R11
		LEAQ packArgs_peaks(AX), R12
		VPBROADCASTD planeMagnitude<>(SB), Z%d`, bits)
	e.loop("row", "R10", func() {
		e.op(`
			MOVQ (R11), BX
			MOVQ packArgs_elements(AX), SI`)
		for i := range 4 {
			e.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
		}
		e.op(`
			SUBQ $64, SI
			JLT %s`, rest)
		e.at(whole)
		for i := range 4 {
			e.op("VPANDD %d(BX), Z%d, Z%d", 64*i, bits, 4+i)
			e.op("VPMAXUD Z%d, Z%d, Z%d", 4+i, i, i)
		}
		e.op(`
			ADDQ $256, BX
			SUBQ $64, SI
			JGE %s`, whole)
		e.at(rest)
		e.op(`
			ADDQ $64, SI
			JZ %s
			MOVQ $-1, R8
			BZHIQ SI, R8, R8`, done)
		for i := range 4 {
			e.op(`
				KMOVW R8, K1
				SHRQ $16, R8
				VMOVDQU32.Z %d(BX), K1, Z4
				VPANDD Z4, Z%d, Z4
				VPMAXUD Z4, Z%d, Z%d`, 64*i, bits, i, i)
		}
		e.at(done)
		for i := range 3 {
			e.op("VPMAXUD Z%d, Z0, Z0", i+1)
		}
		e.op(`
			VEXTRACTI64X4 $1, Z0, Y1
			VPMAXUD Y1, Y0, Y0
			VEXTRACTI128 $1, Y0, X1
			VPMAXUD X1, X0, X0
			VPSHUFD $0x4E, X0, X1
			VPMAXUD X1, X0, X0
			VPSHUFD $0xB1, X0, X1
			VPMAXUD X1, X0, X0
			VMOVD X0, (R12)
			ADDQ $8, R11
			ADDQ $4, R12`)
	})
	e.ret()
}

// packPlanes writes the kernel that packs rows in blocks of 128 elements.
//
//	AX arguments   BX row   SI offset in rows   DI step   R8 blocks left
//	R10 rows left   R11, R12 cursors in rows and scales   R13 place of a row's words
func packPlanes(e *emitter, rows int) {
	const signs, order, scale = 30, 31, 29
	name := "packPlanes" + planeRows[rows]
	e.function(name, "packArgs", fmt.Sprintf("%d rows of float32 to steps of planes.", rows))
	loop, full := e.label("loop"), e.label("full")
	e.op(`
		MOVQ packArgs_columns(AX), DI
		MOVQ packArgs_steps(AX), R8
		MOVQ packArgs_offset(AX), SI`)
	e.at(loop)
	e.op(`
		CMPQ R8, $2
		JNE %s
		VMOVDQU64 packArgs_last(AX), X16
		VMOVDQU64 X16, packArgs_lanes(AX)`, full)
	e.at(full)
	e.op(`
		VPBROADCASTD planeSigns<>(SB), Z%d
		VMOVDQU64 planeOrder<>(SB), Z%d`, signs, order)
	row := func() {
		for i := range 8 {
			loadLanes(e, i, i)
			e.list(`
				VSCALEFPS Z{scale}, Z{i}, Z{i}
				VCVTPS2DQ Z{i}, Z{i}
				VPADDD Z{signs}, Z{i}, Z{i}
				VPXORD Z{signs}, Z{i}, Z{i}
				VPERMB Z{i}, Z{order}, Z{i}`, "scale", scale, "i", i, "signs", signs, "order", order)
		}
		planesOf(e)
	}
	// A row is packed into a register for each plane and step; then tiles of these registers are transposed.
	switch rows {
	case 16:
		e.op(`
			MOVQ packArgs_count(AX), R10
			LEAQ packArgs_rows(AX), R11
			LEAQ packArgs_scales(AX), R12
			MOVQ DI, R13`)
		e.loop("row", "R10", func() {
			e.op(`
				MOVQ (R11), BX
				VBROADCASTSS (R12), Z%d`, scale)
			row()
			for plane := range 2 {
				for step := range 2 {
					e.op("VMOVDQU64 Z%d, %d(R13)", planeReg(plane, step), 1024*(2*step+plane))
				}
			}
			e.op(`
				ADDQ $8, R11
				ADDQ $4, R12
				ADDQ $64, R13`)
		})
		for t := range 4 {
			for r := range 16 {
				e.op("VMOVDQU64 %d(DI), Z%d", 1024*t+64*r, r)
			}
			for c, r := range transpose16(e) {
				e.op("VMOVDQU64 Z%d, %d(DI)", r, 1024*t+64*c)
			}
		}
		e.op("ADDQ $%d, DI", 4*1024)
	case 8, 4:
		for r := range rows {
			e.op(`
				MOVQ packArgs_rows+%d(AX), BX
				VBROADCASTSS packArgs_scales+%d(AX), Z%d`, 8*r, 4*r, scale)
			row()
			for plane := range 2 {
				for step := range 2 {
					e.op("VMOVDQU64 Z%d, packArgs_words+%d(AX)", planeReg(plane, step), 64*(2*rows*step+rows*plane+r))
				}
			}
		}
		line := map[int]string{8: "Z", 4: "Y"}[rows]
		for step := range 2 {
			for i := range 2 * rows {
				e.op("VMOVDQU64 packArgs_words+%d(AX), Z%d", 64*(2*rows*step+i), i)
			}
			for c, r := range transpose16(e) {
				e.op("VMOVDQU64 %s%d, %d(DI)", line, r, 8*rows*(16*step+c))
			}
		}
		e.op("ADDQ $%d, DI", 2*16*8*rows)
	case 1:
		e.op(`
			MOVQ packArgs_rows(AX), BX
			VBROADCASTSS packArgs_scales(AX), Z%d`, scale)
		row()
		for plane := range 2 {
			for step := range 2 {
				e.op("VMOVDQU64 Z%d, %d(DI)", planeReg(plane, step), 128*step+64*plane)
			}
		}
		e.op("ADDQ $%d, DI", 2*128)
	}
	e.op(`
		ADDQ $%d, SI
		SUBQ $2, R8
		JNZ %s`, 4*128, loop)
	e.ret()
}

// loadLanes loads sixteen of 128 elements of the row at BX into a register; elements that do not exist become zero.
func loadLanes(e *emitter, sixteenth, to int) {
	e.op(`
		KMOVW packArgs_lanes+%d(AX), K1
		VMOVUPS.Z %d(BX)(SI*1), K1, Z%d`, 2*sixteenth, 64*sixteenth, to)
}

// planeRows has the part of kernel names for the number of rows of a group.
var planeRows = map[int]string{16: "Sixteen", 8: "Eight", 4: "Four", 1: "One"}

// planeReg returns the register in which planesOf leaves the sixteen words of a plane and a step.
func planeReg(plane, step int) int { return 16 + 2*plane + step }

// planesOf separates the planes of 128 elements in registers 0 to 7. Each of these registers has, in every lane, two
// words of the first step and two of the second.
func planesOf(e *emitter) {
	const upper, lower = 20, 21
	for odd := range 2 { // lanes of registers 0, 2, 4 and 6, or of registers 1, 3, 5 and 7
		e.op("VSHUFI32X4 $0x44, Z%d, Z%d, Z%d", 2+odd, odd, upper)
		e.op("VSHUFI32X4 $0x44, Z%d, Z%d, Z%d", 6+odd, 4+odd, lower)
		e.op("VSHUFI32X4 $0x88, Z%d, Z%d, Z%d", lower, upper, 8+2*odd)
		e.op("VSHUFI32X4 $0xDD, Z%d, Z%d, Z%d", lower, upper, 9+2*odd)
	}
	for plane := range 2 {
		e.op("VPUNPCKLQDQ Z%d, Z%d, Z%d", 10+plane, 8+plane, planeReg(plane, 0))
		e.op("VPUNPCKHQDQ Z%d, Z%d, Z%d", 10+plane, 8+plane, planeReg(plane, 1))
	}
}

// foldPlanes writes the kernel that turns tiles of sums, a line for every row of weights, into rows of y: the sums of
// the first plane and those of the second times 2^8, times a power of two for the row of x and one for the row of
// weights.
//
//	AX arguments   SI sums   DI, R9 rows of y and bytes between them   R8 tiles left   R12 exponents of weights
func foldPlanes(e *emitter, rows int) {
	const second, exponents = 30, 31
	e.function("foldPlanes"+planeRows[rows], "foldArgs", fmt.Sprintf("tiles of sums of planes to %d rows of 16.", rows))
	e.op("MOVQ foldArgs_exponentsW(AX), R12")
	// combine adds the integers of both planes, in registers a and b, and multiplies them by the powers of two in
	// register p. The result is in a.
	combine := func(a, b, p int) {
		e.list(`
			VCVTDQ2PS Z{a}, Z{a}
			VCVTDQ2PS Z{b}, Z{b}
			VFMADD231PS Z{second}, Z{b}, Z{a}
			VSCALEFPS Z{p}, Z{a}, Z{a}`, "a", a, "b", b, "second", second, "p", p)
	}
	fold{}.loop(e, func() {
		var out []int
		switch rows {
		case 16:
			e.op(`
				VPBROADCASTD planeSecond<>(SB), Z%d
				MOVQ foldArgs_exponentsX(AX), R10
				VMOVUPS (R10), Z%d`, second, exponents)
			for r := range 16 {
				for plane, z := range []int{r, 16} {
					e.op("VMOVDQU64 %d(SI), Z%d", 1024*plane+64*r, z)
				}
				e.op("VADDPS.BCST %d(R12), Z%d, Z18", 4*r, exponents)
				combine(r, 16, 18)
			}
			column := transpose16(e)
			out = column[:]
		case 8, 4:
			line := map[int]string{8: "Z", 4: "Y"}[rows]
			for r := range 16 {
				e.op("VMOVDQU64 %d(SI), %s%d", 8*rows*r, line, r)
			}
			column := transpose16(e)
			e.op("VPBROADCASTD planeSecond<>(SB), Z%d", second) // loaded here, because the transpose uses all registers
			e.op(`
				MOVQ foldArgs_exponentsX(AX), R10
				VMOVUPS (R12), Z%d`, exponents)
			for r := range rows {
				e.op("VADDPS.BCST %d(R10), Z%d, Z18", 4*r, exponents)
				combine(column[r], column[rows+r], 18)
				out = append(out, column[r])
			}
		case 1:
			e.op(`
				VPBROADCASTD planeSecond<>(SB), Z%d
				MOVQ foldArgs_exponentsX(AX), R10
				VMOVUPS (R12), Z%d
				VADDPS.BCST (R10), Z%d, Z%d
				VMOVDQU64 (SI), Z4`, second, exponents, exponents, exponents)
			for plane := range 2 {
				e.op(`
					VMOVDQU64 planeSums%d<>(SB), Z%d
					VPERMI2D 64(SI), Z4, Z%d`, plane, plane, plane)
			}
			combine(0, 1, exponents)
			out = []int{0}
		}
		e.op("ADDQ $64, R12")
		storeRows(e, out)
	})
}
