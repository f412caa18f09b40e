package main

import (
	"bytes"
	"fmt"
)

// emitGroups writes the products of quantised rows by weights with scales of groups. A block is the part of a row of
// weights that one register holds, or two with AVX-512: then pairs of dwords belong to a lane, so that their sums are
// scaled once. Lanes are sums of products with the codes of x; each has a scale of x and, from a register of scales
// that are spread over the lanes, one of the weights.
//
//	AX arguments   CX, DX one, three strides of x   SI x   DI y   R8 row of w, R9 its cursor
//	R10 scales of the row, R11 cursor   BX from scales to zero points   R12 groups left
//	R13, R14 one, three strides of y   R15 blocks left of a group; with AVX-512 a group of nibbles has one block
func emitGroups(e *emitter) {
	raised := make([]byte, 64)
	for i := range raised {
		v := []int{0, 1, 2, 3, 4, 6, 8, 12}[i%8]
		if i%16 > 7 {
			v = -v
		}
		raised[i] = byte(v + 12)
	}
	table(e, "groupE2M1", raised[:e.bytes()])
	e.constant("groupNibble", 0x0F0F0F0F)
	e.constant("groupSign", 0x80808080)
	e.constant("groupOnes", 0x00010001)
	table(e, "groupNoBit", bytes.Repeat([]byte{0xFF, 0xBF}, 16))
	// The upper bytes of words are the scales of lanes, in whose order pairs of dwords of two registers are.
	bytesTable(e, "groupPairs", 32, func(i int) int {
		l := i / 2
		return l%4/2*8 + l/4*2 + l%2 | (1-i%2)*0x80
	})
	for _, k := range []groupDot{{name: "U4"}, {name: "U4", zeros: true}, {name: "E2M1"}, {name: "U8"},
		{name: "U8", zeros: true}, {name: "I8"}} {
		for mr := 1; mr <= 4; mr++ {
			k.emitter, k.mr = e, mr
			k.write()
		}
	}
	widenSmall(e, "widenF16", "float16", "VCVTPH2PS (SI), V0", e.lanes*2)
	widenSmall(e, "widenU8", "bytes", "VPMOVZXBD (SI), V0\nVCVTDQ2PS V0, V0", e.lanes)
}

// groupDot writes a product kernel. Registers [0, mr) are its sums.
type groupDot struct {
	*emitter
	name  string // name of the codes
	zeros bool   // groups have zero points; otherwise all groups have the same zero point
	mr    int
}

// Codes of the even columns of a block, or of all columns, and of odd columns.
var groupLow, groupHigh = [2]int{4, 16}, [2]int{5, 17}

const (
	groupSum   = 6 // sums of a block
	groupTemp  = 7
	groupScale = 8
	groupZero  = 9
	groupIndex = 10 // index of the scale of each lane
	groupMask  = 11
	groupTable = 12
	groupOne   = 13
	groupAbs   = 14
	groupCodes = 18
)

// single reports whether a group has one block.
func (k *groupDot) single() bool { return k.nibbles() && k.wide() }

func (k *groupDot) nibbles() bool { return k.name == "U4" || k.name == "E2M1" }

func (k *groupDot) write() {
	zeros := ""
	if k.zeros {
		zeros = "Zeros"
	}
	k.function(fmt.Sprintf("group%s%s%d%s", k.name, zeros, k.mr, k.emitter.name), "groupArgs",
		fmt.Sprintf("%d rows of x by rows of %s weights, whole blocks.", k.mr, k.name))
	k.op(`
		MOVQ groupArgs_ldx(AX), CX
		LEAQ (CX)(CX*2), DX
		MOVQ groupArgs_w(AX), R8
		MOVQ groupArgs_scale(AX), R10
		MOVQ groupArgs_zero(AX), BX
		MOVQ groupArgs_y(AX), DI
		MOVQ groupArgs_ldy(AX), R13
		LEAQ (R13)(R13*2), R14
		VMOVUPS groupArgs_index(AX), V%d
		VBROADCASTSS groupArgs_middle(AX), V%d`, groupIndex, groupZero)
	if k.nibbles() {
		k.op("VMOVUPS groupNibble<>(SB), V%d", groupMask)
	} else {
		k.op("VMOVUPS groupSign<>(SB), V%d", groupMask)
	}
	if k.name == "E2M1" {
		k.op("VMOVUPS groupE2M1<>(SB), V%d", groupTable)
	}
	if !k.wide() {
		k.op("VMOVUPS groupOnes<>(SB), V%d", groupOne)
	}
	k.loop("row", "groupArgs_rows(AX)", func() {
		for m := range k.mr {
			k.zero(m)
		}
		k.op(`
			MOVQ R8, R9
			MOVQ R10, R11
			MOVQ groupArgs_x(AX), SI
			MOVQ groupArgs_groups(AX), R12`)
		if k.single() {
			k.op("PCALIGN $64")
		}
		k.loop("group", "R12", func() {
			if k.name == "E2M1" {
				k.spreadE4M3()
			} else {
				k.spread("(R11)", groupScale)
			}
			if k.zeros {
				k.spread("(R11)(BX*1)", groupZero)
			}
			if k.single() {
				k.block()
			} else {
				k.op("MOVQ groupArgs_blocks(AX), R15")
				k.loop("block", "R15", k.block)
			}
			k.op("ADDQ groupArgs_step(AX), R11")
		})
		for m := range k.mr {
			foldOne(k.emitter, m, groupTemp)
			k.op("VMULSS groupArgs_factor(AX), X%d, X%d", m, m)
			k.op("VMOVSS X%d, %s", m, spaced("DI", "R13", "R14", "", 0, m))
		}
		k.op(`
			ADDQ $4, DI
			ADDQ groupArgs_ldw(AX), R8
			ADDQ groupArgs_ldScale(AX), R10`)
	})
	k.ret()
}

// depth returns the number of registers of a block.
func (k *groupDot) depth() int {
	if k.wide() {
		return 2
	}
	return 1
}

// spread copies to every lane its scale or zero point.
func (k *groupDot) spread(from string, to int) {
	if k.wide() {
		k.op("VPERMPS %s, V%d, V%d", from, groupIndex, to)
		return
	}
	k.op("VMOVUPS %s, Y%d", from, to)
	k.op("VPERMPS V%d, V%d, V%d", to, groupIndex, to)
}

// spreadE4M3 copies to every lane its scale divided by 2^8, from the e4m3 codes of a block: sixteen scales, or four
// with AVX2. The bits of e4m3 are those of a half-precision number 2^8 times smaller, also for subnormal numbers; NaN
// would become 480.
func (k *groupDot) spreadE4M3() {
	if k.wide() {
		k.list(`
			VBROADCASTI128 (R11), Y{groupScale}
			VPSHUFB groupPairs<>(SB), Y{groupScale}, Y{groupScale}
			VPSRAW $1, Y{groupScale}, Y{groupScale}
			VPAND groupNoBit<>(SB), Y{groupScale}, Y{groupScale}
			VCVTPH2PS Y{groupScale}, Z{groupScale}`, "groupScale", groupScale)
		return
	}
	k.list(`
		VMOVD (R11), X{groupScale}
		VPMOVSXBW X{groupScale}, X{groupScale}
		VPSLLW $7, X{groupScale}, X{groupScale}
		VPAND groupNoBit<>(SB), X{groupScale}, X{groupScale}
		VCVTPH2PS X{groupScale}, Y{groupScale}
		VPERMPS Y{groupScale}, Y{groupIndex}, Y{groupScale}`, "groupScale", groupScale, "groupIndex", groupIndex)
}

// block adds the products of a block to the sums.
func (k *groupDot) block() {
	k.unpack()
	size := k.depth() * k.bytes() // bytes of codes
	if k.nibbles() {
		size *= 2
	}
	for m := range k.mr {
		at := func(disp int) string { return spaced("SI", "CX", "DX", "", disp, m) }
		started := k.wide() && !k.zeros // sums begin with what the zero point subtracts
		k.products(at, size+2*k.bytes(), started)
		k.op("VCVTDQ2PS V%d, V%d", groupSum, groupSum)
		k.op("VMULPS %s, V%d, V%d", at(size), groupScale, groupTemp)
		if !started {
			k.op("VFNMADD231PS %s, V%d, V%d", at(size+k.bytes()), groupZero, groupSum)
		}
		k.op("VFMADD231PS V%d, V%d, V%d", groupTemp, groupSum, m)
	}
	for i := range k.depth() {
		k.op("PREFETCHT0 %d(R9)", 2048+64*i)
	}
	k.op(`
		ADDQ $%d, R9
		ADDQ $%d, SI`, k.depth()*k.bytes(), size+(1+k.depth())*k.bytes())
}

// unpack loads the codes of a block into registers as unsigned bytes. Codes of eight bits are signed bytes with AVX2.
func (k *groupDot) unpack() {
	codes := groupLow
	if k.nibbles() {
		codes = groupHigh
	}
	if k.wide() {
		k.op("VMOVUPS (R9), Z%d", groupCodes)
		k.op("VMOVUPS 64(R9), Z%d", groupCodes+1)
		k.op("VSHUFPS $0x88, Z%d, Z%d, Z%d", groupCodes+1, groupCodes, codes[0])
		k.op("VSHUFPS $0xDD, Z%d, Z%d, Z%d", groupCodes+1, groupCodes, codes[1])
	} else {
		k.op("VMOVUPS (R9), V%d", codes[0])
	}
	for i := range k.depth() {
		low, high := groupLow[i], groupHigh[i]
		if !k.nibbles() {
			if signed := k.name == "I8"; signed == k.wide() {
				k.op("%s V%d, V%d, V%d", k.logic("VPXOR"), groupMask, low, low)
			}
			if !k.wide() {
				k.op("VPABSB Y%d, Y%d", low, groupAbs)
			}
			continue
		}
		k.op("%s V%d, V%d, V%d", k.logic("VPAND"), groupMask, high, low)
		k.op("VPSRLW $4, V%d, V%d", high, high)
		k.op("%s V%d, V%d, V%d", k.logic("VPAND"), groupMask, high, high)
		if k.name == "E2M1" {
			k.op("VPSHUFB V%d, V%d, V%d", low, groupTable, low)
			k.op("VPSHUFB V%d, V%d, V%d", high, groupTable, high)
		}
	}
}

// logic returns the name of a logical instruction for whole registers.
func (k *groupDot) logic(name string) string {
	if k.wide() {
		return name + "D"
	}
	return name
}

// products leaves the sums of the lanes of a block and a row of x as integers, from the starts at a place of the row on
// if started is set. With AVX2 pairs are added as 16 bits: they hold 4 * 24 * 127, and of eight bits 2 * 128 * 127.
func (k *groupDot) products(at func(disp int) string, starts int, started bool) {
	if k.wide() {
		if started {
			k.op("VMOVDQU64 %s, Z%d", at(starts), groupSum)
		} else {
			k.zero(groupSum)
		}
		from := 0
		for i := range k.depth() {
			k.op("VPDPBUSD %s, Z%d, Z%d", at(from), groupLow[i], groupSum)
			from += k.bytes()
			if k.nibbles() {
				k.op("VPDPBUSD %s, Z%d, Z%d", at(from), groupHigh[i], groupSum)
				from += k.bytes()
			}
		}
		return
	}
	groupLow, groupHigh := groupLow[0], groupHigh[0]
	if k.nibbles() {
		k.op("VPMADDUBSW %s, Y%d, Y%d", at(0), groupLow, groupSum)
		k.op("VPMADDUBSW %s, Y%d, Y%d", at(k.bytes()), groupHigh, groupTemp)
		k.op("VPADDW Y%d, Y%d, Y%d", groupTemp, groupSum, groupSum)
	} else {
		k.op("VMOVDQU %s, Y%d", at(0), groupTemp)
		k.op("VPSIGNB Y%d, Y%d, Y%d", groupLow, groupTemp, groupTemp)
		k.op("VPMADDUBSW Y%d, Y%d, Y%d", groupTemp, groupAbs, groupSum)
	}
	k.op("VPMADDWD Y%d, Y%d, Y%d", groupOne, groupSum, groupSum)
}

// widenSmall writes a kernel that turns numbers into float32, as many at a time as a register has lanes.
//
//	AX arguments   DI dst   SI a   CX steps left
func widenSmall(e *emitter, name, what, load string, bytes int) {
	e.function(name+e.name, "vecArgs", "dst = a, from "+what+".")
	e.op(`
		MOVQ vecArgs_dst(AX), DI
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_steps(AX), CX`)
	e.loop("step", "CX", func() {
		e.op(`
			%s
			VMOVUPS V0, (DI)
			ADDQ $%d, SI
			ADDQ $%d, DI`, load, bytes, e.bytes())
	})
	e.ret()
}
