package engine

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/sample"
)

// After warm-up a step that only decodes allocates nothing, neither in the scheduler, the cache, the planner, the
// model, the kernels, the sampler nor the delivery of tokens. This holds with greedy, seeded and penalised choices in
// one batch and while sequences take new pages. Warm-up runs a batch of the same size with longer sequences.
func TestDecodeAllocatesNothing(t *testing.T) {
	alone(t, "results of several ranks are compared in memory of their own")
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []struct {
		name, dir string
		cfg       Config
	}{
		{"experts in FP8", tinyFP8, Config{}},
		{"deterministic", testmodel.V32(t), Config{Policy: deterministic("fp8-656")}},
		{"shared selections", tinyGLM, Config{}},
		{"states and windows", testmodel.V4(t), Config{CacheTokens: 24 * 256}},
		{"the built-in model", "", Config{Draft: spec.Off()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.dir == "" || c.dir == tinyGLM {
				repeats(t, "a model of the same family")
			}
			e := still(t, c.dir, c.cfg)
			warm := decoding(t, e, 260)
			decode(e, warm, 3)
			for _, j := range warm {
				e.inbox.cancel(j)
			}
			jobs := decoding(t, e, 130)
			// A garbage collection empties the kernels' pools of scratch memory. The next steps fill these pools again,
			// and no further collection runs.
			runtime.GC()
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			decode(e, jobs, 25)
			// The steps run past token 192, where every sequence takes a new page. They end before token 256, which
			// would widen the page tables and need a new plan.
			const steps = 30
			n := leastAllocations(3, func(measured func(func())) { measured(func() { decode(e, jobs, steps) }) })
			if n >= steps/2 {
				t.Errorf("%d allocations in %d steps, want 0", n, steps)
			}
			for _, j := range jobs {
				if c := j.choices[0]; c.ended || c.limits.made < 3*steps {
					t.Errorf("a choice has %d tokens, ended: %v", c.limits.made, c.ended)
				}
			}
		})
	}
}

// decoding submits six requests to an engine whose loop is not running, and computes their prompts.
func decoding(t *testing.T, e *Engine, prompt int) []*Job {
	t.Helper()
	var jobs []*Job
	for i := range 6 {
		p := []sample.Params{greedy(), seeded(int64(i))}[i%2]
		if i == 3 {
			p.TopP, p.TopK, p.RepetitionPenalty, p.Logprobs = 0.9, 40, 1.1, true
		}
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, prompt), Sampling: p, MaxTokens: 1000,
			IgnoreEOS: true}))
	}
	for jobs[5].choices[0].limits.made == 0 {
		decode(e, nil, 1)
	}
	return jobs
}

// decode runs steps without the loop and reads the events of the jobs.
func decode(e *Engine, jobs []*Job, steps int) {
	for range steps {
		e.iterations(1)
		for _, j := range jobs {
			j.queue.pop()
		}
	}
}

// Decoding a single sequence with drafts allocates nothing. The answer is generated several times: from the second time
// on every plan is cached, so that only allocations of the steps are counted. The test uses one worker on one
// processor, because the way threads wait and share scratch memory depends on the load of the machine.
func TestDraftingAllocatesNothing(t *testing.T) {
	alone(t, "results of several ranks are compared in memory of their own")
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e, err := buildOver(t, "", Config{Draft: drafts(t, 3)}, kernel.Options{Workers: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var j *Job
	var steps int64
	until := func(made int) {
		for c := j.choices[0]; c.limits.made < made; {
			e.iterations(1)
			for len(j.queue.events) > j.queue.head {
				j.queue.pop()
			}
		}
	}
	least := leastAllocations(4, func(measured func(func())) {
		j = open(t, e, Request{Prompt: tokens(1, 10), Sampling: seeded(9), MaxTokens: 1000, IgnoreEOS: true})
		until(140)
		runtime.GC() // empties the kernels' pools of scratch memory, which the next iterations fill again
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		until(150)
		begun := e.tally.stats.Steps
		measured(func() { until(230) })
		steps = e.tally.stats.Steps - begun
		j.Cancel()
	})
	if least >= uint64(steps)/2 {
		t.Errorf("%d allocations in %d steps, want 0", least, steps)
	}
}

// leastAllocations runs a function several times and returns the fewest allocations of the part that it measures. The
// runtime itself allocates now and then, for goroutines that park and for its own background work, but a step that
// allocates would do so every time.
func leastAllocations(times int, run func(measured func(func()))) uint64 {
	least := uint64(math.MaxUint64)
	for range times {
		run(func(f func()) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f()
			runtime.ReadMemStats(&after)
			least = min(least, after.Mallocs-before.Mallocs)
		})
	}
	return least
}
