package explain_test

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/testkit/table"
	"sparrow/plan"
	"sparrow/plan/explain"
	"sparrow/plan/public"
)

// Whole answers for people and as JSON: for models of every kind, batches of prompts and of decodes, and prompts with
// more launches than are listed.
func TestTableOfAnswers(t *testing.T) {
	var lines []string
	for _, c := range []struct {
		hw, model, batch string
		layer            int
		policy           any
	}{
		{"cpu", "deepseek_v32", "decode:8", 0, plan.Policy{}},
		{"cpu", "deepseek_v32", "extend:300", -1, plan.Policy{Dense: plan.SwitchOff}},
		{"sm90", "deepseek_v32", "extend:120000", 3, plan.Policy{KV: "fp8"}},
		{"sm90", "glm-5.2", "decode:64", 1, plan.Policy{KV: "fp8"}},
		{"sm90", "deepseek_v3", "extend:500", -1, plan.Policy{}},
		{"cpu", "kimi_k2", "decode:3", -1, plan.Policy{}},
		{"sm90", "deepseek_v4", "extend:70000", 2, plan.Policy{}},
		{"cpu", "deepseek_v41", "decode:5", 2, plan.Policy{}},
		{"cpu", "glm5_next", "extend:900", 3, plan.Policy{}},
		{"sm90", "deepseek_v32", "extend:120000", 0, public.Policy{KV: "fp8", DenseThreshold: 4096}},
		{"sm100", "deepseek_v4", "decode:9", 2, public.Policy{}},
	} {
		title := fmt.Sprintf("%s %s %s layer %d", c.hw, c.model, c.batch, c.layer)
		if !slices.Contains(plan.ModelNames(), c.model) {
			t.Errorf("%s: want one of %v", title, plan.ModelNames())
			continue
		}
		cfg, notices := resolve(t, c.hw, c.model, c.policy)
		b, err := plan.ParseBatch(c.batch)
		if err != nil {
			t.Fatal(err)
		}
		a, err := explain.Explain(cfg, notices, &b, explain.Question{Layer: c.layer})
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		lines = append(lines, table.Written(t, title, a.Layer, a.Print)...)
	}
	table.Check(t, "answers.txt", lines)
}
