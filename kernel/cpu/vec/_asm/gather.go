package main

// gather is a kernel that collects 32 coded rows of 576 elements as bfloat16, two
// at a time.
//
//	AX arguments   SI memory   R8 places of rows   CX pairs of rows left
//	DI rows        R10, R11 this pair
//	Z0, Z1 elements of the first row, Z3, Z4 of the second
type gather struct {
	name, doc string
	scales    bool // one for every 128 elements
	chunk     func(g *gather, e *emitter, row string, z, at int)
}

const (
	latentChunks = 16   // of 32 elements that are also values
	rowChunks    = 18   // of a row
	plainBytes   = 1152 // of a row of bfloat16
)

// Registers of the decoder with scales.
const (
	zOrder, zMagnitude, zUnit, zCode, zSeen = 26, 25, 24, 23, 22
	zOdd, zLeast, zMost, zNotExponent       = 21, 20, 19, 18
	zScale                                  = 16 // and 17: exponents of the two rows' scales
)

func (g *gather) emit(e *emitter) {
	const a = "gatherArgs_"
	e.function(g.name, "gatherArgs", "collects 32 "+g.doc+".")
	e.op("MOVQ %smemory(AX), SI", a)
	e.op("MOVQ %sat(AX), R8", a)
	e.op("MOVQ %srows(AX), DI", a)
	e.op("MOVQ $16, CX")
	codeTables(e)
	e.op("VMOVDQU64 %s<>(SB), Z%d", inOrder, zOrder)
	if g.scales {
		e.op("VMOVDQU64 magnitude<>(SB), Z%d", zMagnitude)
		e.op("VMOVDQU64 unitExponent<>(SB), Z%d", zUnit)
		e.op("VMOVDQU64 codeBits<>(SB), Z%d", zCode)
		e.op("VMOVDQU64 notExponent<>(SB), Z%d", zNotExponent)
		e.op("VPXORD Z%d, Z%d, Z%d", zSeen, zSeen, zSeen)
		e.op("VPXORD Z%d, Z%d, Z%d", zOdd, zOdd, zOdd)
		e.op("VPXORD Z%d, Z%d, Z%d", zMost, zMost, zMost)
		e.op("VPTERNLOGD $0xFF, Z%d, Z%d, Z%d", zLeast, zLeast, zLeast)
	}
	loop := e.label("loop")
	e.at(loop)
	for i, row := range []string{"R10", "R11"} {
		e.op("MOVQ %s, %s", at16("R8", 8*i), row)
		e.op("ADDQ SI, %s", row)
		if g.scales {
			g.watchScales(e, row)
		}
	}
	for c := 0; c < rowChunks; c += 2 { // a load brings two chunks
		g.chunk(g, e, "R10", 0, c)
		g.chunk(g, e, "R11", 3, c)
		for i := range 2 {
			e.op("VMOVDQU64 Z%d, %s", i, at16("DI", 64*(c+i)))
			e.op("VMOVDQU64 Z%d, %s", 3+i, at16("DI", plainBytes+64*(c+i)))
		}
	}
	e.op("ADDQ $16, R8")
	e.op("ADDQ $%d, DI", 2*plainBytes)
	e.op("DECQ CX")
	e.op("JNZ %s", loop)
	if g.scales {
		e.op("VPCMPEQB Z%d, Z%d, K1", zCode, zSeen)
		e.op("KMOVQ K1, R9")
		e.op("MOVQ R9, %snan(AX)", a)
		e.op("VMOVDQU32 X%d, %sodd(AX)", zOdd, a)
		e.op("VMOVDQU32 X%d, %sleast(AX)", zLeast, a)
		e.op("VMOVDQU32 X%d, %smost(AX)", zMost, a)
	}
	e.ret()
}

func (g *gather) raw(e *emitter, row string, z, c int) {
	e.op("VPERMQ %s, Z%d, Z%d", at16(row, 32*c), zOrder, z)
	decodeCodes(e, z, z+1, z+2)
}

// scaled multiplies decoded elements by a power of two: its exponent is added to
// theirs, except to zeros. The last two chunks are bfloat16 already.
func (g *gather) scaled(e *emitter, row string, z, c int) {
	const scalesAt, ropeAt = 512, 528
	if c >= latentChunks {
		e.op("VMOVDQU64 %s, Z%d", at16(row, ropeAt+64*(c-latentChunks)), z)
		e.op("VMOVDQU64 %s, Z%d", at16(row, ropeAt+64*(c-latentChunks+1)), z+1)
		return
	}
	scale := zScale + z/3
	if c%4 == 0 {
		e.op("VPBROADCASTW %s, Z%d", at16(row, scalesAt+c+2), scale)
		e.op("VPSUBW Z%d, Z%d, Z%d", zUnit, scale, scale)
	}
	e.op("VPERMQ %s, Z%d, Z%d", at16(row, 32*c), zOrder, z)
	addExponent(e, z, scale)
}

// watchScales keeps what tells whether the four scales of every row are powers
// of two, and the least and the largest of them.
func (g *gather) watchScales(e *emitter, row string) {
	e.op("VMOVDQU %s, X0", at16(row, 512))
	e.op("VPANDD X%d, X0, X1", zNotExponent)
	e.op("VPORD X1, X%d, X%d", zOdd, zOdd)
	e.op("VPMINUD X0, X%d, X%d", zLeast, zLeast)
	e.op("VPMAXUD X0, X%d, X%d", zMost, zMost)
}

// emitEntry writes the kernel that brings one V4 entry, 448 e4m3 in groups of 64
// with an exponent each and 64 bfloat16, to a row of bfloat16.
//
//	AX arguments   SI codes   DX exponents   DI row   R8 an exponent
func emitEntry(e *emitter) {
	const a, groups, ropeAt = "entryArgs_", 7, 448
	e.function("entryamx", "entryArgs", "one V4 entry to bfloat16.")
	e.op("MOVQ %sdata(AX), SI", a)
	e.op("MOVQ %sscales(AX), DX", a)
	e.op("MOVQ %srow(AX), DI", a)
	codeTables(e)
	e.op("VMOVDQU64 %s<>(SB), Z%d", inOrder, zOrder)
	e.op("VMOVDQU64 magnitude<>(SB), Z%d", zMagnitude)
	e.op("VMOVDQU64 codeBits<>(SB), Z%d", zCode)
	e.op("VPXORD Z%d, Z%d, Z%d", zSeen, zSeen, zSeen)
	for g := range groups {
		e.op("MOVBQZX %s, R8", at16("DX", g))
		e.op("SUBQ $127, R8")
		e.op("SHLQ $7, R8")
		e.op("VPBROADCASTW R8, Z%d", zScale)
		e.op("VPERMQ %s, Z%d, Z0", at16("SI", 64*g), zOrder)
		addExponent(e, 0, zScale)
		e.op("VMOVDQU64 Z0, %s", at16("DI", 128*g))
		e.op("VMOVDQU64 Z1, %s", at16("DI", 128*g+64))
	}
	for i := range 2 {
		e.op("VMOVDQU64 %s, Z0", at16("SI", ropeAt+64*i))
		e.op("VMOVDQU64 Z0, %s", at16("DI", 128*groups+64*i))
	}
	e.op("VPCMPEQB Z%d, Z%d, K1", zCode, zSeen)
	e.op("KMOVQ K1, R9")
	e.op("MOVQ R9, %snan(AX)", a)
	e.ret()
}

// addExponent decodes the codes in register z and adds an exponent to all but
// zeros; it notes the largest code. z+1 and z+2 are used.
func addExponent(e *emitter, z, exponent int) {
	e.op("VPANDD Z%d, Z%d, Z%d", zCode, z, z+1)
	e.op("VPMAXUB Z%d, Z%d, Z%d", z+1, zSeen, zSeen)
	decodeCodes(e, z, z+1, z+2)
	for i := range 2 {
		e.op("VPTESTMW Z%d, Z%d, K1", zMagnitude, z+i)
		e.op("VPADDW Z%d, Z%d, K1, Z%d", exponent, z+i, z+i)
	}
}
