package engram

import "testing"

// Every byte has one name, and no other rune names a byte.
func TestNamesOfBytes(t *testing.T) {
	var names [256]rune
	for r := range rune(0x400) {
		b, ok := byteOf(r)
		if !ok {
			continue
		}
		if names[b] != 0 {
			t.Errorf("byte %#x is named %q and %q", b, names[b], r)
		}
		names[b] = r
	}
	for b, want := range map[byte]rune{0: 0x100, ' ': 'Ġ', '\n': 'Ċ', '!': '!', '~': '~', 0x7f: 0x121, 0xa0: 0x142,
		0xa1: 0xa1, 0xac: 0xac, 0xad: 0x143, 0xae: 0xae, 0xff: 0xff} {
		if names[b] != want {
			t.Errorf("byte %#x is named %q, want %q", b, names[b], want)
		}
	}
	for b, r := range names {
		if r == 0 {
			t.Errorf("byte %#x has no name", b)
		}
	}
	for name, want := range map[string]string{"Ġa": " a", "ĊĊ": "\n\n", "aŃb": "a\xadb", "ńx": "ńx", "a b": "a b"} {
		if got := bytesOf(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
