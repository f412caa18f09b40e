package explain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sparrow/plan"
	"sparrow/plan/explain"
	"sparrow/plan/public"
)

// resolve returns the configuration for hardware and a model without a batch, with the policy of one of the two
// catalogues.
func resolve(t *testing.T, hw, model string, policy any) (public.Config, []plan.Notice) {
	t.Helper()
	h, err := plan.HardwareFor(hw)
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ModelFor(model)
	if err != nil {
		t.Fatal(err)
	}
	q := explain.Ask{Model: m, Hardware: h}
	switch p := policy.(type) {
	case plan.Policy:
		q.Policy = p
	case public.Policy:
		q.Public = &p
	}
	a, err := q.Answer()
	if err != nil {
		t.Fatal(err)
	}
	return a.Config, a.Notices
}

func ask(t *testing.T, cfg public.Config, batch string, q explain.Question) *explain.Answer {
	t.Helper()
	b, err := plan.ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	a, err := explain.Explain(cfg, nil, &b, q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// lengthsAre checks the lengths of an answer's only segment; an array that want does not name must be absent.
func lengthsAre(t *testing.T, a *explain.Answer, want map[string][]int32) {
	t.Helper()
	if len(a.Lengths) != 1 {
		t.Fatalf("lengths of %d segments, want 1", len(a.Lengths))
	}
	text, err := json.Marshal(a.Lengths[0])
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "segment")
	for name, w := range want {
		var v []int32
		if err := json.Unmarshal(got[name], &v); err != nil || !slices.Equal(v, w) {
			t.Errorf("%s is %s, want %v", name, got[name], w)
		}
		delete(got, name)
	}
	for name, v := range got {
		t.Errorf("%s is there: %s", name, v)
	}
}

// Two requests grow from 2 to 6 and from 3 to 5 tokens (the example of section 11 of the dispatch spec). Context
// parallelism keeps scores on, and gives fewer than 8 rows to one rank.
func TestLengths(t *testing.T) {
	cfg, _ := resolve(t, "sm90", "deepseek_v32", public.Policy{KV: "fp8",
		Prefill: "flashmla_sparse", Decode: "flashmla_kv", CP: public.CP{Kind: public.CPInterleave, Size: 8}})
	lengthsAre(t, ask(t, cfg, "extend:2+4,3+2", explain.Question{Layer: -1}), map[string][]int32{
		"seqlens_expanded":  {5, 6, 3, 4, 5},
		"k_start":           {0, 0, 6, 6, 6},
		"k_end":             {5, 6, 9, 10, 11},
		"topk_offset":       {0, 0, 6, 6, 6},
		"dsa_cache_seqlens": {5, 6, 3, 4, 5},
	})
	if a := ask(t, cfg, "extend:8+4", explain.Question{Layer: -1}); len(a.Lengths) != 0 {
		t.Errorf("a rank's share of the rows has lengths: %v", a.Lengths)
	}
}

// A plan of our own catalogue lists none of the arrays of other engines. Each row selects two keys.
func TestLengthsOfOwnPlans(t *testing.T) {
	p := plan.Policy{KV: "fp8", Prefill: "sparse-flat", Dense: plan.SwitchOff}
	cfg, _ := resolve(t, "cpu", "deepseek_v32", p)
	m := cfg.Model
	m.K = 2
	ours, _, err := plan.Resolve(cfg.Hardware, m, p)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Config = ours
	a := ask(t, cfg, "extend:2+4,3+2", explain.Question{Layer: -1})
	lengthsAre(t, a, map[string][]int32{
		"positions": {4, 5, 2, 3, 4},
		"lengths":   {5, 6, 3, 4, 5},
		"kept":      {2, 2, 2, 2, 2},
	})
	if a.Arrays != nil {
		t.Errorf("arrays %v", a.Arrays)
	}
	lengthsAre(t, ask(t, cfg, "draft:3:1", explain.Question{Layer: -1}), map[string][]int32{
		"positions": {0, 0, 0}, "lengths": {0, 0, 1}, "kept": {0, 0, 1},
	})
}

// The lengths of segments with many rows are left out of the output.
func TestLengthsOfLargeBatchesAreLeftOut(t *testing.T) {
	cfg, _ := resolve(t, "cpu", "deepseek_v32", plan.Policy{})
	for rows, want := range map[int]int{64: 1, 65: 0} {
		if got := len(ask(t, cfg, fmt.Sprintf("decode:%dx9", rows), explain.Question{Layer: -1}).Lengths); got != want {
			t.Errorf("%d rows: lengths of %d segments, want %d", rows, got, want)
		}
	}
}

// A request that fills the context is planned; one token more is refused, and the error names the request.
func TestRequestsBeyondTheContext(t *testing.T) {
	h, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ModelFor("deepseek_v32")
	if err != nil {
		t.Fatal(err)
	}
	for tokens, says := range map[int]string{m.Context: "", m.Context + 1: "request 1 has"} {
		b, err := plan.ParseBatch(fmt.Sprintf("decode:1x9,1x%d", tokens))
		if err != nil {
			t.Fatal(err)
		}
		_, err = explain.Ask{Model: m, Hardware: h, Batch: &b, Question: explain.Question{Layer: -1}}.Answer()
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%d tokens of %d: %v, want %q", tokens, m.Context, err, says)
		}
	}
}

func TestLayerQuestion(t *testing.T) {
	cfg, _ := resolve(t, "cpu", "glm-5.2", plan.Policy{DenseThreshold: 512})
	a := ask(t, cfg, "mixed:extend:3000/decode:9", explain.Question{Layer: 3, Carried: true})
	var kinds []plan.IndexerKind
	for _, x := range a.Layer.Indexers {
		kinds = append(kinds, x.Kind)
	}
	// The dense segment needs no selection; the others use the selection of an earlier layer.
	want := []plan.IndexerKind{plan.IndexerNone, plan.IndexerCarry, plan.IndexerCarry, plan.IndexerCarry}
	if !slices.Equal(kinds, want) {
		t.Errorf("layer 3 runs %v, want %v", kinds, want)
	}
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(9))
	if _, err := explain.Explain(cfg, nil, &b, explain.Question{Layer: 3}); !errors.Is(err, plan.E23) {
		t.Errorf("without carried indices: got %v, want E23", err)
	}
}

// The printed answer contains notices, reasons, every rejected candidate, arrays, and launches with what limits them.
func TestPrint(t *testing.T) {
	cfg, notices := resolve(t, "sm90", "deepseek_v32", public.Policy{KV: "fp8", DenseThreshold: 4096})
	b, err := plan.ParseBatch("extend:12000")
	if err != nil {
		t.Fatal(err)
	}
	a, err := explain.Explain(cfg, notices, &b, explain.Question{Layer: 0})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := a.Print(&text); err != nil {
		t.Fatal(err)
	}
	out := text.String()
	wants := []string{"catalogue public", "does not run here", "segment 0: 12000 whole rows",
		"2 (11622 + 378 rows), at most 11622: split schedule", "in layer 0",
		"plan " + a.Plan.Key.String(), "array split_metadata"}
	for _, n := range notices {
		wants = append(wants, fmt.Sprintf("%v: %s (%s, %s)", n.Level, n.Text, explain.Title(n.Rule), n.Rule))
	}
	s := a.Plan.Segments[0]
	for _, list := range [][]plan.Reason{cfg.Reasons, a.Plan.Reasons, s.Reasons} {
		for _, r := range list {
			wants = append(wants, fmt.Sprintf("why: %s (%s, %s)", r.Text, explain.Title(r.Rule), r.Rule))
		}
	}
	for _, list := range [][]plan.Rejection{cfg.Rejected, s.Rejected} {
		for _, r := range list {
			wants = append(wants, fmt.Sprintf("not %v for %v: %s", r.Kernel, r.Phase, r.Reason))
		}
	}
	for _, w := range wants {
		if !strings.Contains(out, w) {
			t.Errorf("%q is not in\n%s", w, out)
		}
	}
	cfg, _ = resolve(t, "cpu", "deepseek_v32", plan.Policy{Dense: plan.SwitchOff})
	text.Reset()
	if err := ask(t, cfg, "decode:8", explain.Question{Layer: -1}).Print(&text); err != nil {
		t.Fatal(err)
	}
	if out := text.String(); !strings.Contains(out, "1 (1 rows), no limit on cpu") ||
		!strings.Contains(out, "selection, never dense (") {
		t.Errorf("printed\n%s", out)
	}
	if strings.Contains(text.String(), "  array ") {
		t.Errorf("arrays of other engines in\n%s", text.String())
	}
}

// A decode that selects every key computes no scores, and the printed plan states that.
func TestShortVariantIsPrinted(t *testing.T) {
	cfg, _ := resolve(t, "sm90", "deepseek_v32", plan.Policy{KV: "fp8"})
	for batch, want := range map[string]string{
		"verify:4:100":  "paged-native, short variant: no scores",
		"verify:4:5000": "paged-native, 4 rows per request at once, 4 rows per chunk",
		"verify:3:5000": "paged-native, 3 rows per request at once as 4, 3 rows per chunk",
		"verify:5:5000": "paged-split, 5 rows per chunk",
	} {
		var text strings.Builder
		if err := ask(t, cfg, batch, explain.Question{Layer: -1}).Print(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s: no %q in\n%s", batch, want, text.String())
		}
	}
}

// The printed arrays are exactly the arrays of the plan's input block, in order and with their sizes. Prepare fills the
// same arrays: the tests of package step compare its output with this list. Row lengths have the names of such arrays
// as well.
func TestInputsArePrinted(t *testing.T) {
	for _, c := range []struct {
		family, batch string
		want, never   []plan.ArrayName
	}{
		{"deepseek_v32", "decode:9,3000", []plan.ArrayName{plan.TokenIDs, plan.PageTable, plan.Kept},
			[]plan.ArrayName{plan.GatherSlots, plan.Groups}},
		{"deepseek_v32", "mixed:extend:3000/decode:4000", []plan.ArrayName{plan.GatherSlots, plan.IndexSlots},
			[]plan.ArrayName{plan.WindowIndices}},
		{"glm_moe_dsa", "verify:4:100,5000", []plan.ArrayName{plan.Slots, plan.Lengths},
			[]plan.ArrayName{plan.HiddenRows}},
		{"deepseek_v4", "decode:9,3000", []plan.ArrayName{plan.WindowIndices, plan.CloseSources},
			[]plan.ArrayName{plan.Lengths}},
		{"deepseek_v4", "extend:3000", []plan.ArrayName{plan.GatherSlots, plan.HeavySources},
			[]plan.ArrayName{plan.Lengths}},
	} {
		t.Run(c.family+" "+c.batch, func(t *testing.T) {
			cfg, _ := resolve(t, "cpu", c.family, plan.Policy{})
			a := ask(t, cfg, c.batch, explain.Question{Layer: -1})
			var text strings.Builder
			if err := a.Print(&text); err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for line := range strings.Lines(text.String()) {
				if x, ok := strings.CutPrefix(line, "  input "); ok {
					got = append(got, strings.Join(strings.Fields(x), " "))
				}
			}
			for _, x := range a.Plan.Inputs {
				want = append(want, fmt.Sprintf("%v i32 [%d, %d]", x.Name, x.Rows, x.Cols))
			}
			if !slices.Equal(got, want) || len(got) == 0 {
				t.Errorf("printed %q, the plan has %q", got, want)
			}
			for _, name := range c.want {
				if a.Plan.Input(name).Rows == 0 {
					t.Errorf("no %v", name)
				}
			}
			for _, name := range c.never {
				if strings.Contains(text.String(), "input "+name.String()+" ") {
					t.Errorf("%v in\n%s", name, text.String())
				}
			}
			for _, l := range a.Lengths {
				for name, v := range map[plan.ArrayName][]int32{plan.Positions: l.Positions, plan.Lengths: l.Lengths,
					plan.Kept: l.Kept} {
					if len(v) > 0 && a.Plan.Input(name).Rows == 0 {
						t.Errorf("%v of rows, which the engine does not build", name)
					}
				}
			}
		})
	}
}

// The JSON output of an answer is decoded to the same answer.
func TestJSONRoundTrip(t *testing.T) {
	cfg, _ := resolve(t, "sm100", "glm-5.2", public.Policy{})
	a := ask(t, cfg, "verify:4:100,5000", explain.Question{Layer: 6})
	first, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back explain.Answer
	if err := json.Unmarshal(first, &back); err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(&back)
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("another answer after reading it back:\n%s\n%s", first, second)
	}
}

// docs/plan.md has a row for every error code with its title, and names every kind that an answer can contain.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for i := 1; i <= 28; i++ {
		code := plan.Code(fmt.Sprintf("E%02d", i))
		if code.Title() == "" {
			continue // E18, E19 and E21 are not used
		}
		if row := fmt.Sprintf("| %s | %s |", string(code), code.Title()); !strings.Contains(doc, row) {
			t.Errorf("no row %q", row)
		}
	}
	var names []string
	for f := plan.FormEmpty; f <= plan.FormDenseMLA; f++ {
		names = append(names, f.String())
	}
	for c := plan.ConvertNone; c <= plan.ConvertGatherRequant; c++ {
		names = append(names, c.String())
	}
	for x := plan.TransformNone; x <= plan.TransformRagged; x++ {
		names = append(names, x.String())
	}
	for k := plan.IndexerNone; k <= plan.IndexerContiguous; k++ {
		names = append(names, k.String())
	}
	for r := plan.RowWhole; r <= plan.RowDraft; r++ {
		names = append(names, r.String())
	}
	for m := plan.ModeExtend; m <= plan.ModeDLLMExtend; m++ {
		names = append(names, m.String())
	}
	for k := plan.DenseRagged; k <= plan.DenseLatent; k++ {
		names = append(names, k.String())
	}
	for _, n := range names {
		if !strings.Contains(doc, "`"+n+"`") {
			t.Errorf("%q is not explained", n)
		}
	}
}
