package next_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/next"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// failing is a device on which the operation with the given number fails, counted from 1; 0 means that none fails.
type failing struct {
	kernel.Device
	at int
}

func (f *failing) Do(op kernel.Op) error {
	if f.at--; f.at == 0 {
		return errors.New("stopped on purpose")
	}
	return f.Device.Do(op)
}

// refused checks that err says want.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}

// A pass that fails may have changed the states. A sequence and its clones then cannot continue, nor be truncated,
// until they are computed again; the result is that of a sequence that never failed.
func TestSequencesOfAFailedPassAreComputedAgain(t *testing.T) {
	dev := &failing{Device: steps.Device(t, "cpu")}
	b := steps.New(t, steps.OpenOn[*next.Model](t, testmodel.NextDraft(t), dev),
		plan.Policy{KV: "bf16", Speculation: plan.Speculation{Tokens: 5}})
	want := b.Chunks(b.Sequence(9, 60), 0)
	b.Reset()
	s := b.Sequence(9, 60)
	b.Step(s.Work(plan.ModeExtend, 40))
	dev.at = 20
	_, err := b.Runner.Run([]step.Work{s.Work(plan.ModeExtend, 10)})
	refused(t, "a pass that fails", err, "stopped on purpose")
	dev.at = 0
	fork, err := s.State.Clone()
	if err != nil {
		t.Fatal(err)
	}
	for what, st := range map[string]model.State{"the sequence": s.State, "its clone": fork} {
		again := &steps.Sequence{Tokens: s.Tokens, Pages: s.Pages, State: st}
		if st.Len() != 40 {
			t.Errorf("%s has %d tokens", what, st.Len())
		}
		_, err = b.Runner.Run([]step.Work{again.Work(plan.ModeExtend, 10)})
		refused(t, what, err, "compute the sequence again")
		refused(t, what+", truncated to the same tokens", st.Truncate(40), "compute the sequence again")
		if err := st.Truncate(0); err != nil {
			t.Fatal(err)
		}
		b.SameBits(what+", computed again", b.Chunks(again, 0), want)
	}
	fork.Release()
}

// Drafting passes do not read the rows of a pass that failed, nor those of passes before it.
func TestFailedPassesAreNotContinued(t *testing.T) {
	dev := &failing{Device: steps.Device(t, "cpu")}
	b := steps.New(t, steps.OpenOn[*next.Model](t, testmodel.NextDraft(t), dev),
		plan.Policy{KV: "bf16", Speculation: plan.Speculation{Tokens: 5}})
	s := b.Sequence(1, 60)
	first := step.Draft{Kind: plan.ModeExtend, Tokens: s.Tokens[1:41], Pages: s.Pages, State: s.State, Logits: true}
	chain := step.Draft{Kind: plan.ModeDraft, Tokens: s.Tokens[41:42], Cached: 40, Pages: s.Pages, State: s.State,
		Logits: true}
	run := func(d step.Draft, chained bool) ([]float32, error) {
		res, err := b.Runner.Draft([]step.Draft{d}, chained)
		if err != nil {
			return nil, err
		}
		return slices.Clone(res.Row(0)), nil
	}
	b.Step(s.Work(plan.ModeExtend, 40))
	_, err := run(chain, true)
	refused(t, "a chain before the first draft", err, "had 0 drafts")
	if _, err := run(first, false); err != nil {
		t.Fatal(err)
	}
	want, err := run(chain, true)
	if err != nil {
		t.Fatal(err)
	}
	dev.at = 5
	_, err = run(first, false)
	refused(t, "a draft that fails", err, "stopped on purpose")
	_, err = run(chain, true)
	refused(t, "a chain after a draft that failed", err, "which had 0 rows")
	if _, err = run(first, false); err != nil {
		t.Fatal(err)
	}
	got, err := run(chain, true)
	if err != nil {
		t.Fatal(err)
	}
	b.SameBits("drafts after one that failed", [][]float32{got}, [][]float32{want})
	dev.at = 20
	_, err = b.Runner.Run([]step.Work{s.Work(plan.ModeExtend, 10)})
	refused(t, "a pass that fails", err, "stopped on purpose")
	_, err = run(step.Draft{Kind: plan.ModeExtend, Tokens: s.Tokens[41:51], Cached: 40, Pages: s.Pages, State: s.State,
		Logits: true}, false)
	refused(t, "a draft after a pass that failed", err, "which had 0 rows")
}

// Pages hold whole pools, and window pages of other caches are refused.
func TestPagesAreChecked(t *testing.T) {
	m := steps.Open[*next.Model](t, testmodel.NextDraft(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "bf16"})
	cfg := b.Config
	cfg.Page = 6
	refused(t, "pages of six tokens", m.Allocate(&cfg, 2), "a multiple of the pool size, 4")
	if err := m.AllocateWindows(&b.Config, steps.Pages, 2); err != nil {
		t.Fatal(err)
	}
	s := b.Sequence(1, b.Config.Page)
	w := s.Work(plan.ModeExtend, b.Config.Page)
	w.Windows = []int32{2}
	_, err := b.Runner.Run([]step.Work{w})
	refused(t, "a window page that does not exist", err, "2")
	w.Windows[0] = 1
	if _, err := b.Runner.Run([]step.Work{w}); err != nil {
		t.Errorf("the last window page: %v", err)
	}
}
