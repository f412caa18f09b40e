package sparrow

import (
	"context"
	"log/slog"

	"sparrow/internal/background"
	"sparrow/internal/device"
	"sparrow/internal/kv/tier"
	"sparrow/weight"
)

// readAtOnce is how many bytes of weights are read when an engine opens, where their digest is not stored with them: a
// fraction of a second. More are read while it serves.
const readAtOnce = 256 << 20

// nameWeights returns how pages outside the device name the weights. Experts that the CPU computes are part of every
// name. All weights are read only where pages leave the process.
func nameWeights(w *weight.Checkpoint, placed *device.PlacedExperts, leave bool, log *slog.Logger) tier.Weights {
	out := tier.Weights{Sampled: placed.Identity(w.Fingerprint()),
		Local: placed.Identity(tier.Fingerprint(w.LocalFingerprint()))}
	if !leave {
		return out
	}
	read := func(ctx context.Context) (tier.Fingerprint, error) {
		d, kept, err := w.ReadDigest(ctx)
		if kept != nil {
			log.Warn("the digest of the weights cannot be kept beside them; they are read again at each start",
				"error", kept)
		}
		return placed.Identity(tier.Fingerprint(d)), err
	}
	if d, known := w.KnownDigest(); known {
		whole := placed.Identity(tier.Fingerprint(d))
		out.Whole = &whole
	} else if w.Bytes() <= readAtOnce && !w.Drawn() {
		if whole, err := read(context.Background()); err == nil {
			out.Whole = &whole
		}
	}
	out.Read = func(ctx context.Context) (sum tier.Fingerprint, err error) {
		background.Run(func() { sum, err = read(ctx) })
		return sum, err
	}
	return out
}
