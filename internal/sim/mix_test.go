package sim

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/engine"
	"sparrow/internal/sim/formula"
	"sparrow/internal/testkit/testflag"
	"sparrow/sample"
)

var mixes = flag.Int("mixes", 0,
	"number of random loads during which short questions are asked; 0 is 15, or 30 with -long")

// load is a client of the flooding tenant: it sends a request, waits for its end or disconnects, and then sends the
// next request.
type load struct {
	name   string
	leaves bool
	draw   func(d *rand.Rand) engine.Request
}

// loads lists the kinds of requests that one client can send, with random lengths.
var loads = []load{
	{name: "prompts", draw: func(d *rand.Rand) engine.Request {
		return engine.Request{Prompt: randomTokens(d, 500+d.IntN(8000)), MaxTokens: 1, Sampling: greedySampling(1)}
	}},
	{name: "choices", draw: func(d *rand.Rand) engine.Request {
		return engine.Request{Prompt: randomTokens(d, 20+d.IntN(200)), MaxTokens: 50 + d.IntN(200),
			Sampling: greedySampling(32 + d.IntN(97))}
	}},
	{name: "scores", draw: func(d *rand.Rand) engine.Request {
		prompt := randomTokens(d, 100)
		list := make([][]int32, 16+d.IntN(113))
		for i := range list {
			list[i] = randomTokens(d, 5+d.IntN(60))
		}
		return engine.Request{Prompt: prompt, Sampling: greedySampling(1),
			Score: &engine.Score{From: len(prompt), Top: 1, Continuations: list}}
	}},
	{name: "prompt scores", draw: func(d *rand.Rand) engine.Request {
		return engine.Request{Prompt: randomTokens(d, 200+d.IntN(2000)), MaxTokens: 1, Sampling: greedySampling(1),
			Score: &engine.Score{From: 1, Top: 1, Only: true}}
	}},
	{name: "short", draw: func(d *rand.Rand) engine.Request {
		return engine.Request{Prompt: randomTokens(d, 4+d.IntN(30)), MaxTokens: 1 + d.IntN(20),
			Sampling: greedySampling(1)}
	}},
	{name: "cancellations", leaves: true, draw: func(d *rand.Rand) engine.Request {
		return engine.Request{Prompt: randomTokens(d, 100+d.IntN(500)), MaxTokens: 300,
			Sampling: greedySampling(1 + d.IntN(4))}
	}},
}

func randomTokens(d *rand.Rand, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(d.IntN(62)) + 2
	}
	return out
}

func greedySampling(n int) sample.Params {
	p := sample.Default()
	p.Temperature, p.N = 0, n
	return p
}

// client sends requests until the mix ends. The engine's observer polls all jobs.
func (x *timed) client(l load, flow string, d *rand.Rand, ended *bool) {
	for !*ended {
		r := l.draw(d)
		r.Tenant, r.Flow, r.IgnoreEOS = "flood", flow, true
		j, err := x.engine.Submit(r)
		if errors.Is(err, engine.ErrQueueFull) {
			x.clock.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			x.Errorf("%s: %v", l.name, err)
			return
		}
		w := &timedJob{last: map[int]time.Time{}, ended: make(chan struct{})}
		x.jobs[j] = w
		patience := time.Duration(0)
		if l.leaves {
			patience = time.Duration(1+d.IntN(400)) * time.Millisecond
		}
		x.clock.Wait(w.ended, patience)
		j.Cancel()
		x.clock.Wait(w.ended, 0)
	}
}

// asked holds the time to the first token of a short question, the same time on the idle engine, and the time of the
// longest step.
type asked struct{ took, idle, step time.Duration }

func (a asked) late() bool { return a.took > 3*a.idle+a.step }

// ask sends a short question and returns the time to its first token.
func (x *timed) ask(d *rand.Rand, prompt int) time.Duration {
	begun := x.clock.Now()
	r := engine.Request{Prompt: randomTokens(d, prompt), MaxTokens: 2, Sampling: greedySampling(1), IgnoreEOS: true,
		Tenant: "small"}
	j, err := x.engine.Submit(r)
	if err != nil {
		x.Error(err)
		return 0
	}
	w := &timedJob{last: map[int]time.Time{}, ended: make(chan struct{})}
	x.jobs[j] = w
	x.clock.Wait(w.ended, 0)
	return w.first.Sub(begun)
}

// runMix simulates a random machine with clients of one tenant, and sends questions of another tenant at the same time.
// It returns the times of the questions and the names of the loads.
func runMix(t *testing.T, seed uint64) (list []asked, names string) {
	d := rand.New(rand.NewPCG(seed, 5))
	cost := formula.Cost{Pass: time.Duration(500+d.IntN(10_000)) * time.Microsecond,
		Row:    time.Duration(20+d.IntN(400)) * time.Microsecond,
		Decode: time.Duration(20+d.IntN(400)) * time.Microsecond, Keys: time.Duration(d.IntN(80)) * time.Microsecond}
	inTimeOn(t, cost, 100*time.Millisecond, func(x *timed) {
		prompt := 4 + d.IntN(40)
		idle := time.Duration(0)
		for range 12 { // with these requests the engine measures the costs of the machine
			idle = x.ask(d, prompt)
			x.clock.Sleep(10 * time.Millisecond)
		}
		ended := false
		for i := range 1 + d.IntN(4) {
			l := loads[d.IntN(len(loads))]
			clients := 1 + d.IntN(12)
			names += fmt.Sprintf(" %d %s", clients, l.name)
			for c := range clients {
				each := rand.New(rand.NewPCG(seed, uint64(100*i+c+10)))
				flow := fmt.Sprint(l.name, i, c)
				x.clock.Go(func() { x.client(l, flow, each, &ended) })
			}
		}
		x.clock.Sleep(2 * time.Second)
		x.step = 0
		for range 12 {
			x.clock.Sleep(time.Duration(d.IntN(200_000)) * time.Microsecond)
			list = append(list, asked{took: x.ask(d, prompt), idle: idle})
		}
		for i := range list {
			list[i].step = x.step
		}
		ended = true
	})
	return list, names
}

// For 99 of 100 short questions, over random loads of another tenant and random machines, the first token takes at most
// three times as long as on the idle engine, plus a step.
func TestFirstTokensBesideMixes(t *testing.T) {
	var all []asked
	var worst []string
	n := uint64(*mixes)
	if n == 0 {
		if n = 15; *testflag.Long {
			n = 30
		}
	}
	for seed := range n {
		list, names := runMix(t, seed)
		for _, a := range list {
			if all = append(all, a); a.late() {
				worst = append(worst, fmt.Sprintf("seed %d: first token after %v, idle %v, a step %v, with%s", seed,
					a.took, a.idle,
					a.step, names))
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d, with%s", seed, names)
		}
	}
	slices.SortFunc(all, func(a, b asked) int {
		return int(a.took*1000/(3*a.idle+a.step)) - int(b.took*1000/(3*b.idle+b.step))
	})
	at := all[len(all)*99/100]
	t.Logf("%d mixes, %d questions: p99 is %v of the allowed time, %d questions are later", n, len(all),
		float64(at.took)/float64(3*at.idle+at.step), len(worst))
	if at.late() {
		t.Errorf("%d of %d first tokens are late:\n%s", len(worst), len(all),
			strings.Join(worst[:min(len(worst), 12)], "\n"))
	}
}
