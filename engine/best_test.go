package engine

import (
	"fmt"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testmodel"
)

// bestRuns counts passes by the form in which their logits were returned.
type bestRuns struct {
	runner
	best, whole, both int
}

func (b *bestRuns) Wait(p step.Pending) (step.Result, error) {
	res, err := b.runner.Wait(p)
	if err == nil && res.Plan.Logits > 0 {
		switch res.Plan.WholeLogits {
		case 0:
			b.best++
		case res.Plan.Logits:
			b.whole++
		default:
			b.both++
		}
	}
	return res, err
}

// Greedy choices without other options use the best token that the device found. Other choices get whole rows of
// logits, also in the same batch. The answers equal those of a run in which all choices get whole rows.
func TestGreedyChoicesNeedNoWholeRows(t *testing.T) {
	for _, dir := range []string{testmodel.V32(t), testmodel.V32Draft(t)} {
		var list []Request
		for i := range 6 {
			r := Request{ID: fmt.Sprint(i), Prompt: tokens(i, 20+7*i), Sampling: greedy(), MaxTokens: 12,
				IgnoreEOS: true}
			switch i {
			case 3:
				r.Sampling = seeded(5)
			case 4:
				r.Sampling.FrequencyPenalty = 1
			case 5:
				r.MinTokens = 4
			}
			list = append(list, r)
		}
		count := &bestRuns{}
		e, run := prepared(t, dir, Config{}, func(e *Engine) {
			count.runner, e.loop.passes.runner = e.loop.passes.runner, count
		})
		got := jointly(t, e, list, run)
		whole, run := prepared(t, dir, Config{}, after(func([]step.Work, step.Result) {}))
		compare(t, list, got, jointly(t, whole, list, run))
		if count.both == 0 {
			t.Errorf("%d passes with best tokens, %d with whole rows, none with both", count.best, count.whole)
		}
		alone := &bestRuns{}
		e, run = prepared(t, dir, Config{}, func(e *Engine) {
			alone.runner, e.loop.passes.runner = e.loop.passes.runner, alone
		})
		jointly(t, e, list[:3], run)
		if alone.best == 0 || alone.whole+alone.both > 0 {
			t.Errorf("greedy choices: %d passes with best tokens, %d with whole rows, %d with both", alone.best,
				alone.whole, alone.both)
		}
	}
}
