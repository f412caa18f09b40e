package engine

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testkit/placed"
	"sparrow/internal/testkit/planread"
	"sparrow/internal/testkit/testflag"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/sample"
)

// These random checkpoints belong to the reference outputs. They have three layers, a vocabulary of 640, index_topk 128
// and no tokenizer.
const (
	tinyFP8  = "../testdata/oracle/deepseek_v32-fp8-1"
	tinyBF16 = "../testdata/oracle/deepseek_v32-1"
	tinyGLM  = "../testdata/oracle/glm_moe_dsa-1"
)

func TestMain(m *testing.M) { testmodel.Run(m) }

// load opens the checkpoint in a folder, or the built-in checkpoint, on a new device. Both are closed when the test
// ends.
func load(t testing.TB, dir string, o kernel.Options, wrap func(kernel.Device) kernel.Device) (*family.Source,
	model.Model) {
	t.Helper()
	open := builtin.Source
	if dir != "" {
		open = func() (*family.Source, error) { return family.Open(dir) }
	}
	source, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if o.Workers == 0 && (!*everything || raceEnabled || *ranks > 1) {
		// Results do not depend on the number of workers, and one worker is fastest for these small models. make long
		// and the tests of the packages that this package imports use several workers.
		o.Workers = 1
	}
	var devs []kernel.Device
	for range *ranks {
		dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", o)
		if err != nil {
			t.Fatal(err)
		}
		if standIn != nil {
			dev = standIn(t, dev)
		}
		if wrap != nil {
			dev = wrap(dev)
		}
		devs = append(devs, dev)
	}
	var m model.Model
	closer := devs[0].Close
	if placing != nil {
		m = placed.Load(t, source, devs[0], placing)
	} else if *ranks == 1 {
		m, err = source.Load(devs[0], func(string) {})
	} else {
		g, failed := group.New(devs, group.Options{Compare: true})
		if failed != nil {
			t.Fatal(failed)
		}
		closer = g.Close
		var how plan.Division
		if how, err = plan.ParseDivision(*division); err == nil {
			m, err = source.LoadRanks(g, how, func(string) {})
		}
	}
	t.Cleanup(func() {
		if err := errors.Join(closer(), source.Close()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return source, m
}

// placing, if set, is the rule by which experts of the tests' engines are placed in device memory or host memory.
var placing placed.Rule

// ranks is the number of devices that share each model. All tests of this package pass for any number, except tests
// that call alone.
var ranks = flag.Int("ranks", 1, "devices that share each model")

// division is the way in which ranks divide attention.
var division = flag.String("attention", "tp", "how ranks share attention: tp or dp")

// pools returns the number of page pools of a model.
func pools() int {
	if *division == "dp" {
		return *ranks
	}
	return 1
}

// everything enables test cases whose properties other tests already imply. make long sets it.
var everything = testflag.Long

// repeats skips a test unless make long or a device other than the CPU runs it; others names the tests that imply it.
func repeats(t *testing.T, others string) {
	t.Helper()
	if !*everything && standIn == nil {
		t.Skip("only make long runs this test: " + others)
	}
}

// alone skips a test that needs a single device if the tests run on several ranks.
func alone(t *testing.T, why string) {
	t.Helper()
	if *ranks > 1 {
		t.Skip(why)
	}
}

// build returns an engine for a checkpoint, with package sparrow's defaults.
func build(t testing.TB, dir string, c Config) (*Engine, error) {
	t.Helper()
	return buildPacked(t, dir, c, false)
}

func buildPacked(t testing.TB, dir string, c Config, pack bool) (*Engine, error) {
	t.Helper()
	return buildOver(t, dir, c, kernel.Options{Pack: pack}, nil)
}

// buildOver returns an engine on the device that wrap returns; wrap may be nil.
func buildOver(t testing.TB, dir string, c Config, o kernel.Options, wrap func(kernel.Device) kernel.Device) (*Engine,
	error) {
	t.Helper()
	source, m := load(t, dir, o, wrap)
	return New(m, testConfig(source, c))
}

// testConfig returns a configuration with package sparrow's defaults.
func testConfig(source *family.Source, c Config) Config {
	for _, f := range []struct {
		v *int
		d int
	}{{&c.StepTokens, 512}, {&c.MaxRunning, 64}, {&c.MaxQueue, 1024}, {&c.PlanHistory, 64}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	if c.CacheTokens == 0 {
		c.CacheTokens = 128 * 64 // clearing and checking a cache of the default size takes long
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.WeightBytes = source.Weights.Bytes()
	for _, id := range source.Config.EOS {
		c.EOS = append(c.EOS, int32(id))
	}
	return c
}

// still returns an engine whose loop does not run.
func still(t testing.TB, dir string, c Config) *Engine {
	t.Helper()
	e, err := build(t, dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// start runs an engine after the hooks have changed it, and returns it. When the test ends, start checks that closing
// the engine releases everything.
func start(t testing.TB, dir string, c Config, hooks ...func(*Engine)) *Engine {
	t.Helper()
	e, run := prepared(t, dir, c, hooks...)
	run()
	return e
}

// prepared prepares an engine like start but does not run its loop: all requests submitted before run is called are
// received in the first iteration.
func prepared(t testing.TB, dir string, c Config, hooks ...func(*Engine)) (e *Engine, run func()) {
	t.Helper()
	return running(t, still(t, dir, c), hooks...)
}

// running prepares the loop of an engine and returns the engine and a function that starts the loop.
func running(t testing.TB, e *Engine, hooks ...func(*Engine)) (_ *Engine, run func()) {
	t.Helper()
	for _, h := range hooks {
		h(e)
	}
	run = sync.OnceFunc(func() { go e.Run() })
	t.Cleanup(func() {
		run() // starts the loop if the test failed before it did so
		e.Close(context.Background())
		checkEmpty(t, e)
		for _, r := range e.Plans() {
			planread.Check(t, r.Plan)
		}
	})
	return e, run
}

// checkEmpty checks that a stopped engine has no page in use, no unanswered request and no watched pass.
func checkEmpty(t testing.TB, e *Engine) {
	t.Helper()
	if err := e.Check(); err != nil {
		t.Error(err)
	}
	if e.loop.watchdog.began.Load() != 0 {
		t.Error("a pass of a closed engine is watched")
	}
}

// checked returns a hook that calls Engine.Check after every iteration.
func checked(t testing.TB) func(*Engine) {
	return func(e *Engine) {
		e.cfg.Observe = func(bool) {
			if err := e.Check(); err != nil {
				t.Errorf("after step %d: %v", e.tally.stats.Steps, err)
			}
		}
	}
}

// tap intercepts the calls from the loop to the model.
type tap struct {
	runner
	// before is called before a pass begins; it may return an error or panic instead of running the model.
	before func(works []step.Work) error
	after  func(works []step.Work, res step.Result)
	begun  []step.Work   // works of the pass that began last
	works  [][]step.Work // works of the passes in progress, oldest first
}

func (t *tap) Begin(works []step.Work) (step.Started, error) {
	if t.before != nil {
		if err := t.before(works); err != nil {
			return step.Started{}, err
		}
	}
	for i := range works {
		if t.after != nil { // the test reads logits and needs whole rows
			works[i].Best, works[i].Draws = false, nil
		}
	}
	t.begun = append(t.begun[:0], works...)
	return t.runner.Begin(works)
}

func (t *tap) End(s *step.Started) (step.Pending, error) {
	p, err := t.runner.End(s)
	if err == nil {
		t.works = append(t.works, slices.Clone(t.begun))
	}
	return p, err
}

func (t *tap) Wait(p step.Pending) (step.Result, error) {
	res, err := t.runner.Wait(p)
	if p.Plan() == nil || p.Plan().Pass != plan.PassTarget {
		return res, err
	}
	works := t.works[0]
	t.works = t.works[1:]
	if err == nil && t.after != nil {
		t.after(works, res)
	}
	return res, err
}

// before returns a hook that calls a function before every forward pass.
func before(f func(works []step.Work) error) func(*Engine) {
	return func(e *Engine) { e.loop.passes.runner = &tap{runner: e.loop.passes.runner, before: f} }
}

// after returns a hook that calls a function after every forward pass.
func after(f func(works []step.Work, res step.Result)) func(*Engine) {
	return func(e *Engine) { e.loop.passes.runner = &tap{runner: e.loop.passes.runner, after: f} }
}

// owner returns the choice that has the page table of the work.
func (e *Engine) owner(w *step.Work) *choice { return e.at(w.Pages) }

// at returns the choice with the given page table.
func (e *Engine) at(pages []int32) *choice {
	for _, q := range e.loop.sched.All() {
		if p := q.Pages(); len(p) > 0 && &p[0] == &pages[0] {
			return q.Owner.(*choice)
		}
	}
	return nil
}

// output returns the number of tokens of a sequence after its prompt.
func (c *choice) output() int { return len(c.seq.Tokens) - len(c.job.request.Prompt) }

// logitsOf stores a hash of the bits of every row of logits of a choice, by request id, choice and output position.
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

// watch makes an engine store the hashes of its rows of logits in l.
func (l *logitsOf) watch(e *Engine) {
	after(func(works []step.Work, res step.Result) {
		l.mu.Lock()
		defer l.mu.Unlock()
		row := 0
		for i := range works {
			if works[i].Logits == 0 {
				continue
			}
			c := e.owner(&works[i])
			// Rows of rejected drafts are computed again later; the hash of the last computation is kept.
			for n := range works[i].Logits {
				l.rows[rowKey{c.job.request.ID, c.index, c.output() + n}] = hashBits(res.Row(row))
				row++
			}
		}
	})(e)
}

func hashBits(row []float32) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range row {
		h = (h ^ uint64(math.Float32bits(v))) * 1099511628211
	}
	return h
}

// tokens returns a prompt of n tokens that depends on the seed.
func tokens(seed, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*i*7 + i*31*seed + seed*977 + 2) % 640)
	}
	return out
}

// greedy returns parameters that choose the most probable token. seeded returns parameters that sample with a seed.
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

func drafts(t testing.TB, n int) spec.Setting {
	t.Helper()
	s, err := spec.Fixed(n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer is the complete output of one choice; response is the complete output of a job.
type answer struct {
	Tokens []int32
	Text   string
	Finish Finish
}

type response struct {
	Choices []answer
	Usage   Usage
	Trace   *Trace
}

// whole reads a job to its end.
func (j *Job) whole() (*response, error) {
	r := &response{Choices: make([]answer, j.Choices())}
	var err error
	for ev := range j.events() {
		a := &r.Choices[ev.Choice]
		a.Text += ev.Text
		if ev.Token >= 0 {
			a.Tokens = append(a.Tokens, ev.Token)
		}
		if ev.Finish != "" {
			a.Finish = ev.Finish
		}
		err = errors.Join(err, ev.Err)
	}
	r.Usage, r.Trace = j.Usage(), j.Trace()
	return r, err
}

// events returns an iterator over the remaining events of a job.
func (j *Job) events() func(yield func(Event) bool) {
	return func(yield func(Event) bool) {
		for {
			ev := j.Next()
			if !yield(ev) || ev.Last {
				return
			}
		}
	}
}

// collect reads a job to its end and returns its tokens and its last event.
func collect(j *Job) (tokens []int32, last Event) {
	for ev := range j.events() {
		if ev.Token >= 0 {
			tokens = append(tokens, ev.Token)
		}
		last = ev
	}
	return tokens, last
}

// generate runs a request to its end and returns the response.
func generate(t testing.TB, e *Engine, r Request) *response {
	t.Helper()
	out, err := open(t, e, r).whole()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t testing.TB, e *Engine, r Request) *Job {
	t.Helper()
	j, err := e.Submit(r)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// sameTokens checks that two answers have the same tokens.
func sameTokens(t testing.TB, what string, got, want answer) {
	t.Helper()
	if !slices.Equal(got.Tokens, want.Tokens) || got.Finish != want.Finish {
		t.Errorf("%s: tokens %v, finish %s; want %v, %s", what, got.Tokens, got.Finish, want.Tokens, want.Finish)
	}
}

// iterations runs n iterations of the engine without starting its loop.
func (e *Engine) iterations(n int) {
	for range n {
		e.loop.receive()
		e.loop.turn()
	}
}

// deterministic returns a policy that uses the same arithmetic for every row.
func deterministic(kv string) plan.Policy { return plan.Policy{KV: kv, Deterministic: true} }

// errFault is the error that tests inject.
var errFault = errors.New("injected fault")

// notUnderRace skips a test under the race detector. It is for tests that check results of one request at a time: they
// take ten times as long under the race detector, and tests with many requests run the same goroutines.
func notUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the test runs one request at a time")
	}
}
