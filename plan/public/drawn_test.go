package public

import (
	"fmt"
	"testing"

	"sparrow/internal/testkit/plantable"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

func drawPolicy(d plantable.Draw) Policy {
	word := func(list ...string) string { return plantable.Rarely(d, list...) }
	number := func(list ...int) int { return plantable.Rarely(d, list...) }
	set := func() plan.Switch { return plantable.Rarely(d, plan.SwitchOn, plan.SwitchOff) }
	p := Policy{
		KV:      word("", "bf16", "fp8", "f32"),
		Prefill: word("", "auto", "flashmla_sparse", "flashmla_kv", "trtllm", "fa3"),
		Decode:  word("", "flashmla_kv", "flashmla_sparse", "trtllm"), Dense: set(), DenseThreshold: number(40, 300),
		ChunkCapacity: number(500, 5000), Deterministic: d.IntN(6) == 0, Fused: set(), Slicing: set(),
		DecodeSkip: set(),
		ScoreCap:   int64(number(1<<16, 1<<22)), MaxTransient: int64(number(60<<20, 2<<30)),
		Speculation: plan.Speculation{Tokens: number(2, 3, 4)}, Running: number(1, 64), ChunkedPrefill: number(2048),
		V4SparsePrefill: plantable.Rarely(d, plan.SparsePrefillOn, plan.SparsePrefillAuto, plan.SparsePrefillOff),
		V4Schedule:      plantable.Rarely(d, plan.ScheduleOwn, plan.ScheduleLibrary), FP4Index: d.IntN(12) == 0,
	}
	switch d.IntN(24) {
	case 0:
		p.CP = CP{Kind: plantable.OneOf(d, CPInterleave, CPZigzag), Size: 4}
	case 1:
		p.Page = plantable.OneOf(d, 32, 64, 256)
	case 2:
		p.AttentionTP = 4
	case 3:
		p.DP = 8
	case 4:
		p.TopK, p.TieBreak = plantable.OneOf(d, TopKFlashInfer, TopKTorch), plantable.Rarely(d, TieSmall)
	case 5:
		p.Scores = plantable.OneOf(d, ScoreNative, ScoreDeepGEMM, ScoreAiter, ScoreCuteDSL)
	case 6:
		p.Role = plantable.OneOf(d, RolePrefill, RoleDecode)
	case 7:
		p.TBO, p.CarryIndices = true, d.IntN(2) == 0
	case 8:
		p.PipelineCuts = []int{d.IntN(70)}
	case 9:
		p.AutomaticSplits, p.V4Q8, p.HiSparse = set(), d.IntN(2) == 0, d.IntN(2) == 0
	}
	return p
}

// Configurations, plans and arrays of many drawn settings equal those of the golden table, which has hashes of the
// fields, as that of the plans that run.
func TestTableOfDrawnPlans(t *testing.T) {
	d := plantable.NewDraw(27)
	var lines []string
	for legal := 0; legal < 60; {
		hw := d.Hardware(t, "sm90", "sm90", "sm100", "sm103", "sm120", "gfx95", "sm80")
		m, policy := d.Model(t), drawPolicy(d)
		hw.Portable, hw.Heads64 = false, d.IntN(4) == 0
		if _, _, err := Resolve(hw, m, Policy{}); err != nil || m.Ranks > 1 {
			continue
		}
		name := fmt.Sprintf("%v with 64 heads %v: %v, k %d, %s", hw.Arch, hw.Heads64, m.Family, m.K,
			plantable.Asked(t, policy))
		cfg, notices, err := Resolve(hw, m, policy)
		if err != nil {
			lines = append(lines, name+
				" => refused "+table.Facts(err.Error()))
			continue
		}
		legal++
		lines = append(lines, fmt.Sprintf("%s => %v %v %v %s", name, cfg.Prefill, cfg.Decode, cfg.Layout,
			plantable.Sum(plantable.Config(t, cfg, notices))))
		for range 4 {
			b := d.Batch(&m)
			b.Pass, b.Draws, b.Record, b.Replay = plan.PassTarget, false, plan.Record{}, plan.Replay{}
			for i := range b.Requests {
				b.Requests[i].Records, b.Requests[i].Replays = 0, 0
			}
			p, err := Build(cfg, b)
			if err != nil {
				lines = append(lines, "  "+plantable.Brief(t, b)+" => refused "+table.Facts(err.Error()))
				continue
			}
			facts := plantable.Plan(t, p)
			for i := range p.Segments {
				for _, a := range Arrays(&cfg, p, &p.Segments[i]) {
					facts = append(facts, fmt.Sprintf("%v %v %v", a.Name, a.DType, a.Shape))
				}
			}
			lines = append(lines, fmt.Sprintf("  %s => %d rows, %d segments, %d bytes, %s", plantable.Brief(t, b),
				p.Rows, len(p.Segments), p.TransientBytes, plantable.Sum(facts)))
		}
	}
	table.Check(t, "drawn.txt", lines)
}
