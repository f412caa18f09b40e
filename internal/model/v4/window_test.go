package v4_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

var _ model.Windowed = (*v4.Model)(nil) // the interface that the engine uses

// Three window pages, used in turn, suffice for any length: logits equal those of a sequence that keeps all pages.
func TestAFewWindowPagesAreEnough(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	const n, chunk = 1100, 200
	want := b.Chunks(b.Sequence(3, n), 0)
	if err := m.AllocateWindows(&b.Config, steps.Pages, 3); err != nil {
		t.Fatal(err)
	}
	s := b.Sequence(3, n)
	var got [][]float32
	for at := 0; at < n; at += chunk {
		w := s.Work(plan.ModeExtend, min(chunk, n-at))
		w.Windows = turning(len(s.Pages), max(at-m.Window()+1, 0)/b.Config.Page, 3)
		got = append(got, b.Step(w)...)
	}
	b.SameBits("three window pages", got, want)
	if all, window := m.PageBytes(&b.Config), m.WindowBytes(&b.Config); window <= 0 || window >= all {
		t.Errorf("a window page has %d bytes of a page's %d", window, all)
	}
}

// turning returns a table that assigns window pages 0 to n-1 in turn to the pages from first on, and none to the pages
// before.
func turning(pages, first, n int) []int32 {
	out := make([]int32, pages)
	for i := range out {
		if out[i] = int32(i % n); i < first {
			out[i] = -1
		}
	}
	return out
}

// A sequence that continues after the pages of another one reads the raw rows at the end of the other's last window
// page. It has the same bits as a sequence that computed all rows, however the pages were written and whatever was
// stored in the meantime.
func TestRestoreGoesOnBehindPages(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	const n = 530
	want := b.Chunks(b.Sequence(4, n), 0)
	// The cases write the last 4 rows of a page in one step, in two steps, and in several.
	for _, ends := range [][]int{{n}, {254, 508, n}, {249, 252, 255, 258, 505, 508, 511, 514, n}} {
		b.Reset()
		writer := b.Sequence(4, n)
		for _, end := range ends {
			b.Step(writer.Work(plan.ModeExtend, end-writer.State.Len()))
		}
		writer.State.Release()
		b.Chunks(b.Sequence(5, 300), 0) // another sequence takes the slot
		for _, pages := range []int{1, 2} {
			at := pages * b.Config.Page
			s := b.Sequence(4, n)
			copy(s.Pages, writer.Pages[:pages])
			var err error
			if s.State, err = m.Restore(at, s.Pages); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.State.Release)
			what := fmt.Sprintf("steps that end at %d, behind %d tokens", ends, at)
			b.SameBits(what, b.Chunks(s, 31), want[at:])
		}
	}
}

func TestRestoreAndWindowsAreChecked(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	held := m.States()
	for _, c := range []struct {
		n       int
		windows []int32
	}{{255, []int32{0}}, {256, nil}, {256, []int32{-1}}, {512, []int32{0}}, {256, []int32{steps.Pages}},
		{-256, []int32{0}}} {
		if _, err := m.Restore(c.n, c.windows); err == nil {
			t.Errorf("%d tokens with window pages %v were restored", c.n, c.windows)
		}
	}
	if m.States() != held {
		t.Errorf("%d states are held, %d before", m.States(), held)
	}
	s := b.Sequence(1, 600)
	b.Step(s.Work(plan.ModeExtend, 300))
	for _, c := range []struct {
		windows []int32
		want    string
	}{{[]int32{-1, 1, 2}, "reaches page 0"}, {[]int32{0, -1, 2}, "reaches page 1"},
		{[]int32{0}, "1 entries of window pages for 3 pages"}} {
		w := s.Work(plan.ModeExtend, 10)
		w.Windows = c.windows
		if _, err := b.Runner.Run([]step.Work{w}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("window pages %v: got %v, want %q", c.windows, err, c.want)
		}
	}
	w := s.Work(plan.ModeExtend, 10)
	w.Windows, w.Pages = s.Pages, slices.Clone(s.Pages)
	w.Pages[0] = steps.Pages
	if _, err := b.Runner.Run([]step.Work{w}); err == nil || !strings.Contains(err.Error(), "in a cache of") {
		t.Errorf("a page beyond the cache: got %v", err)
	}
	// A restored state contains nothing before the page's last group.
	st, err := m.Restore(256, s.Pages)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	if err := st.Truncate(255); err == nil || !strings.Contains(err.Error(), "compute the sequence again") {
		t.Errorf("truncated to before the page's end: %v", err)
	}
	if err := st.Truncate(256); err != nil {
		t.Error(err)
	}
	// A clone of a restored state contains nothing before the group either, before and after its own tokens.
	c, err := st.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	const bound = "holds positions from 252 on: compute the sequence again"
	if err := c.Truncate(255); err == nil || !strings.Contains(err.Error(), bound) {
		t.Errorf("a copy, truncated to before the page's end: %v", err)
	}
	copied := &steps.Sequence{Tokens: s.Tokens, Pages: s.Pages, State: c}
	b.Step(copied.Work(plan.ModeExtend, 3))
	if err := c.Truncate(254); err == nil || !strings.Contains(err.Error(), bound) {
		t.Errorf("a copy with three more tokens, truncated to before the page's end: %v", err)
	}
	if err := c.Truncate(256); err != nil {
		t.Error(err)
	}
}

// A block of the drafting stages attends to one token more than a row does: the token before its first. Enough window
// pages are kept for both.
func TestTheWindowOfDraftingStages(t *testing.T) {
	for dir, more := range map[string]int{testmodel.V4(t): 0, testmodel.V4Draft(t): 0, testmodel.V4Spark(t): 1} {
		m := steps.Open[*v4.Model](t, dir, "cpu")
		if rows := m.Facts().Window; m.Window() != rows+more || rows == 0 {
			t.Errorf("%s: a window of %d tokens, rows see %d", dir, m.Window(), rows)
		}
	}
}
