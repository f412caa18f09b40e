package main

import "fmt"

// Narrow kernels: up to sixteen rows of x by a block of 32 rows of narrow weights.
// A unit of 128 columns is widened into one half of a small panel while the tiles
// multiply the unit before it, which is in the other half. Of every row of a unit
// there are 128 lower bytes, and 64 bytes with four bits of each weight, which the
// block's table turns into upper bytes; lanes of both unpack to weights in order.
// Weights that four bits cannot say are written over what these said.
//
//	AX arguments   R8 units of w   DI, BX halves of the panel: filled, multiplied   SI x
//	DX, R15 bytes between lines of x and of everything else   R12 units left
//	R10 odd weights of each unit, R11 the weights   R13, R14 one, three distances between the runs of a quarter of the rows
//	Z31 upper bytes of four bits   Z30 four bits of every byte   CX, R9 scratch
func emitNarrow(e *emitter) {
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(i%8 | i%16/8<<7)
	}
	table(e, "upperOfFour", data)
	for _, rows := range []int{1, 4, 8, 16} {
		(&narrow{rows: rows}).emit(e)
	}
}

// narrow is a kernel for one group of rows of x.
type narrow struct{ rows int }

// nx is the tiles of a group: one of both parts of all rows, or one of each part.
// line is the bytes of a line of a tile and tile its own.
func (k *narrow) nx() int   { return (k.rows + 7) / 8 }
func (k *narrow) line() int { return 4 * min(2*k.rows, 16) }
func (k *narrow) tile() int { return 16 * k.line() }

const (
	narrowRows = 32
	narrowRun  = 4             // of those in a run
	narrowHalf = 4 * panelStep // a unit of the panel
	narrowUnit = 192           // bytes of a row of a unit
)

func (k *narrow) emit(e *emitter) {
	e.function(fmt.Sprintf("narrow%d", k.rows), "narrowArgs", fmt.Sprintf("%d rows of x in two parts by 32 rows of narrow weights.", k.rows))
	e.emit(ldtilecfg(memory{base: "AX"}))
	e.op("VPBROADCASTB narrowArgs_base(AX), Z31")
	e.op("VPADDB upperOfFour<>(SB), Z31, Z31")
	e.op("MOVL $0x0F, R8")
	e.op("VPBROADCASTB R8, Z30")
	for _, r := range [][2]string{{"w", "R8"}, {"x", "SI"}, {"panel", "DI"}, {"counts", "R10"}, {"odd", "R11"}, {"units", "R12"}, {"runs", "R13"}} {
		e.op("MOVQ narrowArgs_%s(AX), %s", r[0], r[1])
	}
	e.op("LEAQ (R13)(R13*2), R14")
	e.op("LEAQ %d(DI), BX", narrowHalf)
	e.op("MOVQ $%d, DX", k.line())
	e.op("MOVQ $64, R15")
	for t := range 2 * k.nx() {
		e.emit(tilezero(t))
	}
	loop, done := e.label("loop"), e.label("done")
	k.fill(e, func(int) {})
	e.at(loop)
	e.op("XCHGQ DI, BX")
	e.op("DECQ R12")
	e.op("JZ %s", done)
	k.fill(e, func(r int) { k.multiply(e, r) })
	e.op("ADDQ $%d, SI", 4*k.nx()*k.tile())
	e.op("JMP %s", loop)
	e.at(done)
	for r := range narrowRows {
		k.multiply(e, r)
	}
	e.op("MOVQ narrowArgs_sums(AX), DI")
	for t := range 2 * k.nx() {
		e.emit(tilestore(t, memory{base: "DI", index: "R15", disp: 1024 * t}))
	}
	e.emit(tilerelease())
	e.ret()
}

// fill widens a unit and calls between for each of its rows.
func (k *narrow) fill(e *emitter, between func(r int)) {
	e.op("MOVQ R8, R9")
	for r := range narrowRows {
		if r > 0 && r%(4*narrowRun) == 0 {
			e.op("LEAQ (R9)(R13*4), R9")
		}
		from := func(disp int) string {
			return spaced("R9", "R13", "R14", "", r%narrowRun*narrowUnit+disp, r/narrowRun%4)
		}
		e.op("VMOVDQU64 %s, Z0", from(128))
		e.op("VPANDD Z30, Z0, Z1")
		e.op("VPSRLW $4, Z0, Z2")
		e.op("VPANDD Z30, Z2, Z2")
		for i := range 2 {
			e.op("VPSHUFB Z%d, Z31, Z%d", 1+i, 1+i)
			e.op("VMOVDQU64 %s, Z%d", from(64*i), 3+i)
			e.op("VPUNPCKLBW Z%d, Z%d, Z5", 1+i, 3+i)
			e.op("VPUNPCKHBW Z%d, Z%d, Z6", 1+i, 3+i)
			e.op("VMOVDQA64 Z5, %s", at16("DI", 2*i*panelStep+64*r))
			e.op("VMOVDQA64 Z6, %s", at16("DI", (2*i+1)*panelStep+64*r))
		}
		between(r)
	}
	e.op("ADDQ $%d, R8", narrowRun*narrowUnit)
	loop, none := e.label("odd"), e.label("none")
	e.op("MOVWLZX (R10), CX")
	e.op("ADDQ $2, R10")
	e.op("TESTL CX, CX")
	e.op("JZ %s", none)
	e.at(loop)
	e.note("place, bits")
	e.op("MOVWLZX (R11), R9")
	e.op("ADDQ DI, R9")
	e.op("MOVWLZX 2(R11), DX")
	e.op("MOVW DX, (R9)")
	e.op("ADDQ $4, R11")
	e.op("DECL CX")
	e.op("JNZ %s", loop)
	e.op("MOVQ $%d, DX", k.line())
	e.at(none)
}

// multiply emits what belongs to row r of the 32 that are filled meanwhile: eight
// of them take a step, two tiles of weights by those of x.
func (k *narrow) multiply(e *emitter, r int) {
	step := r / 8
	w := func(i int) {
		e.emit(tileload(memory{base: "BX", index: "R15", disp: step*panelStep + i*1024}, tileW+i))
	}
	x := func(j int) {
		e.emit(tileload(memory{base: "SI", index: "DX", disp: (step*k.nx() + j) * k.tile()}, tileX+j))
	}
	product := func(i, j int) { e.emit(tdpbf16ps(tileX+j, tileW+i, k.nx()*i+j)) }
	wide := k.nx() == 2
	switch r % 8 {
	case 0:
		w(0)
		x(0)
	case 1:
		product(0, 0)
	case 2:
		if wide {
			x(1)
		}
	case 3:
		if wide {
			product(0, 1)
		}
	case 4:
		w(1)
	case 5:
		product(1, 0)
	case 6:
		if wide {
			product(1, 1)
		}
	}
}
