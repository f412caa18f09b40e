// Package estimate computes, before anything runs, how long a step takes on one or several GPUs, stage by stage, and
// where a model fits on a machine with one.
//
// A config, a planned batch and a machine flow in; times with their formulas flow out. They come from times of kernels
// that were measured on one H200 and its host (plan/cost) and from stated speeds of links between GPUs. Nothing runs.
package estimate

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"sparrow/internal/unit"
	"sparrow/model/config"
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
	GPUs        int     `json:"gpus"`
	Rows        int     `json:"rows"`
	Stages      []Stage `json:"stages"`
	Millis      float64 `json:"milliseconds"`
	WeightBytes int64   `json:"weight_bytes"` // of each GPU
}

// Of estimates a step of a batch on GPUs that share a model (docs/ranks.md).
func Of(c *config.DSA, cfg *plan.Config, b *plan.Batch, gpus int) (*Estimate, error) {
	if cfg.Hardware.Arch != plan.SM90 || cfg.Layout != plan.FP8Row656 {
		return nil, fmt.Errorf("estimate: times were measured on an H200 with FP8 rows; ask for --hw h200, or for "+
			"several such as 8xh200, and --kv fp8, not for %v with %v", cfg.Hardware.Arch, cfg.Layout)
	}
	if n := max(cfg.Model.Ranks, 1); n != gpus {
		return nil, fmt.Errorf("estimate: the plan is for %d ranks, asked for %d GPUs", n, gpus)
	}
	if cfg.Model.ByRequests() {
		return nil, errors.New("estimate: times are those of ranks that share attention by heads; ask for " +
			"--attention tp")
	}
	m := H200s(gpus)
	out := estimate(c, cfg, b, &m, nil)
	e := expertsOf(c)
	out.WeightBytes = restBytes(c, gpus) + int64(e.values())*int64(e.count()/gpus)
	return out, nil
}

// estimate adds up the stages of a step.
func estimate(d config.Description, cfg *plan.Config, b *plan.Batch, m *Machine, s *split) *Estimate {
	p := newParts(d, cfg, b, m, s)
	switch c := d.(type) {
	case *config.DSA:
		(&dsaStep{parts: p, c: c}).run()
	case *config.V4:
		(&v4Step{parts: p, c: c}).run()
	}
	out := &Estimate{GPUs: m.GPUs, Rows: int(p.rows), Stages: p.stages}
	for _, s := range p.stages {
		out.Millis += s.Micros / 1000
	}
	return out
}

// Print writes the estimate as a table.
func (e *Estimate) Print(w io.Writer) error {
	fmt.Fprintf(w, "\nestimate: %.2f ms for a step of %d rows on %d H200, %s of weights on each; computed from times "+
		"of one H200, not measured\n", e.Millis, e.Rows, e.GPUs, unit.Bytes(e.WeightBytes))
	return e.table(w)
}

// table writes the stages.
func (e *Estimate) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range e.Stages {
		fmt.Fprintf(t, "  %s\t%.0f us\t%s\n", s.Name, s.Micros, s.Formula)
	}
	return t.Flush()
}
