package main

import "fmt"

// Panels of the formats of gridbytes.go, for several rows of x (blockpanel.go), with AVX-512 VBMI and GFNI. The bytes
// of sixteen weight rows are transposed as dwords before they are looked up, so that lanes are rows from then on. A
// look-up has the points of 32 values of each row: four octets, or four first and four second quads.
//
// Codes of a run in a panel, and of x in its records, are in the order of the values that are looked up together:
//
//	octets, runs of 32   dword v   value v of octets 0, 1, 2, 3
//	quads, runs of 32    dword v   value v of octets 0, 2, 1, 3
//	octets, runs of 16   dword v   values v and v+4 of octet 0, then those of octet 1
//
// Codes are 64 plus a value.
//
//	AX arguments   R8 ... R11 every fourth row   R14, R15 one, three strides of rows   R13 bytes to prefetch ahead
//	SI tables   DI panel   R12 memory for dwords   DX a temporary
//	Z0 ... Z7, Z15 dwords   Z8 ... Z13 found   Z14, Z20 ... Z26 temporaries   Z16 ... Z19 as in gridbytes.go
//	Z27 lower bytes of words   Z28, Z29 upper bits of indices   Z30 order of octets   K1 ... K6 bits of indices
type byteFill struct {
	*byteDot
	lanes laneDot
}

// fillFound has the registers of byteFound.
var fillFound = byteFound{8, 9, 10, 11, 12, 13}

const (
	fillDwords                      = 15 // the last register of dwords
	fillTemp, fillIndex, fillSecond = 14, 23, 26
	fillLower, fillBits, fillOctets = 27, 28, 30
	fillD                           = 12 * 64 // offset from R12 of d of sixteen rows
	fillSlotSigns, fillSlotQH       = 0, 8
)

// recordOrder returns the code of x at byte i of 64 codes of a record.
func (f *byteFormat) recordOrder(i int) int {
	run, v, at := i/32*32, i%32/4, i%4
	switch {
	case f.quads:
		return run + 8*[4]int{0, 2, 1, 3}[at] + v
	case f.halves():
		return i/16*16 + at/2*8 + at%2*4 + i%16/4
	}
	return run + 8*at + v
}

func emitByteFills(e *emitter) {
	same := func(name string, bytes ...int) {
		bytesTable(e, name, 64, func(i int) int { return bytes[i%len(bytes)] })
	}
	same("fillLowerBytes", 0xFF, 0)
	same("fillMinus64", 0xC0, 0xFF)
	same("fillEighth", 0x01, 0x10, 0x04, 0x40)
	same("fillNinth", 0x02, 0x20, 0x08, 0x80)
	bytesTable(e, "fillOctetOrder", 64, func(i int) int { return i%16/4*4 + [4]int{0, 2, 1, 3}[i%4] })
	bytesTable(e, "fillCodes", 64, func(i int) int { return i%8/4*32 + 7*[4]int{0, 2, 1, 3}[i%4] })
	for b := range 4 {
		bytesTable(e, fmt.Sprintf("fillByte%d", b), 64, func(i int) int { return i%16/4*4 + b })
	}
	for _, f := range byteFormats {
		k := &byteFill{newByteDot(e, f, "SI"), laneDot{emitter: e, f: blockFormat{f.name, 256, f.bytes, 0},
			extra: fillDwords}}
		k.write()
	}
	// Orders of x for octets with runs of 32, octets with runs of 16, and quads.
	emitRecords(e, "byteRecordsavx512", true, byteFormats[0].recordOrder, byteFormats[1].recordOrder,
		byteFormats[3].recordOrder)
}

func (k *byteFill) write() {
	f := k.b
	k.function("byteFill"+f.name, "blockArgs", fmt.Sprintf("a block of sixteen rows of %s to a panel.", f.name))
	k.op(`
		MOVQ blockArgs_rows(AX), R8
		MOVQ blockArgs_stride(AX), R14
		LEAQ (R14)(R14*2), R15
		LEAQ (R8)(R14*4), R9
		LEAQ (R9)(R14*4), R10
		LEAQ (R10)(R14*4), R11
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_trees(AX), R12
		MOVQ blockArgs_grid(AX), SI
		MOVQ blockArgs_panel(AX), DI`)
	bases := [4]string{"R8", "R9", "R10", "R11"}
	for r := range 16 {
		k.op(`
			MOVWLZX %s, DX
			MOVW DX, %d(R12)`, spaced(bases[r/4], "R14", "R15", "", 0, r%4), fillD+2*r)
	}
	for _, base := range bases {
		k.op("LEAQ (%s)(R13*1), DX", base)
		for r := range 4 {
			for at := 0; at < f.bytes; at += 64 {
				k.op("PREFETCHT0 %s", spaced("DX", "R14", "R15", "", at, r))
			}
		}
	}
	k.constants()
	k.op(`
		VMOVDQU64 fillLowerBytes<>(SB), Z%d
		VMOVDQU64 fillEighth<>(SB), Z%d
		VMOVDQU64 fillNinth<>(SB), Z%d
		VMOVDQU64 fillOctetOrder<>(SB), Z%d`, fillLower, fillBits, fillBits+1, fillOctets)
	switch f.name {
	case "IQ2XXS":
		k.eachGroup(2, func(j, a, codes int) {
			k.sevens(j, codes, fmt.Sprintf("Z%d", octetCodes))
			k.lookup(a, fillFound[0], fillFound[1], fillTemp)
			k.group(j)
		})
	case "IQ2XS":
		z := k.lanes.transposed(58, 16)
		k.nibbles(z[2], 0)
		k.nibbles(z[3], 1)
		k.eachGroup(2, func(j, a, b int) {
			k.bothBytes(a, b)
			k.op(`
				VPSLLW $7, Z%d, Z%d
				VPMOVB2M Z%d, K4`, fillSecond, fillTemp, fillTemp)
			k.halfRuns(j, fillSecond)
		})
	case "IQ2S":
		k.keep(k.lanes.transposed(34, 32), fillSlotSigns)
		z := k.lanes.transposed(66, 16)
		k.keep(z[:2], fillSlotQH)
		k.nibbles(z[2], 0)
		k.nibbles(z[3], 1)
		for j, a := range k.lanes.transposed(2, 32) {
			k.upper(j)
			k.tests(0, 4)
			k.tests(1, 5)
			k.op("VPSHUFB Z%d, Z%d, Z%d", fillOctets, a, fillIndex)
			k.kept(fillSlotSigns+j, fillSecond)
			k.op("VPSHUFB Z%d, Z%d, Z%d", fillOctets, fillSecond, fillSecond)
			k.halfRuns(j, fillSecond)
		}
	case "IQ3XXS":
		k.keep(k.lanes.transposed(66, 32), fillSlotSigns)
		k.eachGroup(2, func(j, a, b int) {
			k.kept(fillSlotSigns+j, fillFound[2])
			k.op("VMOVDQU64 fillCodes<>(SB), Z%d", fillTemp)
			k.sevens(j, fillFound[2], fmt.Sprintf("Z%d", fillTemp))
			k.bothBytes(a, b)
			k.lookup(fillIndex, fillFound[0], fillFound[1], fillTemp)
			k.lookup(fillSecond, fillFound[4], fillFound[5], fillTemp)
			k.group(j)
		})
	case "IQ3S":
		z := k.lanes.transposed(66, 32)
		k.keep(z[:2], fillSlotQH)
		k.keep(z[2:], fillSlotSigns)
		z = k.lanes.transposed(78, 32)
		k.keep(z[5:7], fillSlotSigns+6)
		k.nibbles(z[7], 0)
		k.eachGroup(2, func(j, a, b int) {
			k.upper(j)
			k.bothBytes(a, b)
			k.tests(0, 4)
			k.lookup(fillIndex, fillFound[0], fillFound[1], fillTemp)
			k.upper(j)
			k.tests(1, 4)
			k.lookup(fillSecond, fillFound[4], fillFound[5], fillTemp)
			k.kept(fillSlotSigns+j, fillFound[2])
			k.op("VPSHUFB Z%d, Z%d, Z%d", fillOctets, fillFound[2], fillFound[2])
			k.group(j)
		})
	}
	k.op("VCVTPH2PS %d(R12), Z%d", fillD, fillTemp)
	if f.times != 1 {
		k.op("VMULPS.BCST byteFactor%s<>(SB), Z%d, Z%d", f.name, fillTemp, fillTemp)
	}
	k.op("VMOVUPS Z%d, %d(DI)", fillTemp, panelD)
	k.ret()
}

// keep stores dwords; kept loads one.
func (k *byteFill) keep(z []int, slot int) {
	for i, from := range z {
		k.op("VMOVDQA64 Z%d, %d(R12)", from, 64*(slot+i))
	}
}

func (k *byteFill) kept(slot, z int) { k.op("VMOVDQA64 %d(R12), Z%d", 64*slot, z) }

// eachGroup calls use for each 32 values with the registers of two dwords, of which the first is at byte from.
func (k *byteFill) eachGroup(from int, use func(j, a, b int)) {
	for part := range 2 {
		z := k.lanes.transposed(from+32*part, 32)
		for i := range 4 {
			use(4*part+i, z[2*i], z[2*i+1])
		}
	}
}

// sevens separates four sign codes of seven bits and a scale of each dword, and stores the scales.
func (k *byteFill) sevens(j, codes int, order string) {
	k.op("VPSRLD $27, Z%d, Z%d", codes, fillFound[3])
	k.op("VPORD.BCST byteOne<>(SB), Z%d, Z%d", fillFound[3], fillFound[3])
	k.scales(j, fillFound[3], fillFound[3])
	k.op("VPMULTISHIFTQB Z%d, %s, Z%d", codes, order, fillFound[2])
}

// scales stores scales 2j and 2j+1 of sixteen rows and a pair of them, or scale j of runs of 32. It overwrites Z20.
func (k *byteFill) scales(j, even, odd int) {
	k.op("VMOVDQU64 Z%d, %d(DI)", even, panelScales+128*j)
	if !k.b.halves() {
		return
	}
	k.op(`
		VMOVDQU64 Z%d, %d(DI)
		VPSLLD $16, Z%d, Z20
		VPORD Z%d, Z20, Z20
		VMOVDQU64 Z20, %d(DI)`, odd, panelScales+128*j+64, odd, even, panelPairs+64*j)
}

// nibbles stores eight scales, 2s+1, from the nibbles of a register. It overwrites Z20 ... Z25.
func (k *byteFill) nibbles(z, part int) {
	k.op("VPBROADCASTD byteScale<>(SB), Z25")
	for n := range 8 {
		to := 23 + n%2
		if n == 0 {
			k.op("VPSLLD $1, Z%d, Z%d", z, to)
		} else {
			k.op("VPSRLD $%d, Z%d, Z%d", 4*n-1, z, to)
		}
		k.op("VPTERNLOGD.BCST $0xEA, byteOne<>(SB), Z25, Z%d", to) // bits of Z25, or one
		switch {
		case !k.b.halves():
			k.scales(n, to, to)
		case n%2 == 1:
			k.scales(4*part+n/2, to-1, to)
		}
	}
}

// bothBytes writes the even bytes of two dwords to fillIndex and the odd bytes to fillSecond: those of octets or pairs
// of quads 0, 2, 1, 3.
func (k *byteFill) bothBytes(a, b int) {
	k.op(`
		VPSLLW $8, Z%d, Z%d
		VPTERNLOGD $0xD8, Z%d, Z%d, Z%d
		VPSRLW $8, Z%d, Z%d
		VPTERNLOGD $0xE4, Z%d, Z%d, Z%d`, b, fillIndex, fillLower, a, fillIndex,
		a, fillSecond, fillLower, b, fillSecond)
}

// upper writes byte j of eight bytes, four times, to the dwords of fillTemp.
func (k *byteFill) upper(j int) {
	k.kept(fillSlotQH+j/4, fillTemp)
	k.op("VPSHUFB fillByte%d<>(SB), Z%d, Z%d", j%4, fillTemp, fillTemp)
}

// tests writes a bit of each index to a mask.
func (k *byteFill) tests(odd, mask int) {
	k.op("VPTESTMB Z%d, Z%d, K%d", fillBits+odd, fillTemp, mask)
}

// halfRuns looks up four octets of fillIndex and stores two runs of sixteen values.
func (k *byteFill) halfRuns(j, signs int) {
	const first, second = 20, 21
	k.lookup(fillIndex, first, second, fillTemp)
	// The bytes of octets 0 and 1 are even, those of octets 2 and 3 odd.
	join := func(first, second, even, odd int) {
		k.op(`
			VPSLLW $8, Z%d, Z%d
			VPTERNLOGD $0xD8, Z%d, Z%d, Z%d
			VPSRLW $8, Z%d, Z%d
			VPTERNLOGD $0xE4, Z%d, Z%d, Z%d`, second, even, fillLower, first, even,
			first, odd, fillLower, second, odd)
	}
	join(first, second, fillFound[0], fillFound[1])
	k.signs(0, signs, first)
	k.signs(1, signs, second)
	join(first, second, fillFound[2], fillFound[3])
	k.group(j)
}

// group stores 32 values that have been looked up.
func (k *byteFill) group(j int) {
	k.values(fillFound, func(v, z int) { k.op("VMOVDQU64 Z%d, %d(DI)", z, 64*(8*j+v)) })
}
