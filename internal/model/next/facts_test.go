package next_test

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/next"
	"sparrow/plan"
)

// On a GPU, prompts are computed in groups of positions unless decays may be too small or --deterministic is set, and
// the reasons of the plan say so.
func TestTheReasonOfGroups(t *testing.T) {
	for _, c := range []struct {
		hw            string
		bound         float32
		deterministic bool
		group         int
		why           string
	}{
		{"h200", -5, false, 16, "prompts in groups of 16 positions that begin at multiples of 16"},
		{"h200", -10, false, 16, "prompts in groups of 16 positions"},
		{"h200", -10.5, false, 0, "decays of this checkpoint may be too small for groups"},
		{"h200", -5, true, 0, "neither on chunks nor on batches (--deterministic)"},
		{"cpu", -5, false, 0, "in the recurrent form for prompts and decodes alike"},
	} {
		cfg := config.Next{}
		cfg.Layers, cfg.Linear.Bound, cfg.Linear.Layers = 4, c.bound, []bool{true, true, true, false}
		facts, err := plan.ModelFor("glm-5.3-flash")
		if err != nil {
			t.Fatal(err)
		}
		facts.LinearGroups = next.Facts(&cfg).LinearGroups
		hw, err := plan.HardwareFor(c.hw)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := plan.Resolve(hw, facts, plan.Policy{Deterministic: c.deterministic})
		if err != nil {
			t.Fatal(err)
		}
		reasons := fmt.Sprint(got.Reasons)
		if got.LinearGroup != c.group || !strings.Contains(reasons, c.why) {
			t.Errorf("%+v: groups of %d, because of %s", c, got.LinearGroup, reasons)
		}
	}
}
