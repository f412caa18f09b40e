package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/internal/device/offload"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/internal/spec"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/placed"
	"sparrow/internal/testmodel"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// Invariants of this file: with experts in two memories, the logits of every request are bitwise equal to those of the
// request alone on one device (on a GPU: alone with the same placement). This holds with any other requests in its
// batches, and with preemption, reused pages and drafts. If workers of the host fail or hang, the requests of the step
// end with an error that names the workers; no page stays in use, and no goroutine or caller waits forever.

func TestACrowdWithExpertsInTwoMemories(t *testing.T) {
	alone(t, "experts in two memories need a single device")
	every := placed.Rule(placed.Mixed)
	if standIn != nil {
		// Only methods with bitwise equal results, because preempted tokens are computed again as part of a prompt.
		every = placed.Alike
	}
	for i, c := range []struct {
		name, dir, kv string
		rule          placed.Rule
		list          []Request
		drafts        int
		tokens        int // size of the cache in tokens
	}{
		{"GLM-5, half", tinyGLM, "fp8-656", placed.Half, crowd(10), 0, 9 * 64},
		{"DeepSeek-V4, all, drafts", testmodel.V4Draft(t), "fp8", placed.All, long(6), 3, 6 * 256},
		{"DeepSeek-V4, every method, drafts", testmodel.V4Draft(t), "fp8", every, long(5), 2, 6 * 256},
		{"DeepSeek-V3.2, drafting layer", testmodel.V32Draft(t), "fp8-656", placed.Half, crowd(12), 3, 5 * 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceEnabled && i != 3 {
				t.Skip("the test of a small checkpoint covers the same races in a tenth of the time")
			}
			if i == 1 {
				repeats(t, "the case with every method and drafts covers this case")
			}
			cfg := Config{Policy: deterministic(c.kv), Draft: spec.Off()}
			wantRows, gotRows := keepLogits(), keepLogits()
			t.Cleanup(func() { placing = nil })
			if standIn != nil { // a GPU adds in another order than the CPU
				placing = c.rule
			}
			want := lone(t, c.dir, cfg, c.list, wantRows.watch)
			placing = c.rule
			hooks := []func(*Engine){gotRows.watch, checked(t)}
			if c.drafts > 0 {
				cfg.Draft = drafts(t, c.drafts)
				hooks = append(hooks, oracle(want, c.list))
			}
			cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning = c.tokens, 96, 8
			e, run := prepared(t, c.dir, cfg, hooks...)
			compare(t, c.list, jointly(t, e, c.list, run), want)
			for k, v := range wantRows.rows {
				if gotRows.rows[k] != v {
					t.Fatalf("the logits of %+v differ from those of a lone run", k)
				}
			}
			if st := e.Stats(); st.Preempted == 0 || st.CachedTokens == 0 {
				t.Errorf("%d preemptions, %d reused tokens; want some of each", st.Preempted, st.CachedTokens)
			}
		})
	}
}

// Moving experts between iterations changes no bit if experts in both memories are computed with the same arithmetic.
// This applies to a CPU with experts in host memory, and to a GPU that fetches experts.
func TestACrowdWhoseExpertsMove(t *testing.T) {
	alone(t, "experts in two memories need a single device")
	rule, dir := placed.Half, testmodel.V4Draft(t)
	if standIn != nil {
		rule = placed.HalfFetched
	}
	list := long(6)
	if raceEnabled {
		list = long(2) // two requests take a tenth of the time
	}
	t.Cleanup(func() { placing = nil })
	placing = rule
	cfg := Config{Policy: deterministic("fp8"), Draft: spec.Off()}
	wantRows, gotRows := keepLogits(), keepLogits()
	want := lone(t, dir, cfg, list, wantRows.watch)
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if cfg.Usage, err = usage.For(src.Model); err != nil {
		t.Fatal(err)
	}
	cfg.Moves = rule(src.ExpertLayers())
	cfg.CacheTokens, cfg.StepTokens, cfg.MaxRunning, cfg.Draft = 6*256, 96, 8, drafts(t, 2)
	u, steps := cfg.Usage, 0
	moving := func(e *Engine) {
		e.cfg.Observe = func(between bool) { // makes another expert of every layer the most chosen expert
			if between {
				return // the pass is still in progress
			}
			fresh := usage.New(u.Family, len(u.Counts), u.Experts, u.Chosen)
			for l := range fresh.Counts {
				counts := make([]uint64, u.Experts)
				counts[(steps+l)%u.Experts] = 1 << min(steps, 50)
				fresh.Add(l, counts)
			}
			steps++
			if err := e.loop.experts.move(fresh); err != nil {
				t.Error(err)
			}
		}
	}
	e, run := prepared(t, dir, cfg, gotRows.watch, moving, oracle(want, list))
	compare(t, list, jointly(t, e, list, run), want)
	for k, v := range wantRows.rows {
		if gotRows.rows[k] != v {
			t.Fatalf("the logits of %+v differ from those of a lone run", k)
		}
	}
	e.Close(context.Background())
	if st := e.Stats(); st.Experts.Moved < 50 || st.Preempted == 0 && !raceEnabled {
		t.Errorf("%d experts moved in %d steps, %d preemptions", st.Experts.Moved, steps, st.Preempted)
	}
}

// fixed is a model whose experts cannot be moved.
type fixed struct {
	model.Model
	err error
}

func (f fixed) CountExperts() error                  { return nil }
func (f fixed) SwapExperts(layer, in, out int) error { return f.err }
func (f fixed) ReadExperts(to *usage.Table) error {
	for l := range to.Counts {
		to.Add(l, []uint64{0, 0, 0, 900})
	}
	return nil
}

// Experts that cannot be moved stay where they are, and the engine continues. If an expert is lost during a move, the
// device counts as lost.
func TestExpertsThatCannotBeMoved(t *testing.T) {
	broken := errors.New("a broken bank")
	for _, c := range []struct{ err, last error }{{broken, nil}, {fmt.Errorf("%w: %w", kernel.ErrLost, broken),
		ErrDevice}} {
		e := onFaultyHost(t, 0, func() error { return nil })
		e.model = fixed{e.model, c.err}
		e.cfg.Usage, e.loop.experts.moves = usage.New("x", 2, 4, 2), placement.Uniform(2, 4, 0.5)
		go e.Run()
		r := Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 40, IgnoreEOS: true}
		e.cfg.Observe = func(between bool) {
			if !between {
				e.loop.readExperts(0)
			}
		}
		if _, last := collect(open(t, e, r)); !errors.Is(last.Err, c.last) {
			t.Errorf("ended with %+v, want %v", last, c.last)
		}
		e.Close(context.Background())
		checkEmpty(t, e)
		if st := e.Stats(); st.Experts.Moved != 0 || c.last == nil && e.loop.experts.moves != nil {
			t.Errorf("%d experts moved, the engine continues to move experts: %v", st.Experts.Moved,
				e.loop.experts.moves != nil)
		}
	}
}

func TestGPUTwoMemories(t *testing.T) {
	onGPU(t, []deviceTest{{"crowd", TestACrowdWithExpertsInTwoMemories}, {"moves", TestACrowdWhoseExpertsMove}})
}

// faultyHost is a CPU device that calls a function of the test before it computes experts.
type faultyHost struct {
	*cpu.Device
	before func() error
}

func (d *faultyHost) ExpertRows(a kernel.ExpertRowsArgs) error {
	if err := d.before(); err != nil {
		return err
	}
	return d.Device.ExpertRows(a)
}

// onFaultyHost returns an engine with all experts on a host that calls fault before it computes experts.
func onFaultyHost(t *testing.T, timeout time.Duration, fault func() error) *Engine {
	t.Helper()
	source, err := family.Open(testmodel.V4(t))
	if err != nil {
		t.Fatal(err)
	}
	dev := cpu.Open(vec.Best(), kernel.Options{Workers: 1})
	t.Cleanup(func() { source.Close() })
	t.Cleanup(func() { dev.Close() })
	far := &faultyHost{cpu.Open(vec.Best(), kernel.Options{Workers: 1}), fault}
	m := placed.LoadOver(t, source, dev, far, placed.All, offload.Options{Timeout: timeout})
	e, err := New(m, testConfig(source, Config{SelfTest: SelfTestOff}))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAHostThatFails(t *testing.T) {
	broken, exchanges := errors.New("a broken bank"), 0
	e := onFaultyHost(t, 0, func() error {
		if exchanges++; exchanges == 5 {
			return broken
		}
		return nil
	})
	go e.Run()
	r := Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 40, IgnoreEOS: true}
	_, last := collect(open(t, e, r))
	if last.Finish != FinishError || !errors.Is(last.Err, broken) ||
		!strings.Contains(fmt.Sprint(last.Err), "experts in host memory of layer 1 (cpu-") {
		t.Errorf("ended with %+v", last)
	}
	if _, last := collect(open(t, e, r)); last.Err != nil || last.Finish == FinishError {
		t.Errorf("the next request ended with %+v", last)
	}
	e.Close(context.Background())
	checkEmpty(t, e)
}

func TestAHostThatHangs(t *testing.T) {
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) {
		free, exchanges := make(chan struct{}), 0
		e := onFaultyHost(t, 50*time.Millisecond, func() error {
			if exchanges++; exchanges == 5 {
				<-free
			}
			return nil
		})
		t.Cleanup(func() { close(free) })
		go e.Run()
		_, last := collect(open(t, e, Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 40,
			IgnoreEOS: true}))
		if last.Finish != FinishError || !errors.Is(last.Err, ErrDevice) ||
			!strings.Contains(fmt.Sprint(last.Err), "did not answer for 50ms: exchange 5, layer 1") {
			t.Errorf("ended with %+v", last)
		}
		if _, err := e.Submit(Request{Prompt: tokens(9, 5), Sampling: greedy(), MaxTokens: 1}); !errors.Is(err,
			ErrDevice) {
			t.Errorf("a request after the loss: %v", err)
		}
		e.Close(context.Background())
		checkEmpty(t, e)
	})
	await.Goroutines(t, before)
}
