package kernels

import (
	"errors"
	"time"

	"sparrow/internal/bench/pause"
	"sparrow/kernel"
)

// ProductPauses measures the pauses of garbage collection while all threads of a backend run GEMMs for the duration d.
func ProductPauses(b kernel.Backend, threads int, d time.Duration) (_ *pause.Pause, err error) {
	dev, err := b.Open(kernel.Options{Workers: threads})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	rig := newRig(1 << 20)
	op := multiply(rig, gemmRows, rig.weight(kernel.BF16, gemmOut, gemmIn))
	if err := rig.failed(); err != nil {
		return nil, err
	}
	return pause.Measure(d, func(stop <-chan struct{}) error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := op.Run(dev); err != nil {
				return err
			}
		}
	})
}
