package kernels

import (
	"context"
	"testing"

	"sparrow/kernel"
)

// A GEMM is compared with the rate of the matrix unit in the same round, and only rounds in which that unit ran at its
// peak count.
func TestBestMomentIsOneAtThePeak(t *testing.T) {
	for _, c := range []struct {
		name    string
		moments []moment
		want    moment
	}{
		{"all at the peak", []moment{{30, 99}, {20, 95}, {25, 100}}, moment{20, 95}},
		{"a fast sample in a slow round", []moment{{10, 40}, {20, 95}, {25, 100}}, moment{20, 95}},
		{"only slow rounds", []moment{{30, 40}, {28, 39}}, moment{28, 39}},
		{"no loop to compare with", []moment{{3, 0}, {2, 0}}, moment{2, 0}},
	} {
		if got := (&timing{moments: c.moments}).best(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Cases that are compared with the peak get rounds until enough of them were at the peak; other cases get the
// configured number.
func TestRoundsAreAddedUntilThePeakWasSeen(t *testing.T) {
	// Without a register loop, every round counts as a round at the peak.
	op := &Op{Run: func(kernel.Device) error { return nil }}
	slow := []moment{{1, 10}, {1, 10}, {1, 10}, {1, 10}}
	best := 100.0
	for _, c := range []struct {
		name   string
		ofPeak bool
		rounds int
		want   int // expected number of moments, including the slow moments at the beginning
	}{
		{"not compared with the peak", false, settled, len(slow) + settled},
		{"enough at the peak", true, settled + 1, len(slow) + settled + 1},
		{"too few rounds configured to wait for it", true, settled - 1, len(slow) + settled - 1},
	} {
		r := &timing{op: op, c: Case{OfPeak: c.ofPeak}, moments: slow}
		err := timeRounds(context.Background(), []*timing{r}, c.rounds, &best)
		if err != nil || len(r.moments) != c.want {
			t.Errorf("%s: %d moments, want %d (%v)", c.name, len(r.moments), c.want, err)
		}
	}
	// A round is skipped once the operation has taken long; later rounds at the peak compensate for it.
	late := &timing{op: op, c: Case{OfPeak: true}, spent: 2 * timeLimit}
	err := timeRounds(context.Background(), []*timing{late}, settled, &best)
	if err != nil || late.atPeak(best) != settled {
		t.Errorf("%d moments at the peak, want %d (%v)", late.atPeak(best), settled, err)
	}
}
