package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The byte-level alphabet represents each of the 256 bytes by one printable character, because JSON cannot contain byte
// strings. Bytes that are printable in Latin-1 are represented by their code point, the other 68 by the code points
// from U+0100 on, in order. A space (0x20) is U+0120, "Ġ".
const alphabetEnd = 0x100 + 68

// alphabetByte maps a character of the alphabet to its byte, and other characters to -1.
var alphabetByte = func() (table [alphabetEnd]int16) {
	for i := range table {
		table[i] = -1
	}
	next := 0x100
	for b := range 256 {
		if printable := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE; printable {
			table[b] = int16(b)
			continue
		}
		table[next] = int16(b)
		next++
	}
	return table
}()

// appendUnspelled appends the bytes that word represents in the byte-level alphabet. If word has other characters, ok
// is false and dst is unchanged.
func appendUnspelled(dst, word []byte) (_ []byte, ok bool) {
	n := len(dst)
	for i := 0; i < len(word); {
		c, size := rune(word[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRune(word[i:])
		}
		if c >= alphabetEnd || alphabetByte[c] < 0 {
			return dst[:n], false
		}
		dst = append(dst, byte(alphabetByte[c]))
		i += size
	}
	return dst, true
}

// fallbackByte parses the name of a byte-fallback token, such as <0x0A>.
func fallbackByte(word string) (b byte, ok bool) {
	hex, ok := strings.CutPrefix(word, "<0x")
	if !ok || len(hex) != 3 || hex[2] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(hex[:2], 16, 8)
	return byte(v), err == nil
}

// fallbackName returns the name of a byte's byte-fallback token.
func fallbackName(b byte) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{'<', '0', 'x', digits[b>>4], digits[b&15], '>'})
}
