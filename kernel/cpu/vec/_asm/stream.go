package main

// streamRows is the rows of weights of a block. Twice as many are slower: rows
// often lie a page apart, and the processor keeps the addresses of some 90.
const streamRows = 32

// emitStream writes the kernel for few rows of x and coded weights that come
// from memory: it widens 64 columns of a block of rows while the tiles multiply
// the 64 before them. Sums are taken in the order of the tile kernels.
//
//	AX arguments   BX column of w            CX, R10 one, three strides of w
//	DI panel       R9, R13 rows of w now and ahead
//	SI x           DX bytes between pairs of x
//	R12 tables     R8 blocks of 128 columns left   R11 scales   R15 scratch
//
// The panel has two halves of [2 steps, 32 rows, 64 bytes], by turns.
func emitStream(e *emitter) {
	const half = 2 * streamStep
	first, next, last, plain, done := e.label("first"), e.label("next"), e.label("last"), e.label("plain"), e.label("done")
	e.function("streamFP8", "streamArgs", "one tile of columns in three parts by 32 rows of e4m3 codes, whole blocks of 128 columns.")
	e.emit(ldtilecfg(memory{base: "AX"}))
	e.op("MOVQ streamArgs_w(AX), BX")
	e.op("MOVQ streamArgs_ldw(AX), CX")
	e.op("LEAQ (CX)(CX*2), R10")
	e.op("MOVQ streamArgs_x(AX), SI")
	e.op("MOVQ streamArgs_ldx(AX), DX")
	e.op("MOVQ streamArgs_panel(AX), DI")
	e.op("MOVQ streamArgs_tables(AX), R12")
	e.op("MOVQ streamArgs_scales(AX), R11")
	e.op("MOVQ streamArgs_blocks(AX), R8")
	decoderConstants(e, "R15")
	streamTables(e)
	e.op("MOVQ streamArgs_sums(AX), R9")
	e.op("MOVQ $64, R15")
	for i, t := range streamSums {
		e.emit(tileload(memory{base: "R9", index: "R15", disp: 1024 * i}, t))
	}
	e.op("TESTQ R11, R11")
	e.op("JZ %s", first)
	for _, t := range streamSums {
		e.emit(tilezero(t))
	}
	e.at(first)
	streamFill(e, 0, func(int) {})
	e.at(next)
	streamFill(e, half, func(q int) { streamProduct(e, 0, q) })
	e.op("DECQ R8")
	e.op("JZ %s", last)
	streamTables(e)
	streamFill(e, 0, func(q int) { streamProduct(e, half, q) })
	e.op("TESTQ R11, R11")
	e.op("JZ %s", next)
	streamScaled(e)
	for _, t := range streamSums {
		e.emit(tilezero(t))
	}
	e.op("JMP %s", next)
	e.at(last)
	for q := range streamRows / 8 {
		streamProduct(e, half, q)
	}
	e.op("TESTQ R11, R11")
	e.op("JZ %s", plain)
	streamScaled(e)
	e.op("JMP %s", done)
	e.at(plain)
	e.op("MOVQ streamArgs_sums(AX), R9")
	e.op("MOVQ $64, R15")
	for i, t := range streamSums {
		e.emit(tilestore(t, memory{base: "R9", index: "R15", disp: 1024 * i}))
	}
	e.at(done)
	e.emit(tilerelease())
	e.ret()
}

// streamSums are the tiles of sums of every sixteen rows, streamW one of
// weights, streamParts those of the parts of x.
var (
	streamSums  = [streamRows / 16]int{0, 1}
	streamParts = [3]int{5, 6, 7}
)

const (
	streamW    = 4
	streamStep = 64 * streamRows // bytes of a step in the panel
)

// streamTables loads the next block's tables.
func streamTables(e *emitter) {
	e.op("MOVQ (R12), R15")
	e.op("ADDQ $8, R12")
	scaledTables(e, "R15")
}

// streamFill widens 64 columns of the block into the panel from byte at on and
// moves the column. After every eight rows it calls between.
func streamFill(e *emitter, at int, between func(q int)) {
	e.op("MOVQ BX, R9")
	e.op("MOVQ streamArgs_ahead(AX), R13")
	e.op("ADDQ BX, R13")
	for r := range streamRows {
		e.op("VPERMQ %s, Z%d, Z0", spaced("R9", "CX", "R10", "", 0, r%4), orderReg)
		e.op("PREFETCHT1 %s", spaced("R13", "CX", "R10", "", 0, r%4))
		decodeCodes(e, 0, 1, 2)
		e.op("VMOVDQA64 Z0, %d(DI)", at+64*r)
		e.op("VMOVDQA64 Z1, %d(DI)", at+streamStep+64*r)
		if r%4 == 3 {
			e.op("LEAQ (R9)(CX*4), R9")
			e.op("LEAQ (R13)(CX*4), R13")
		}
		if r%8 == 7 {
			between(r / 8)
		}
	}
	e.op("ADDQ $64, BX")
}

// streamProduct multiplies part q of a half panel: sixteen rows of a step.
func streamProduct(e *emitter, at, q int) {
	step, rows := q/len(streamSums), q%len(streamSums)
	e.op("MOVQ $64, R15")
	e.emit(tileload(memory{base: "DI", index: "R15", disp: at + step*streamStep + rows*1024}, streamW))
	for _, t := range streamParts {
		if rows == 0 {
			e.emit(tileload(memory{base: "SI", index: "DX"}, t))
			e.op("ADDQ streamArgs_partX(AX), SI")
		}
		e.emit(tdpbf16ps(t, streamW, streamSums[rows]))
	}
}

// streamScaled adds the sums of a block times its scale to those in memory.
func streamScaled(e *emitter) {
	e.op("MOVQ streamArgs_sums(AX), R9")
	e.op("MOVQ streamArgs_block(AX), R13")
	e.op("MOVQ $64, R15")
	for i, t := range streamSums {
		e.emit(tilestore(t, memory{base: "R13", index: "R15", disp: 1024 * i}))
	}
	e.op("VBROADCASTSS (R11), Z25")
	e.op("ADDQ $4, R11")
	for i := range streamRows {
		r := 5 + i%16
		e.op("VMOVUPS %d(R13), Z%d", 64*i, r)
		e.op("VFMADD213PS %d(R9), Z25, Z%d", 64*i, r)
		e.op("VMOVUPS Z%d, %d(R9)", r, 64*i)
	}
}
