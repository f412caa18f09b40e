package model

import (
	"fmt"

	"sparrow/internal/device/offload"
)

// HostShare describes the experts that the CPU computes, as means per step.
type HostShare struct {
	Experts float64 `json:"experts"`  // experts of all layers; an expert of several rows counts once
	MB      float64 `json:"mb"`       // megabytes of weights of these experts
	BusyMs  float64 `json:"busy_ms"`  // time from the arrival of the rows to their results
	GBs     float64 `json:"gb_per_s"` // MB / BusyMs: rate of reading weights
}

// hostWork returns the counters of the experts that the CPU has computed.
func (b *bench) hostWork() offload.Work {
	if b.o.Experts.Host == nil {
		return offload.Work{}
	}
	return b.o.Experts.Host.Work()
}

// hostShare returns the difference of two counters per step, or nil if it is zero.
func hostShare(before, after offload.Work, steps int) *HostShare {
	bytes, busy := float64(after.Bytes-before.Bytes), (after.Busy - before.Busy).Seconds()
	if bytes == 0 || busy == 0 {
		return nil
	}
	n := float64(steps)
	return &HostShare{Experts: float64(after.Experts-before.Experts) / n, MB: bytes / n / 1e6, BusyMs: busy / n * 1e3,
		GBs: bytes / busy / 1e9}
}

func (h *HostShare) String() string {
	return fmt.Sprintf("the CPU computes %.1f experts, %.0f MB, in %.2f ms of a step: %.1f GB/s", h.Experts, h.MB,
		h.BusyMs, h.GBs)
}

// hosted returns the report lines for phases in which the CPU computes experts.
func (r *Report) hosted() (lines []string) {
	add := func(what string, p *Phase) {
		if p != nil && p.Host != nil {
			lines = append(lines, fmt.Sprintf("%s: %v", what, p.Host))
		}
	}
	for _, c := range r.Cells {
		add(fmt.Sprintf("decode after %d tokens, batch %d", c.Context, c.Batch), c.Decode)
		add(fmt.Sprintf("prefill after %d tokens, batch %d", c.Context, c.Batch), c.Prefill)
	}
	for _, p := range r.Prompts {
		add(fmt.Sprintf("a prompt of %d tokens", p.Length), p.Time)
	}
	return lines
}
