package llamacpp

import (
	"testing"

	"sparrow/internal/testkit/table"
)

// A report of losses has a column about importances only if some were used.
func TestTableOfLosses(t *testing.T) {
	var r Report
	table.Fill(&r)
	lines := table.Written(t, "with importances", r, r.Print)
	r[0].Weighed, r[1].Weighed, r[0].Error = 0, 0, 0.0123
	table.Check(t, "losses.txt", append(lines, table.Written(t, "without importances", r, r.Print)...))
}

// An importance matrix changes files with blocks of fewer than eight bits, and is needed by the smallest.
func TestMixesAndImportances(t *testing.T) {
	for m, want := range map[Mix][2]bool{MixF32: {false, false}, MixBF16: {false, false}, MixQ8_0: {false, false},
		MixQ4_0: {true, false}, MixQ2K: {true, false}, MixQ4KM: {true, false}, MixIQ4XS: {true, false},
		MixIQ3S: {true, false}, MixIQ3XXS: {true, true}, MixIQ2S: {true, true}, MixIQ2XS: {true, true},
		MixIQ2XXS: {true, true}} {
		if got := [2]bool{m.UsesImportance(), m.NeedsImportance()}; got != want {
			t.Errorf("%v uses and needs an importance matrix: %v, want %v", m, got, want)
		}
	}
	for name, want := range map[string]string{"blk.3.ffn_gate_exps.weight": "experts",
		"blk.3.attn_q_a.weight": "attention", "blk.3.indexer.proj.weight": "attention",
		"blk.3.ffn_down.weight": "dense", "blk.3.ffn_gate_shexp.weight": "dense",
		"token_embd.weight": "embedding and head", "output.weight": "embedding and head"} {
		if got := classOf(name); got != want {
			t.Errorf("%s is of class %q, want %q", name, got, want)
		}
	}
}
