package kernels

import (
	"time"

	"sparrow/internal/bench/pause"
	"sparrow/internal/machine"
)

// Result is one operation at one shape on one backend with a number of threads.
type Result struct {
	Name    string `json:"name"`
	Shape   string `json:"shape"`
	Backend string `json:"backend"`
	Threads int    `json:"threads"`

	Micros float64 `json:"us"`        // best of the rounds in which the matrix unit ran at its peak rate
	Median float64 `json:"us_median"` // of all rounds
	Spread float64 `json:"spread"`    // (90th - 10th percentile) / median

	GFLOPs float64 `json:"gflops,omitempty"`
	// of the backend's tier in the round of Micros, all threads together
	PeakGF    float64 `json:"peak_gflops,omitempty"`
	PeakShare float64 `json:"peak_share,omitempty"`
	GBs       float64 `json:"gb_per_s,omitempty"`
	StreamGBs float64 `json:"stream_gb_per_s,omitempty"` // plain reading of the same memory
	// StreamShare compares rates. For operations that read memory more than once it can be small although they are not
	// slow.
	StreamShare float64 `json:"stream_share,omitempty"`
}

// Verdict is one row of the table of targets.
type Verdict struct {
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	Got    string `json:"got"`
	// Met is "met", "not met" or "not measured".
	Met string `json:"met"`
}

// The values of a verdict.
const (
	Met         = "met"
	NotMet      = "not met"
	NotMeasured = "not measured"
)

// Report is a whole run.
type Report struct {
	Machine  machine.Machine `json:"machine"`
	Commit   string          `json:"commit"`
	Date     time.Time       `json:"date"`
	Rounds   int             `json:"rounds"`
	Results  []Result        `json:"results"`
	Pause    *pause.Pause    `json:"gc_pause,omitempty"`
	Verdicts []Verdict       `json:"targets"`

	peaks map[string]*float64 // by tier: best rate of the loop over registers in this run
}

// bestPeak returns the location of the best rate of a tier's loop over registers.
func (r *Report) bestPeak(tier string) *float64 {
	if r.peaks == nil {
		r.peaks = map[string]*float64{}
	}
	if r.peaks[tier] == nil {
		r.peaks[tier] = new(float64)
	}
	return r.peaks[tier]
}
