package step_test

import (
	"context"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// sparkReleased writes a checkpoint with a DSpark head with the data types of released checkpoints: FP8 matrices and
// FP4 experts.
func sparkReleased(t *testing.T) string {
	t.Helper()
	config := strings.NewReplacer(`"o_lora_rank": 32`, `"o_lora_rank": 128`, `"hc_mult"`,
		`"expert_dtype": "fp4", "hc_mult"`).Replace(testmodel.V4SparkConfig)
	c, err := synth.New("spark", []byte(config), synth.Options{Seed: 1, DType: synth.FP8})
	dir := t.TempDir()
	if err == nil {
		err = c.Write(context.Background(), dir, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The test counts the launches of a draft pass of two stages on a GPU. The count does not depend on the number of
// sequences, and a captured graph needs fewer launches.
func TestBlockLaunches(t *testing.T) {
	m, dev := detached(t, sparkReleased(t))
	cfg := configureOn(t, m, "sm90", plan.Policy{KV: "fp8", Speculation: plan.Speculation{Tokens: 6}})
	for _, graphs := range []int64{-1, 0} {
		run, err := step.New(m, cfg, step.Limits{Rows: 64, Requests: 4, Context: 512, GraphBytes: graphs})
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range []int{1, 4} {
			var works []step.Draft
			for range batch {
				state, err := m.(model.Stateful).NewState()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(state.Release)
				if _, err := run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: make([]int32, 21), Pages: []int32{1},
					State: state}}); err != nil {
					t.Fatal(err)
				}
				works = append(works, step.Draft{Kind: plan.ModeDraft, Tokens: []int32{7}, Cached: 20,
					Pages: []int32{1}, State: state, Logits: true, Best: true})
			}
			var took [3]int64
			for i := range took {
				before := dev.Launches()
				if _, err := run.Draft(works, false); err != nil {
					t.Fatal(err)
				}
				took[i] = dev.Launches() - before
			}
			t.Logf("%d sequences: launches %v", batch, took)
			const want = 82 // the current number of launches; fewer would be better
			if graphs < 0 && took[0] != want {
				t.Errorf("%d sequences: %d launches of a draft pass, want %d", batch, took[0], want)
			}
			// One launch each for the inputs, the graph, the results and the fault bits.
			if graphs == 0 && took[2] != 4 {
				t.Errorf("%d sequences: %d launches of a draft pass from a graph, want 4", batch, took[2])
			}
		}
		run.Close()
	}
}

// On a GPU the workspace is large enough for prompts of long contexts, whose scores do not all fit at once.
func TestLongContextsHaveMemory(t *testing.T) {
	m, _ := detached(t, sparkReleased(t))
	for _, n := range []int{1, 6} {
		cfg := configureOn(t, m, "sm90", plan.Policy{KV: "fp8", Speculation: plan.Speculation{Tokens: n}})
		for _, l := range []step.Limits{{Rows: 8192, Requests: 16, Prompts: 4, Context: 65536},
			{Rows: 8192, Requests: 16, Prompts: 16, Context: 40000}, {Rows: 2048, Requests: 3, Context: 65536}} {
			run, err := step.New(m, cfg, l)
			if err != nil {
				t.Fatalf("%+v: %v", l, err)
			}
			run.Close()
		}
	}
}
