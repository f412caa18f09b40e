package engine

import (
	"maps"
	"sync"
	"testing"

	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// Two engines of one process, with different models, cache layouts and drafts, share no mutable data: when they run at
// the same time, each engine gives every request the tokens that it gives alone, with bitwise equal logits. The race
// detector finds no shared access.
func TestTwoEnginesAtOnce(t *testing.T) {
	type side struct {
		dir        string
		cfg        Config
		list       []Request
		want       []*response
		rows, lone *logitsOf
	}
	// No prefix is reused and the memory holds all requests, so that no token is computed twice.
	sides := []*side{
		{dir: testmodel.V32Draft(t), cfg: Config{Policy: plan.Policy{KV: "fp8-656"}, Draft: drafts(t, 3)}},
		{dir: testmodel.V32(t), cfg: Config{Policy: plan.Policy{KV: "bf16"}}},
	}
	for _, s := range sides {
		s.list, s.lone, s.rows = crowd(6), keepLogits(), keepLogits()
		for i := range s.list {
			s.list[i].MaxTokens = 3 + i
		}
		s.want = lone(t, s.dir, s.cfg, s.list, s.lone.watch)
		s.cfg.NoReuse, s.cfg.StepTokens = true, 96
	}
	var both sync.WaitGroup
	for _, s := range sides {
		e, run := prepared(t, s.dir, s.cfg, s.rows.watch, checked(t))
		both.Go(func() { compare(t, s.list, jointly(t, e, s.list, run), s.want) })
	}
	both.Wait()
	for i, s := range sides {
		if len(s.rows.rows) == 0 || !maps.Equal(s.rows.rows, s.lone.rows) {
			t.Errorf("engine %d: %d rows of logits are not bitwise equal to the %d rows of the engine alone", i,
				len(s.rows.rows),
				len(s.lone.rows))
		}
	}
}
