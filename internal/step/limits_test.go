package step_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// drawLimits returns random limits. Rows and contexts are mostly near the number of keys up to which rows need no
// scores, and near multiples of that number.
func drawLimits(rt *rapid.T, cfg *plan.Config, keeps int) step.Limits {
	near := func(name string, most int) int {
		n := rapid.SampledFrom([]int{1, 2, 16, 64, keeps, 2 * keeps, 3 * keeps, 4 * keeps, most}).Draw(rt, name)
		return max(1, min(n+rapid.IntRange(-2, 9).Draw(rt, name+" beside"), most))
	}
	l := step.Limits{Rows: near("rows", 600), Requests: rapid.IntRange(1, 24).Draw(rt, "requests"),
		Prompts: rapid.IntRange(1, 5).Draw(rt, "prompts"), Context: near("context", min(cfg.Model.Context, 2048)),
		Decodes: rapid.IntRange(0, 5).Draw(rt, "decodes") == 0,
		Draws:   rapid.Bool().Draw(rt, "draws")}
	if l.Decodes {
		l.Rows = min(l.Rows, l.Requests)
	}
	l.PromptLogits = rapid.SampledFrom([]int{0, 0, 1, 7, l.Rows}).Draw(rt, "prompt logits")
	recording := rapid.IntRange(0, 5).Draw(rt, "record")
	l.Record = plan.Record{Hidden: recording == 1, Selections: recording == 2 || recording == 3, Scores: recording == 3,
		Experts: recording == 4}
	replaying := rapid.IntRange(0, 7).Draw(rt, "replay")
	shape := cfg.Model.Choices()
	l.Replay = plan.Replay{Selections: replaying == 1 || replaying == 3,
		Experts: (replaying == 2 || replaying == 3) && shape.Mixing() > 0}
	l.RecordRows = rapid.IntRange(0, 2*keeps).Draw(rt, "record rows")
	return l
}

// drawBatch returns a random batch within limits, for the target or, if the model has one, for the drafting layer.
func drawBatch(rt *rapid.T, cfg *plan.Config, l step.Limits, keeps int, drafts, picks bool) plan.Batch {
	b := plan.Batch{Draws: l.Draws && rapid.Bool().Draw(rt, "drawn")}
	if drafts {
		b.Pass = rapid.SampledFrom([]plan.Pass{plan.PassTarget, plan.PassTarget, plan.PassTarget, plan.PassDraft,
			plan.PassChain, plan.PassPick}).Draw(rt, "pass")
		if b.Pass == plan.PassPick && !picks {
			b.Pass = plan.PassDraft
		}
	}
	target := b.Pass == plan.PassTarget
	last := !target && (b.Pass != plan.PassDraft || l.Decodes || rapid.Bool().Draw(rt, "last rows"))
	if target {
		b.Record, b.Replay = l.Record, l.Replay
	}
	recorded, replayed := l.RecordRows, l.RecordRows
	if l.RecordRows == 0 {
		recorded, replayed = l.Rows, l.Rows
	}
	left, prompts, logits := l.Rows, l.Prompts, l.PromptLogits
	kinds := []plan.Mode{plan.ModeDecode, plan.ModeExtend, plan.ModeVerify}
	mode := rapid.SampledFrom(append(kinds, plan.ModeMixed, plan.ModeMixed)).Draw(rt, "mode")
	best := rapid.IntRange(0, 2).Draw(rt, "best") // best tokens for no row, some rows or all rows
	n := rapid.SampledFrom([]int{1, 2, 3, l.Requests, l.Requests}).Draw(rt, "sequences")
	for i := 0; i < min(n, l.Requests) && left > 0; i++ {
		kind := mode
		if mode == plan.ModeMixed {
			kind = rapid.SampledFrom(kinds).Draw(rt, "kind")
		}
		if kind == plan.ModeExtend && prompts == 0 {
			kind = plan.ModeDecode
		}
		if l.Decodes || last || kind == plan.ModeVerify && cfg.N == 1 {
			kind = plan.ModeDecode
		}
		place := func(rows int) int { // returns a number of cached tokens
			most := l.Context - rows
			at := rapid.SampledFrom([]int{0, 0, keeps - rows, keeps - 1, keeps, most, most}).Draw(rt, "cached")
			return max(0, min(at, most))
		}
		var q plan.Request
		rows := 1
		switch {
		case kind == plan.ModeExtend:
			share := (left + prompts - 1) / prompts
			rows = rapid.SampledFrom([]int{1, keeps - 1, keeps, keeps + 1, share, left}).Draw(rt, "rows")
			rows = max(1, min(rows, left, l.Context))
			q = plan.ExtendRequest(rows, place(rows))
			prompts--
			if target {
				more := rapid.SampledFrom([]int{0, logits}).Draw(rt, "more logits")
				q.Logits = min(rows, more+rapid.IntRange(0, 1).Draw(rt, "logits"))
				logits -= max(q.Logits-1, 0)
			}
		case kind == plan.ModeVerify:
			rows = min(rapid.IntRange(1, cfg.N).Draw(rt, "rows"), left, l.Context)
			q = plan.VerifyRequest(rows, place(rows))
			q.Logits = rows
			if !target {
				q = plan.DraftRequest(rows, place(rows)+rows)
			}
		case target:
			q = plan.DecodeRequest(place(1) + 1)
			q.Logits = 1
		default:
			q = plan.DraftRequest(1, place(1)+1)
			if last {
				q.Logits = 1
			}
		}
		q.Best = q.Logits > 0 && (best == 2 || best == 1 && rapid.Bool().Draw(rt, "best token"))
		if b.Record != (plan.Record{}) {
			q.Records = rapid.SampledFrom([]int{0, min(rows, recorded)}).Draw(rt, "records")
			recorded -= q.Records
		}
		if b.Replay != (plan.Replay{}) {
			q.Replays = rapid.SampledFrom([]int{0, min(rows, replayed)}).Draw(rt, "replays")
			replayed -= q.Replays
		}
		left -= rows
		b.Add(q)
	}
	return b
}

// Limits that are not set have their defaults. Limits that no pass can reach are reduced. Passes run within the same
// limits for which memory was measured.
func TestDefaultLimits(t *testing.T) {
	m := loadDrafting(t, "v32-tiny", "cpu", nil)
	b := newBench(t, m, plan.Policy{})
	b.run.Close()
	cfg := b.cfg
	cfg.N = 1
	for _, c := range []struct{ given, want step.Limits }{
		{step.Limits{}, step.Limits{Rows: 512, Requests: 64, Prompts: 4, Context: cfg.Model.Context, RecordRows: 512}},
		{step.Limits{Rows: 30, Context: 300},
			step.Limits{Rows: 30, Requests: 30, Prompts: 4, Context: 300, RecordRows: 30}},
		{step.Limits{Context: 50, RecordRows: 7},
			step.Limits{Rows: 4*50 + 64, Requests: 64, Prompts: 4, Context: 50, RecordRows: 7}},
		{step.Limits{Rows: 100, Requests: 2, Prompts: 1, Context: 8},
			step.Limits{Rows: 10, Requests: 2, Prompts: 1, Context: 8, RecordRows: 10}},
	} {
		need, err := step.Measure(m, cfg, c.given)
		if err != nil {
			t.Fatal(err)
		}
		run, err := step.New(m, cfg, c.given)
		if err != nil {
			t.Fatalf("%+v: %v", c.given, err)
		}
		if got := step.LimitsOf(run); got != c.want || run.Bytes() != need {
			t.Errorf("%+v: the runner has the limits %+v, want %+v; it has %d bytes, Measure returned %d", c.given, got,
				c.want,
				run.Bytes(), need)
		}
		run.Close()
	}
}

// wideFolder writes a checkpoint with a large vocabulary: as in published models, logits take more memory than the
// rest of a pass with few rows.
func wideFolder(t testing.TB) string {
	t.Helper()
	text, err := synth.PresetConfig("v32-tiny")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	config["vocab_size"] = 20480
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	one := 1
	c, err := synth.New("wide", text, synth.Options{Seed: 9, NextN: &one})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "wide")
	if err := c.Write(t.Context(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// No batch within the limits needs more memory than Measure returns. With -v the test prints the largest fraction of
// that memory that a batch needed.
func TestMeasureCoversEveryBatchWithinLimits(t *testing.T) {
	wide := families[0]
	wide.name, wide.checkpoint = "deepseek_v32 with a wide vocabulary", wideFolder
	pools := modelFamily{"glm5_next", testmodel.NextDraft, []plan.Policy{{KV: "bf16"},
		{KV: "fp8", Prefill: "sparse-flat"}, {KV: "fp8", Prefill: "sparse-flat", MaxTransient: 4 << 20}},
		promptsAndDecodes}
	for _, f := range append(planned(), wide, pools) {
		t.Run(f.name, func(t *testing.T) {
			rec := recorded(t, f.checkpoint(t))
			m, keeps := rec.Model, keepsOf(rec)
			d, ok := m.(model.Drafter)
			_, stateful := m.(model.Stateful)
			batches, most := 0, 0.0
			rapid.Check(t, func(rt *rapid.T) {
				policy := rapid.SampledFrom(f.policies).Draw(rt, "policy")
				policy.Speculation.Tokens = rapid.IntRange(1, 6).Draw(rt, "verified")
				cfg := configureOn(rt, m, drawHardware(rt, m, policy), policy)
				l := drawLimits(rt, &cfg, keeps)
				given, err := step.Measure(m, cfg, l)
				if err != nil {
					rt.Fatal(err)
				}
				drafts := ok && cfg.N > 1 && d.DraftHead() == nil
				for range 16 {
					b := drawBatch(rt, &cfg, l, keeps, drafts, drafts && l.Draws && !stateful)
					need, err := step.Need(m, cfg, l, b)
					if err != nil {
						rt.Fatal(err)
					}
					batches++
					most = max(most, float64(need)/float64(given))
					if need > given {
						rt.Fatalf("batch %+v within limits %+v needs %d bytes, but Measure returned %d bytes", b, l,
							need, given)
					}
				}
			})
			t.Logf("%d batches; the largest batch needs %.3f of the bytes that Measure returns", batches, most)
		})
	}
}
