package main

import (
	"fmt"
	"math"
)

// emitNibbleRows writes the products of float32 rows by e2m1 weights, which are decoded in registers. A block is the
// part of a row of weights that one register holds, two codes in a byte. The elements of x are in the order in which
// the codes of a block are decoded, so that they are multiplied without a permutation. Within a block the products of a
// group of 32 are summed before they are scaled.
//
// With 16 lanes a block is 128 weights: register j of x holds elements j, 8+j, 16+j, ... and multiplies code j of
// every double word, which selects a number from a register of sixteen. A group is one 128-bit lane, and
// all four are scaled together. With 8 lanes a block is 64 weights: numbers are looked up as bytes, twice their value,
// and converted; a group is four registers: even elements, first and second half, and odd ones.
//
//	AX arguments   CX, DX one, three strides of x   SI x   DI y   R8 row of w, R9 its cursor
//	R10 scales of the row, R11 cursor               R12 blocks left   R13, R14 one, three strides of y
func emitNibbleRows(e *emitter) {
	nibbleRowsData(e)
	for mr := 1; mr <= 4; mr++ {
		(&nibbleRows{emitter: e, mr: mr}).write()
	}
	orderNibbles(e)
	scalesToFloat(e)
	if !e.wide() {
		indexFP4Rows(e)
	}
}

// nibbleRows writes a kernel. Registers [0, mr) are the sums of rows, and [mr, 2mr) those of a block or group.
type nibbleRows struct {
	*emitter
	mr int
}

const (
	nibbleScale = 8  // register of scales
	nibbleCodes = 9  // codes of a block
	nibbleValue = 10 // decoded numbers
	nibbleTable = 13
	nibbleMask  = 14 // 8 lanes: the lower half of every byte; 16 lanes: the lane of each scale
)

func nibbleRowsData(e *emitter) {
	values := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	if e.wide() {
		laneWords(e, "nibbleFloats", func(i int) int {
			return int(math.Float32bits(values[i%8])) | i/8<<31
		})
		laneWords(e, "scaleLanes", func(i int) int { return i / 4 })
		laneWords(e, "everyEighth", func(i int) int { return 8 * i })
		return
	}
	twice := make([]byte, 32)
	mask := make([]byte, 32)
	for i := range twice {
		v := int8(2 * values[i%8])
		if i%16 > 7 {
			v = -v
		}
		twice[i], mask[i] = byte(v), 15
	}
	table(e, "nibbleBytes", twice)
	table(e, "nibbleLower", mask)
	second := make([]byte, 32)
	for i := range 8 {
		second[4*i] = byte(2 * i)
	}
	table(e, "everySecond", second)
	e.constant("oneHalf", math.Float32bits(0.5))
}

func (k *nibbleRows) write() {
	k.function(fmt.Sprintf("nibbleRows%d%s", k.mr, k.name), "nibbleArgs",
		fmt.Sprintf("%d ordered rows of x by rows of e2m1 weights, whole blocks.", k.mr))
	k.op(`
		MOVQ nibbleArgs_ldx(AX), CX
		LEAQ (CX)(CX*2), DX
		MOVQ nibbleArgs_w(AX), R8
		MOVQ nibbleArgs_scale(AX), R10
		MOVQ nibbleArgs_y(AX), DI
		MOVQ nibbleArgs_ldy(AX), R13
		LEAQ (R13)(R13*2), R14`)
	if k.wide() {
		k.op(`
			VMOVDQU64 nibbleFloats<>(SB), Z%d
			VMOVDQU64 scaleLanes<>(SB), Z%d`, nibbleTable, nibbleMask)
	} else {
		k.op(`
			VMOVDQU nibbleBytes<>(SB), Y%d
			VMOVDQU nibbleLower<>(SB), Y%d`, nibbleTable, nibbleMask)
	}
	k.loop("row", "nibbleArgs_rows(AX)", func() {
		for m := range k.mr {
			k.zero(m)
		}
		k.op(`
			MOVQ R8, R9
			MOVQ R10, R11
			MOVQ nibbleArgs_x(AX), SI
			MOVQ nibbleArgs_blocks(AX), R12`)
		k.loop("block", "R12", func() {
			if k.wide() {
				k.blockByDoubleWords()
			} else {
				k.blockByBytes()
			}
			k.op(`
				PREFETCHT0 1024(R9)
				ADDQ $%d, R9
				ADDQ $%d, SI`, k.bytes(), 8*k.bytes())
		})
		for m := range k.mr {
			foldOne(k.emitter, m, nibbleValue)
			k.op("VMOVSS X%d, %s", m, spaced("DI", "R13", "R14", "", 0, m))
		}
		k.op(`
			ADDQ $4, DI
			ADDQ nibbleArgs_ldw(AX), R8
			ADDQ nibbleArgs_ldScale(AX), R10`)
	})
	k.ret()
}

// multiply adds the products of the numbers in register w and register u of x to the sums of a group; if first is set,
// it starts new sums.
func (k *nibbleRows) multiply(w, u int, first bool) {
	for m := range k.mr {
		x := spaced("SI", "CX", "DX", "", u*k.bytes(), m)
		if first {
			k.op("VMULPS %s, V%d, V%d", x, w, k.mr+m)
		} else {
			k.op("VFMADD231PS %s, V%d, V%d", x, w, k.mr+m)
		}
	}
}

// scaled adds the sums of a group, times their scale, to the sums of rows.
func (k *nibbleRows) scaled() {
	for m := range k.mr {
		k.op("VFMADD231PS V%d, V%d, V%d", nibbleScale, k.mr+m, m)
	}
}

func (k *nibbleRows) blockByDoubleWords() {
	k.op(`
		VMOVDQU64 (R9), Z%d
		VBROADCASTF32X4 (R11), Z%d`, nibbleCodes, nibbleScale)
	k.op("VPERMILPS Z%d, Z%d, Z%d", nibbleMask, nibbleScale, nibbleScale)
	for j := range 8 {
		w := nibbleValue + j%2
		codes := nibbleCodes
		if j > 0 {
			codes = w
			k.op("VPSRLD $%d, Z%d, Z%d", 4*j, nibbleCodes, w)
		}
		k.op("VPERMPS Z%d, Z%d, Z%d", nibbleTable, codes, w)
		k.multiply(w, j, j == 0)
	}
	k.scaled()
	k.op("ADDQ $16, R11")
}

func (k *nibbleRows) blockByBytes() {
	k.op(`
		VMOVDQU (R9), Y%d
		VPSRLW $4, Y%d, Y%d`, nibbleCodes, nibbleCodes, nibbleValue)
	for i, r := range []int{nibbleCodes, nibbleValue} {
		k.list(`
			VPAND Y{nibbleMask}, Y{r}, Y{r}
			VPSHUFB Y{r}, Y{nibbleTable}, Y{r}`, "nibbleMask", nibbleMask, "r", r, "nibbleTable", nibbleTable)
		k.op("VMOVDQU Y%d, nibbleArgs_spill+%d(AX)", r, 32*i)
	}
	for group := range 2 {
		k.op("VBROADCASTSS %d(R11), Y%d", 4*group, nibbleScale)
		for i := range 4 {
			w := nibbleValue + i%2
			k.op("VPMOVSXBD nibbleArgs_spill+%d(AX), Y%d", i/2*32+16*group+i%2*8, w)
			k.op("VCVTDQ2PS Y%d, Y%d", w, w)
			k.multiply(w, 4*group+i, i == 0)
		}
		k.scaled()
	}
	k.op("ADDQ $8, R11")
}

// orderNibbles writes the kernel that brings the elements of blocks into their order.
//
//	AX arguments   DI dst   SI a   CX blocks left
func orderNibbles(e *emitter) {
	e.function("orderNibbles"+e.name, "vecArgs", "dst = a in the order of e2m1 codes; steps are blocks.")
	e.op(`
		MOVQ vecArgs_dst(AX), DI
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_steps(AX), CX`)
	if e.wide() {
		e.op("VMOVDQU64 everyEighth<>(SB), Z1")
	} else {
		e.op("VMOVDQU everySecond<>(SB), Y1")
	}
	e.loop("block", "CX", func() {
		for u := range 8 {
			if e.wide() {
				e.op(`
					KXNORW K1, K1, K1
					VGATHERDPS %d(SI)(Z1*4), K1, Z0`, 4*u)
			} else {
				// Elements of group u/4: even elements 0 to 14 and 16 to 30, then odd elements 1 to 15 and 17 to 31.
				e.op(`
					VPCMPEQD Y2, Y2, Y2
					VGATHERDPS Y2, %d(SI)(Y1*4), Y0`, 4*(32*(u/4)+u%4/2+16*(u%2)))
			}
			e.op("VMOVUPS V0, %d(DI)", u*e.bytes())
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $%d, DI`, 8*e.bytes(), 8*e.bytes())
	})
	e.ret()
}

// scalesToFloat writes the kernel that turns e8m0 scales, as many at a time as a register has lanes, into float32: two
// to the power of the code less 127, of which code 0 is a subnormal number, and NaN for code 255. With 8 lanes they are
// half of it.
//
//	AX arguments   DI dst   SI a   CX steps left
func scalesToFloat(e *emitter) {
	const least, nan, last = 15, 14, 13
	e.constant("scaleOfZero"+e.name, 0x00400000)
	e.constant("scaleNaN"+e.name, 0x7FC00000)
	e.constant("scaleLast"+e.name, 255)
	e.function("scalesToFloat"+e.name, "vecArgs", "dst = 2^(a-127), from e8m0.")
	e.op(`
		MOVQ vecArgs_dst(AX), DI
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_steps(AX), CX
		VMOVUPS scaleOfZero%s<>(SB), V%d
		VMOVUPS scaleNaN%s<>(SB), V%d`, e.name, least, e.name, nan)
	e.op("VMOVUPS scaleLast%s<>(SB), V%d", e.name, last)
	e.zero(2)
	e.loop("step", "CX", func() {
		e.op(`
			VPMOVZXBD (SI), V0
			VPSLLD $23, V0, V1`)
		if e.wide() {
			e.op(`
				VPCMPEQD Z2, Z0, K1
				VPCMPEQD Z%d, Z0, K2
				VMOVAPS Z%d, K1, Z1
				VMOVAPS Z%d, K2, Z1`, last, least, nan)
		} else {
			e.op(`
				VPCMPEQD Y2, Y0, Y3
				VBLENDVPS Y3, Y%d, Y1, Y1
				VPCMPEQD Y%d, Y0, Y3
				VBLENDVPS Y3, Y%d, Y1, Y1`, least, last, nan)
		}
		if !e.wide() { // decoded numbers are twice their value
			e.op("VMULPS oneHalf<>(SB), Y1, Y1")
		}
		e.op(`
			VMOVUPS V1, (DI)
			ADDQ $%d, SI
			ADDQ $%d, DI`, e.lanes, e.bytes())
	})
	e.ret()
}
