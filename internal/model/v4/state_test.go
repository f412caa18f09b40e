package v4_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

// Rejected drafts: n tokens are verified and some of them kept, up to the 10 the rings allow; then the sequence goes
// on with other tokens. State and caches are those of a sequence that never drafted.
func TestRollbackEqualsNoDraft(t *testing.T) {
	m := open(t, oracle, "cpu")
	b := newBench(t, m, plan.Policy{KV: "fp8"})
	for _, prefix := range []int{5, 123, 255} {
		total := prefix + 12
		b.reset()
		want := b.chunks(b.sequence(6, total), 0)
		bytes := b.bytes()
		for _, n := range []int{2, 5, 10} {
			for kept := 1; kept <= n; kept++ {
				b.reset()
				s := b.sequence(6, total)
				b.step(s.work(plan.ModeExtend, prefix))
				w := s.work(plan.ModeVerify, n)
				w.Tokens = append([]int32(nil), w.Tokens...)
				for i := kept; i < n; i++ {
					w.Tokens[i] = (w.Tokens[i] + 1) % int32(m.Config().Vocab) // a wrong draft
				}
				what := fmt.Sprintf("%d tokens, %d drafted, %d kept", prefix, n, kept)
				b.sameBits(what, b.step(w)[:kept], want[prefix:prefix+kept])
				if err := s.state.Truncate(prefix + kept); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				b.sameBits(what, b.chunks(s, 3), want[prefix+kept:])
				b.sameBytes(what, b.bytes(), bytes)
			}
		}
	}
}

// A fork and the sequence it was cloned from are independent.
func TestCloneIsAFork(t *testing.T) {
	m := open(t, oracle, "cpu")
	b := newBench(t, m, plan.Policy{KV: "fp8"})
	const prefix, total = 130, 142
	want := b.chunks(b.sequence(7, total), 0)
	b.reset()
	s, copied := b.sequence(7, total), b.sequence(7, total)
	// The same prefix in separate pages takes the place of copies of the pages that are written to.
	b.step(s.work(plan.ModeExtend, prefix), copied.work(plan.ModeExtend, prefix))
	var forks []model.State
	for range 9 { // more than there were slots, so that the rings grow while a state is open
		c, err := s.state.Clone()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
		forks = append(forks, c)
	}
	fork := &sequence{tokens: append([]int32(nil), s.tokens...), pages: copied.pages, state: forks[0]}
	for i := prefix; i < total; i++ {
		fork.tokens[i] = 3
	}
	b.chunks(fork, 1)
	b.sameBits("the sequence that was forked", b.chunks(s, 5), want[prefix:])
	b.sameBits("another fork", b.chunks(&sequence{tokens: s.tokens, pages: s.pages, state: forks[8]}, 1), want[prefix:])
	if forks[1].Len() != prefix || fork.state.Len() != total {
		t.Errorf("forks cover %d and %d tokens", forks[1].Len(), fork.state.Len())
	}
}

// A slot that was used before holds nothing of the sequence before.
func TestReusedSlotIsClean(t *testing.T) {
	m := open(t, oracle, "cpu")
	b := newBench(t, m, plan.Policy{KV: "f32"})
	var want [][]float32
	for i := range 3 {
		b.reset()
		other := b.sequence(20+i, 300)
		b.chunks(other, 77)
		other.state.Release()
		b.reset()
		s := b.sequence(8, 140)
		got := b.chunks(s, 50)
		if i == 0 {
			want = got
		}
		b.sameBits(fmt.Sprintf("after %d other sequences", i+1), got, want)
		if err := s.state.Truncate(0); err != nil {
			t.Fatal(err)
		}
		b.sameBits("the same state from the beginning", b.chunks(s, 0), want)
	}
}

func TestStatesAreChecked(t *testing.T) {
	m := open(t, oracle, "cpu")
	b := newBench(t, m, plan.Policy{KV: "fp8"})
	s := b.sequence(1, 300)
	refused := func(want string, works ...step.Work) {
		t.Helper()
		if _, err := b.run.Run(works); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	w := s.work(plan.ModeExtend, 8)
	w.State = nil
	refused("has no state of this model", w)
	w = s.work(plan.ModeExtend, 8)
	w.Cached = 4
	refused("continues at position 4, its state covers 0 tokens", w)
	w = s.work(plan.ModeExtend, 8)
	refused("shares its state", w, w)
	w.Pages = nil
	refused("needs 1 pages", w)
	if s.state.Len() != 0 {
		t.Errorf("a refused step moved the state to %d", s.state.Len())
	}
	b.step(s.work(plan.ModeExtend, 300))
	for _, c := range []struct {
		n    int
		want string
	}{{301, "cannot become 301"}, {-1, "cannot become -1"}, {200, "compute the sequence again"},
		{287, "compute the sequence again"}} {
		if err := s.state.Truncate(c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("truncate to %d: got %v, want %q", c.n, err, c.want)
		}
	}
	if err := s.state.Truncate(291); err != nil {
		t.Errorf("nine tokens back: %v", err)
	}
	s.state.Release()
	refused("was released", step.Work{Kind: plan.ModeDecode, Tokens: s.tokens[:1], Cached: 291, Pages: s.pages,
		State: s.state})
	other := open(t, oracle, "cpu")
	st, err := other.NewState()
	if err != nil {
		t.Fatal(err)
	}
	refused("has no state of this model",
		step.Work{Kind: plan.ModeExtend, Tokens: s.tokens[:1], Pages: s.pages, State: st})
}

// faulty is a device that fails in a step when the last sublayer of a layer ends.
type faulty struct {
	kernel.Device
	fails     bool
	layer     int
	sublayers int // that ended in this step, two of each layer
}

func (f *faulty) Do(op kernel.Op) error {
	if _, ok := op.(kernel.HyperPostArgs); ok {
		if f.sublayers++; f.fails && f.sublayers == 2*(f.layer+1) {
			return errors.New("stopped on purpose")
		}
	}
	return f.Device.Do(op)
}

// broken is a device on which one kind of operation fails.
type broken struct {
	kernel.Device
	op string
}

func (b *broken) Do(op kernel.Op) error {
	name := ""
	switch a := op.(type) {
	case kernel.CompressArgs:
		name = fmt.Sprint("compress to ", a.Out.Cols)
	case kernel.DualArgs, kernel.FlatArgs:
		name = "attend"
	case kernel.ExpertArgs:
		name = "experts"
	}
	err := b.Device.Do(op)
	if name != "" && name == b.op {
		err = errors.Join(errors.New("out of order"), err)
	}
	return err
}

// The error of a device names the part of the model to which the operation belongs.
func TestErrorsSayWhere(t *testing.T) {
	dev := &broken{Device: device(t, "cpu")}
	b := newBench(t, openOn(t, oracle, dev), plan.Policy{KV: "fp8"})
	s, long := b.sequence(1, 10), b.sequence(2, 310)
	b.step(long.work(plan.ModeExtend, 300))
	for _, c := range []struct {
		op, want string
		work     step.Work
	}{
		{"compress to 512", "compressor of layer 2: out of order", s.work(plan.ModeExtend, 8)},
		{"compress to 128", "indexer's compressor of layer 2: out of order", s.work(plan.ModeExtend, 8)},
		{"attend", "attention of short-prefill rows of layer 0: out of order", s.work(plan.ModeExtend, 8)},
		{"attend", "attention of sparse-prefill rows of layer 0: out of order", long.work(plan.ModeExtend, 8)},
		{"attend", "attention of decode rows of layer 0: out of order", long.work(plan.ModeDecode, 1)},
		{"experts", "feed-forward of layer 0: out of order", s.work(plan.ModeExtend, 8)},
	} {
		dev.op = c.op
		if _, err := b.run.Run([]step.Work{c.work}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.op, err, c.want)
		}
	}
}

// A step that fails half-way leaves the state unchanged: a short one can be run again. After a long one, whose rows may
// have overwritten older ones, the next step returns an error: the sequence must be computed again.
func TestFailedStep(t *testing.T) {
	dev := &faulty{Device: device(t, "cpu"), layer: 4}
	m := openOn(t, oracle, dev)
	b := newBench(t, m, plan.Policy{KV: "fp8"})
	want := b.chunks(b.sequence(9, 150), 0)
	for _, n := range []int{9, 40} {
		b.reset()
		s := b.sequence(9, 150)
		got := b.step(s.work(plan.ModeExtend, 102))
		dev.fails, dev.sublayers = true, 0
		if _, err := b.run.Run([]step.Work{s.work(plan.ModeExtend, n)}); err == nil ||
			!strings.Contains(err.Error(), "on purpose") {
			t.Fatalf("got %v, want the device's error", err)
		}
		dev.fails = false
		if s.state.Len() != 102 {
			t.Fatalf("a failed step moved the state to %d", s.state.Len())
		}
		if n > 9 {
			if _, err := b.run.Run([]step.Work{s.work(plan.ModeExtend, n)}); err == nil ||
				!strings.Contains(err.Error(), "compute the sequence again") {
				t.Fatalf("after %d failed tokens: got %v", n, err)
			}
			if err := s.state.Truncate(0); err != nil {
				t.Fatal(err)
			}
			got = nil
		}
		b.sameBits(fmt.Sprintf("after %d failed tokens", n), append(got, b.chunks(s, 0)...), want)
	}
}
