package plan_test

import (
	"fmt"
	"testing"

	"sparrow/internal/testkit/plantable"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// The fields, reasons, rejections and notices of these configurations and plans equal those in the golden table, so
// that a change of a memory estimate, a boundary or a text is noticed.
func TestTableOfPlans(t *testing.T) {
	var lines []string
	for _, c := range []struct {
		hw, model string
		ranks     int
		how       plan.Division
		policy    plan.Policy
		batches   []string
	}{
		{"cpu", "deepseek_v32", 1, 0, plan.Policy{}, []string{"extend:100", "extend:3000+1500", "decode:2x100",
			"decode:3x9000,5", "verify:3:2x4000", "mixed:extend:700+64/decode:9,3000/verify:2:5000", "draft:1:2x3000"}},
		{"cpu", "deepseek_v32", 1, 0, plan.Policy{KV: "f32", ExactIndex: true, MaxTransient: 300 << 20},
			[]string{"extend:9000+70000"}},
		{"cpu", "glm-5.2", 1, 0, plan.Policy{Speculation: plan.Speculation{Tokens: 4}},
			[]string{"verify:4:2x5000", "extend:20"}},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "fp8", Speculation: plan.Speculation{Tokens: 8}, Running: 64},
			[]string{"extend:9000", "extend:100+2047,3+40", "decode:64x70000", "decode:5x2000", "verify:3:4x9000",
				"verify:4:4x9000", "verify:5:2x9000", "verify:6:3x50000", "verify:8:2x60000", "draft:2:3x100"}},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "fp8", Deterministic: true,
			Speculation: plan.Speculation{Tokens: 4}}, []string{"extend:3000+10", "verify:4:2x9000"}},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "bf16", MaxTransient: 200 << 20,
			Speculation: plan.Speculation{Tokens: 2}},
			[]string{"extend:9000+90000", "verify:2:40x100000", "decode:200x9000"}},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "fp8", SplitKeys: 2}, []string{"decode:2x9000"}},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "bf16", SplitKeys: 2}, nil},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "fp8-576"}, []string{"extend:5000+33", "decode:3x5000"}},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "fp8", Prefill: "sparse-block", Decode: "sparse-block",
			Dense: plan.SwitchOff}, []string{"extend:5000+33"}},
		{"sm90", "deepseek_v32", 8, plan.ByHeads, plan.Policy{KV: "fp8"}, []string{"extend:4000", "decode:9x40000"}},
		{"sm90", "deepseek_v32", 4, plan.ByRequests, plan.Policy{KV: "fp8"},
			[]string{"mixed:extend:700+64,3000/decode:9,3000,70000"}},
		{"sm90", "deepseek_v3", 1, 0, plan.Policy{KV: "fp8"}, []string{"extend:5000+4000", "decode:4x9000"}},
		{"sm90", "deepseek_v3", 1, 0, plan.Policy{KV: "bf16"}, []string{"decode:4x9000"}},
		{"sm90", "deepseek_v4", 1, 0, plan.Policy{}, []string{"extend:900+200", "decode:3x40000", "verify:2:2x9000"}},
		{"sm90", "deepseek_v4", 4, plan.ByRequests, plan.Policy{FP4Index: true}, []string{"extend:900+200,50,4000"}},
		{"cpu", "deepseek_v4", 1, 0, plan.Policy{}, []string{"extend:5000+77", "decode:2x600"}},
		{"cpu", "deepseek_v41", 1, 0, plan.Policy{}, []string{"extend:3000+77", "decode:2x6000", "verify:2:2x90"}},
		{"sm90", "deepseek_v41", 1, 0, plan.Policy{}, []string{"extend:3000", "decode:2x6000"}},
		{"sm90", "glm5_next", 1, 0, plan.Policy{Speculation: plan.Speculation{Tokens: 3}},
			[]string{"extend:3000+70", "decode:2x6000", "verify:3:2x9000"}},
		{"cpu", "glm5_next", 1, 0, plan.Policy{}, []string{"extend:3000", "decode:2x6000"}},
		{"sm90", "glm5_next", 1, 0, plan.Policy{KV: "fp8", Prefill: "sparse-flat"},
			[]string{"mixed:extend:3000+70,50/decode:6000", "extend:2x90+70000"}},
		{"sm80", "deepseek_v32", 1, 0, plan.Policy{}, []string{"extend:3000", "decode:2x6000", "verify:2:3000"}},
		{"sm120", "glm-5", 1, 0, plan.Policy{}, []string{"decode:2x6000"}},
		{"sm120", "deepseek_v4", 1, 0, plan.Policy{}, []string{"extend:3000"}},
		{"sm90", "glm-5", 128, plan.ByHeads, plan.Policy{}, []string{"decode:6000"}},
		{"sm90", "glm-5", 6, plan.ByHeads, plan.Policy{}, nil},
		{"gfx95", "deepseek_v32", 1, 0, plan.Policy{}, nil},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{KV: "f32"}, nil},
		{"sm90", "deepseek_v32", 1, 0, plan.Policy{Prefill: "flashmla_kv", Decode: "sparse-raw"}, nil},
		{"cpu", "deepseek_v32", 1, 0, plan.Policy{MaxTransient: 1000}, nil},
		{"cpu", "deepseek_v4", 1, 0, plan.Policy{Speculation: plan.Speculation{Tokens: 9}}, nil},
	} {
		name := fmt.Sprintf("%s on %s, %d ranks %v, %+v", c.model, c.hw, c.ranks, c.how, c.policy)
		hw, err := plan.HardwareFor(c.hw)
		if err != nil {
			t.Fatal(err)
		}
		m, err := plan.ModelFor(c.model)
		if err != nil {
			t.Fatal(err)
		}
		if m, err = m.Divide(c.ranks, c.how); err != nil {
			lines = append(lines, name, "  refused "+table.Facts(err.Error()))
			continue
		}
		cfg, notices, err := plan.Resolve(hw, m, c.policy)
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
			for i := range b.Requests {
				if m.ByRequests() {
					b.Requests[i].Rank = i % m.Ranks
				}
				b.Requests[i].Logits = 1
			}
			lines = append(lines, "  "+text)
			p, err := plan.Build(cfg, b)
			if err != nil {
				lines = append(lines, "    refused "+table.Facts(err.Error()))
				continue
			}
			lines = append(lines, plantable.Plan(t, p)...)
		}
	}
	table.Check(t, "plans.txt", lines)
}
