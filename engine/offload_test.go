package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"sparrow/internal/testkit/placed"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cpu/vec"
	"sparrow/kernel/offload"
	"sparrow/model/family"
	"sparrow/spec"
)

// Invariants of this file: with experts in two memories every request gets the logits of a lone run on one device, on a
// GPU those of a lone run with the same placement, to the bit, whatever runs beside it, preempted, reused or drafted;
// workers of the host that fail or hang end the requests of the step with an error that names them, and leave no page,
// goroutine or waiting caller behind.

func TestACrowdWithExpertsInTwoMemories(t *testing.T) {
	alone(t, "experts in two memories are on one device")
	for i, c := range []struct {
		name, dir, kv string
		rule          placed.Rule
		list          []Request
		drafts        int
		tokens        int // of the cache
	}{
		{"GLM-5, half", tinyGLM, "fp8-656", placed.Half, crowd(10), 0, 9 * 64},
		{"DeepSeek-V4, all, drafts", testmodel.V4Draft(t), "fp8", placed.All, long(6), 3, 6 * 256},
		{"DeepSeek-V4, every method, drafts", testmodel.V4Draft(t), "fp8", placed.Mixed, long(6), 2, 6 * 256},
		{"DeepSeek-V3.2, drafting layer", testmodel.V32Draft(t), "fp8-656", placed.Half, crowd(16), 3, 5 * 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceEnabled && i != 2 {
				t.Skip("one of the small checkpoints shows the same races in a tenth of the time")
			}
			cfg := Config{Policy: deterministic(c.kv), Draft: spec.Off()}
			wantRows, gotRows := keepLogits(), keepLogits()
			t.Cleanup(func() { placing = nil })
			if standIn != nil { // whose sums are not those of the host
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

func TestGPUTwoMemories(t *testing.T) {
	onGPU(t, []deviceTest{{"crowd", TestACrowdWithExpertsInTwoMemories}})
}

// faultyHost is a CPU device whose experts do what a test wants first.
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

// onFaultyHost makes an engine all of whose experts are on a host that calls fault before it computes.
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
	t.Run("hang", func(t *testing.T) {
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
	settled(t, before)
}
