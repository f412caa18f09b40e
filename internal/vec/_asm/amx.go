package main

import (
	"fmt"
	"strings"
)

// Go's assembler has no mnemonics for AMX and AVX-512 BF16. The functions below
// encode the few that are used; a test compares them with GNU as.

// instruction is an encoded instruction, with its text in the syntax of GNU as.
type instruction struct {
	text  string
	bytes []byte
}

// emit writes the bytes of an instruction, with its text as a comment.
func emit(e *emitter, i instruction) {
	var s strings.Builder
	for _, b := range i.bytes {
		fmt.Fprintf(&s, "BYTE $0x%02X; ", b)
	}
	e.op("%s// %s", s.String(), i.text)
}

// Numbers of the general registers in encodings, and their names in GNU as.
var gpr = map[string]int{
	"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SP": 4, "BP": 5, "SI": 6, "DI": 7,
	"R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15,
}

func gnu(reg string) string {
	if gpr[reg] < 8 {
		return "%r" + strings.ToLower(reg)
	}
	return "%" + strings.ToLower(reg)
}

// memory is the operand disp(base)(index*1). Tile instructions use index as the distance between rows in bytes; memory
// without index omits it.
type memory struct {
	base, index string
	disp        int
}

func (m memory) String() string {
	d := ""
	if m.disp != 0 {
		d = fmt.Sprintf("%#x", m.disp)
		if m.disp < 0 {
			d = fmt.Sprintf("-%#x", -m.disp)
		}
	}
	if m.index == "" {
		return fmt.Sprintf("%s(%s)", d, gnu(m.base))
	}
	return fmt.Sprintf("%s(%s,%s,1)", d, gnu(m.base), gnu(m.index))
}

// Prefixes that a VEX or EVEX encoding represents in two bits.
const (
	ppNone = iota
	pp66
	ppF3
	ppF2
)

// vex returns the three-byte prefix of the map 0F38 with 128-bit length.
func vex(pp, vvvv, r, x, b int) []byte {
	inverted := (r>>3&1^1)<<7 | (x>>3&1^1)<<6 | (b>>3&1^1)<<5
	return []byte{0xC4, byte(inverted | 2), byte((^vvvv&15)<<3 | pp)}
}

// address returns the ModRM byte, the SIB byte and the displacement.
func (m memory) address(reg int) []byte {
	base := gpr[m.base]
	mod, disp := 0, []byte(nil)
	switch {
	case m.disp == 0 && base&7 != 5:
	case m.disp >= -128 && m.disp < 128:
		mod, disp = 1, []byte{byte(m.disp)}
	default:
		d := uint32(int32(m.disp))
		mod, disp = 2, []byte{byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}
	}
	out := []byte{byte(mod<<6 | (reg&7)<<3 | base&7)}
	if m.index != "" || base&7 == 4 {
		index := 4 // no index
		if m.index != "" {
			index = gpr[m.index]
		}
		out[0] = byte(mod<<6 | (reg&7)<<3 | 4)
		out = append(out, byte((index&7)<<3|base&7))
	}
	return append(out, disp...)
}

func (m memory) indexNumber() int {
	if m.index == "" {
		return 0
	}
	return gpr[m.index]
}

// overMemory returns an instruction of the map 0F38 with memory and one tile; tile 0 stands for none.
func overMemory(pp, opcode, tile int, m memory) []byte {
	out := append(vex(pp, 0, 0, m.indexNumber(), gpr[m.base]), byte(opcode))
	return append(out, m.address(tile)...)
}

// ldtilecfg loads the shapes of the tiles from 64 bytes.
func ldtilecfg(m memory) instruction {
	return instruction{"ldtilecfg " + m.String(), overMemory(ppNone, 0x49, 0, m)}
}

// tilerelease returns the tiles to their initial state.
func tilerelease() instruction {
	return instruction{"tilerelease", []byte{0xC4, 0xE2, 0x78, 0x49, 0xC0}}
}

// tilezero clears a tile.
func tilezero(t int) instruction {
	return instruction{fmt.Sprintf("tilezero %%tmm%d", t), append(vex(ppF2, 0, 0, 0, 0), 0x49, byte(0xC0|t<<3))}
}

// tileload reads the rows of a tile, index bytes apart.
func tileload(m memory, t int) instruction {
	return instruction{fmt.Sprintf("tileloadd %v,%%tmm%d", m, t), overMemory(ppF2, 0x4B, t, m)}
}

// tileloadOnce is tileload with the hint that the data will not be read again.
func tileloadOnce(m memory, t int) instruction {
	return instruction{fmt.Sprintf("tileloaddt1 %v,%%tmm%d", m, t), overMemory(pp66, 0x4B, t, m)}
}

// tilestore writes the rows of a tile, index bytes apart.
func tilestore(t int, m memory) instruction {
	return instruction{fmt.Sprintf("tilestored %%tmm%d,%v", t, m), overMemory(ppF3, 0x4B, t, m)}
}

// tdpbf16ps adds a·b to acc: a [rows, 2k] bfloat16, b [k, cols] of pairs.
func tdpbf16ps(b, a, acc int) instruction {
	return instruction{fmt.Sprintf("tdpbf16ps %%tmm%d,%%tmm%d,%%tmm%d", b, a, acc),
		append(vex(ppF3, b, 0, 0, 0), 0x5C, byte(0xC0|acc<<3|a))}
}

// evex returns a 512-bit instruction of the map 0F38 over registers:
// dst = op(first, second), where first is 0 for instructions with one source.
func evex(pp, opcode, dst, first, second int) []byte {
	p0 := (dst>>3&1^1)<<7 | (second>>4&1^1)<<6 | (second>>3&1^1)<<5 | (dst>>4&1^1)<<4 | 2
	p1 := (^first&15)<<3 | 4 | pp
	p2 := 2<<5 | (first>>4&1^1)<<3
	return []byte{0x62, byte(p0), byte(p1), byte(p2), byte(opcode), byte(0xC0 | (dst&7)<<3 | second&7)}
}

// narrowPair rounds two registers of float32 to one register of bfloat16; low goes to the lower half.
func narrowPair(low, high, dst int) instruction {
	return instruction{fmt.Sprintf("vcvtne2ps2bf16 %%zmm%d,%%zmm%d,%%zmm%d", low, high, dst),
		evex(ppF2, 0x72, dst, high, low)}
}

// narrowOne rounds one register of float32 to half a register of bfloat16.
func narrowOne(src, dst int) instruction {
	return instruction{fmt.Sprintf("vcvtneps2bf16 %%zmm%d,%%ymm%d", src, dst), evex(ppF3, 0x72, dst, 0, src)}
}
