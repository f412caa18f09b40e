package public

import (
	"fmt"
	"testing"

	"sparrow/internal/testkit/plantable"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// The fields, reasons, rejections and notices of these configurations and plans, and the shapes of their arrays, equal
// those in the golden table.
func TestTableOfPlans(t *testing.T) {
	var lines []string
	for _, c := range []struct {
		hw, model string
		heads     int
		policy    Policy
		batches   []string
	}{
		{"sm90", "deepseek_v32", 128, Policy{}, []string{"extend:9000", "extend:100+2047,3+40", "decode:64x70000"}},
		{"sm90", "deepseek_v32", 16, Policy{KV: "fp8", Deterministic: true},
			[]string{"extend:3000+10", "decode:5x2000"}},
		{"sm90", "deepseek_v32", 128, Policy{KV: "fp8", Speculation: plan.Speculation{Tokens: 4}},
			[]string{"verify:4:3x9000", "draft:2:2x100", "extend:12000+3"}},
		{"sm90", "glm-5.2", 64, Policy{KV: "bf16"}, []string{"extend:5000+33", "decode:3x5000"}},
		{"sm100", "deepseek_v32", 128, Policy{}, []string{"extend:9000", "decode:64x70000", "verify:2:2x3000"}},
		{"sm100", "deepseek_v32", 32, Policy{KV: "fp8", Fused: plan.SwitchOff, MaxTransient: 400 << 20},
			[]string{"extend:9000+1000"}},
		{"sm120", "deepseek_v4", 64, Policy{}, []string{"extend:9000", "decode:3x9000"}},
		{"sm90", "deepseek_v4", 64, Policy{V4SparsePrefill: plan.SparsePrefillOff}, []string{"extend:9000+1"}},
		{"sm90", "deepseek_v4", 64, Policy{V4SparsePrefill: plan.SparsePrefillOn}, []string{"extend:9000+1"}},
		{"gfx95", "deepseek_v32", 16, Policy{}, []string{"extend:3000", "decode:3x9000"}},
		{"sm90", "deepseek_v32", 128, Policy{Slicing: plan.SwitchOff, ScoreCap: 1 << 20}, []string{"extend:90000"}},
		{"sm90", "deepseek_v32", 16, Policy{AttentionTP: 8}, []string{"extend:9000"}},
		{"sm90", "deepseek_v32", 128, Policy{DP: 8}, []string{"extend:9000"}},
		{"sm90", "deepseek_v32", 128, Policy{CP: CP{Kind: CPInterleave, Size: 4}}, []string{"extend:9000"}},
		{"sm90", "deepseek_v32", 128, Policy{Role: RoleDecode, KV: "fp8", Decode: "flashmla_sparse"}, nil},
		{"sm90", "deepseek_v32", 128, Policy{Prefill: "trtllm"}, nil},
		{"cpu", "deepseek_v32", 128, Policy{}, nil},
	} {
		m := model(t, c.model, c.heads)
		name := fmt.Sprintf("%s of %d heads on %s, %+v", c.model, c.heads, c.hw, c.policy)
		cfg, notices, err := Resolve(hardware(t, c.hw), m, c.policy)
		if err != nil {
			lines = append(lines, name, "  refused "+table.Facts(err.Error()))
			continue
		}
		lines = append(append(lines, name), plantable.Config(t, cfg, notices)...)
		for _, text := range c.batches {
			b, err := plan.ParseBatch(text)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, "  "+text)
			p, err := Build(cfg, b)
			if err != nil {
				lines = append(lines, "    refused "+table.Facts(err.Error()))
				continue
			}
			lines = append(lines, plantable.Plan(t, p)...)
			for i := range p.Segments {
				for _, a := range Arrays(&cfg, p, &p.Segments[i]) {
					lines = append(lines, fmt.Sprintf("      array %v %v %v", a.Name, a.DType, a.Shape))
				}
			}
		}
	}
	table.Check(t, "plans.txt", lines)
}
