package synth

import (
	"context"
	"io"
	"testing"

	"sparrow/weight"
)

// BenchmarkFill measures how fast weights are generated, without the disk: bytes per second of a matrix of 1024 x 4096,
// including scales.
func BenchmarkFill(b *testing.B) {
	for _, fp8 := range []bool{false, true} {
		t := tensor{name: "w", like: "w", shape: []int{1024, 4096}, dtype: weight.BF16, spread: 0.03}
		name := "bf16"
		if fp8 {
			t.dtype, t.store, t.scale, name = weight.F8E4M3, blockFP8, "w_scale_inv", "fp8"
		}
		b.Run(name, func(b *testing.B) {
			f := &filler{ctx: context.Background(), pow2: true}
			bytes := int64(0)
			for _, s := range f.sources(t) {
				n, _ := s.Bytes()
				bytes += n
			}
			b.SetBytes(bytes)
			for b.Loop() {
				for _, s := range f.sources(t) {
					if err := s.Fill(io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
