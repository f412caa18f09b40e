package v4_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/kernel"
	"sparrow/plan"
)

// n tokens are verified, some of them are accepted (at most the 10 that the rings allow), and the sequence continues
// with other tokens. The state and the caches then equal those of a sequence that never drafted.
func TestRollbackEqualsNoDraft(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	for _, prefix := range []int{5, 123, 255} {
		total := prefix + 12
		b.Reset()
		want := b.Chunks(b.Sequence(6, total), 0)
		bytes := b.Bytes()
		counts := []int{2, 5}
		if *long || prefix == 123 {
			counts = append(counts, 10)
		}
		for _, n := range counts {
			for kept := 1; kept <= n; kept++ {
				if !*long && kept > 2 && kept != 5 && kept != n { // 128 tokens in total end a group of each kind
					continue
				}
				b.Reset()
				s := b.Sequence(6, total)
				b.Step(s.Work(plan.ModeExtend, prefix))
				w := s.Work(plan.ModeVerify, n)
				w.Tokens = append([]int32(nil), w.Tokens...)
				for i := kept; i < n; i++ {
					w.Tokens[i] = (w.Tokens[i] + 1) % int32(m.Config().Vocab) // a wrong draft
				}
				what := fmt.Sprintf("%d tokens, %d drafted, %d kept", prefix, n, kept)
				b.SameBits(what, b.Step(w)[:kept], want[prefix:prefix+kept])
				if err := s.State.Truncate(prefix + kept); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				b.SameBits(what, b.Chunks(s, 3), want[prefix+kept:])
				b.SameBytes(what, b.Bytes(), bytes)
			}
		}
	}
}

// A sequence and its clone are independent of each other.
func TestCloneIsAFork(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	const prefix, total = 130, 142
	want := b.Chunks(b.Sequence(7, total), 0)
	b.Reset()
	s, copied := b.Sequence(7, total), b.Sequence(7, total)
	// The same prefix in separate pages is used instead of copies of the pages that are written to.
	b.Step(s.Work(plan.ModeExtend, prefix), copied.Work(plan.ModeExtend, prefix))
	var forks []model.State
	for range 9 { // more states than slots, so that the rings grow while a state is open
		c, err := s.State.Clone()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
		forks = append(forks, c)
	}
	fork := &steps.Sequence{Tokens: append([]int32(nil), s.Tokens...), Pages: copied.Pages, State: forks[0]}
	for i := prefix; i < total; i++ {
		fork.Tokens[i] = 3
	}
	b.Chunks(fork, 1)
	b.SameBits("the sequence that was forked", b.Chunks(s, 5), want[prefix:])
	other := &steps.Sequence{Tokens: s.Tokens, Pages: s.Pages, State: forks[8]}
	b.SameBits("another fork", b.Chunks(other, 1), want[prefix:])
	if forks[1].Len() != prefix || fork.State.Len() != total {
		t.Errorf("forks cover %d and %d tokens", forks[1].Len(), fork.State.Len())
	}
}

// A reused slot contains no data of the earlier sequence.
func TestReusedSlotIsClean(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "f32"})
	var want [][]float32
	for i := range 3 {
		b.Reset()
		other := b.Sequence(20+i, 300)
		b.Chunks(other, 77)
		other.State.Release()
		b.Reset()
		s := b.Sequence(8, 140)
		got := b.Chunks(s, 50)
		if i == 0 {
			want = got
		}
		b.SameBits(fmt.Sprintf("after %d other sequences", i+1), got, want)
		if err := s.State.Truncate(0); err != nil {
			t.Fatal(err)
		}
		b.SameBits("the same state from the beginning", b.Chunks(s, 0), want)
	}
}

func TestStatesAreChecked(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	s := b.Sequence(1, 300)
	refused := func(want string, works ...step.Work) {
		t.Helper()
		if _, err := b.Runner.Run(works); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	w := s.Work(plan.ModeExtend, 8)
	w.State = nil
	refused("has no state of this model", w)
	w = s.Work(plan.ModeExtend, 8)
	w.Cached = 4
	refused("continues at position 4, but its state covers 0 tokens", w)
	w = s.Work(plan.ModeExtend, 8)
	refused("shares its state", w, w)
	w.Pages = nil
	refused("needs 1 pages", w)
	if s.State.Len() != 0 {
		t.Errorf("a refused step moved the state to %d", s.State.Len())
	}
	b.Step(s.Work(plan.ModeExtend, 300))
	for _, c := range []struct {
		n    int
		want string
	}{{301, "be truncated to 301"}, {-1, "be truncated to -1"}, {200, "compute the sequence again"},
		{287, "compute the sequence again"}} {
		if err := s.State.Truncate(c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("truncate to %d: got %v, want %q", c.n, err, c.want)
		}
	}
	if err := s.State.Truncate(291); err != nil {
		t.Errorf("nine tokens back: %v", err)
	}
	s.State.Release()
	refused("was released", step.Work{Kind: plan.ModeDecode, Tokens: s.Tokens[:1], Cached: 291, Pages: s.Pages,
		State: s.State})
	other := steps.Open[*v4.Model](t, compared(t), "cpu")
	st, err := other.NewState()
	if err != nil {
		t.Fatal(err)
	}
	refused("has no state of this model",
		step.Work{Kind: plan.ModeExtend, Tokens: s.Tokens[:1], Pages: s.Pages, State: st})
}

// faulty is a device that fails in a given step when the last sublayer of a layer ends.
type faulty struct {
	kernel.Device
	fails     bool
	layer     int
	sublayers int // number of sublayers that ended in this step; each layer has two
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
	dev := &broken{Device: steps.Device(t, "cpu")}
	b := steps.New(t, steps.OpenOn[*v4.Model](t, oracle, dev), plan.Policy{KV: "fp8"})
	s, long := b.Sequence(1, 10), b.Sequence(2, 310)
	b.Step(long.Work(plan.ModeExtend, 300))
	for _, c := range []struct {
		op, want string
		work     step.Work
	}{
		{"compress to 512", "compressor of layer 2: out of order", s.Work(plan.ModeExtend, 8)},
		{"compress to 128", "indexer's compressor of layer 2: out of order", s.Work(plan.ModeExtend, 8)},
		{"attend", "attention of short-prefill rows of layer 0: out of order", s.Work(plan.ModeExtend, 8)},
		{"attend", "attention of sparse-prefill rows of layer 0: out of order", long.Work(plan.ModeExtend, 8)},
		{"attend", "attention of decode rows of layer 0: out of order", long.Work(plan.ModeDecode, 1)},
		{"experts", "feed-forward of layer 0: out of order", s.Work(plan.ModeExtend, 8)},
	} {
		dev.op = c.op
		if _, err := b.Runner.Run([]step.Work{c.work}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.op, err, c.want)
		}
	}
}

// A step that fails in the middle leaves the state unchanged. A short step can be run again. After a long step, whose
// rows may have overwritten older rows, the next step returns an error, because the sequence must be computed again.
func TestFailedStep(t *testing.T) {
	dev := &faulty{Device: steps.Device(t, "cpu"), layer: 4}
	m := steps.OpenOn[*v4.Model](t, oracle, dev)
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	want := b.Chunks(b.Sequence(9, 150), 0)
	for _, n := range []int{9, 40} {
		b.Reset()
		s := b.Sequence(9, 150)
		got := b.Step(s.Work(plan.ModeExtend, 102))
		dev.fails, dev.sublayers = true, 0
		if _, err := b.Runner.Run([]step.Work{s.Work(plan.ModeExtend, n)}); err == nil ||
			!strings.Contains(err.Error(), "on purpose") {
			t.Fatalf("got %v, want the device's error", err)
		}
		dev.fails = false
		if s.State.Len() != 102 {
			t.Fatalf("a failed step moved the state to %d", s.State.Len())
		}
		if n > 9 {
			if _, err := b.Runner.Run([]step.Work{s.Work(plan.ModeExtend, n)}); err == nil ||
				!strings.Contains(err.Error(), "compute the sequence again") {
				t.Fatalf("after %d failed Tokens: got %v", n, err)
			}
			if err := s.State.Truncate(0); err != nil {
				t.Fatal(err)
			}
			got = nil
		}
		b.SameBits(fmt.Sprintf("after %d failed tokens", n), append(got, b.Chunks(s, 0)...), want)
	}
}
