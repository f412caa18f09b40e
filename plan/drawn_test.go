package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/testkit/plantable"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// The facts of every preset and device, and of every released model, equal those in the golden table.
func TestTableOfPresets(t *testing.T) {
	var lines []string
	add := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, name+" "+string(data))
	}
	for _, name := range plan.HardwareNames() {
		hw, err := plan.HardwareFor(name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, hw)
		for _, device := range plan.DevicesOf(hw.Arch) {
			d, err := plan.HardwareFor(device)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("  %s: %d SMs, %d bytes", device, d.SMs, d.MemoryBytes))
		}
	}
	for _, name := range plan.UsualModelNames() {
		m, err := plan.ModelFor(name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, m)
	}
	table.Check(t, "presets.txt", append(lines, strings.Join(plan.ModelNames(), " ")))
}

func drawPolicy(d plantable.Draw) plan.Policy {
	word := func(list ...string) string { return plantable.Rarely(d, list...) }
	number := func(list ...int) int { return plantable.Rarely(d, list...) }
	return plan.Policy{
		KV: word("bf16", "fp8", "fp8-576", "f32"), ExactIndex: d.IntN(12) == 0, FP4Index: d.IntN(8) == 0,
		Prefill: word("", "sparse-flat", "sparse-block", "auto"), Decode: word("", "", "sparse-block"),
		V4SparsePrefill: plantable.Rarely(d, plan.SparsePrefillOn, plan.SparsePrefillOff),
		Dense:           plantable.Rarely(d, plan.SwitchOn, plan.SwitchOff), DenseThreshold: number(40, 300, 4096),
		Deterministic: d.IntN(4) == 0, SplitKeys: plantable.Rarely(d, plan.Split256, plan.Split512),
		Running: number(1, 7, 64, 500), Speculation: plan.Speculation{Tokens: number(2, 3, 4, 5, 6)},
		MaxTransient: int64(number(1<<20, 60<<20, 200<<20, 2<<30)),
	}
}

func drawMost(d plantable.Draw, m *plan.Model) plan.Most {
	rows := 1 + d.Length()
	most := plan.Most{Rows: rows, Requests: 1 + d.IntN(9), Context: 1 + d.Length(), Width: 1 + d.IntN(5),
		Logits: d.IntN(rows) + 1, Whole: d.IntN(3), Draws: d.IntN(2) == 0,
		Recorded: plantable.Rarely(d, rows), Replayed: plantable.Rarely(d, rows),
		Record: plan.Record{Selections: true}, Replay: plan.Replay{Selections: true, Experts: true},
		Joint: d.IntN(2) == 0, Prompts: d.IntN(4)}
	if d.IntN(4) == 0 {
		most.Pass = plan.PassDraft
		if m.Block > 0 {
			most.Pass = plan.PassBlock
		}
	}
	return most
}

// Configurations, plans and bounds of many drawn settings equal those of the golden table. A line is short: the
// settings, a few results, and a hash of all fields. TestTableOfPlans shows fewer plans in full; to see both plans of a
// changed line in full, print the fields that are hashed here.
func TestTableOfDrawnPlans(t *testing.T) {
	d := plantable.NewDraw(26)
	names := append(plan.HardwareNames(), "cpu", "sm90", "sm90", "h100", "l4")
	var lines []string
	refusal := func(err error) string {
		var refused *plan.Error
		if !errors.As(err, &refused) {
			t.Fatalf("%v is not a refusal with a code", err)
		}
		if refused.Asked == "" || refused.Supported == "" {
			t.Errorf("%v does not state what was requested and what is supported", err)
		}
		return "refused " + table.Facts(err.Error())
	}
	for legal := 0; legal < 70; {
		hw, m, policy := d.Hardware(t, names...), d.Model(t), drawPolicy(d)
		name := fmt.Sprintf("%v portable %v without tiles %v: %v of %d heads, k %d, %d ranks %v, %s", hw.Arch,
			hw.Portable, hw.NoTiles, m.Family, m.Heads, m.K, m.Ranks, m.Division, plantable.Asked(t, policy))
		cfg, notices, err := plan.Resolve(hw, m, policy)
		if err != nil {
			lines = append(lines, name+" => "+refusal(err))
			continue
		}
		legal++
		for _, r := range cfg.Rejected {
			if r.Reason == "" {
				t.Errorf("%s: %v is rejected for %v without a reason", name, r.Kernel, r.Phase)
			}
		}
		lines = append(lines, fmt.Sprintf("%s => %v %v %v %s", name, cfg.Prefill, cfg.Decode, cfg.Layout,
			plantable.Sum(plantable.Config(t, cfg, notices))))
		for i := range 5 {
			b := d.Batch(&m)
			if i == 4 {
				d.Contradict(&b)
			}
			p, err := plan.Build(cfg, b)
			if err != nil {
				lines = append(lines, fmt.Sprintf("  %s => %s", plantable.Brief(t, b), refusal(err)))
				continue
			}
			lines = append(lines, fmt.Sprintf("  %s => %d rows, %d segments, %d words, %d bytes, %s",
				plantable.Brief(t, b), p.Rows, len(p.Segments), p.InputWords, p.TransientBytes,
				plantable.Sum(plantable.Plan(t, p))))
		}
		most := drawMost(d, &m)
		p := plan.Bound(cfg, most)
		lines = append(lines, fmt.Sprintf("  at most %s => %d segments, %d words, %s", plantable.Asked(t, most),
			len(p.Segments), p.InputWords, plantable.Sum(plantable.Plan(t, p))))
	}
	table.Check(t, "drawn.txt", lines)
}

// The number of keys after which rows are cut depends on the hardware, the model, its ranks, the number of concurrent
// sequences and the drafts as in the golden table.
func TestTableOfSplits(t *testing.T) {
	var lines []string
	for _, name := range []string{"sm90", "sm90 portable", "sm80"} {
		hw, err := plan.HardwareFor(strings.TrimSuffix(name, " portable"))
		if err != nil {
			t.Fatal(err)
		}
		hw.Portable = strings.HasSuffix(name, "portable")
		for _, family := range []string{"deepseek_v32", "glm-5", "deepseek_v3", "kimi_k2", "glm5_next"} {
			for _, ranks := range []int{1, 2, -2, -3} {
				m, err := plan.ModelFor(family)
				if err == nil && ranks > 1 {
					m, err = m.Divide(ranks, plan.ByHeads)
				} else if err == nil && ranks < 0 {
					m, err = m.Divide(-ranks, plan.ByRequests)
				}
				if err != nil {
					lines = append(lines, fmt.Sprintf("%s, %s, %d ranks: %s", name, family, ranks,
						table.Facts(err.Error())))
					continue
				}
				line := fmt.Sprintf("%s, %s, %d heads, %d ranks %v:", name, family, m.Heads, m.Ranks, m.Division)
				for _, tokens := range []int{0, 3} {
					for _, running := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 200} {
						cfg, _, err := plan.Resolve(hw, m, plan.Policy{KV: "fp8", Running: running,
							Speculation: plan.Speculation{Tokens: tokens}})
						if err != nil {
							line += " refused " + table.Facts(err.Error())
							break
						}
						line += fmt.Sprintf(" %d:%v", running*cfg.N, cfg.SplitKeys)
					}
				}
				lines = append(lines, line)
			}
		}
	}
	table.Check(t, "splits.txt", lines)
}
