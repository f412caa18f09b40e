package main

import "testing"

// The affine maps compute the bytes of every code that is not zero, subnormal or NaN, and mark the other codes.
func TestAffineMapsDecodeOrdinaryCodes(t *testing.T) {
	for c := range 256 {
		magnitude := c & 0x7F
		ordinary := magnitude >= 8 && magnitude != 0x7F
		if mark := markMap.of(c); (mark < markLeast) != ordinary || mark > 255 {
			t.Errorf("code %#x has the mark %d", c, mark)
		}
		want := bf16OfCode(magnitude) | c&0x80<<8
		if got := highMap.of(c)<<8 | lowMap.of(c); ordinary && got != want {
			t.Errorf("code %#x: %#x, want %#x", c, got, want)
		}
	}
}
