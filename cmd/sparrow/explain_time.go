package main

import (
	"fmt"
	"strconv"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/internal/model/estimate"
	"sparrow/internal/model/synth"
	"sparrow/plan"
	"sparrow/plan/explain"
)

// timed is an answer with the estimated time of its step.
type timed struct {
	*explain.Answer
	Estimate *estimate.Estimate `json:"estimate"`
}

// hardware parses --hw and --tp: the name of the hardware and the number of GPUs. A --hw such as 8xH200 contains the
// number, so that --tp may be omitted.
func (f *explainFlags) hardware() (name string, gpus int, err error) {
	number, kind, several := strings.Cut(strings.ToLower(f.hw), "x")
	switch {
	case strings.EqualFold(f.hw, "h200"):
		return plan.SM90.String(), max(f.tp, 1), nil
	case several && kind == "h200":
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return "", 0, fmt.Errorf("explain: --hw %s: want a number of GPUs, such as 8xh200", f.hw)
		}
		if tp := f.tp; tp != 0 && tp != n {
			return "", 0, fmt.Errorf("explain: --hw %s and --tp %d: all GPUs share the model; omit --tp", f.hw, tp)
		}
		return plan.SM90.String(), n, nil
	case several:
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			if hw, err := plan.HardwareFor(kind); err == nil {
				return "", 0,
					fmt.Errorf("explain: --hw %s: a number of GPUs is supported for h200 only, such as 8xh200; for "+
						"other GPUs "+
						"give the kind and the number of ranks: --hw %s --tp %d%s, without --time", f.hw, kind, n,
						elsewhere(hw))
			}
		}
	}
	return f.hw, max(f.tp, 1), nil
}

// elsewhere returns " --catalog public" for hardware for which this build has no kernels.
func elsewhere(hw plan.Hardware) string {
	if hw.Arch == plan.CPU || hw.Arch.CUDA() {
		return ""
	}
	return " --catalog public"
}

// estimated adds the time of the step to a result.
func (f *explainFlags) estimated(a *explain.Answer) (*timed, error) {
	if a.Batch == nil {
		return nil, fmt.Errorf("explain: --time estimates a step; give its --batch")
	}
	c, err := f.shape(&a.Config.Model)
	if err != nil {
		return nil, err
	}
	name, gpus, err := f.hardware()
	if err != nil {
		return nil, err
	}
	if a.Config.Hardware.Arch == plan.SM90 && !strings.EqualFold(name, plan.SM90.String()) {
		return nil, fmt.Errorf("explain: --time: --hw %s is not supported: times were measured only on an H200; use "+
			"--hw h200 (or 8xh200 for 8 GPUs)", f.hw)
	}
	e, err := estimate.Of(c, &a.Config.Config, a.Batch, gpus)
	if err != nil {
		return nil, fmt.Errorf("explain: --time: %w", err)
	}
	return &timed{a, e}, nil
}

// shape returns the config of --model, or the config of the released model of --family.
func (f *explainFlags) shape(m *plan.Model) (config.Description, error) {
	if f.family == "" {
		dir, err := modelFolder(modelFlag, f.model)
		if err != nil {
			return nil, err
		}
		return described(dir)
	}
	for _, name := range synth.PresetNames() {
		r, err := plan.ModelFor(name)
		if err != nil || r.Family != m.Family || r.Context != m.Context || r.Layers != m.Layers {
			continue
		}
		text, err := synth.PresetConfig(name)
		if err != nil {
			return nil, err
		}
		return config.Describe(name, text)
	}
	return nil, fmt.Errorf("explain: --time: the sizes of %s are not known; give its config.json with --model",
		f.family)
}
