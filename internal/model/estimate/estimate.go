// Package estimate computes how long each stage of a step takes on one or several GPUs, and how a model is placed in
// the memories of a machine, without running anything.
//
// The inputs are a config, a planned batch and a machine; the outputs are times with their formulas. Times are computed
// from kernel times that were measured on one H200 and its host (package cost), and from published rates of links
// between GPUs.
package estimate

import (
	"fmt"
	"io"
	"text/tabwriter"

	"sparrow/internal/model/config"
	"sparrow/internal/unit"
	"sparrow/plan"
)

// Stage is a part of a step on one GPU.
type Stage struct {
	Name    string  `json:"name"`
	Micros  float64 `json:"microseconds"`
	Formula string  `json:"formula"`
}

// Estimate is the time of a step.
type Estimate struct {
	GPUs int `json:"gpus"`
	Rows int `json:"rows"`
	// Attention is the division of attention between GPUs, if it is not by heads; Stages then holds the times of the
	// slowest GPU.
	Attention   plan.Division `json:"attention,omitempty"`
	Stages      []Stage       `json:"stages"`
	Millis      float64       `json:"milliseconds"`
	WeightBytes int64         `json:"weight_bytes"` // bytes of weights on each GPU
	// Warning is a text about weights that do not fit, with the number of GPUs that would hold them; else empty.
	Warning string `json:"warning,omitempty"`
}

// Of estimates a step of a batch on GPUs that share a model (docs/ranks.md). Experts have the format in which the
// family is released.
func Of(d config.Description, cfg *plan.Config, b *plan.Batch, gpus int) (*Estimate, error) {
	if err := measured(d); err != nil {
		return nil, fmt.Errorf("estimate: %w", err)
	}
	if cfg.Hardware.Arch != plan.SM90 || cfg.Layout != plan.FP8Row656 && cfg.Layout != plan.V4Row584 &&
		cfg.Layout != plan.FP8Row528 {
		return nil, fmt.Errorf("estimate: %v with %v rows is not supported: times were measured only on an H200 with "+
			"FP8 rows; use --hw h200 (or 8xh200 for 8 GPUs) and --kv fp8", cfg.Hardware.Arch, cfg.Layout)
	}
	if n := max(cfg.Model.Ranks, 1); n != gpus {
		return nil, fmt.Errorf("estimate: the plan is for %d ranks, but %d GPUs were requested", n, gpus)
	}
	m := H200s(gpus)
	out := estimate(d, cfg, b, &m, nil)
	out.WeightBytes = weightBytes(d, cfg.Model.Heads, gpus)
	if room := m.GPU.MemoryBytes - graphBytes - driverBytes; out.WeightBytes > room {
		out.Warning = fmt.Sprintf("the weights do not fit: %s on each H200 of %s%s", unit.Bytes(out.WeightBytes),
			unit.Bytes(m.GPU.MemoryBytes), enough(d, cfg.Model, room))
	}
	return out, nil
}

// weightBytes returns the bytes of weights on each GPU; heads is the number of heads of a GPU.
func weightBytes(d config.Description, heads, gpus int) int64 {
	e := expertsOf(d)
	return restBytes(d, heads, gpus) + int64(bytesOf(releasedFormat(d), e.values()))*int64(e.count()/gpus)
}

// enough returns a text with the smallest number of GPUs, each with room bytes of memory, that hold the weights; empty
// if there is none.
func enough(d config.Description, m plan.Model, room int64) string {
	how := m.Division
	if m.Ranks > 1 && !m.ByRequests() {
		m.Heads = m.Heads*m.Ranks - m.PaddedHeads
	}
	for n := 2; n <= mostGPUs; n++ {
		if part, err := m.Divide(n, how); err == nil && weightBytes(d, part.Heads, n) <= room {
			return fmt.Sprintf("; %d H200s hold them (--hw %dxh200)", n, n)
		}
	}
	return ""
}

// estimate adds the stages of a step. If ranks divide attention by requests, these are the stages of the slowest rank,
// for which the other ranks wait in every layer.
func estimate(d config.Description, cfg *plan.Config, b *plan.Batch, m *Machine, s *split) *Estimate {
	if !cfg.Model.ByRequests() {
		return stages(d, newParts(d, cfg, b, m, s, 0), m)
	}
	var slowest *Estimate
	for rank := range cfg.Model.Ranks {
		e := stages(d, newParts(d, cfg, b, m, s, rank), m)
		if slowest == nil || e.Millis > slowest.Millis {
			slowest = e
		}
	}
	slowest.Attention = cfg.Model.Division
	return slowest
}

// measured returns an error for a family whose kernels were not measured.
func measured(d config.Description) error {
	if _, ok := d.(*config.V41); ok {
		return fmt.Errorf("the times of %s on GPUs are not estimated: its kernels were not measured one by one. "+
			"Measure eight of its layers: sparrow bench model v41-eight --dummy --kernels cuda", d.Common().Family)
	}
	return nil
}

// stages returns the estimate of a rank with all stages.
func stages(d config.Description, p *parts, m *Machine) *Estimate {
	switch c := d.(type) {
	case *config.DSA:
		(&dsaStep{parts: p, c: c}).run()
	case *config.V4:
		(&v4Step{parts: p, c: c}).run()
	case *config.Next:
		(&nextStep{parts: p, c: c}).run()
	}
	out := &Estimate{GPUs: m.GPUs, Rows: int(p.rows), Stages: p.stages}
	for _, s := range p.stages {
		out.Millis += s.Micros / 1000
	}
	return out
}

// Print writes the estimate as a table.
func (e *Estimate) Print(w io.Writer) error {
	by := ""
	if e.Attention == plan.ByRequests {
		by = " that share attention by requests (the slowest of them)"
	}
	fmt.Fprintf(w, "\nestimate: %.2f ms for a step of %d rows on %d H200%s, %s of weights on each; computed from "+
		"times of one H200, not measured\n", e.Millis, e.Rows, e.GPUs, by, unit.Bytes(e.WeightBytes))
	if e.Warning != "" {
		fmt.Fprintf(w, "warning: %s\n", e.Warning)
	}
	return e.table(w)
}

func (e *Estimate) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range e.Stages {
		fmt.Fprintf(t, "  %s\t%.0f us\t%s\n", s.Name, s.Micros, s.Formula)
	}
	return t.Flush()
}
