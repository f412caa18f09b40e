package plan

import "testing"

func BenchmarkBuild(b *testing.B) {
	cfg := newSetup(b, "sm90", kv("fp8")).resolve(b)
	for _, c := range []struct {
		name  string
		cfg   Config
		batch Batch
	}{
		{"decode 64", cfg, Batch{Mode: ModeDecode, Requests: repeat(64, DecodeRequest(5000))}},
		{"verify 64x4", cfg, Batch{Mode: ModeVerify, Requests: repeat(64, VerifyRequest(4, 5000))}},
		{"extend 8192", cfg, extend(8192)},
		{"mixed 8192 and 63 decodes", cfg,
			Batch{Mode: ModeMixed, Requests: append(repeat(63, DecodeRequest(5000)), ExtendRequest(8192, 0))}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Build(c.cfg, c.batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkShapeOf(b *testing.B) {
	cfg := newSetup(b, "sm90", kv("fp8")).resolve(b)
	batch := Batch{Mode: ModeDecode, Requests: repeat(64, DecodeRequest(5000))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ShapeOf(cfg, batch); err != nil {
			b.Fatal(err)
		}
	}
}
