package peak

import (
	"encoding/binary"
	"sync/atomic"
)

// sink keeps the compiler from removing the reads of readGo.
var sink atomic.Uint64

// readGo reads the whole 8-byte words of p.
func readGo(p []byte) {
	var a, b, c, d uint64
	for ; len(p) >= 32; p = p[32:] {
		a ^= binary.LittleEndian.Uint64(p)
		b ^= binary.LittleEndian.Uint64(p[8:])
		c ^= binary.LittleEndian.Uint64(p[16:])
		d ^= binary.LittleEndian.Uint64(p[24:])
	}
	sink.Store(a ^ b ^ c ^ d)
}
