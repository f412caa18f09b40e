package sim

import (
	"testing"
	"time"
)

func TestSeeds(t *testing.T) {
	begun := time.Now()
	var all Report
	seed := uint64(0)
	for ; time.Since(begun) < 5*time.Second; seed++ {
		r, err := Run(seed, 60)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		all.Add(r)
	}
	t.Logf("%d seeds: %+v", seed, all)
}
