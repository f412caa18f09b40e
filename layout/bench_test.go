package layout

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkEncodeRow(b *testing.B) {
	row := randomRow(rand.New(rand.NewPCG(1, 1)))
	for name, l := range mains() {
		b.Run(name, func(b *testing.B) {
			page := make([]byte, l.RowBytes())
			b.SetBytes(int64(l.RowBytes()))
			for b.Loop() {
				l.Encode(page, 0, row)
			}
		})
	}
}

func BenchmarkDecodeRow(b *testing.B) {
	row := randomRow(rand.New(rand.NewPCG(1, 1)))
	for name, l := range mains() {
		b.Run(name, func(b *testing.B) {
			page := make([]byte, l.RowBytes())
			l.Encode(page, 0, row)
			b.SetBytes(int64(l.RowBytes()))
			for b.Loop() {
				l.Decode(row, page, 0)
			}
		})
	}
}
