package main

import "fmt"

// The decoder of e4m3 codes to bfloat16, which represents all codes exactly. It looks up each of the two bytes of the
// result by the seven bits below the sign.

// Registers that the decoder needs throughout a kernel; codeTables loads them.
const (
	codeHigh = 28 // two registers: upper bytes of the results of codes 0 to 63 and 64 to 127
	codeLow  = 30 // two registers: lower bytes
	codeSign = 27 // the sign bit of every byte
)

// bf16OfCode returns the bfloat16 of an e4m3 code without its sign.
func bf16OfCode(c int) int {
	exp, man := c>>3, c&7
	switch {
	case c == 0x7F:
		return 0x7FC0
	case c == 0:
		return 0
	case exp == 0: // man * 2^-9
		top := 0
		for man>>(top+1) != 0 {
			top++
		}
		return (127-9+top)<<7 | (man<<(7-top))&0x7F
	}
	return (exp+120)<<7 | man<<4
}

// codeTablesData writes the tables.
func codeTablesData(e *emitter) {
	for _, t := range []struct {
		name  string
		shift int
	}{{"codeHigh", 8}, {"codeLow", 0}} {
		data := make([]byte, 128)
		for c := range data {
			data[c] = byte(bf16OfCode(c) >> t.shift)
		}
		table(e, t.name, data)
	}
	codeSignData(e)
}

// codeSignData writes the sign bit of every byte.
func codeSignData(e *emitter) {
	sign := make([]byte, 64)
	for i := range sign {
		sign[i] = 0x80
	}
	table(e, "codeSign", sign)
}

// table writes read-only bytes.
func table(e *emitter, name string, data []byte) {
	e.raw("")
	for i := 0; i < len(data); i += 8 {
		var v uint64
		for j := range 8 {
			v |= uint64(data[i+j]) << (8 * j)
		}
		e.raw("DATA %s<>+%d(SB)/8, $0x%016X", name, i, v)
	}
	e.raw("GLOBL %s<>(SB), RODATA|NOPTR, $%d", name, len(data))
}

// codeTables loads the decoder's registers.
func codeTables(e *emitter) {
	e.op(`
		VMOVDQU64 codeHigh<>(SB), Z%d
		VMOVDQU64 codeHigh<>+64(SB), Z%d
		VMOVDQU64 codeLow<>(SB), Z%d
		VMOVDQU64 codeLow<>+64(SB), Z%d`, codeHigh, codeHigh+1, codeLow, codeLow+1)
	e.op("VMOVDQU64 codeSign<>(SB), Z%d", codeSign)
}

// codeRegisters holds the registers of a decoder's tables; each table has two registers.
type codeRegisters struct{ low, high, sign int }

// decodeCodes decodes the 64 codes in register c to bfloat16: the first eight of every 128-bit lane in register c, and
// the other eight in register t. It overwrites u.
func decodeCodes(e *emitter, c, t, u int) {
	unpackCodes(e, codeRegisters{low: codeLow, high: codeHigh, sign: codeSign}, c, t, u)
}

// unpackCodes is decodeCodes with tables in the given registers.
func unpackCodes(e *emitter, r codeRegisters, c, t, u int) {
	e.op("VMOVDQA64 Z%d, Z%d", c, t)
	e.op("VPERMI2B Z%d, Z%d, Z%d", r.high+1, r.high, t)
	e.op("VMOVDQA64 Z%d, Z%d", c, u)
	e.op("VPERMI2B Z%d, Z%d, Z%d", r.low+1, r.low, u)
	e.list(`
		VPTERNLOGD $0xF8, Z{sign}, Z{c}, Z{t}
		VPUNPCKLBW Z{t}, Z{u}, Z{c}
		VPUNPCKHBW Z{t}, Z{u}, Z{t}`, "sign", r.sign, "c", c, "t", t, "u", u)
}

// inOrder is the name of the permutation of quadwords after which decodeCodes leaves the first 32 codes in c and the
// last 32 in t.
const inOrder = "codeOrder"

func inOrderData(e *emitter) {
	data := make([]byte, 64)
	for i, q := range []int{0, 4, 1, 5, 2, 6, 3, 7} {
		data[8*i] = byte(q)
	}
	table(e, inOrder, data)
}

// at16 returns the address of 16 bytes from a base register.
func at16(base string, disp int) string {
	if disp == 0 {
		return fmt.Sprintf("(%s)", base)
	}
	return fmt.Sprintf("%d(%s)", disp, base)
}
