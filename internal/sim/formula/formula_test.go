package formula

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/plan"
)

const pages = 12

// bench runs passes of a model.
type bench struct {
	model model.Model
	run   *step.Runner
	page  int
}

func newBench(t *testing.T, s Shape, dev *Device) *bench {
	t.Helper()
	m, err := New(s, dev)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{})
	if err == nil {
		err = m.Allocate(&cfg, pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	run, err := step.New(m, cfg, step.Limits{Rows: 64, Requests: 4, Prompts: 4, Context: s.Context})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	return &bench{m, run, cfg.Page}
}

// logits computes a sequence in chunks and returns the logits of the last row.
func (b *bench) logits(t *testing.T, tokens, pages []int32, chunk int) []float32 {
	t.Helper()
	var state model.State
	if m, ok := b.model.(model.Stateful); ok {
		s, err := m.NewState()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		state = s
	}
	var row []float32
	for at := 0; at < len(tokens); at += chunk {
		end := min(at+chunk, len(tokens))
		res, err := b.run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens[at:end], Cached: at, Pages: pages,
			Logits: 1, State: state}})
		if err != nil {
			t.Fatal(err)
		}
		row = slices.Clone(res.Row(0))
	}
	return row
}

// Logits depend on the tokens and their positions in the sequence, and not on pages or chunks. If another sequence has
// overwritten a row, the logits change.
func TestLogitsAreReadThroughPages(t *testing.T) {
	for _, s := range []Shape{{Vocab: 50, Context: 700}, {Vocab: 50, Context: 700, Windows: true}} {
		b := newBench(t, s, NewDevice(Settings{}))
		draw := rand.New(rand.NewPCG(1, 1))
		tokens := make([]int32, 300)
		for i := range tokens {
			tokens[i] = draw.Int32N(50)
		}
		want := b.logits(t, tokens, []int32{0, 1, 2, 3, 4}, 64)
		for _, c := range []struct {
			pages []int32
			chunk int
		}{{[]int32{5, 3, 7, 0, 9}, 64}, {[]int32{11, 10, 2, 3, 4}, 7}, {[]int32{0, 1, 2, 3, 4}, 1}} {
			if got := b.logits(t, tokens, c.pages, c.chunk); !slices.Equal(got, want) {
				t.Errorf("windows %t, pages %v, chunks of %d: the logits differ", s.Windows, c.pages, c.chunk)
			}
		}
		tokens[299] ^= 1
		if slices.Equal(b.logits(t, tokens, []int32{0, 1, 2, 3, 4}, 64), want) {
			t.Errorf("windows %t: another token gives equal logits", s.Windows)
		}
		tokens[299] ^= 1
		if slices.Equal(b.logits(t, tokens, []int32{0, 0, 2, 3, 4}, 64), want) {
			t.Errorf("windows %t: a page that is used twice gives equal logits", s.Windows)
		}
	}
	b := newBench(t, Shape{Vocab: 50, Context: 700}, NewDevice(Settings{}))
	h := uint64(0)
	for i := range int32(200) {
		h = after(h, mark(i%50, int(i)))
	}
	want, tokens := make([]float32, 50), make([]int32, 200)
	for i := range tokens {
		tokens[i] = int32(i % 50)
	}
	if fillLogits(want, h); !slices.Equal(b.logits(t, tokens, []int32{4, 3, 2, 1}, 64), want) {
		t.Error("the logits differ from those of the formula")
	}
}

// The hash of a sequence depends on each token, its position and the hash before it.
func TestHashesDependOnPositions(t *testing.T) {
	seen := map[uint64]bool{}
	for h := range uint64(3) {
		for token := range int32(5) {
			for position := range 5 {
				seen[After(h, token, position)] = true
			}
		}
	}
	if len(seen) != 75 {
		t.Errorf("%d hashes of 75 rows", len(seen))
	}
}

// Every state that was made, restored or copied is counted until it is released, and a copy advances independently.
func TestStatesAreCounted(t *testing.T) {
	b := newBench(t, Shape{Vocab: 50, Context: 700, Windows: true}, NewDevice(Settings{}))
	m := b.model.(*Windowed)
	held := func(want int) {
		t.Helper()
		if got := m.States(); got != want {
			t.Errorf("%d states are held, want %d", got, want)
		}
	}
	first, err := m.NewState()
	if err != nil {
		t.Fatal(err)
	}
	held(1)
	second, err := first.Clone()
	if err != nil {
		t.Fatal(err)
	}
	held(2)
	m.Commit(&model.Input{States: []model.State{second}, Tokens: [][]int32{{1, 2}}})
	if first.Len() != 0 || second.Len() != 2 {
		t.Errorf("lengths %d and %d after a commit of the copy, want 0 and 2", first.Len(), second.Len())
	}
	first.Release()
	held(1)
	second.Release()
	held(0)
	if _, err := m.Restore(1, nil); err == nil {
		t.Error("a state was restored without window pages")
	}
	held(0)
}

// Every fault is detected at every operation, with its own error.
func TestFaults(t *testing.T) {
	for _, op := range []Op{OpArrange, OpPrepare, OpWrite, OpExecute, OpFetch, OpWait} {
		for fault := Fail; fault < Faults; fault++ {
			armed := false
			dev := NewDevice(Settings{Faults: func(at Op) Fault {
				if armed && at == op {
					return fault
				}
				return None
			}})
			b := newBench(t, Shape{Vocab: 50, Context: 700}, dev)
			armed = true
			run := func() (res step.Result, err error, panicked bool) {
				defer func() { panicked = recover() != nil }()
				res, err = b.run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: []int32{1, 2}, Pages: []int32{0},
					Logits: 1}})
				return res, err, false
			}
			res, err, panicked := run()
			armed = false
			_, later, _ := run()
			ok := err == nil
			switch fault {
			case Fail:
				ok = errors.Is(err, ErrFault)
			case NoMemory:
				ok = errors.Is(err, kernel.ErrMemory)
			case Lose:
				ok = errors.Is(err, kernel.ErrLost) && errors.Is(later, kernel.ErrLost)
			case Panic:
				ok = panicked
			case NaN:
				// These two operations follow the computation of results.
				if ok = err == nil; ok && op != OpFetch && op != OpWait {
					ok = res.Row(0)[0] != res.Row(0)[0]
				}
			}
			if !ok || fault != Lose && later != nil {
				t.Errorf("fault %d at %s: %v, panicked %t; the next pass: %v", fault, op, err, panicked, later)
			}
		}
	}
}
