package sparrow

import (
	"context"
	"log/slog"

	"sparrow/internal/background"
	"sparrow/internal/device"
	"sparrow/internal/kv/tier"
	"sparrow/weight"
)

// readAtOnce is the maximum number of bytes of weights that are read when an engine opens, if no file contains their
// digest: reading them takes a fraction of a second. Larger weights are read while the engine serves requests.
const readAtOnce = 256 << 20

// nameWeights returns identifiers of the weights, which are part of the keys of cached pages outside the device. They
// include the set of experts that the CPU computes, because it changes rounding. All weights are read only if leave is
// set: pages then leave the process.
func nameWeights(w *weight.Checkpoint, placed *device.PlacedExperts, leave bool, log *slog.Logger) tier.Weights {
	out := tier.Weights{Sampled: placed.Identity(w.Fingerprint()),
		Local: placed.Identity(tier.Fingerprint(w.LocalFingerprint()))}
	if !leave {
		return out
	}
	read := func(ctx context.Context) (tier.Fingerprint, error) {
		d, kept, err := w.ReadDigest(ctx)
		if kept != nil {
			log.Warn("the digest of the weights cannot be stored next to their files; the weights are read again at "+
				"each start",
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
