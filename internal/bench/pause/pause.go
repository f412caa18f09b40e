// Package pause measures how long garbage collection stops a program while all its workers run assembly kernels, which
// have no safe points. It runs the caller's work and returns the longest pause.
package pause

import (
	"errors"
	"math"
	"runtime"
	"runtime/metrics"
	"time"
)

// Pause holds the pauses of garbage collection in a program whose workers run assembly kernels.
type Pause struct {
	// Worst is the longest pause in milliseconds, from the request to stop to the restart, rounded up to a bucket of
	// the runtime's histogram.
	Worst       float64 `json:"worst_ms"`
	Collections int     `json:"collections"`
}

// metric is the runtime's histogram of pauses for garbage collection.
const metric = "/sched/pauses/total/gc:seconds"

// Measure runs garbage collections for the time d while work runs. work must keep every worker busy until stop is
// closed.
func Measure(d time.Duration, work func(stop <-chan struct{}) error) (*Pause, error) {
	before := counts()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- work(stop) }()
	p := &Pause{}
	var early error
	for begin := time.Now(); time.Since(begin) < d && early == nil; p.Collections++ {
		runtime.GC()
		select {
		case early = <-ended:
			if early == nil {
				early = errors.New("the work ended before stop was closed")
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
	close(stop)
	if early != nil {
		return nil, early
	}
	if err := <-ended; err != nil {
		return nil, err
	}
	p.Worst = worst(before, counts()) * 1e3
	return p, nil
}

// histogram is a snapshot of the runtime's histogram.
type histogram struct {
	counts  []uint64
	buckets []float64
}

func counts() histogram {
	s := []metrics.Sample{{Name: metric}}
	metrics.Read(s)
	h := s[0].Value.Float64Histogram()
	return histogram{append([]uint64(nil), h.Counts...), h.Buckets}
}

// worst returns the upper end, in seconds, of the highest bucket whose count has increased.
func worst(before, after histogram) float64 {
	for i := len(after.counts) - 1; i >= 0; i-- {
		if after.counts[i] > before.counts[i] {
			if end := after.buckets[i+1]; !math.IsInf(end, 1) {
				return end
			}
			return after.buckets[i]
		}
	}
	return 0
}
