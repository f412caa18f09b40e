package sparrow

import (
	"runtime"
	"runtime/debug"
	"testing"

	"sparrow/sample"
	"sparrow/spec"
)

// After warm-up a step that only decodes allocates nothing: not in the scheduler, the cache, the planner, the model, the kernels, the sampler or the
// delivery of tokens, with greedy, seeded and penalised choices side by side and while sequences grow into new pages. Warm-up is a batch as large, of sequences
// longer than those measured.
func TestDecodeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"experts in FP8", Config{Model: tinyFP8}},
		{"deterministic", Config{Model: speck(t), Policy: deterministic("fp8-656")}},
		{"shared selections", Config{Model: tinyGLM}},
		{"states and windows", Config{Model: speckV4(t), CacheTokens: 24 * 256}},
		{"the built-in model", Config{Draft: spec.Off()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := still(t, c.cfg)
			defer e.dev.Close()
			warm := decoding(t, e, 400)
			decode(e, warm, 3)
			for _, j := range warm {
				e.cancel(j)
			}
			jobs := decoding(t, e, 130)
			runtime.GC() // empties the kernels' pools of scratch memory, which the next steps fill again, and no collection empties them after that
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			decode(e, jobs, 25)
			const steps = 90 // past token 192, where every sequence takes a page; token 256 would widen the page tables and make a new plan
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			decode(e, jobs, steps)
			runtime.ReadMemStats(&after)
			// The runtime itself allocates now and then, for goroutines that park and for its own background work; a step that did would show at least once in
			// each.
			if n := after.Mallocs - before.Mallocs; n >= steps/2 {
				t.Errorf("%d allocations in %d steps", n, steps)
			}
			for _, j := range jobs {
				if c := j.choices[0]; c.ended || c.made < steps {
					t.Errorf("a choice made %d tokens, ended %v", c.made, c.ended)
				}
			}
		})
	}
}

// decoding submits six requests to an engine whose loop does not run and computes their prompts.
func decoding(t *testing.T, e *Engine, prompt int) []*job {
	t.Helper()
	var jobs []*job
	for i := range 6 {
		p := []sample.Params{greedy(), seeded(int64(i))}[i%2]
		if i == 3 {
			p.TopP, p.TopK, p.RepetitionPenalty, p.Logprobs = 0.9, 40, 1.1, true
		}
		j, err := e.prepare(Request{Tokens: tokens(i, prompt), Sampling: p, MaxTokens: 1000, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.submit(j); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	for jobs[5].choices[0].made == 0 {
		decode(e, nil, 1)
	}
	return jobs
}

// decode runs steps by hand and reads what they give.
func decode(e *Engine, jobs []*job, steps int) {
	for range steps {
		e.receive()
		e.step(e.sched.Next())
		for _, j := range jobs {
			j.queue.pop()
		}
	}
}

// A sequence that drafts alone allocates nothing either: its plans differ only in how many drafts were kept, and are soon all known.
func TestDraftingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	e := still(t, Config{Draft: drafts(t, 3)})
	defer e.dev.Close()
	begin := func(seed int64) *job {
		j, err := e.prepare(Request{Tokens: tokens(1, 10), Sampling: seeded(seed), MaxTokens: 1000, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.submit(j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	run := func(j *job, until int) {
		for c := j.choices[0]; c.made < until; {
			e.receive()
			e.step(e.sched.Next())
			for len(j.queue.events) > j.queue.head {
				j.queue.pop()
			}
		}
	}
	for seed := range int64(4) { // meets every number of drafts that are kept, on tables of every width
		j := begin(seed)
		run(j, 240)
		e.cancel(j)
	}
	j := begin(9)
	run(j, 130)
	runtime.GC() // empties the kernels' pools of scratch memory, which the next steps fill again, and no collection empties them after that
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	run(j, 140)
	var before, after runtime.MemStats
	steps := e.steps
	runtime.ReadMemStats(&before)
	run(j, 230)
	runtime.ReadMemStats(&after)
	if n, steps := after.Mallocs-before.Mallocs, e.steps-steps; n >= uint64(steps)/2 {
		t.Errorf("%d allocations in %d steps", n, steps)
	}
}
