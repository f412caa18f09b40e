package plan

import (
	"fmt"
	"strings"
	"testing"
)

// shapes returns the arrays of a pass with their shapes as text, and checks that no array overlaps the next one.
func shapes(t *testing.T, p *Plan) string {
	t.Helper()
	var out []string
	end := 0
	for _, a := range p.Inputs {
		if a.First < end || a.First%arrayWords != 0 {
			t.Errorf("%v begins at word %d, the one before it ends at %d", a.Name, a.First, end)
		}
		end = a.First + a.Words()
		out = append(out, fmt.Sprintf("%v %dx%d", a.Name, a.Rows, a.Cols))
	}
	if p.InputWords < end {
		t.Errorf("a block of %d words, arrays end at %d", p.InputWords, end)
	}
	return strings.Join(out, ", ")
}

// Every pass has the arrays that its operations read, with their shapes: rows of the pass, of logits, of records and of
// replays, and the cache entries that launches gather.
func TestArraysOfAPass(t *testing.T) {
	v32, v4, v41 := newSetup(t, "cpu"), newSetup(t, "cpu", family(t, "deepseek_v4")),
		newSetup(t, "cpu", family(t, "deepseek_v41"))
	pools := newSetup(t, "cpu", family(t, "glm5_next"), kv("fp8"), kernelsOf("sparse-flat", ""))
	spark := newSetup(t, "cpu", family(t, "deepseek_v4-flash-0731"))
	with := func(b Batch, f func(b *Batch)) Batch { f(&b); return b }
	next := func(b *Batch) { b.Pass = PassDraft }
	block := func(b *Batch) { b.Pass, b.Requests[0].N, b.Requests[1].N = PassBlock, 5, 5 }
	choices := func(b *Batch) {
		b.Record = Record{Selections: true, Experts: true}
		b.Replay = Replay{Selections: true, Experts: true}
		r := &b.Requests[0]
		r.Records, r.Replays = 3, 2
	}
	picks := func(b *Batch) {
		b.Draws = true
		for i := range b.Requests {
			b.Requests[i].Logits, b.Requests[i].Best = 1, i > 0
		}
	}
	for _, c := range []struct {
		name string
		s    *setup
		b    Batch
		want string
	}{
		{"a prompt", v32, extendOver(5, 3000),
			"token_ids 5x1, positions 5x1, row_requests 5x1, slots 5x1, lengths 5x1, kept 5x1, page_table 1x64, " +
				"index_slots 3005x1, index_start 5x1"},
		{"decodes, of which one returns its logits", v32, with(decode(3000, 4000, 10), picks),
			"token_ids 3x1, positions 3x1, row_requests 3x1, slots 3x1, lengths 3x1, kept 3x1, page_table 3x64, " +
				"logit_rows 3x1, whole_rows 1x1, draws 3x10"},
		{"a drafting layer", v32, with(extend(7), next),
			"token_ids 7x1, positions 7x1, row_requests 7x1, slots 7x1, lengths 7x1, hidden_rows 7x1"},
		{"choices", v32, with(extend(7), choices),
			"token_ids 7x1, positions 7x1, row_requests 7x1, slots 7x1, lengths 7x1, gather_slots 7x1, " +
				"gather_start 7x1, record_rows 3x1, replay_mixed 2x1, replay_experts 2x464, replay_weights 2x464"},
		{"pools, a prompt over gathered rows", pools, extendOver(5, 3000),
			"token_ids 5x1, positions 5x1, row_requests 5x1, slots 5x1, lengths 5x1, groups 5x1, kept 5x1, " +
				"keep_rows 5x1, page_table 1x16, gather_slots 3005x1, gather_start 5x1, group_slots 751x1, " +
				"group_start 5x1, close_sources 1x4, close_slots 1x1, state_rows 5x1, snapshots 5x1, state_spans 1x6"},
		{"V4, a prompt", v4, extendOver(9, 3000),
			"token_ids 9x1, positions 9x1, row_requests 9x1, slots 9x1, window_lengths 9x1, window_indices 9x128, " +
				"page_table 1x16, gather_slots 136x1, window_start 9x1, groups 9x1, kept 9x1, group_start 9x1, " +
				"group_base 9x1, keep_rows 9x1, tail_rows 9x1, group_slots 752x1, close_sources 2x8, " +
				"close_slots 2x1, close_positions 2x1, heavy_lengths 9x1, heavy_base 9x1, heavy_keeps 9x1, " +
				"heavy_indices 9x64, heavy_slots 23x1"},
		{"V4, a drafting layer sees a window", v4, with(extend(300, 7), next),
			"token_ids 135x1, positions 135x1, slots 135x1, window_lengths 135x1, hidden_rows 135x1, draft_rows " +
				"135x1, window_indices 135x128"},
		{"V4, a block", spark, with(draft(3000, 20), block),
			"token_ids 10x1, positions 10x1, slots 10x1, window_lengths 10x1, block_lengths 10x1, draft_rows " +
				"10x1, window_indices 10x128, block_indices 10x64"},
		{"V4.1, a prompt", v41, extendOver(9, 30000),
			"token_ids 9x1, positions 9x1, row_requests 9x1, slots 9x1, window_lengths 9x1, window_indices 9x128, " +
				"page_table 1x128, groups 9x1, kept 9x1, keep_rows 9x1, close_sources 4x2, close_slots 4x1, " +
				"close_positions 4x1, entries 9x1, entries_kept 9x1, entry_slots 9x1, block_counts 9x1, " +
				"candidate_counts 9x1, row_numbers 9x1, table_rows 9x48"},
		{"V4.1, choices", v41, with(extend(7), choices),
			"token_ids 7x1, positions 7x1, row_requests 7x1, slots 7x1, window_lengths 7x1, window_indices 7x128, " +
				"page_table 1x1, groups 7x1, kept 7x1, keep_rows 7x1, close_sources 3x2, close_slots 3x1, " +
				"close_positions 3x1, entries 7x1, entries_kept 7x1, entry_slots 7x1, block_counts 7x1, " +
				"candidate_counts 7x1, row_numbers 7x1, table_rows 7x48, record_rows 3x1, replay_rows 2x1, " +
				"replay_selections 2x4096, replay_mixed 2x1, replay_experts 2x240, replay_weights 2x240"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := shapes(t, build(t, c.s.resolve(t), c.b)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// A layer shares a selection if it has entries and does not select itself, also if the first layer of the model is the
// one that selects.
func TestSharedLayersOfV41(t *testing.T) {
	m := model(t, "deepseek_v41", 16)
	for _, first := range []int{2, 0} {
		m.Ratios[0], m.Ratios[1] = 2-first, 2-first // layers have entries from this layer on
		m.Sharing.Index[0], m.Sharing.Entries[0] = first, first
		selects := map[int]bool{}
		for _, l := range m.Sharing.Index {
			selects[l] = true
		}
		for l, shared := range m.SharedLayers() {
			if want := l >= first && !selects[l]; shared != want {
				t.Errorf("layers %v select, and that layer %d shares a selection is %v", m.Sharing.Index, l, shared)
			}
		}
	}
}
