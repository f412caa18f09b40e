package engine

import (
	"maps"
	"testing"

	"sparrow/internal/testmodel"
)

// Packing weights does not change results: every row of logits is bitwise equal with and without packing, for models of
// both families.
func TestPackingChangesNothing(t *testing.T) {
	notUnderRace(t)
	for _, dir := range []string{"", testmodel.V4(t)} {
		var logits [2]map[rowKey]uint64
		for i, pack := range []bool{false, true} {
			l := keepLogits()
			e, err := buildPacked(t, dir, Config{Policy: deterministic("")}, pack)
			if err != nil {
				t.Fatal(err)
			}
			_, run := running(t, e, l.watch)
			run()
			generate(t, e, Request{ID: "packed", Prompt: tokens(1, 300), Sampling: greedy(), MaxTokens: 5,
				IgnoreEOS: true})
			logits[i] = l.rows
		}
		if len(logits[0]) == 0 || !maps.Equal(logits[0], logits[1]) {
			t.Errorf("model %q: %d rows of logits, %d rows with packed weights; the rows are not bitwise equal", dir,
				len(logits[0]), len(logits[1]))
		}
	}
}
