package step_test

import (
	"errors"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/plan"
)

// refuser returns a runner of a model on a recording device, on which operations can be made to fail.
func refuser(t *testing.T, m *recordModel) (*step.Runner, step.Work) {
	t.Helper()
	cfg := configure(t, m, plan.Policy{})
	run, err := step.New(m, cfg, step.Limits{Rows: 64, Requests: 3, Prompts: 3, Context: 2 * cfg.Page})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	w := step.Work{Kind: plan.ModeExtend, Tokens: []int32{5, 6, 7}, Pages: []int32{1}, Logits: 1}
	if w.State, err = m.NewState(); err != nil {
		t.Fatal(err)
	}
	if w.State != nil {
		t.Cleanup(w.State.Release)
	}
	return run, w
}

// E22: a page number beyond the cache is refused before any operation is enqueued, and the runner can still be used.
func TestPagesBeyondTheCacheAreRefused(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			run, w := refuser(t, m)
			for _, page := range []int32{-1, 3 * each, 1 << 20} {
				bad := w
				bad.Pages = []int32{page}
				m.Passes = nil
				if _, err := run.Run([]step.Work{bad}); !errors.Is(err, plan.E22) || len(m.Passes) > 0 {
					t.Errorf("page %d: error %v after %d passes, want E22 before any pass", page, err, len(m.Passes))
				}
			}
			windowed := w
			windowed.Windows = []int32{3 * each}
			if _, ok := m.Model.(model.Windowed); ok {
				if _, err := run.Run([]step.Work{windowed}); !errors.Is(err, plan.E22) {
					t.Errorf("a window page beyond the cache: %v, want E22", err)
				}
			}
			// A page that holds no token of the request is not checked.
			w.Pages = append(w.Pages, 1<<20)
			if _, ok := m.Model.(model.Windowed); !ok {
				if _, err := run.Run([]step.Work{w}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// E27: a runner refuses a pass if the layout of its configuration differs from the layout of the model's cache.
func TestAnotherLayoutOfTheCacheIsRefused(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			run, w := refuser(t, m)
			configure(t, m, plan.Policy{KV: "f32"}) // replaces the cache without the runner's knowledge
			if _, err := run.Run([]step.Work{w}); !errors.Is(err, plan.E27) {
				t.Errorf("got %v, want E27", err)
			}
		})
	}
}

// E28: if a kernel fails, the error contains the kernel's message and names the pass. The next pass runs.
func TestAFailedKernelFailsThePass(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			run, w := refuser(t, m)
			status := errors.New("status 700")
			m.Fail(func(op string) error {
				if strings.HasSuffix(op, " attend") {
					return status
				}
				return nil
			})
			_, err := run.Run([]step.Work{w})
			if !errors.Is(err, plan.E28) || !errors.Is(err, status) || !strings.Contains(err.Error(),
				"mode extend over 3 rows") {
				t.Errorf("got %v, want E28 with the kernel's message and the pass", err)
			}
			m.Fail(nil)
			if w.State != nil { // the failed pass left the state undefined
				if w.State, err = m.NewState(); err != nil {
					t.Fatal(err)
				}
				defer w.State.Release()
			}
			if _, err := run.Run([]step.Work{w}); err != nil {
				t.Errorf("the pass after the failed pass: error %v", err)
			}
		})
	}
}

// If the last chunk of a prompt ends with the last dense row, the chunk expands more keys than chunks of a full context
// gather. The runner's memory is large enough for such a chunk.
func TestPromptsBeforeTheEndOfTheDenseRowsFit(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m := recorded(t, f.checkpoint(t))
			cfg := configure(t, m, plan.Policy{Dense: plan.SwitchOn})
			if !cfg.DenseOK {
				t.Skip("the family has no dense form") // skips V4
			}
			run, err := step.New(m, cfg, step.Limits{Rows: 12, Requests: 3, Prompts: 3, Context: 3 * cfg.Page})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(run.Close)
			var works []step.Work
			last := min(cfg.T, 3*cfg.Page) // the threshold of a model without an indexer is much higher
			for i := range int32(3) {
				w := step.Work{Kind: plan.ModeExtend, Tokens: []int32{5, 6, 7, 8}, Cached: last - 4, Logits: 1}
				for p := range int32(each) {
					w.Pages = append(w.Pages, i*each+p)
				}
				works = append(works, w)
			}
			if _, err := run.Run(works); err != nil {
				t.Error(err)
			}
		})
	}
}
