package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of character classes that the patterns of tokenizers use.
type class uint8

const (
	letter    class = 1 << iota // \p{L}
	combining                   // \p{M}
	number                      // \p{N}
	punct                       // \p{P}
	symbol                      // \p{S}
	space                       // \s
	newline                     // [\r\n]
)

// classTable holds the class of every code point, in blocks of 256. Equal blocks are stored once, which needs about 90
// kB instead of 1.1 MB.
type classTable struct {
	ascii  [utf8.RuneSelf]class
	block  [(unicode.MaxRune + 1) / 256]uint16 // index in blocks of each block of 256 code points
	blocks []class                             // [blocks, 256]
}

// classes builds the table from package unicode at its first use, in a few milliseconds.
var classes = sync.OnceValue(func() *classTable {
	flat := make([]class, unicode.MaxRune+1)
	set := func(table *unicode.RangeTable, c class) {
		for _, r := range table.R16 {
			for x := int(r.Lo); x <= int(r.Hi); x += int(r.Stride) {
				flat[x] |= c
			}
		}
		for _, r := range table.R32 {
			for x := int(r.Lo); x <= int(r.Hi); x += int(r.Stride) {
				flat[x] |= c
			}
		}
	}
	set(unicode.L, letter)
	set(unicode.M, combining)
	set(unicode.N, number)
	set(unicode.P, punct)
	set(unicode.S, symbol)
	set(unicode.White_Space, space)
	flat['\r'] |= newline
	flat['\n'] |= newline

	t := new(classTable)
	copy(t.ascii[:], flat)
	seen := map[[256]class]uint16{}
	for i := range t.block {
		b := [256]class(flat[i*256:])
		n, ok := seen[b]
		if !ok {
			n = uint16(len(seen))
			seen[b] = n
			t.blocks = append(t.blocks, b[:]...)
		}
		t.block[i] = n
	}
	return t
})

// at returns the class and the number of bytes of the character at s[i]. An invalid byte has the class of U+FFFD.
func (t *classTable) at(s string, i int) (class, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	return t.wide(s[i:])
}

// wide does the work of at for a character that is not ASCII.
func (t *classTable) wide(s string) (class, int) {
	r, size := utf8.DecodeRuneInString(s)
	return t.blocks[int(t.block[r>>8])<<8|int(r&0xFF)], size
}

// run returns the end of the longest run of characters from s[i] on that are in at least one class of any.
func (t *classTable) run(s string, i int, any class) int {
	for i < len(s) {
		c, size := t.at(s, i)
		if c&any == 0 {
			break
		}
		i += size
	}
	return i
}

// runNot returns the end of the longest run of characters from s[i] on that are in no class of none.
func (t *classTable) runNot(s string, i int, none class) int {
	for i < len(s) {
		c, size := t.at(s, i)
		if c&none != 0 {
			break
		}
		i += size
	}
	return i
}
