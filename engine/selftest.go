package engine

import (
	"cmp"
	"fmt"

	"sparrow/internal/model"
	"sparrow/plan"
)

// SelfTest selects when New runs the self-test, which computes attention in several forms from the loaded weights and
// compares the results.
type SelfTest int

// Settings of the self-test. On a GPU the test takes milliseconds. On a CPU most of its time is the expansion of the
// keys of a few rows, so SelfTestAuto runs it only if few keys are expanded.
const (
	SelfTestAuto SelfTest = iota // runs on GPUs; on CPUs, runs for models for which the test takes well below a second
	SelfTestOn
	SelfTestOff
)

// ParseSelfTest parses the value of the flag --self-test: auto, on or off.
func ParseSelfTest(s string) (SelfTest, error) {
	switch s {
	case "auto":
		return SelfTestAuto, nil
	case "on":
		return SelfTestOn, nil
	case "off":
		return SelfTestOff, nil
	}
	return 0, fmt.Errorf("self-test %q: want auto, on or off", s)
}

// mostSelfTest is the maximum number of multiplications of a self-test that SelfTestAuto runs on a CPU. They take a
// quarter of a second on one slow core.
const mostSelfTest = 4e9

// selfTestCost returns the approximate number of multiplications of the self-test: it expands the keys of four rows
// with full selections, or a few hundred keys if there is no indexer.
func selfTestCost(m *plan.Model) float64 {
	const rope, latent, whole = 64, 512, 640
	return 4 * float64(cmp.Or(m.K, whole)) * float64(m.Heads) * float64(m.QKDim-rope+m.VDim) * latent
}

// selfTest runs the self-test if the setting requires it. It returns an error if the device computes wrong results.
func selfTest(s *setup) error {
	cfg := &s.info.Config
	m, ok := s.model.(model.SelfTester)
	setting := s.cfg.SelfTest
	skip := ""
	switch {
	case setting == SelfTestOff:
		skip = "switched off"
	case !ok:
		skip = "models of this family have no self-test"
	case setting == SelfTestAuto && cfg.Hardware.Arch == plan.CPU && selfTestCost(&cfg.Model) > mostSelfTest:
		skip = "it would take long on a CPU; --self-test on runs it anyway"
	}
	if skip != "" {
		s.cfg.Log.Info("no self-test", "because", skip)
		return nil
	}
	begun := s.now()
	if err := m.SelfTest(cfg); err != nil {
		return fmt.Errorf("%w on %s: %w; answers would be wrong: check the device and its driver, or run on another "+
			"(--kernels); --self-test off opens the model anyway", ErrSelfTest, s.model.Device().Name(), err)
	}
	s.cfg.Log.Info("self-test passed", "took", s.since(begun))
	return nil
}
