package kernels

import (
	"time"

	"sparrow/internal/bench/pause"
	"sparrow/internal/machine"
)

// Result holds the times of one operation at one shape on one backend with one number of threads.
type Result struct {
	Name    string `json:"name"`
	Shape   string `json:"shape"`
	Backend string `json:"backend"`
	Threads int    `json:"threads"`

	Micros float64 `json:"us"`        // best round in which the matrix unit ran at its peak rate
	Median float64 `json:"us_median"` // median of all rounds
	Spread float64 `json:"spread"`    // (90th - 10th percentile) / median

	GFLOPs float64 `json:"gflops,omitempty"`
	// PeakGF is the GFLOP/s of the register loop in the round of Micros, times the number of threads.
	PeakGF    float64 `json:"peak_gflops,omitempty"`
	PeakShare float64 `json:"peak_share,omitempty"`
	GBs       float64 `json:"gb_per_s,omitempty"`
	StreamGBs float64 `json:"stream_gb_per_s,omitempty"` // rate of plain reads of the operation's memory, GB/s
	// StreamShare is the memory rate divided by StreamGBs. It is low for operations that read the same memory more than
	// once, even if they are fast.
	StreamShare float64 `json:"stream_share,omitempty"`
}

// Verdict is one row of the table of targets: the target, the measured value, and whether it was met.
type Verdict struct {
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	Got    string `json:"got"`
	// Met is "met", "not met" or "not measured".
	Met string `json:"met"`
}

// Values of Met.
const (
	Met         = "met"
	NotMet      = "not met"
	NotMeasured = "not measured"
)

// Report holds the results of a whole run.
type Report struct {
	Machine  machine.Machine `json:"machine"`
	Commit   string          `json:"commit"`
	Date     time.Time       `json:"date"`
	Rounds   int             `json:"rounds"`
	Results  []Result        `json:"results"`
	Pause    *pause.Pause    `json:"gc_pause,omitempty"`
	Verdicts []Verdict       `json:"targets"`

	peaks map[string]*float64 // [tier] best rate of the register loop
}

// bestPeak returns a pointer to the best rate of a tier's register loop so far.
func (r *Report) bestPeak(tier string) *float64 {
	if r.peaks == nil {
		r.peaks = map[string]*float64{}
	}
	if r.peaks[tier] == nil {
		r.peaks[tier] = new(float64)
	}
	return r.peaks[tier]
}
