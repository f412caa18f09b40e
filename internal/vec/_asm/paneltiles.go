package main

import "fmt"

// emitPanelTiles writes the kernel that multiplies sixteen rows of x by panels of signed codes (blockpanel.go) on tiles.
// A product of tiles sums a run: a tile of x has a run of sixteen records, and a tile of codes that of sixteen weight
// rows. While the tiles of a panel are computed, the sums of the panel before are scaled. Sums of several runs times
// their scales are added as float32 as long as they are exact, and then as integers.
//
//	AX arguments   DX panel   SI records   R10, R9 the panel and records before   R15 bytes between records of blocks
//	DI, R8 sums of this panel, of the one before   CX panels left   R11 64   R14 bytes between records   R12 results
//	Z0 ... Z15 scales of runs   Z16 d   Z17 ... Z20 sums of several runs   Z23 results   Z24 ... Z31 sums of a run
func emitPanelTiles(e *emitter, runs int) {
	const x, codes = 4, 6 // first of two tiles
	dwords := 64 / runs
	exact := 2 // 62·127·32·31·2 and 43·127·16·31·6 are below 2^24
	if runs == 16 {
		exact = 6
	}
	e.function(fmt.Sprintf("panelTiles%d", runs), "panelTileArgs",
		fmt.Sprintf("sixteen rows of x by panels with %d scales.", runs))
	emit(e, ldtilecfg(memory{base: "AX"}))
	e.op(`
		MOVQ panelTileArgs_panel(AX), DX
		MOVQ panelTileArgs_x(AX), SI
		MOVQ panelTileArgs_y(AX), R12
		MOVQ panelTileArgs_sums(AX), DI
		LEAQ %d(DI), R8
		MOVQ panelTileArgs_stride(AX), R15
		MOVQ panelTileArgs_count(AX), CX
		MOVQ $64, R11
		MOVQ $%d, R14
		MOVQ DX, R10
		MOVQ SI, R9`, 1024*runs, recordBytes)
	issue := func(run int) {
		acc, a, b := run%4, x+run%2, codes+run%2
		emit(e, tileload(memory{base: "SI", index: "R14", disp: 4 * dwords * run}, a))
		emit(e, tileload(memory{base: "DX", index: "R11", disp: 64 * dwords * run}, b))
		emit(e, tilezero(acc))
		emit(e, tdpbssd(b, a, acc))
		emit(e, tilestore(acc, memory{base: "DI", index: "R11", disp: 1024 * run}))
		if run == runs-1 {
			e.op(`
				ADDQ $%d, DX
				ADDQ R15, SI`, panelBytes)
		}
	}
	scale := func(part int, from string) {
		if part == 0 {
			for run := range runs {
				e.op("VCVTDQ2PS %d(R10), Z%d", panelScales+1024/runs*run, run)
			}
			e.op("VMOVUPS %d(R10), Z16", panelD)
		}
		each := 16 / runs
		for r := each * part; r < each*(part+1); r++ {
			for run := range runs {
				z, sum := 24+run%8, 17+run/exact
				e.op("VCVTDQ2PS %d(%s), Z%d", 1024*run+64*r, from, z)
				if run%exact == 0 {
					e.op("VMULPS Z%d, Z%d, Z%d", run, z, sum)
				} else {
					e.op("VFMADD231PS Z%d, Z%d, Z%d", run, z, sum)
				}
			}
			for sum := 17; sum <= 17+(runs-1)/exact; sum++ {
				e.op("VCVTPS2DQ Z%d, Z%d", sum, sum)
				if sum > 17 {
					e.op("VPADDD Z%d, Z17, Z17", sum)
				}
			}
			e.op(`
				VCVTDQ2PS Z17, Z17
				VMULPS Z16, Z17, Z17
				VMOVUPS %d(R12), Z23
				VFMADD231PS.BCST %d(R9), Z17, Z23
				VMOVUPS Z23, %d(R12)`, 64*r, recordBytes*r+recordScale, 64*r)
		}
		if part == runs-1 {
			e.op(`
				ADDQ $%d, R10
				ADDQ R15, R9`, panelBytes)
		}
	}
	loop, last := e.label("loop"), e.label("last")
	for run := range runs {
		issue(run)
	}
	e.at(loop)
	e.op(`
		DECQ CX
		JZ %s
		XCHGQ DI, R8`, last)
	for run := range runs {
		issue(run)
		scale(run, "R8")
	}
	e.op("JMP %s", loop)
	e.at(last)
	for run := range runs {
		scale(run, "DI")
	}
	emit(e, tilerelease())
	e.ret()
}
