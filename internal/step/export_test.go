package step

import (
	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// Need returns the memory that one batch within limits needs, laid out as in Measure.
func Need(m model.Model, cfg plan.Config, l Limits, b plan.Batch) (int64, error) {
	l = l.withDefaults(&cfg)
	a := kernel.MeasureArena()
	work, _, _ := l.bind(m, a, &cfg)
	p, err := plan.Build(cfg, b)
	if err == nil {
		_, err = work.Arrange(p, &cfg, a)
	}
	return a.High(), err
}

// LimitsOf returns the limits of a runner, including defaults.
func LimitsOf(r *Runner) Limits { return r.limits }
