package gguf

import (
	"fmt"

	"sparrow/internal/block"
)

// Type is an element type, as numbered by the format.
type Type uint32

// Plain types. The others are block formats ([Type.Block]).
const (
	F32  Type = 0
	F16  Type = 1
	I32  Type = 26
	BF16 Type = 30
)

var plainTypes = map[Type]struct {
	name  string
	bytes int
}{F32: {"F32", 4}, F16: {"F16", 2}, I32: {"I32", 4}, BF16: {"BF16", 2}}

var blockTypes = map[Type]block.Format{2: block.Q4_0, 3: block.Q4_1, 6: block.Q5_0, 7: block.Q5_1, 8: block.Q8_0,
	10: block.Q2_K, 11: block.Q3_K, 12: block.Q4_K, 13: block.Q5_K, 14: block.Q6_K, 16: block.IQ2_XXS,
	17: block.IQ2_XS, 18: block.IQ3_XXS, 19: block.IQ1_S, 20: block.IQ4_NL, 21: block.IQ3_S, 22: block.IQ2_S,
	23: block.IQ4_XS, 29: block.IQ1_M, 34: block.TQ1_0, 35: block.TQ2_0, 39: block.MXFP4, 40: block.NVFP4}

// otherTypes holds the names of unsupported types, for errors.
var otherTypes = map[Type]string{9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 27: "I64", 28: "F64"}

// firstForeign is the first number of types that only ik_llama.cpp has; llama.cpp's numbers are far below.
const firstForeign = 97

func (t Type) String() string {
	if p, ok := plainTypes[t]; ok {
		return p.name
	}
	if b, ok := blockTypes[t]; ok {
		return b.String()
	}
	if name, ok := otherTypes[t]; ok {
		return name
	}
	if t >= firstForeign {
		return fmt.Sprintf("type %d, made for ik_llama.cpp", uint32(t))
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block returns the block format of a type; ok is false for plain types.
func (t Type) Block() (block.Format, bool) {
	f, ok := blockTypes[t]
	return f, ok
}

// unit returns the values and bytes of a block, or of one value of a plain type; ok is false for unsupported types.
func (t Type) unit() (values, bytes int, ok bool) {
	if p, found := plainTypes[t]; found {
		return 1, p.bytes, true
	}
	if f, found := blockTypes[t]; found {
		return f.Values(), f.Bytes(), true
	}
	return 0, 0, false
}

// TypeOf returns the type of a block format.
func TypeOf(f block.Format) Type {
	for t, g := range blockTypes {
		if g == f {
			return t
		}
	}
	panic(fmt.Sprintf("gguf: no type for %v", f))
}
