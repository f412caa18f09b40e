package formula

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// Invariants of this file: virtual times and the results that tests of schedulers and of capacity planning rely on have
// the values of their definitions.

// watch is a clock whose time changes only in Sleep; it records the durations of these calls.
type watch struct {
	now    time.Time
	sleeps []time.Duration
}

func (w *watch) Now() time.Time { return w.now }

func (w *watch) Sleep(d time.Duration) {
	w.now = w.now.Add(d)
	w.sleeps = append(w.sleeps, d)
}

// prices have a different unit for each part, so that a time shows how often each part was counted.
var prices = Cost{Pass: 16 * time.Second, Row: 16 * time.Millisecond, Decode: 16 * time.Microsecond,
	Keys: 16 * time.Microsecond}

// A pass takes the time of the pass, of its prompt rows, of its decode rows, and of the keys that its rows attend to.
// If the host continues while the device computes, the time passes when the host waits for the results.
func TestAPassTakesTheSumOfItsCosts(t *testing.T) {
	for _, windows := range []bool{false, true} {
		for _, beside := range []bool{false, true} {
			w := &watch{}
			b := newBench(t, Shape{Vocab: 50, Context: 700, Windows: windows},
				NewDevice(Settings{Cost: prices, Time: w, Beside: beside}))
			start := func() step.Work {
				var s model.State
				if m, ok := b.model.(*Windowed); ok {
					var err error
					if s, err = m.NewState(); err != nil {
						t.Fatal(err)
					}
				}
				return step.Work{Kind: plan.ModeExtend, Tokens: []int32{1, 2, 3, 4, 5, 6}, Pages: []int32{1}, Logits: 1,
					State: s}
			}
			// Keys of rows at positions 0 to 5: the rows before them and themselves. A windowed model has entries of
			// groups in addition.
			keys := func(from, to int) (n int) {
				for p := from; p < to; p++ {
					if n += p + 1; windows {
						n += (p + 1) / group
					}
				}
				return n
			}
			work := start()
			for i, c := range []struct {
				work   step.Work
				rows   time.Duration
				decode time.Duration
				keys   int
			}{
				{work, 6, 0, keys(0, 6)},
				{step.Work{Kind: plan.ModeDecode, Tokens: []int32{7}, Cached: 6, Pages: []int32{1}, Logits: 1,
					State: work.State}, 0, 1, keys(6, 7)},
			} {
				from := w.now
				p, err := b.run.Start([]step.Work{c.work})
				if err != nil {
					t.Fatal(err)
				}
				want := prices.Pass + c.rows*prices.Row + c.decode*prices.Decode +
					time.Duration(c.keys)*prices.Keys/1000
				if early := w.now.Sub(from); early != 0 && beside || early != want && !beside {
					t.Errorf("windows %t, beside %t, pass %d: enqueueing took %v of %v", windows, beside, i, early,
						want)
				}
				if _, err := p.Wait(); err != nil {
					t.Fatal(err)
				}
				if got := w.now.Sub(from); got != want {
					t.Errorf("windows %t, beside %t, pass %d took %v, want %v", windows, beside, i, got, want)
				}
			}
		}
	}
}

// The results of a pass that was enqueued after another one are available when both have been computed. Time in which
// the device was idle does not shorten later passes.
func TestEnqueuedWorkIsComputedInOrder(t *testing.T) {
	w := &watch{}
	d := NewDevice(Settings{Time: w, Beside: true})
	x, err := kernel.New(d, kernel.F32, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(took time.Duration) kernel.Event {
		d.pending += took
		e, err := d.Fetch(make([]byte, 4), x)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	wait := func(e kernel.Event, want time.Duration) {
		t.Helper()
		if err := e.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := w.now.Sub(time.Time{}); got != want {
			t.Errorf("the results are there at %v, want %v", got, want)
		}
	}
	first, second := enqueue(2*time.Second), enqueue(3*time.Second)
	wait(first, 2*time.Second)
	wait(second, 5*time.Second)
	w.now = w.now.Add(time.Minute)
	wait(enqueue(4*time.Second), 69*time.Second)
	if d.pending != 0 {
		t.Errorf("%v of work are pending after its results were fetched", d.pending)
	}
}

// A divided pass takes an equal share of its time in each of its parts and computes its results in the last part. A
// fault of its first part changes these results, and no operation outside of the pass.
func TestPartsOfAPassTakeEqualTimes(t *testing.T) {
	for _, c := range []struct {
		name          string
		whole, beside bool
		timed         bool
		want          int
	}{{"a target pass", false, false, true, 16}, {"a draft pass", true, false, true, 1},
		{"a pass beside the host", false, true, true, 1}, {"a pass without time", false, false, false, 1}} {
		s := Settings{Beside: c.beside}
		w := &watch{}
		if c.timed {
			s.Time = w
		}
		d := NewDevice(s)
		begun, ended, wrong := 0, 0, false
		p := &divided{dev: d, whole: c.whole,
			begin: func() (time.Duration, error) { begun++; d.nan = true; return 32 * time.Second, nil },
			end:   func() error { ended++; wrong = d.nan; return nil }}
		if p.Len() != c.want {
			t.Errorf("%s has %d parts, want %d", c.name, p.Len(), c.want)
			continue
		}
		for i := range p.Len() {
			if err := p.Run(i, i); err != nil || len(w.sleeps) != i && c.want > 1 {
				t.Fatalf("%s: running no part took %v, error %v", c.name, w.sleeps, err)
			}
			if err := p.Run(i, i+1); err != nil {
				t.Fatal(err)
			}
			if last := i+1 == p.Len(); begun != 1 || (ended == 1) != last || d.nan {
				t.Errorf("%s, part %d: begun %d times, ended %d times, NaN %t outside the pass", c.name, i, begun,
					ended, d.nan)
			}
		}
		if !wrong {
			t.Errorf("%s: its end does not see the fault of its begin", c.name)
		}
		for _, took := range w.sleeps {
			if took != 2*time.Second || c.want == 1 {
				t.Errorf("%s: a part took %v", c.name, took)
			}
		}
		if c.want == 1 && d.pending != 32*time.Second {
			t.Errorf("%s: %v are pending, want 32s", c.name, d.pending)
		}
	}
}

// A draft pass takes an eighth of the time of a decode pass with as many rows and without keys. The drafting layer of a
// model predicts the target's most probable token, for two of three hashes.
func TestADraftPassTakesAnEighth(t *testing.T) {
	for _, windows := range []bool{false, true} {
		w := &watch{}
		b := newBench(t, Shape{Vocab: 50, Context: 700, Windows: windows}, NewDevice(Settings{Cost: prices, Time: w}))
		var s model.State
		if m, ok := b.model.(*Windowed); ok {
			var err error
			if s, err = m.NewState(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: []int32{1, 2, 3}, Pages: []int32{1},
			Logits: 1, State: s}}); err != nil {
			t.Fatal(err)
		}
		from := w.now
		if m, ok := b.model.(*Windowed); ok {
			m.Commit(&model.Input{States: []model.State{s}, Tokens: [][]int32{{1, 2, 3}}})
		}
		res, err := b.run.Draft([]step.Draft{{Kind: plan.ModeDraft, Tokens: []int32{2, 3, 4}, Pages: []int32{1},
			Logits: true, Best: true, State: s}}, false)
		if err != nil {
			t.Fatal(err)
		}
		// All rows are stored before the layer computes the last one; a windowed model has only the second pass.
		each := func(rows time.Duration) time.Duration { return (prices.Pass + rows*prices.Decode) / draftCost }
		got, want := w.now.Sub(from), each(3)
		if got != want && got != each(2)+each(1) {
			t.Errorf("windows %t: drafting took %v, want %v or %v", windows, got, want, each(2)+each(1))
		}
		if res.Plan == nil {
			t.Errorf("windows %t: no logits", windows)
		}
	}
	hits := 0
	for h := range uint64(3000) {
		if doubt(mix(h)) == mix(h) {
			hits++
		}
	}
	if hits < 1900 || hits > 2100 {
		t.Errorf("%d of 3000 drafts are right, want two thirds", hits)
	}
}

// The best token is the first of the largest logits; the sum of exponentials includes every token.
func TestTheBestToken(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		token  int32
	}{{[]float32{1, 3, 3, 2}, 1}, {[]float32{-1}, 0}, {[]float32{0, -5, 7}, 2}} {
		sum := 0.0
		for _, x := range c.logits {
			sum += math.Exp(float64(x))
		}
		token, logit, logSum := best(c.logits)
		if token != c.token || logit != c.logits[c.token] || logSum != float32(math.Log(sum)) {
			t.Errorf("%v: token %d, logit %v, logarithm of the sum %v", c.logits, token, logit, logSum)
		}
	}
}

// The results of a pass are those of its rows in order: whole rows of logits for some, the best or the drawn token for
// others.
func TestResultsOfDifferentKindsInOnePass(t *testing.T) {
	b := newBench(t, Shape{Vocab: 50, Context: 700}, NewDevice(Settings{}))
	prompt := func(first int32, pages ...int32) step.Work {
		return step.Work{Kind: plan.ModeExtend, Tokens: []int32{first, 2, 3}, Pages: pages, Logits: 1}
	}
	rows := make([][]float32, 3)
	for i := range rows {
		res, err := b.run.Run([]step.Work{prompt(int32(i), int32(i))})
		if err != nil {
			t.Fatal(err)
		}
		rows[i] = slices.Clone(res.Row(0))
	}
	works := []step.Work{prompt(0, 0), prompt(1, 1), prompt(2, 2)}
	works[0].Best, works[2].Best = true, true
	draw := sample.Draw{Inverse: 1, TopP: 1, Random: 1 << 62}
	works[2].Draws = []sample.Draw{draw}
	res, err := b.run.Run(works)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.Row(1), rows[1]) {
		t.Error("the row of logits is not that of the second sequence")
	}
	want, _, _ := best(rows[0])
	if got, _, _ := res.Best(0); got != want {
		t.Errorf("the best token of the first sequence is %d, want %d", got, want)
	}
	first, _, _ := best(rows[2])
	want = NewDevice(Settings{}).sampler(50).Choose(rows[2], first, draw)
	if got, _, _ := res.Best(2); got != want || got == first {
		t.Errorf("token %d was drawn for the third sequence, want %d; the best is %d", got, want, first)
	}
}

// A state is restored only at the end of a page, with a window page that holds the tokens before it. A state can be
// used only by its own model, at its own position, and until it is released.
func TestStatesAreChecked(t *testing.T) {
	b := newBench(t, Shape{Vocab: 50, Context: 700, Windows: true}, NewDevice(Settings{}))
	m := b.model.(*Windowed)
	size := m.pageTokens
	for _, c := range []struct {
		n       int
		windows []int32
		ok      bool
	}{
		{size, []int32{3}, true}, {2 * size, []int32{-1, 3}, true}, {size, []int32{3, -1}, true},
		{size - 1, []int32{3}, false}, {size + 1, []int32{3, 4}, false}, {0, []int32{3}, false},
		{2 * size, []int32{3}, false}, {2 * size, []int32{3, -1}, false}, {-size, []int32{3}, false},
	} {
		s, err := m.Restore(c.n, c.windows)
		if (err == nil) != c.ok || c.ok && s.Len() != c.n {
			t.Errorf("%d tokens, window pages %v: error %v", c.n, c.windows, err)
		}
		if c.ok {
			s.Release()
		}
	}
	if m.States() != 0 {
		t.Errorf("%d states are held after all were released", m.States())
	}
	own, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newBench(t, Shape{Vocab: 50, Context: 700, Windows: true}, NewDevice(Settings{})).model.(*Windowed).
		NewState()
	if err != nil {
		t.Fatal(err)
	}
	gone, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	gone.Release()
	for _, c := range []struct {
		name  string
		state model.State
		at    int
		want  string
	}{
		{"its own state", own, 0, ""}, {"another position", own, 1, "but its state covers 0 tokens"},
		{"a state of another model", other, 0, "no state of this model"},
		{"a released state", gone, 0, "no state of this model"}, {"no state", nil, 0, "no state of this model"},
		{"an empty pointer", (*state)(nil), 0, "no state of this model"},
	} {
		if _, err := m.check(c.state, c.at); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// A state keeps the marks of the latest positions: it can be truncated as long as the group before the cut is kept.
func TestTruncationNeedsTheMarksBeforeIt(t *testing.T) {
	for n := range 4 * ring {
		s := &state{len: 4 * ring, high: 4 * ring}
		if err := s.Truncate(n); (err == nil) != (n == 0 || max(n/group*group-group, 0) >= 3*ring) {
			t.Errorf("to %d of %d tokens: error %v", n, 4*ring, err)
		} else if err == nil && s.Len() != n {
			t.Errorf("to %d tokens: the state has %d", n, s.Len())
		}
	}
	s := &state{len: 5, high: 5}
	if s.Truncate(-1) == nil || s.Truncate(6) == nil || s.Truncate(5) != nil {
		t.Error("a state of 5 tokens is truncated to -1 or 6, or not to 5")
	}
	s = &state{len: 3 * group, low: 2 * group, high: 3 * group} // restored from a page
	if s.Truncate(3*group-1) == nil || s.Truncate(3*group) != nil {
		t.Error("a restored state is truncated to a place before its first mark, or not kept")
	}
}
