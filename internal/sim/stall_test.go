package sim

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"sparrow/engine"
	"sparrow/internal/sim/clock"
	"sparrow/internal/sim/formula"
	"sparrow/internal/spec"
	"sparrow/sample"
)

// twoCores approximates the times of the built-in model on two cores.
var twoCores = formula.Cost{Pass: 1500 * time.Microsecond, Row: 300 * time.Microsecond,
	Decode: 200 * time.Microsecond, Keys: 60 * time.Microsecond}

// maxRunning is the maximum number of running sequences: 64 streams and two prompts.
const maxRunning = 66

// timed is an engine in virtual time, and the times of its jobs' events.
type timed struct {
	*testing.T
	clock   *clock.Virtual
	engine  *engine.Engine
	jobs    map[*engine.Job]*timedJob
	longest time.Duration // longest time between two tokens of a watched choice
	step    time.Duration // longest time that an iteration used the device
	busy    time.Duration // time that all iterations used the device
}

type timedJob struct {
	watched bool
	last    map[int]time.Time // time of the latest token of each choice
	first   time.Time
	ended   chan struct{}
}

// inTime runs an engine with a limit on stalls on a simulated machine with two cores.
func inTime(t *testing.T, stall time.Duration, run func(x *timed)) {
	t.Helper()
	inTimeOn(t, twoCores, stall, run)
}

// inTimeOn runs an engine with a limit on stalls on a machine with the given costs.
func inTimeOn(t *testing.T, cost formula.Cost, stall time.Duration, run func(x *timed)) {
	t.Helper()
	x := &timed{T: t, clock: clock.New(time.Unix(0, 0)), jobs: map[*engine.Job]*timedJob{}}
	m, err := formula.New(formula.Shape{Vocab: 64, Context: 16384, Plain: true},
		formula.NewDevice(formula.Settings{Cost: cost, Time: x.clock}))
	if err != nil {
		t.Fatal(err)
	}
	x.engine, err = engine.New(m, engine.Config{CacheTokens: 1 << 18, StepTokens: 512, MaxRunning: maxRunning,
		MaxQueue: 1024, PlanHistory: 1, Draft: spec.Off(), MaxStall: stall, Clock: x.clock, Observe: x.observe,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.clock.Run(func() {
		x.clock.Go(x.engine.Run)
		run(x)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		x.engine.Close(ctx)
	}); err != nil {
		t.Fatal(err)
	}
}

// observe reads the events of all jobs after a batch.
func (x *timed) observe(between bool) {
	now := x.clock.Now()
	if busy := x.engine.Stats().Busy; !between {
		x.step, x.busy = max(x.step, busy-x.busy), busy
	}
	for j, w := range x.jobs {
		for ev, ok := j.Poll(); ok; ev, ok = j.Poll() {
			if ev.Token >= 0 {
				if w.first.IsZero() {
					w.first = now
				}
				if before, ok := w.last[ev.Choice]; ok && w.watched {
					x.longest = max(x.longest, now.Sub(before))
				}
				w.last[ev.Choice] = now
			}
			if ev.Last {
				delete(x.jobs, j)
				close(w.ended)
				break
			}
		}
	}
}

// submit sends a request whose prompt is not cached.
func (x *timed) submit(tenant string, seed, prompt, output, choices int, watched bool) *timedJob {
	x.Helper()
	p := sample.Default()
	p.Temperature, p.N = 0, choices
	tokens := make([]int32, prompt)
	for i := range tokens {
		tokens[i] = int32((seed*31 + i*7 + i/64) % 64)
	}
	w := &timedJob{watched: watched, last: map[int]time.Time{}, ended: make(chan struct{})}
	j, err := x.engine.Submit(engine.Request{Prompt: tokens, MaxTokens: output, Sampling: p, IgnoreEOS: true,
		Tenant: tenant})
	if err != nil {
		x.Fatal(err)
	}
	x.jobs[j] = w
	return w
}

// Prompts of 16000 tokens, two at a time, delay 8 and 64 streams for no longer than the limit, beginning with the first
// prompt. The limit reduces the speed of prompts by at most a quarter. The test runs the engine's own loop and
// scheduler in virtual time.
func TestLongPromptsDoNotStallStreams(t *testing.T) {
	for _, streams := range []int{8, 64} {
		took := map[time.Duration]time.Duration{}
		for _, stall := range []time.Duration{0, 100 * time.Millisecond} {
			inTime(t, stall, func(x *timed) {
				for i := range streams {
					x.submit("", i, 32, 8000, 1, true)
				}
				x.clock.Sleep(2 * time.Second)
				before := x.longest
				x.longest = 0
				begun := x.clock.Now()
				for i := range 2 {
					a, b := x.submit("", 100+i, 16000, 1, 1, false), x.submit("", 200+i, 16000, 1, 1, false)
					x.clock.Wait(a.ended, 0)
					x.clock.Wait(b.ended, 0)
				}
				took[stall] = x.clock.Now().Sub(begun)
				t.Logf("%d streams, limit %v: longest gap %v, 64000 tokens in %v", streams, stall, x.longest,
					took[stall])
				switch {
				case stall == 0 && x.longest < 300*time.Millisecond:
					t.Errorf("without a limit the longest gap is only %v, so the test checks nothing", x.longest)
				case stall > 0 && x.longest > stall*12/10:
					t.Errorf("%d streams: a gap of %v, want at most %v", streams, x.longest, stall)
				case stall > 0 && x.engine.Stats().LongestGap > max(before, x.longest):
					t.Errorf("the engine reports a longest gap of %v, streams had %v", x.engine.Stats().LongestGap,
						x.longest)
				}
			})
		}
		if slow := took[100*time.Millisecond]; slow > took[0]*4/3 {
			t.Errorf("%d streams: prompts take %v with the limit and %v without", streams, slow, took[0])
		}
	}
}

// A small chat that arrives while another tenant has 8 requests of 128 choices waits only for the running batch. A
// stream of a third tenant continues: its longest gap is at most two steps and the prompt of the chat, and the engine
// counts that gap.
func TestASmallChatBesideAFlood(t *testing.T) {
	inTime(t, 100*time.Millisecond, func(x *timed) {
		first := func(seed int) time.Duration {
			begun := x.clock.Now()
			w := x.submit("small", seed, 40, 8, 1, false)
			x.clock.Wait(w.ended, 0)
			return w.first.Sub(begun)
		}
		alone := first(1)
		for i := range 8 {
			x.submit("flood", 10+i, 200, 4000, 128, false)
		}
		x.submit("steady", 9, 40, 8000, 1, true)
		x.clock.Sleep(3 * time.Second)
		x.longest = 0
		early, worst, step := time.Duration(0), time.Duration(0), twoCores.Pass+maxRunning*twoCores.Decode
		for i := range 24 {
			took := first(20 + i)
			if i < 4 { // too few times of such prompts have been measured for a good prediction
				early = max(early, took)
			} else {
				worst = max(worst, took)
			}
			x.clock.Sleep(time.Duration(37+i) * time.Millisecond)
		}
		t.Logf("first token after %v alone, at most %v in the first attempts during the flood and %v later; a step "+
			"takes "+
			"%v; longest gap of a stream %v", alone, early, worst, step, x.longest)
		if early > 3*alone+step || worst > (alone+step)*12/10 { // steps become longer as the contexts grow
			t.Errorf("first tokens after %v, later %v, alone after %v; a step takes %v", early, worst, alone, step)
		}
		if x.longest < step+alone/2 || x.longest > 2*step+alone {
			t.Errorf("a stream has a gap of %v while first sequences take %v and steps %v", x.longest,
				alone, step)
		}
		if got := x.engine.Stats().LongestGap; got < x.longest {
			t.Errorf("the engine reports a longest gap of %v, a stream had %v", got, x.longest)
		}
	})
}
