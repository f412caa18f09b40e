package engine

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/sched"
)

// A batch can reach the stage ended from every other stage, and only by transitions in the table.
func TestABatchMovesThroughItsStages(t *testing.T) {
	stages := stage(len(transitions))
	if int(stages) != len(stageNames) {
		t.Fatalf("%d stages have transitions, %d have names", stages, len(stageNames))
	}
	reaches := map[stage]bool{stageEnded: true}
	for range stages {
		for from := range stages {
			for _, to := range transitions[from] {
				reaches[from] = reaches[from] || reaches[to]
			}
		}
	}
	for from := range stages {
		if !reaches[from] {
			t.Errorf("a batch in the stage %v cannot reach the stage ended", from)
		}
		for to := range stages {
			allowed := false
			for _, next := range transitions[from] {
				allowed = allowed || next == to
			}
			b := &batch{stage: from, items: make([]sched.Item, 3)}
			got := moves(b, to)
			if allowed != (got == "") || allowed && b.stage != to {
				t.Errorf("from %v to %v: %q, now %v", from, to, got, b.stage)
			}
			want := fmt.Sprintf("3 items that is %v cannot be %v", from, to)
			if !allowed && !strings.Contains(got, want) {
				t.Errorf("from %v to %v: %q, want %q", from, to, got, want)
			}
		}
	}
}

// moves calls b.to(stage). It returns the message of the panic, or "" if there was none.
func moves(b *batch, to stage) (said string) {
	defer func() {
		if v := recover(); v != nil {
			said = fmt.Sprint(v)
		}
	}()
	b.to(to)
	return ""
}
