package sparrow

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"sparrow/plan"
	"sparrow/sample"
	"sparrow/step"
)

// Small random checkpoints: three layers, vocabulary 640, index_topk 128, no tokenizer.
const (
	tinyFP8  = "testdata/oracle/deepseek_v32-fp8-1"
	tinyBF16 = "testdata/oracle/deepseek_v32-1"
	tinyGLM  = "testdata/oracle/glm_moe_dsa-1"
)

// start opens an engine, lets the hooks look inside before its loop runs, and checks when the test ends that closing leaves nothing behind.
func start(t *testing.T, c Config, hooks ...func(*Engine)) *Engine {
	t.Helper()
	e, run := prepared(t, c, hooks...)
	run()
	return e
}

// prepared is start before the loop runs: what is submitted until run is called arrives at once.
func prepared(t *testing.T, c Config, hooks ...func(*Engine)) (e *Engine, run func()) {
	t.Helper()
	e = still(t, c)
	for _, h := range hooks {
		h(e)
	}
	run = sync.OnceFunc(func() { go e.loop() })
	t.Cleanup(func() {
		run() // a test that failed before
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		checkEmpty(t, e)
	})
	return e, run
}

// still makes an engine whose loop does not run.
func still(t *testing.T, c Config) *Engine {
	t.Helper()
	if raceEnabled && c.Workers == 0 {
		c.Workers = 1 // workers that spin under the race detector cost more than they help
	}
	e, err := assemble(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkEmpty: a stopped engine holds no page and owes nobody an answer.
func checkEmpty(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.pool.Check(); err != nil {
		t.Error(err)
	}
	st := e.Stats()
	if st.KV.Used != 0 || st.KV.Sequences != 0 || st.Running != 0 || st.Waiting != 0 || e.queued != 0 {
		t.Errorf("left behind: %d pages, %d sequences, %d running, %d waiting, %d queued", st.KV.Used, st.KV.Sequences, st.Running, st.Waiting, e.queued)
	}
	if m, ok := e.model.(interface{ States() int }); ok && m.States() != 0 {
		t.Errorf("%d states of sequences were not released", m.States())
	}
	if done := st.Finished + st.Aborted + st.Failed; done != st.Requests {
		t.Errorf("%d requests were accepted, %d ended: %d finished, %d aborted, %d failed", st.Requests, done, st.Finished, st.Aborted, st.Failed)
	}
}

// checked holds kv.Check after every step.
func checked(t *testing.T) func(*Engine) {
	return func(e *Engine) {
		e.after = func() {
			if err := e.pool.Check(); err != nil {
				t.Errorf("after step %d: %v", e.steps, err)
			}
		}
	}
}

// tap stands between the loop and the model.
type tap struct {
	runner
	before func(works []step.Work) error // may fail or panic in the model's place
	after  func(works []step.Work, res step.Result)
}

func (t *tap) Run(works []step.Work) (step.Result, error) {
	if t.before != nil {
		if err := t.before(works); err != nil {
			return step.Result{}, err
		}
	}
	res, err := t.runner.Run(works)
	if err == nil && t.after != nil {
		t.after(works, res)
	}
	return res, err
}

// before puts a function in front of every step.
func before(f func(works []step.Work) error) func(*Engine) {
	return func(e *Engine) { e.runner = &tap{runner: e.runner, before: f} }
}

// owner finds the choice a piece of work belongs to: it has the choice's page table.
func (e *Engine) owner(w *step.Work) *choice { return e.at(w.Pages) }

// at finds the choice that has a page table.
func (e *Engine) at(pages []int32) *choice {
	for _, q := range e.sched.All() {
		if p := q.Pages(); len(p) > 0 && &p[0] == &pages[0] {
			return q.Owner.(*choice)
		}
	}
	return nil
}

// logitsOf keeps a hash of the bits of every row of logits that a choice was given, by request id, choice and output position.
type logitsOf struct {
	mu   sync.Mutex
	rows map[rowKey]uint64
}

type rowKey struct {
	id       string
	choice   int
	position int
}

func keepLogits() *logitsOf { return &logitsOf{rows: map[rowKey]uint64{}} }

// watch hooks an engine.
func (l *logitsOf) watch(e *Engine) {
	e.runner = &tap{runner: e.runner, after: func(works []step.Work, res step.Result) {
		l.mu.Lock()
		defer l.mu.Unlock()
		row := 0
		for i := range works {
			if works[i].Logits == 0 {
				continue
			}
			c := e.owner(&works[i])
			// Rows of drafts that turn out wrong are computed again later; the last computation is the one that counts.
			for n := range works[i].Logits {
				l.rows[rowKey{c.job.request.ID, c.index, len(c.seq.Tokens) - len(c.job.prompt) + n}] = hashBits(res.Row(row))
				row++
			}
		}
	}}
}

func hashBits(row []float32) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range row {
		h = (h ^ uint64(math.Float32bits(v))) * 1099511628211
	}
	return h
}

// tokens is a prompt of n tokens that depends on the seed.
func tokens(seed, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*i*7 + i*31*seed + seed*977 + 2) % 640)
	}
	return out
}

// greedy takes the likeliest token; seeded draws.
func greedy() sample.Params {
	p := sample.Default()
	p.Temperature = 0
	return p
}

func seeded(seed int64) sample.Params {
	p := sample.Default()
	p.Seed = seed
	return p
}

// generate runs a request to its end.
func generate(t *testing.T, e *Engine, r Request) *Response {
	t.Helper()
	out, err := e.Generate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, e *Engine, r Request) *Stream {
	t.Helper()
	s, err := e.Stream(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ids are the tokens of an answer.
func ids(a Answer) []int32 {
	out := make([]int32, len(a.Tokens))
	for i := range a.Tokens {
		out[i] = a.Tokens[i].ID
	}
	return out
}

// sameTokens compares two answers.
func sameTokens(t *testing.T, what string, got, want Answer) {
	t.Helper()
	if g, w := ids(got), ids(want); !slices.Equal(g, w) || got.Finish != want.Finish {
		t.Errorf("%s: tokens %v, finish %s; want %v, %s", what, g, got.Finish, w, want.Finish)
	}
}

// settled waits until no more goroutines run than before.
func settled(t *testing.T, before int) {
	t.Helper()
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

// deterministic asks for one arithmetic for every row.
func deterministic(kv string) plan.Policy { return plan.Policy{KV: kv, Deterministic: true} }

// errFault is what tests inject.
var errFault = errors.New("injected fault")
