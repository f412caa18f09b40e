package main

import (
	"fmt"
	"slices"
)

// Several rows of x by formats that are unpacked: plain blocks of sixteen rows become a panel whose lanes are the rows,
// so that no product has to be added up across lanes. Parts of a panel:
//
//	codes [64 dwords, 16 rows] of four uint8   scales [16 runs, 16] int32
//	pairs [8, 16] of two int16: scales of codes that are raised, or minimums   d [16], dmin [16] float32
//
// A row of x is a record for each block: codes [256] int8, sums of sixteen codes [16] int16, scale.
//
// Blocks of 32 become panels of pairs: codes [16 dwords, 16 rows], d [2, 16] and m [2, 16] float32. A record of x is
// four pairs: codes [256] int8; of 32 codes each [8] float32 sums, or, for codes that are raised, int32 products of
// sums and the negative of what codes are raised by; scales [8] float32.
const (
	panelScales, panelPairs, panelD, panelMin = 4096, 5120, 5632, 5696

	recordSums, recordScale, recordBytes = 256, 288, 320
)

func emitPanelDots(e *emitter) {
	blockData(e)
	for _, f := range slices.Concat(blockFormats, nibbleFormats) {
		if f.small() {
			emitPairPanel(e, f)
		}
	}
	for _, m := range []bool{false, true} {
		for _, rows := range []int{8, 4} {
			emitPairDot(e, m, rows)
		}
	}
	emitPlainPanel(e)
	emitRecords(e, "recordsavx512", false, func(i int) int { return i }, planeOctets, planeQuads)
	for _, runs := range []int{16, 8, 1} {
		for _, mins := range []bool{false, true} {
			for _, rows := range []int{8, 4} {
				if runs < 16 || !mins { // else unused: codes of Q2_K are multiplied by their scales
					emitPanelDot(e, runs, mins, false, rows)
				}
			}
		}
	}
	for _, rows := range []int{8, 4} {
		emitPanelDot(e, 8, false, true, rows)
	}
}

// emitPlainPanel writes the kernel that makes a panel of plain blocks.
//
//	AX arguments   SI plain blocks   DX bytes between them   DI panel   R8 a block   R9 a temporary
func emitPlainPanel(e *emitter) {
	e.function("plainPanelavx512", "plainPanelArgs", "sixteen plain blocks to a panel.")
	e.op(`
		MOVQ plainPanelArgs_plain(AX), SI
		MOVQ plainPanelArgs_pitch(AX), DX
		MOVQ plainPanelArgs_panel(AX), DI
		MOVQ SI, R8`)
	for r := range 16 {
		e.op(`
			MOVL %d(R8), R9
			MOVL R9, %d(DI)
			ADDQ DX, R8`, plainD, panelD+4*r)
	}
	columns := func(at int) [16]int {
		e.op("MOVQ SI, R8")
		for r := range 16 {
			e.op(`
				VMOVDQU64 %d(R8), Z%d
				ADDQ DX, R8`, at, r)
		}
		return transpose16(e)
	}
	column := columns(plainScales)
	for i := range 8 {
		e.op(`
			VPSLLD $16, Z%d, Z16
			VPSRAD $16, Z16, Z16
			VPSRAD $16, Z%d, Z17
			VMOVDQU64 Z16, %d(DI)
			VMOVDQU64 Z17, %d(DI)`, column[i], column[i], panelScales+128*i, panelScales+128*i+64)
		e.op("VMOVDQU64 Z%d, %d(DI)", column[i], panelPairs+64*i)
	}
	// In planes, a register has every fourth dword; otherwise codes are in order.
	planes, done := e.label("planes"), e.label("done")
	codes := func(apart, next int) {
		e.op("MOVQ $4, CX")
		e.loop("codes", "CX", func() {
			column := columns(0)
			for c, z := range column {
				e.op("VMOVDQU64 Z%d, %d(DI)", z, apart*c)
			}
			e.op(`
				ADDQ $64, SI
				ADDQ $%d, DI`, next)
		})
	}
	e.op(`
		CMPQ plainPanelArgs_planes(AX), $0
		JNE %s`, planes)
	codes(64, 1024)
	e.op("JMP %s", done)
	e.at(planes)
	codes(256, 64)
	e.at(done)
	e.ret()
}

// emitRecords writes the kernel that makes the records of a row of x. orders are the orders of sixteen codes, or, if
// vbmi is set, of 64 codes, for processors with AVX-512 VBMI.
//
//	AX arguments   SI codes   DX sums   R8 scales   DI records   R9 bytes between them   CX blocks left
//	R10, R11 temporaries
func emitRecords(e *emitter, name string, vbmi bool, orders ...func(i int) int) {
	step, load, raise := 16, "VBROADCASTI32X4", "VPSLLD X7, Y4, Y4\nVPSUBD Y4, Y6, Y4"
	if vbmi { // sums become int32 products of the sums of 32 codes
		step, load, raise = 64, "VMOVDQU64", "VPMADDWD fillMinus64<>(SB), Y4, Y4"
	}
	bytesTable(e, "recordOrders", step*len(orders), func(i int) int { return orders[i/step](i % step) })
	e.function(name, "recordArgs", "the records of a row of x.")
	e.op(`
		MOVQ recordArgs_codes(AX), SI
		MOVQ recordArgs_sums(AX), DX
		MOVQ recordArgs_scales(AX), R8
		MOVQ recordArgs_to(AX), DI
		MOVQ recordArgs_stride(AX), R9
		MOVQ recordArgs_blocks(AX), CX
		MOVQ recordArgs_order(AX), R10
		LEAQ recordOrders<>(SB), R11
		%s (R11)(R10*1), Z5
		VPXOR Y6, Y6, Y6
		VMOVQ recordArgs_raised(AX), X7`, load)
	e.loop("record", "CX", func() {
		same, whole := e.label("same"), e.label("whole")
		for i := range 4 {
			e.op("VMOVDQU64 %d(SI), Z%d", 64*i, i)
			if vbmi {
				e.op("VPERMB Z%d, Z5, Z%d", i, i)
			} else {
				e.op("VPSHUFB Z5, Z%d, Z%d", i, i)
			}
			e.op("VMOVDQU64 Z%d, %d(DI)", i, 64*i)
		}
		e.op(`
			VMOVDQU (DX), Y4
			CMPQ recordArgs_raised(AX), $0
			JE %s
			%s`, same, raise)
		e.at(same)
		e.op(`
			CMPQ recordArgs_floats(AX), $0
			JE %s
			VCVTDQ2PS Y4, Y4`, whole)
		e.at(whole)
		e.op(`
			VMOVDQU Y4, %d(DI)
			VMOVDQU (R8), Y4`, recordSums) // a block of 256 has only one
		e.op(`
			VMOVDQU Y4, %d(DI)
			ADDQ $256, SI
			ADDQ $32, DX
			ADDQ recordArgs_scale(AX), R8
			ADDQ R9, DI`, recordScale)
	})
	e.ret()
}

// emitPanelDot writes the kernel that multiplies rows of x by a panel with the given number of scales of a row. If
// started is true, sums of runs start at what records have instead of sums, and pairs are not used.
//
//	AX arguments   R8 panel   SI records   DI results   R9 codes of the panel   R10 those of x   R11 scales
//	CX runs left
//	Z0 ... sums   Z8 ..., Z21 ... sums of two runs, or of pairs   Z16 ... Z19 panel   Z20 ... Z22, Z29 scales
//	X31 by how much to shift   DX initial sums
func emitPanelDot(e *emitter, runs int, mins, started bool, rows int) {
	name := fmt.Sprintf("panelDot%dx%d", rows, runs)
	switch {
	case mins:
		name += "Mins"
	case started:
		name += "Started"
	}
	e.function(name, "panelDotArgs", fmt.Sprintf("%d rows of x by a panel with %d scales.", rows, runs))
	e.op(`
		MOVQ panelDotArgs_panel(AX), R8
		MOVQ panelDotArgs_x(AX), SI
		MOVQ panelDotArgs_y(AX), DI
		VMOVQ panelDotArgs_shift(AX), X31
		VPXORD Z30, Z30, Z30`)
	e.loop("rows", "panelDotArgs_count(AX)", func() {
		e.op(`
			MOVQ R8, R9
			MOVQ SI, R10
			LEAQ %d(R8), R11`, panelScales)
		if started {
			e.op("LEAQ %d(SI), DX", recordSums)
		}
		for r := range rows {
			e.op("VMOVDQA64 Z30, Z%d", r)
		}
		// Two runs at a time are more independent sums than the latency of a product.
		times, together := runs/2, 2
		sums := [2]int{8, 21}
		if runs == 1 {
			times, together, sums[0] = 8, 1, 0
		}
		dwords := 64 / times / together
		e.op("MOVQ $%d, CX", times)
		e.loop("run", "CX", func() {
			for r := range rows {
				for t := range together {
					switch {
					case started:
						e.op("VPBROADCASTD %d(DX), Z%d", recordBytes*r+4*t, sums[t]+r)
					case runs > 1:
						e.op("VMOVDQA64 Z30, Z%d", sums[t]+r)
					}
				}
			}
			for d := range dwords {
				for t := range together {
					z := 16 + (d*together+t)%4
					e.op("VMOVDQU64 %d(R9), Z%d", 64*(dwords*t+d), z)
					for r := range rows {
						e.op("VPDPBUSD.BCST %d(R10), Z%d, Z%d", recordBytes*r+4*(dwords*t+d), z, sums[t]+r)
					}
				}
			}
			if runs > 1 {
				for t, scale := range [2]int{20, 29} {
					e.op("VMOVDQU64 %d(R11), Z%d", 1024/runs*t, scale)
					for r := range rows {
						e.op("VPMULLD Z%d, Z%d, Z%d", scale, sums[t]+r, sums[t]+r)
					}
					for r := range rows {
						e.op("VPADDD Z%d, Z%d, Z%d", sums[t]+r, r, r)
					}
				}
				e.op("ADDQ $%d, R11", 2048/runs)
			}
			if started {
				e.op("ADDQ $%d, DX", 4*together)
			}
			e.op(`
				ADDQ $%d, R9
				ADDQ $%d, R10`, 64*dwords*together, 4*dwords*together)
		})
		if !started {
			for r := range rows {
				e.op("VMOVDQA64 Z30, Z%d", 8+r)
			}
			for i := range 8 {
				e.op("VMOVDQU64 %d(R8), Z%d", panelPairs+64*i, 16+i%4)
				for r := range rows {
					e.op("VPDPWSSD.BCST %d(SI), Z%d, Z%d", recordBytes*r+recordSums+4*i, 16+i%4, 8+r)
				}
			}
		}
		e.op("VMOVUPS %d(R8), Z20", panelD)
		if mins {
			e.op("VMOVUPS %d(R8), Z21", panelMin)
		}
		for r := range rows {
			if mins {
				e.op("VCVTDQ2PS Z%d, Z%d", r, r)
				e.op("VCVTDQ2PS Z%d, Z%d", 8+r, 8+r)
				e.op("VMULPS Z%d, Z21, Z%d", 8+r, 8+r)
				e.op("VFMSUB213PS Z%d, Z20, Z%d", 8+r, r)
			} else {
				if !started {
					e.op("VPSLLD X31, Z%d, Z%d", 8+r, 8+r)
					e.op("VPSUBD Z%d, Z%d, Z%d", 8+r, r, r)
				}
				e.list(`
					VCVTDQ2PS Z{r}, Z{r}
					VMULPS Z20, Z{r}, Z{r}`, "r", r)
			}
			e.op(`
				VMOVUPS %d(DI), Z22
				VFMADD231PS.BCST %d(SI), Z%d, Z22
				VMOVUPS Z22, %d(DI)`, 64*r, recordBytes*r+recordScale, r, 64*r)
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $%d, DI`, recordBytes*rows, 64*rows)
	})
	e.ret()
}

// Bytes in a panel of a pair of blocks.
const pairD, pairM, pairBytes = 1024, 1152, 1280

// emitPairPanel writes the kernel that makes panels of pairs of blocks of 32.
//
//	DI panel   R12 memory for scales; see blocks.go
func emitPairPanel(e *emitter, f blockFormat) {
	e.function("pairPanel"+f.name, "blockArgs", fmt.Sprintf("pairs of blocks of %s to panels.", f.name))
	blockStart(e)
	e.op(`
		MOVQ blockArgs_panel(AX), DI
		MOVQ blockArgs_trees(AX), R12`)
	nibbles := f != q80 && !f.fifth() // transposed before they are unpacked
	loop, more := e.label("loop"), e.label("more")
	e.at(loop)
	e.op(`
		CMPQ blockArgs_steps(AX), $1
		JNE %s
		MOVQ blockArgs_last(AX), DX`, more)
	e.at(more)
	blockConstants(e, f, true)
	for r := range 16 {
		blockRow(e, f, r)
		e.op(`
			MOVL (R8), R9
			MOVL (R8)(DX*1), R10
			MOVL R9, %d(R12)
			MOVL R10, %d(R12)`, pairScales+4*r, pairScales+64+4*r)
		if !nibbles {
			unpackPair(e, f, r, true)
			continue
		}
		to, part, head := r/8*4+r%4, r/4%2*2, f.bytes-16
		if part == 0 {
			e.op("VMOVDQU %d(R8), X%d", head, to)
		} else {
			e.op("VINSERTI32X4 $%d, %d(R8), Z%d, Z%d", part, head, to, to)
		}
		e.op("VINSERTI32X4 $%d, %d(R8)(DX*1), Z%d, Z%d", part+1, head, to, to)
	}
	if nibbles { // a dword has low nibbles of four values, and high nibbles of values that are sixteen later
		for c, z := range (&laneDot{emitter: e, f: f}).turned(32) {
			e.op(`
				VPSRLW $4, Z%d, Z17
				VPANDD Z%d, Z%d, Z%d
				VPANDD Z%d, Z17, Z17`, z, bkNibble, z, z, bkNibble)
			for i, code := range []int{z, 17} {
				if f == mxfp4 || f == iq4nl {
					e.op("VPSHUFB Z%d, Z%d, Z%d", code, bkTable, code)
				}
				e.op("VMOVDQU64 Z%d, %d(DI)", code, 64*(c/4*8+4*i+c%4))
			}
		}
	} else {
		for c, z := range transpose16(e) {
			e.op("VMOVDQU64 Z%d, %d(DI)", z, 64*c)
		}
	}
	for b := range 2 {
		e.op("VMOVDQU64 %d(R12), Z0", pairScales+64*b)
		widenScales(e, f, 0, 2)
		e.op("VMOVUPS Z0, %d(DI)", pairD+64*b)
		if f.m() {
			e.op("VMOVUPS Z2, %d(DI)", pairM+64*b)
		}
	}
	e.op(`
		ADDQ $%d, DI
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, pairBytes, f.stepBytes(), loop)
	e.ret()
}

// emitPairDot writes the kernel that multiplies rows of x by panels of pairs.
//
//	AX arguments   R8 panels   SI records   DI results   R9 a panel   R10 codes of x
//	R11 its sums and scales   CX pairs left
//	Z0 ... results   Z8 ... sums   Z16 ... Z19 panel   Z20, Z21 d and m   Z22, Z23 temporaries
//	X31 by how much to shift
func emitPairDot(e *emitter, m bool, rows int) {
	name := fmt.Sprintf("pairDot%d", rows)
	if m {
		name += "M"
	}
	e.function(name, "panelDotArgs", fmt.Sprintf("%d rows of x by panels of pairs.", rows))
	e.op(`
		MOVQ panelDotArgs_panel(AX), R8
		MOVQ panelDotArgs_x(AX), SI
		MOVQ panelDotArgs_y(AX), DI
		VMOVQ panelDotArgs_shift(AX), X31
		VPXORD Z30, Z30, Z30`)
	e.loop("rows", "panelDotArgs_count(AX)", func() {
		e.op(`
			MOVQ R8, R9
			MOVQ SI, R10
			MOVQ SI, R11
			MOVQ panelDotArgs_pairs(AX), CX`)
		for r := range rows {
			e.op("VMOVUPS %d(DI), Z%d", 64*r, r)
		}
		e.loop("pair", "CX", func() {
			for b := range 2 {
				for r := range rows {
					if m {
						e.op("VMOVDQA64 Z30, Z%d", 8+r)
					} else {
						e.op("VPBROADCASTD %d(R11), Z%d", recordBytes*r+recordSums+4*b, 8+r)
					}
				}
				for d := range 8 {
					e.op("VMOVDQU64 %d(R9), Z%d", 64*(8*b+d), 16+d%4)
					for r := range rows {
						e.op("VPDPBUSD.BCST %d(R10), Z%d, Z%d", recordBytes*r+32*b+4*d, 16+d%4, 8+r)
					}
				}
				e.op("VMOVUPS %d(R9), Z20", pairD+64*b)
				if m {
					e.op("VMOVUPS %d(R9), Z21", pairM+64*b)
				}
				for r := range rows {
					sum, scale := recordBytes*r+recordSums+4*b, recordBytes*r+recordScale+4*b
					e.op(`
						VCVTDQ2PS Z%d, Z%d
						VMULPS.BCST %d(R11), Z20, Z23`, 8+r, 8+r, scale)
					e.op("VFMADD231PS Z23, Z%d, Z%d", 8+r, r)
					if m {
						e.op(`
							VMULPS.BCST %d(R11), Z21, Z23
							VFMADD231PS.BCST %d(R11), Z23, Z%d`, scale, sum, r)
					}
				}
			}
			e.op(`
				ADDQ $%d, R9
				ADDQ $64, R10
				ADDQ $8, R11`, pairBytes)
		})
		for r := range rows {
			e.op("VMOVUPS Z%d, %d(DI)", r, 64*r)
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $%d, DI`, recordBytes*rows, 64*rows)
	})
	e.ret()
}
