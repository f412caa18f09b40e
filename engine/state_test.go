package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/sched"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// Invariants of this file: a model with a state for each sequence is served like other models. Other requests in the
// batch, chunks, preemption, failed steps and cancellation do not change any bit of the logits, and in the end all
// states are released, which start checks.

// long returns n requests that continue past the end of a page of 256 tokens, in groups with a common first page; one
// request has two choices.
func long(n int) []Request {
	var list []Request
	for i := range n {
		family := i % 3
		prompt := append(tokens(family, []int{270, 300, 200}[family]), tokens(50+i, []int{230, 205, 45}[family]+i)...)
		r := Request{ID: fmt.Sprint(i), Prompt: prompt, Sampling: greedy(), MaxTokens: 24, IgnoreEOS: true}
		if i%2 == 1 {
			r.Sampling = seeded(int64(i))
		}
		if i == 4 {
			r.Sampling.N = 2
		}
		list = append(list, r)
	}
	return list
}

// sameRows checks that the logits of two runs are bitwise equal.
func sameRows(t *testing.T, got, want *logitsOf) {
	t.Helper()
	if maps.Equal(got.rows, want.rows) {
		return
	}
	different := 0
	for k, v := range want.rows {
		if got.rows[k] != v {
			different++
		}
	}
	t.Errorf("%d of %d rows of logits differ from those of a lone run", different, len(want.rows))
}

func TestAStatefulModelServesACrowdToTheBit(t *testing.T) { servesACrowd(t, testmodel.V4, 8) }

// A model whose layers share entries and whose rows depend directly on the previous tokens (n-gram tables) also has
// bitwise equal logits in large batches and alone.
func TestAModelWithTablesServesACrowdToTheBit(t *testing.T) {
	if *ranks == 1 {
		repeats(t, "TestTablesByADevicesRules runs these requests, and internal/model/v41 tests the CPU kernels")
	}
	servesACrowd(t, testmodel.V41, 5)
}

func servesACrowd(t *testing.T, of func(testing.TB) string, requests int) {
	caches := []string{"f32", "fp8"}
	if standIn != nil {
		caches = caches[1:] // a GPU has no cache with float32 rows
	}
	for _, kv := range caches {
		t.Run(kv, func(t *testing.T) {
			if raceEnabled {
				t.Skip("the test of cancelled requests covers the same races in less time")
			}
			if kv == "f32" {
				repeats(t, "large batches do not depend on the cache rows, which package internal/model/v4 tests")
			}
			list := long(requests)
			dir, cfg := of(t), Config{Policy: deterministic(kv)}
			wantRows, gotRows := keepLogits(), keepLogits()
			want := lone(t, dir, cfg, list, wantRows.watch)
			cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = 6*256, 150, 8
			e, run := prepared(t, dir, cfg, gotRows.watch, checked(t))
			got := jointly(t, e, list, run)
			if t.Failed() {
				return
			}
			for i := range list {
				for j := range want[i].Choices {
					sameTokens(t, fmt.Sprintf("request %d choice %d", i, j), got[i].Choices[j], want[i].Choices[j])
				}
			}
			sameRows(t, gotRows, wantRows)
			crowded(t, e)
		})
	}
}

// If a step fails in the middle, after some layers have overwritten rows of the states, the sequences start over and
// get the same answers.
func TestAFailedBatchRestartsItsSequences(t *testing.T) {
	alone(t, "a rank that fails alone is lost")
	if raceEnabled {
		t.Skip("the test runs the step loop only, without other goroutines")
	}
	var list []Request
	for i := range 2 {
		list = append(list, Request{ID: fmt.Sprint(i), Prompt: tokens(i, 700+i), Sampling: greedy(), MaxTokens: 3,
			IgnoreEOS: true})
	}
	dir, cfg := testmodel.V4(t), Config{Policy: deterministic("fp8")}
	wantRows, gotRows := keepLogits(), keepLogits()
	lone(t, dir, cfg, list, wantRows.watch)
	cfg.StepTokens = 600 // two chunks of 300 tokens, each longer than a ring
	e, run := faulty(t, dir, cfg, &halfway{begin: 2, layer: 1}, gotRows.watch, checked(t))
	jointly(t, e, list, run)
	sameRows(t, gotRows, wantRows)
	if st := e.Stats(); st.Isolated != 1 || st.Preempted != 2 || st.Failed != 0 {
		t.Errorf("the items of %d batches ran one by one, %d sequences restarted, %d requests failed; want 1, 2, 0",
			st.Isolated,
			st.Preempted,
			st.Failed)
	}
}

// If a fault is permanent, its requests fail after a limited number of restarts.
func TestRestartsEnd(t *testing.T) {
	alone(t, "a rank that fails alone is lost")
	if raceEnabled {
		t.Skip("the test runs the step loop only, without other goroutines")
	}
	e, run := faulty(t, testmodel.V4(t), Config{StepTokens: 600}, &halfway{begin: 2, layer: 1, always: true})
	var streams []*Job
	for i := range 2 {
		streams = append(streams, open(t, e,
			Request{Prompt: tokens(i, 700), Sampling: greedy(), MaxTokens: 3, Trace: true}))
	}
	run()
	for _, s := range streams {
		_, last := collect(s)
		if last.Finish != FinishError || !errors.Is(last.Err, ErrStep) ||
			!strings.Contains(last.Err.Error(), "computed again 3 times") {
			t.Errorf("ended with %+v", last)
		}
		if n := s.Trace().Preempted; n != 3 {
			t.Errorf("the sequence was computed again %d times, want 3", n)
		}
	}
	if st := e.Stats(); st.Isolated != 4 || st.Failed != 2 {
		t.Errorf("%d batches and %d requests failed; want 4 batches and 2 requests", st.Isolated, st.Failed)
	}
}

// halfway fails inside passes of several requests, after a layer: only in pass number begin, or also in all later
// passes.
type halfway struct {
	begin, layer int
	always       bool
	passes       int
	fails        bool // the current pass fails
	sublayers    int  // number of sublayers that ended in the current pass; each layer has two sublayers
}

// faultyRunner counts passes of several requests and tells the device which of them fail.
type faultyRunner struct {
	runner
	h *halfway
}

func (f faultyRunner) Begin(works []step.Work) (step.Started, error) {
	h := f.h
	h.sublayers, h.fails = 0, false
	if len(works) > 1 {
		h.passes++
		h.fails = h.passes == h.begin || h.always && h.passes > h.begin
	}
	return f.runner.Begin(works)
}

// faultyDevice fails when the last sublayer of a layer ends.
type faultyDevice struct {
	kernel.Device
	h *halfway
}

func (f faultyDevice) Do(op kernel.Op) error {
	if _, ok := op.(kernel.HyperPostArgs); ok {
		if f.h.sublayers++; f.h.fails && f.h.sublayers > 2*f.h.layer+1 {
			return errFault
		}
	}
	return f.Device.Do(op)
}

// faulty prepares an engine on a device that fails.
func faulty(t *testing.T, dir string, c Config, h *halfway, hooks ...func(*Engine)) (*Engine, func()) {
	t.Helper()
	e, err := buildOver(t, dir, c, kernel.Options{}, func(d kernel.Device) kernel.Device { return faultyDevice{d, h} })
	if err != nil {
		t.Fatal(err)
	}
	return running(t, e, append(hooks, func(e *Engine) {
		e.loop.passes.runner = faultyRunner{e.loop.passes.runner, h}
	})...)
}

// fakeState is the state of a sequence of a given length.
type fakeState struct {
	length   int
	err      error // of Truncate
	released int
}

func (s *fakeState) Len() int                    { return s.length }
func (s *fakeState) Clone() (model.State, error) { return nil, errFault }
func (s *fakeState) Release()                    { s.released++ }
func (s *fakeState) Truncate(n int) error {
	if s.err == nil {
		s.length = n
	}
	return s.err
}

// fakeStates is a model that makes fakeStates.
type fakeStates struct {
	model.Windowed
	err      error
	restored []int32 // windows of the latest state that was restored
}

func (m *fakeStates) NewState() (model.State, error) { return &fakeState{}, m.err }
func (m *fakeStates) Restore(n int, windows []int32) (model.State, error) {
	m.restored = windows
	return &fakeState{length: n}, m.err
}

// An item continues from a state of the tokens in its cache: a new one, one of a cached prefix, or its own, which is
// truncated if it is longer. If there is none, the choice fails and the item leaves the batch.
func TestItemsContinueFromTheirStates(t *testing.T) {
	windows := []int32{3, 4}
	for _, c := range []struct {
		what     string
		own      *fakeState // nil if it has none
		cached   int
		fails    bool
		restored []int32
	}{
		{"a new one", nil, 0, false, nil}, {"a cached prefix", nil, 5, false, windows},
		{"its own", &fakeState{length: 5}, 5, false, nil}, {"a longer one", &fakeState{length: 7}, 5, false, nil},
		{"its own at the start", &fakeState{length: 7}, 0, false, nil},
		{"no new one", nil, 0, true, nil}, {"no cached prefix", nil, 5, true, windows},
		{"one that cannot be truncated", &fakeState{length: 7, err: errFault}, 5, true, nil},
		{"a broken one of the right length", &fakeState{length: 5, err: errFault}, 5, false, nil},
	} {
		e := still(t, testmodel.V32(t), Config{})
		running(t, e)
		m := &fakeStates{}
		if c.fails {
			m.err = errFault
		}
		e.loop.stateful, e.loop.windowed = m, m
		jobs := []*Job{queuedJob(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9}),
			queuedJob(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9})}
		x, other := jobs[0].choices[0], jobs[1].choices[0]
		own := &fakeState{length: 2}
		if other.state = own; c.own != nil {
			x.state = c.own
		}
		items := e.loop.attachStates([]sched.Item{{Seq: &x.seq, Cached: c.cached, Windows: windows},
			{Seq: &other.seq, Cached: 2}})
		if len(items) != 2 && !c.fails || items[len(items)-1].Seq != &other.seq || x.ended != c.fails ||
			c.fails && len(items) != 1 || other.state != own {
			t.Errorf("%s: %d items are left, the choice ended: %v", c.what, len(items), x.ended)
		}
		if !slices.Equal(m.restored, c.restored) {
			t.Errorf("%s: restored from %v, want %v", c.what, m.restored, c.restored)
		}
		if s, ok := x.state.(*fakeState); !c.fails && (!ok || s.length != c.cached || c.own != nil && s != c.own) {
			t.Errorf("%s: the state is %+v, want one of %d tokens", c.what, x.state, c.cached)
		}
		if ev, ok := jobs[0].Poll(); ok != c.fails || ok && (ev.Finish != FinishError || !errors.Is(ev.Err, errFault)) {
			t.Errorf("%s: event %+v", c.what, ev)
		}
		x.state, other.state = nil, nil
	}
}

// A sequence whose state was lost with a failed batch is queued again, at most three times. A sequence whose state can
// be truncated to its cache, or that has no state, continues without being queued again.
func TestALostStateRestartsItsSequence(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	j := queuedJob(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 40, IgnoreEOS: true})
	c := j.choices[0]
	restart := func(err error) bool {
		e.iterations(1)
		it := &sched.Item{Seq: &c.seq, Cached: c.seq.Cached()}
		if c.state = (&fakeState{length: 100, err: err}); err == nil && it.Cached == 0 {
			t.Fatal("the sequence does not run")
		}
		return e.loop.restartIfStateLost(it)
	}
	e.iterations(1)
	if e.loop.restartIfStateLost(&sched.Item{Seq: &c.seq}) || c.restarts != 0 {
		t.Error("a sequence without a state is restarted")
	}
	if restart(nil) || c.restarts != 0 || c.state.Len() != c.seq.Cached() {
		t.Errorf("restarted %d times, its state has %d tokens of %d", c.restarts, c.state.Len(), c.seq.Cached())
	}
	for n := 1; n <= maxRestarts; n++ {
		if !restart(errFault) || c.restarts != n || c.ended || e.loop.sched.Running() != 0 ||
			e.loop.sched.Waiting() != 1 || c.state != nil {
			t.Fatalf("restarted %d times, want %d; it ended: %v; %d run, %d wait, state %v", c.restarts, n, c.ended,
				e.loop.sched.Running(), e.loop.sched.Waiting(), c.state)
		}
	}
	if !restart(errFault) || !c.ended {
		t.Error("it is restarted a fourth time")
	}
	last, _ := j.Poll()
	for ev, ok := last, true; ok; ev, ok = j.Poll() {
		last = ev
	}
	if !last.Last || !errors.Is(last.Err, ErrStep) || !errors.Is(last.Err, errFault) {
		t.Errorf("it ended with %+v", last)
	}
}
