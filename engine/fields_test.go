package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/grammar"
	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// Invariants of this file: every field of a request reaches each component that uses it, and memory that was reserved
// for a request is released.

// A sequence has every property of its request that the scheduler reads. Each property is changed alone, and the names
// of the fields that change in the sequence are compared, so that missing and exchanged fields are found.
func TestASequenceHasWhatItsRequestSays(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	plain := func() Request {
		return Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 4, Tenant: "a", Source: "s"}
	}
	sequence := func(r Request) sched.Sequence {
		t.Helper()
		j, err := e.intake.prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		q := j.choices[0].seq
		if q.Tenant != j.turnKey || q.Request != any(j) || q.Owner != any(j.choices[0]) ||
			!slices.Equal(q.Salt, j.salt) {
			t.Errorf("request %+v: the sequence has tenant %q and salt %q, want %q and %q", r, q.Tenant, q.Salt,
				j.turnKey, j.salt)
		}
		return q
	}
	changed := func(a, b sched.Sequence) (names []string) {
		x, y := reflect.ValueOf(a), reflect.ValueOf(b)
		for i := range x.NumField() {
			f := x.Type().Field(i)
			if f.IsExported() && f.Name != "Owner" && f.Name != "Request" &&
				!reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
				names = append(names, f.Name)
			}
		}
		return names
	}
	first := sequence(plain())
	for _, c := range []struct {
		what   string
		change func(r *Request)
		want   []string
	}{
		{"nothing", func(*Request) {}, nil},
		{"prompt", func(r *Request) { r.Prompt = tokens(2, 9) }, []string{"Tokens"}},
		{"tenant", func(r *Request) { r.Tenant = "b" }, []string{"Salt", "Tenant"}},
		{"no tenant", func(r *Request) { r.Tenant = "" }, []string{"Salt", "Tenant"}},
		{"salt", func(r *Request) { r.Salt = "x" }, []string{"Salt"}},
		{"source of a tenant", func(r *Request) { r.Source = "other" }, nil},
		{"flow", func(r *Request) { r.Flow = "f" }, []string{"Flow"}},
		{"priority", func(r *Request) { r.Priority = 3 }, []string{"Priority"}},
		{"background", func(r *Request) { r.Background = true }, []string{"Tenant", "Background"}},
		{"places", func(r *Request) { r.Places = 2 }, []string{"Places"}},
		{"score", func(r *Request) { r.Score = &Score{} }, []string{"Logits"}},
		{"record", func(r *Request) { r.Record = &Record{Selections: true} }, []string{"Record"}},
	} {
		r := plain()
		if c.change(&r); !slices.Equal(changed(first, sequence(r)), c.want) {
			t.Errorf("another %s changes %v of the sequence, want %v", c.what, changed(first, sequence(r)), c.want)
		}
	}
	// Requests without a tenant take turns by source, and share cached pages.
	r, other := plain(), plain()
	r.Tenant, other.Tenant, other.Source = "", "", "other"
	if got := changed(sequence(r), sequence(other)); !slices.Equal(got, []string{"Tenant"}) {
		t.Errorf("another source changes %v of the sequence, want its turn key", got)
	}
}

// After the last row of a prompt was scored, no row is left to score, and the answer is sampled as usual.
func TestNothingIsLeftToScoreAfterThePrompt(t *testing.T) {
	for _, from := range []int{0, 1, 5, 40} {
		e := still(t, testmodel.V32(t), Config{StepTokens: 16})
		running(t, e)
		j := open(t, e, Request{Prompt: tokens(1, 40), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true,
			Score: &Score{From: from}})
		c := j.choices[0]
		for e.Stats().OutputTokens == 0 {
			e.iterations(1)
		}
		if c.seq.Logits != 0 || c.scores() || c.needsLogits() {
			t.Errorf("from token %d: %d rows are left to score after the first token", from, c.seq.Logits)
		}
		if got, want := e.Stats().ScoredTokens, int64(40-from); got != want {
			t.Errorf("from token %d: %d tokens were scored, want %d", from, got, want)
		}
		j.Cancel()
		e.iterations(1)
	}
}

// The progress of a request ends with its prompt and does not count output tokens.
func TestProgressEndsWithThePrompt(t *testing.T) {
	j := &Job{inbox: &inbox{tally: &tally{}}, usage: Usage{PromptTokens: 9, CachedTokens: 4}}
	for computed, want := range map[int]int{0: 0, 4: 4, 8: 8, 9: 9, 10: 9, 50: 9} {
		j.computed = computed
		if got, cached := j.Progress(); got != want || cached != 4 {
			t.Errorf("%d computed tokens: Progress returned %d tokens of the prompt and %d cached tokens", computed,
				got, cached)
		}
	}
}

// A tenant with one waiting request may queue a second request if either of the two requests has several choices.
func TestASecondRequestBesideALargeOne(t *testing.T) {
	for _, c := range []struct {
		first, second int
		taken         bool
	}{{3, 1, true}, {1, 3, true}, {3, 3, true}, {1, 1, false}} {
		b := backlog{most: 4}
		if err := b.add("a", c.first); err != nil {
			t.Fatal(err)
		}
		for b.waiting < b.most { // other tenants fill the queue
			if err := b.add(string(rune('b'+b.waiting)), 1); err != nil {
				t.Fatal(err)
			}
		}
		before := b.waiting
		err := b.add("a", c.second)
		if (err == nil) != c.taken {
			t.Errorf("a request with %d choices after one with %d choices: error %v", c.second, c.first, err)
		}
		if err != nil && (b.waiting != before || b.tenants["a"] != queued{c.first, 1}) {
			t.Errorf("a refused request was counted: %+v", b)
		}
	}
}

// If the queue is full, a tenant with many small requests may still queue up to its share, and a tenant without waiting
// requests may queue one.
func TestSharesOfAFullQueue(t *testing.T) {
	b := backlog{most: 4}
	for i, c := range []struct {
		tenant string
		taken  bool
	}{{"a", true}, {"a", true}, {"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", true}, {"b", false},
		{"c", true}, {"c", false}, {"d", true}, {"e", true}, {"e", false}, {"f", true}} {
		if err := b.add(c.tenant, 1); (err == nil) != c.taken {
			t.Errorf("request %d, of %s: %v; %+v", i, c.tenant, err, b)
		}
	}
	for i := range 40 { // each request has its own tenant
		before := b.waiting
		if err := b.add(fmt.Sprint(i), 1); (err == nil) != (before < floodFactor*b.most) {
			t.Errorf("request %d of the others, after %d sequences: %v", i, before, err)
		}
	}
	if b.waiting != floodFactor*b.most {
		t.Errorf("%d sequences wait where each tenant has a place, want %d", b.waiting, floodFactor*b.most)
	}
}

// Background requests have the lowest priority: neither they nor their tenants delay other requests.
func TestBackgroundRequestsDelayNobody(t *testing.T) {
	now := time.Unix(1000, 0)
	estimate := func(background int) (own, most, other time.Duration) {
		var w waits
		for _, tenant := range []string{"a", "a", "b", "b", "b", "b"} {
			w.queue(tenant, now)
		}
		for i := range background {
			w.queue(turnKey(string(rune('c'+i)), "", true), now)
		}
		later := now.Add(time.Second)
		return w.estimate("a", later), w.estimate("b", later), w.estimate("d", later)
	}
	for n := range 4 {
		// Every turn takes a second: the next request of a waits for two turns of a and of b, that of b for all
		// requests, and that of d for none.
		if a, b, d := estimate(n); a != 5*time.Second || b != 7*time.Second || d != time.Second {
			t.Errorf("with %d background requests, tenants a, b and d wait for %v, %v and %v, want 5s, 7s and 1s", n,
				a, b, d)
		}
	}
}

// tester is a model that counts its self-tests.
type tester struct {
	model.Model
	tests int
}

func (m *tester) SelfTest(*plan.Config) error { m.tests++; return nil }

// A self-test that would take long on a CPU runs only if it was requested. On a GPU the self-test runs unless it is
// disabled.
func TestWhenTheSelfTestRuns(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	for _, c := range []struct {
		setting SelfTest
		arch    plan.Arch
		large   bool
		runs    bool
	}{
		{SelfTestAuto, plan.CPU, false, true}, {SelfTestAuto, plan.CPU, true, false},
		{SelfTestAuto, plan.SM90, false, true}, {SelfTestAuto, plan.SM90, true, true},
		{SelfTestOn, plan.CPU, false, true}, {SelfTestOn, plan.CPU, true, true}, {SelfTestOn, plan.SM90, true, true},
		{SelfTestOff, plan.CPU, false, false}, {SelfTestOff, plan.SM90, false, false},
	} {
		s, m := *e.setup, &tester{Model: e.model}
		s.model, s.cfg.SelfTest, s.info.Config.Hardware.Arch = m, c.setting, c.arch
		if c.large {
			s.info.Config.Model.Heads *= 1 << 20
		}
		if err := selfTest(&s); err != nil || (m.tests == 1) != c.runs {
			t.Errorf("setting %d on %v, large model %v: %d self-tests ran, error %v; want one to run: %v", c.setting,
				c.arch, c.large,
				m.tests, err, c.runs)
		}
		s.model = struct{ model.Model }{e.model} // hides the model's self-test
		if err := selfTest(&s); err != nil {
			t.Errorf("a model without a self-test: %v", err)
		}
	}
}

// renamed is a model on a device of another name, with pages of a fixed size.
type renamed struct {
	model.Model
	model.Paged
	name  string
	bytes int64
}

type namedDevice struct {
	kernel.Device
	name string
}

func (d namedDevice) Name() string { return d.name }

func (m renamed) Device() kernel.Machine {
	return namedDevice{m.Model.Device().(kernel.Device), m.name}
}
func (m renamed) PageBytes(*plan.Config) int64 { return m.bytes }

// The name of a page outside the device depends on every property on which its bytes depend. Each property is changed
// alone, and all names differ.
func TestPagesAreNamedByEverythingTheyDependOn(t *testing.T) {
	alone(t, "the test renames a single device")
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	paged := e.model.(model.Paged)
	names := map[string]string{}
	for _, c := range []struct {
		what   string
		change func(s *setup, m *renamed)
	}{
		{"nothing", func(*setup, *renamed) {}},
		{"layout of rows", func(s *setup, _ *renamed) { s.info.Config.Layout++ }},
		{"layout of indexer keys", func(s *setup, _ *renamed) { s.info.Config.IndexLayout++ }},
		{"tokens of a page", func(s *setup, _ *renamed) { s.info.Config.Page *= 2 }},
		{"device", func(_ *setup, m *renamed) { m.name += "2" }},
		{"plan", func(s *setup, _ *renamed) { s.info.Config.Fingerprint++ }},
		{"weights", func(s *setup, _ *renamed) { s.cfg.Weights.Sampled[7]++ }},
	} {
		s := *e.setup
		m := renamed{e.model, paged, e.model.Device().Name(), e.model.PageBytes(&e.info.Config)}
		s.cfg.Tiers = tier.Options{HostBytes: 1 << 24}
		c.change(&s, &m)
		s.model = m
		var pool kv.Config
		x, err := openTiers(&s, e.inbox, &pool)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if other, ok := names[pool.Identity]; ok {
			t.Errorf("another %s gives the same name as another %s: %s", c.what, other, pool.Identity)
		}
		names[pool.Identity] = c.what
		x.close()
	}
}

// The loop wakes up at the earliest time at which a sequence has waited too long for its pages.
func TestTheLoopLooksAgainAtTheEarliestDeadline(t *testing.T) {
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 24}))
	running(t, e)
	for _, begun := range [][]time.Duration{{0}, {0, 3}, {3, 0}, {2, 1, 3}} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			x := *e.loop.tiers
			var fired time.Duration
			x.timer = time.AfterFunc(time.Hour, func() { fired = time.Since(now) })
			defer x.timer.Stop()
			x.setup, x.wait, x.restoring = &setup{cfg: Config{Clock: machine{}}}, 10*time.Second, nil
			for _, d := range begun { // each fetch begins at time d and never delivers a page
				x.restoring = append(x.restoring,
					&choice{restore: &restore{fetch: &tier.Fetch{}, admit: true, begun: now.Add(d * time.Second)}})
			}
			if x.advance() || len(x.restoring) != len(begun) {
				t.Errorf("waits since %v: the loop processed something, want nothing", begun)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if want := (10 + slices.Min(begun)) * time.Second; fired != want {
				t.Errorf("waits begin after %d s: the loop wakes up after %v, want %v", begun, fired, want)
			}
		})
	}
}

// brittle is a device that copies a given number of tensors and then fails. If late is set, copies fail after they were
// enqueued.
type brittle struct {
	kernel.Device
	left int
	late bool
}

func (d *brittle) fails() bool { d.left--; return d.left < 0 && !d.late }

func (d *brittle) Read(dst []byte, src kernel.Tensor) error {
	if d.fails() {
		return errFault
	}
	return d.Device.Read(dst, src)
}

func (d *brittle) Collect(dst []byte, src []kernel.Tensor) (kernel.Event, error) {
	if d.late {
		return lateFault{}, nil
	}
	return kernel.Collect(struct{ kernel.Memory }{d}, dst, src)
}

func (d *brittle) HostAlloc(n int64) ([]byte, error) { return make([]byte, n), nil }
func (d *brittle) HostFree([]byte) error             { return nil }

// lateFault is the event of a copy that fails.
type lateFault struct{}

func (lateFault) Wait() error { return errFault }

// If a page cannot be copied from the device, at any stage of the copy, its host memory is released and no tier holds
// it. The next page is stored.
func TestPagesThatCannotBeCopiedHoldNoMemory(t *testing.T) {
	alone(t, "the test makes a single device fail")
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26}))
	emptied(t, e)
	running(t, e)
	x, dev := e.loop.tiers, e.loop.tiers.dev.(kernel.Device)
	for i, d := range []*brittle{{Device: dev}, {Device: dev, left: 1}, {Device: dev, late: true}} {
		k := kv.Kept{Stored: prefix.Stored{Hash: prefix.Hash{byte(1 + i)}, Tokens: tokens(1, 64)}, Page: 2, Window: -1}
		x.dev = d
		x.Leaving(k)
		x.settle()
		if pages, _ := x.stack.Held(); pages != 0 || x.stack.Has(k.Hash) || len(x.copies) != 0 {
			t.Errorf("failure %d: %d pages of host memory are in use, the tier has the page: %v, %d copies in flight",
				i, pages, x.stack.Has(k.Hash),
				len(x.copies))
		}
		x.dev = dev
		x.Leaving(k)
		x.settle()
		if pages, _ := x.stack.Held(); pages != 1 || !x.stack.Has(k.Hash) {
			t.Errorf("failure %d: after a successful copy %d pages are in use, the tier has the page: %v", i, pages,
				x.stack.Has(k.Hash))
		}
		x.stack.Clear()
	}
}

// A snapshot of the counters does not change while the engine continues to run. A copy of the expert counts and the
// list of plans do not change either.
func TestSnapshotsStay(t *testing.T) {
	alone(t, "every rank counts its own experts")
	e := still(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 2), PlanHistory: 2,
		Usage: expertCounts(t, testmodel.V32Draft(t))})
	running(t, e)
	j := open(t, e, Request{Prompt: tokens(1, 40), Sampling: greedy(), MaxTokens: 30, IgnoreEOS: true})
	e.iterations(4)
	snapshot := func() []any { return []any{e.Stats(), e.Plans(), e.Usage()} }
	first := snapshot()
	text := fmt.Sprintf("%+v", first)
	e.iterations(4)
	if fmt.Sprintf("%+v", snapshot()) == text {
		t.Fatal("no counter grew after the snapshot")
	}
	if got := fmt.Sprintf("%+v", first); got != text {
		t.Errorf("the snapshot is now\n%s\nand was\n%s", got, text)
	}
	j.Cancel()
	e.iterations(1)
}

// snapshots is a model whose window pages are much larger than the rest of a page.
type snapshots struct{ snapshotted }

type snapshotted interface {
	model.Model
	model.Snapshotted
}

func (snapshots) PageBytes(*plan.Config) int64   { return 1100 }
func (snapshots) WindowBytes(*plan.Config) int64 { return 1000 }

// The size of a cache is the sum of its parts in every model family. The parts are pages without their window parts,
// window pages for running sequences, for a step and for reuse, and states.
func TestTheSizeOfACache(t *testing.T) {
	alone(t, "expected sizes are those of one rank")
	for name, dir := range map[string]string{"v32": testmodel.V32(t), "v4": testmodel.V4(t), "v41": testmodel.V41(t),
		"next": testmodel.Next(t)} {
		e := still(t, dir, Config{MaxRunning: 2, StepTokens: 32})
		running(t, e)
		s, cfg := *e.setup, &e.info.Config
		if m, ok := e.model.(snapshotted); ok {
			s.model, s.windowed = snapshots{m}, snapshots{m}
		}
		z, m := &sizing{setup: &s}, s.model
		const pages = 4000
		got := z.cacheOf(cfg, pages)
		want := cacheSize{pages: pages, arena: z.arenaBytes(cfg, min(m.Config().MaxPositions, pages*cfg.Page)),
			bytes: pages * m.PageBytes(cfg)}
		if w, ok := m.(model.Windowed); ok {
			each, rest := w.WindowBytes(cfg), m.PageBytes(cfg)-w.WindowBytes(cfg)
			load := kv.Load{Pages: pages, PageTokens: cfg.Page, Window: w.Window(), Running: 2, StepTokens: 32}
			if x, ok := m.(model.Snapshotted); ok {
				load.Spacing, load.PageBytes, load.WindowBytes = x.SnapshotSpacing(), rest, each
			}
			want.window = kv.SizeWindow(load)
			want.bytes, want.states = pages*rest+int64(want.window.Pages)*each, 2*w.StateBytes(cfg)
		}
		if got != want || got.total() != want.bytes+want.states+want.arena || want.arena == 0 {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// The memory that an engine reports is the sum over its ranks: the sizes of one rank times the number of ranks, and the
// weights of the checkpoint once.
func TestMemoryOfRanks(t *testing.T) {
	alone(t, "expected sizes are those of one rank")
	e := still(t, testmodel.V32(t), Config{MaxStall: time.Second})
	running(t, e)
	arena := e.loop.passes.runner.Bytes() + e.loop.inner.passes.runner.Bytes()
	for ranks, times := range map[int]int64{0: 1, 1: 1, 3: 3} {
		s := *e.setup
		s.info.Config.Model.Ranks, s.cfg.WeightBytes, s.cfg.Packed = ranks, 11, true
		l := &loop{setup: &s, passes: e.loop.passes, inner: innerPasses{passes: e.loop.inner.passes}}
		want := Memory{Weights: 11, Packed: true, Cache: 5 * times, States: 7 * times, Arena: arena * times}
		if got := memoryOf(l, &cacheSize{bytes: 5, states: 7, arena: 9}, 13); got != want {
			t.Errorf("%d ranks: %+v, want %+v", ranks, got, want)
		}
	}
}

// attended records the passes that the loop waits for while the watchdog does not watch them.
type attended struct {
	runner
	engine  *Engine
	waits   int
	ignored []plan.Pass
}

func (r *attended) Wait(p step.Pending) (step.Result, error) {
	if r.waits++; r.engine.loop.watchdog.began.Load() == 0 {
		r.ignored = append(r.ignored, p.Plan().Pass)
	}
	return r.runner.Wait(p)
}

// The watchdog watches every pass that the loop waits for. It watches nothing after a pass has ended or if the pass was
// not enqueued.
func TestEveryWaitIsWatched(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	for name, c := range map[string]struct {
		dir    string
		drafts int
	}{"plain": {testmodel.V32(t), 0}, "one draft": {testmodel.V32Draft(t), 1}, "chains": {testmodel.V32Draft(t), 3},
		"blocks": {testmodel.V4Spark(t), 3}} {
		cfg := Config{Draft: spec.Off()}
		if c.drafts > 0 {
			cfg.Draft = drafts(t, c.drafts)
		}
		r := &attended{}
		e, _ := overlapping(t, c.dir, cfg, func(e *Engine) {
			r.runner, r.engine = e.loop.passes.runner, e
			e.loop.passes.runner = r
		})
		open(t, e, Request{Prompt: tokens(1, 20), Sampling: greedy(), MaxTokens: 12, IgnoreEOS: true})
		for e.Stats().Finished == 0 {
			e.iterations(1)
		}
		if len(r.ignored) > 0 || r.waits < 4 {
			t.Errorf("%s: the watchdog does not watch %d of %d passes: %v", name, len(r.ignored), r.waits, r.ignored)
		}
		e.iterations(1) // ends the pass that was left running
		if began := e.loop.watchdog.began.Load(); began != 0 {
			t.Errorf("%s: the watchdog watches a pass while no pass runs", name)
		}
	}
	e, _, _ := startPaced(t, Config{}, before(func([]step.Work) error { return plan.E28 }))
	open(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 9})
	e.iterations(1)
	if began := e.loop.watchdog.began.Load(); began != 0 || e.Stats().Failed != 1 {
		t.Error("a pass that was not enqueued is watched")
	}
}

// A complete document ends a choice if nothing but the end may follow, or at once if the model has no end-of-sequence
// token, but never during reasoning. An end-of-sequence token that a request ignores ends a document but no other text.
func TestWhatEndsAChoice(t *testing.T) {
	w := vocabulary(t)
	four, _ := w.TokenID("4")
	end, ok := w.TokenID("</think>")
	g, err := grammar.Pattern("4+", w.tokens)
	if err != nil || !ok {
		t.Fatal(err, ok)
	}
	e := still(t, "", Config{})
	running(t, e)
	eos := e.cfg.EOS[0]
	for _, c := range []struct {
		document, reasons bool
		eos               []int32
		tokens            []int32
		complete          bool
	}{
		{false, false, nil, nil, false}, {false, false, nil, []int32{four}, false},
		{true, false, nil, nil, false}, {true, false, nil, []int32{four}, true},
		{true, false, []int32{eos}, []int32{four}, false}, {true, false, []int32{eos}, []int32{four, eos}, true},
		{true, true, nil, []int32{four, four}, false}, {true, true, nil, []int32{four, end}, false},
		{true, true, nil, []int32{end, four}, true}, {true, true, []int32{eos}, []int32{end, four}, false},
	} {
		l := constraint{reasoningEnd: -1, eos: c.eos}
		if c.document {
			l.document = g.Start()
		}
		if c.reasons {
			l.reasoningEnd = end
		}
		for _, token := range c.tokens {
			if err := l.accept(token); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.complete(); got != c.complete {
			t.Errorf("document %v, reasoning %v, end tokens %v, after tokens %v: complete is %v", c.document, c.reasons,
				c.eos,
				c.tokens, got)
		}
		for _, ignores := range []bool{false, true} {
			l.ignoreEOS, l.eos = ignores, []int32{eos}
			if l.endsAt(four) || l.endsAt(eos) != (!ignores || c.document) {
				t.Errorf("document %v, end tokens ignored %v: token 4 ends the choice: %v, the end-of-sequence token "+
					"ends it: %v", c.document, ignores,
					l.endsAt(four), l.endsAt(eos))
			}
		}
	}
}

// If a request has several choices, the first choice fetches the pages of the prompt and the other choices share these
// pages.
func TestOneChoiceFetchesThePrompt(t *testing.T) {
	store := respserver.Start(t)
	store.Set(respserver.Hangs)
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{StoreURL: store.URL()}))
	emptied(t, e)
	running(t, e, func(*Engine) { t.Cleanup(func() { store.Set(respserver.Works) }) })
	r := Request{Prompt: tokens(1, 400), Sampling: seeded(1), MaxTokens: 1}
	r.Sampling.N = 3
	j := queuedJob(t, e, r)
	for i, c := range j.choices {
		if (c.restore != nil) != (i == 0) {
			t.Errorf("choice %d fetches pages: %v", i, c.restore != nil)
		}
	}
	if n := e.loop.tiers.seeking; n != 1 {
		t.Errorf("%d sequences fetch pages, want 1", n)
	}
	j.Cancel()
	e.loop.receive()
}

// When the cache is emptied, no waiting or admitted sequence gets a page that was fetched before. Every fetch ends, and
// its sequence computes the prompt instead.
func TestAnEmptiedCacheEndsEveryFetch(t *testing.T) {
	store := respserver.Start(t)
	store.Set(respserver.Hangs)
	c := tiered("", 8, 64, tier.Options{StoreURL: store.URL()})
	c.MaxRunning = 1
	e := still(t, testmodel.V32(t), c)
	emptied(t, e)
	running(t, e, func(*Engine) { t.Cleanup(func() { store.Set(respserver.Works) }) })
	var jobs []*Job
	for i := range 3 {
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 400), Sampling: greedy(), MaxTokens: 1}))
	}
	e.iterations(1)
	x := e.loop.tiers
	if len(x.restoring) != 1 || x.seeking != 2 {
		t.Fatalf("%d sequences are admitted, %d wait; want 1 and 2", len(x.restoring), x.seeking)
	}
	e.tally.Lock()
	x.clear()
	e.tally.Unlock()
	if _, fetches := x.stack.Held(); fetches != 0 || len(x.restoring) != 0 || x.seeking != 0 ||
		e.loop.sched.Restoring() {
		t.Errorf("%d fetches are left, of %d admitted and %d waiting sequences", fetches, len(x.restoring), x.seeking)
	}
	for i, j := range jobs {
		if j.choices[0].restore != nil {
			t.Errorf("request %d waits for pages", i)
		}
	}
	if stop := jobs[0].choices[0].restored.Stop; stop != "the cache was cleared" {
		t.Errorf("the reason for the end of the fetch is %q", stop)
	}
	for _, j := range jobs {
		j.Cancel()
	}
	e.loop.receive()
}

// A pass is recorded with the time at which its batch was formed, and each of its counters grows by one.
func TestAPassIsRecordedWhole(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	step := int64(0)
	for _, behind := range []stage{stageFormed, stageRunning, stageDrafting} {
		for _, between := range []bool{false, true} {
			before := e.Stats()
			p := &plan.Plan{Segments: []plan.Segment{{Launches: make([]plan.Launch, 3), Convert: plan.ConvertNone}}}
			b := &batch{passes: e.loop.passes, items: make([]sched.Item, 2), begun: at(5), launched: at(7),
				behind: behind, between: between}
			e.loop.record(b, p, time.Second)
			step++
			list := e.Plans()
			want := PlanRecord{Step: step, At: at(5), Plan: p, Took: time.Second, Requests: 2}
			if got := list[len(list)-1]; got != want || len(list) != int(step) {
				t.Errorf("%+v, want %+v", got, want)
			}
			one := func(yes bool) int64 {
				if yes {
					return 1
				}
				return 0
			}
			st := e.Stats()
			got := [...]int64{st.Steps - before.Steps, st.Overlapped - before.Overlapped, st.Between - before.Between,
				st.Slices - before.Slices, st.Conversions - before.Conversions}
			if got != [...]int64{1, one(behind != stageFormed), one(between), 2, 0} {
				t.Errorf("behind a batch that is %v, between operations %v: counters grow by %v", behind, between, got)
			}
		}
	}
}

// After several errors of a lost device the first error is reported, and each request is counted as failed only once.
func TestADeviceIsLostOnce(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{})
	running(t, e)
	j := queuedJob(t, e, Request{Prompt: tokens(1, 9), Sampling: greedy(), MaxTokens: 4})
	first, second := errors.New("the first"), errors.New("the second")
	e.loop.lose(first)
	text := e.Stats().Device
	e.loop.lose(second)
	if lost := e.tally.lost; !errors.Is(lost, first) || errors.Is(lost, second) || e.Stats().Device != text {
		t.Errorf("lost with error %v; the device is reported as %q, before as %q", lost, e.Stats().Device, text)
	}
	if _, last := collect(j); !errors.Is(last.Err, first) || e.Stats().Failed != 1 {
		t.Errorf("the request ended with error %v, %d requests failed", last.Err, e.Stats().Failed)
	}
	if _, err := e.Submit(Request{Prompt: tokens(1, 9), Sampling: greedy()}); !errors.Is(err, first) {
		t.Errorf("a new request: %v", err)
	}
}

// A model is refused if weights, driver memory, cache and passes together do not fit. The error suggests smaller steps
// only if the weights and the driver memory alone fit.
func TestTheMemoryThatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		free     int64
		fits     bool
		suggests bool
	}{{100 + ownUse, false, false}, {101 + ownUse, false, true}, {114 + ownUse, false, true},
		{115 + ownUse, true, false}, {100, false, false}} {
		n := Need{Weights: 100, Cache: 1, Arena: 2, Scratch: 4, Graphs: 8, Free: c.free}
		err := n.Err("a GPU")
		if (err == nil) != c.fits || err != nil && strings.Contains(err.Error(), "--step-tokens") != c.suggests {
			t.Errorf("%d bytes are free in addition to the driver's memory: %v", c.free-ownUse, err)
		}
	}
}

// The pools of ranks have pages and window pages of their own: the page numbers of a rank follow those of the previous
// rank.
func TestPagesOfRanksAreTheirOwn(t *testing.T) {
	const ranks, each, windows = 3, 4, 2
	pools, err := openPools(kv.Config{Pages: each, PageTokens: 4, Window: kv.Window{Pages: windows, Tokens: 4}}, ranks)
	if err != nil || len(pools) != ranks {
		t.Fatal(len(pools), err)
	}
	for rank, p := range pools {
		var pages, own []int32
		s, _, err := p.Open(nil, kv.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			if err := errors.Join(s.Reserve(4), s.Commit(make([]int32, 4))); err != nil {
				t.Fatal(err)
			}
			for i, w := range s.Windows() {
				if w >= 0 && !slices.Contains(own, w) {
					own = append(own, w)
				}
				if page := s.Pages()[i]; !slices.Contains(pages, page) {
					pages = append(pages, page)
				}
			}
		}
		slices.Sort(pages)
		slices.Sort(own)
		for i, page := range pages {
			if int(page) != rank*each+i || len(pages) != each {
				t.Errorf("rank %d has the pages %v", rank, pages)
			}
		}
		for i, w := range own {
			if int(w) != rank*windows+i || len(own) != windows {
				t.Errorf("rank %d has the window pages %v", rank, own)
			}
		}
		if st := p.Stats(); st.Pages != each || st.Windows != windows {
			t.Errorf("the pool of rank %d has the statistics %+v", rank, st)
		}
	}
	sum := pools[0].Stats()
	sum.Add(pools[1].Stats())
	sum.Add(pools[2].Stats())
	if got := poolStats(pools); got != sum || got.Pages != ranks*each {
		t.Errorf("all ranks: %+v, want %+v", got, sum)
	}
}

// Batches overlap on a device that computes while the host continues, unless NoOverlap is set or the model has n-gram
// tables. The host looks up rows of these tables by tokens, so it must have the tokens of a batch before it forms the
// next one.
func TestWhenBatchesOverlap(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	for _, c := range []struct {
		name, dir string
		off, want bool
	}{{"v32", testmodel.V32(t), false, true}, {"v32", testmodel.V32(t), true, false},
		{"v4", testmodel.V4(t), false, true}, {"v41", testmodel.V41(t), false, false}} {
		e, _ := overlapping(t, c.dir, Config{NoOverlap: c.off})
		if e.overlap != c.want || e.draws != c.want {
			t.Errorf("%s, NoOverlap %v: overlap is %v, sampling on the device is %v", c.name, c.off, e.overlap,
				e.draws)
		}
	}
}

// An engine reports the limits in force: no more sequences run than a step has tokens.
func TestInfoHasTheLimitsInForce(t *testing.T) {
	// Configured MaxRunning, StepTokens, and the MaxRunning in force.
	for _, c := range [][3]int{{64, 16, 16}, {8, 16, 8}, {16, 16, 16}} {
		e := still(t, testmodel.V32(t), Config{MaxRunning: c[0], StepTokens: c[1], MaxQueue: 5})
		running(t, e)
		if i := e.Info(); i.MaxRunning != c[2] || i.StepTokens != c[1] || i.MaxQueue != 5 {
			t.Errorf("limits %v: the engine reports %d sequences, %d tokens, a queue of %d", c, i.MaxRunning,
				i.StepTokens, i.MaxQueue)
		}
	}
}

// The description of an engine has all sizes and limits that the engine was opened with or that follow from them.
func TestInfoDescribesTheEngine(t *testing.T) {
	alone(t, "the figures are those of one rank")
	c := Config{CacheTokens: 2000, ContextTokens: 700, StepTokens: 32, MaxRunning: 3, MaxQueue: 5, Clock: frozen{},
		MaxStall: time.Second, Draft: drafts(t, 2), Tiers: tier.Options{HostBytes: 1 << 26}}
	e := still(t, testmodel.V4Draft(t), c)
	running(t, e)
	window := (&sizing{setup: e.setup}).cacheOf(&e.info.Config, 8).window
	var policy plan.Policy
	policy.Speculation.Tokens = 3 // two drafts and the token before them
	resolved, notices, err := plan.Resolve(e.info.Config.Hardware, e.model.Facts(), policy)
	if err != nil {
		t.Fatal(err)
	}
	got := e.Info()
	want := Info{Family: "deepseek_v4", Created: time.Unix(1000, 0), Vocabulary: 640, ContextTokens: 700,
		CacheTokens: 2048, PageTokens: 256, Pages: 8, WindowPages: window.Pages, StepTokens: 32, MaxRunning: 3,
		MaxQueue: 5, MaxStall: time.Second, Kernels: e.model.Device().Name(), Config: resolved, Notices: notices,
		Memory: got.Memory, Tiers: e.loop.tiers.stack.Describe(), Draft: c.Draft, Drafts: 2}
	if !reflect.DeepEqual(got, want) || len(got.Tiers) != 1 || window.Pages == 0 || len(notices) == 0 {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if m := got.Memory; m.Weights == 0 || m.Cache == 0 || m.States == 0 || m.Arena == 0 || m.Tiers < 1<<26 {
		t.Errorf("%+v", m)
	}
}

// The scheduler has the limits of the configuration and those that follow from the model and the device.
func TestLimitsOfTheScheduler(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	for _, dir := range []string{testmodel.V32(t), testmodel.V4(t)} {
		for _, stall := range []time.Duration{0, time.Second} {
			e := still(t, dir, Config{StepTokens: 24, MaxRunning: 7, MaxStall: stall})
			running(t, e)
			want := sched.Limits{BatchTokens: 24, MaxRunning: 7, MaxPrompts: sched.DefaultMaxPrompts, Grain: 1,
				PromptLogits: 24, MaxStall: stall, Divides: stall > 0, Threshold: threshold(&e.info.Config),
				RecordRows: 24, KeepSuspended: e.stateful == nil}
			if got := e.loop.sched.Limits(); got != want {
				t.Errorf("%s: %+v, want %+v", dir, got, want)
			}
			cfg := &e.info.Config
			tag := kv.Tag{Main: cfg.Layout.String(), Index: cfg.IndexLayout.String(), PageTokens: cfg.Page}
			if got := e.loop.pools[0].Tag(); got != tag {
				t.Errorf("%s: pages are labelled %+v, want %+v", dir, got, tag)
			}
		}
	}
}

// The limits of passes follow from the configuration. Passes that run between the operations of another pass have one
// row for each sequence.
func TestLimitsOfPasses(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{StepTokens: 24, MaxRunning: 7})
	running(t, e)
	all := plan.Record{Selections: true, Scores: true, Experts: true}
	plain := step.Limits{Rows: 24, Requests: 7, Prompts: sched.DefaultMaxPrompts, Context: 100, PromptLogits: 24,
		Record: all, Replay: plan.Replay{Selections: true, Experts: true}, RecordRows: 24}
	for what, change := range map[string]func(s *setup, l *step.Limits){
		"nothing":        func(*setup, *step.Limits) {},
		"draws":          func(s *setup, l *step.Limits) { s.draws, l.Draws = true, true },
		"no graphs":      func(s *setup, l *step.Limits) { s.cfg.NoGraphs, l.GraphBytes = true, -1 },
		"padded states":  func(s *setup, l *step.Limits) { s.cfg.PadStates, l.PadStates = true, true },
		"many sequences": func(s *setup, l *step.Limits) { s.cfg.MaxRunning, l.Requests = 64, 24 },
	} {
		s, want := *e.setup, plain
		change(&s, &want)
		z := &sizing{setup: &s}
		if got := z.limits(100); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		want.Rows, want.Decodes = want.Requests, true
		if got := z.innerLimits(100); got != want {
			t.Errorf("%s, between operations: %+v, want %+v", what, got, want)
		}
		if got := z.limits(0).Context; got != 1 {
			t.Errorf("%s: sequences of at most %d tokens where the cache has none", what, got)
		}
	}
}

// owning is a model on a device that reports its own memory.
type owning struct{ model.Model }

type owner struct{ kernel.Device }

func (owner) MemoryUse() kernel.MemoryUse { return kernel.MemoryUse{Weights: 17, Scratch: 19} }

func (m owning) Device() kernel.Machine { return owner{m.Model.Device().(kernel.Device)} }

// If a device reports its own memory, the reported weights and scratch memory are those of the device.
func TestMemoryThatADeviceReports(t *testing.T) {
	alone(t, "sizes are those of one rank")
	e := still(t, testmodel.V32(t), Config{CacheTokens: 512})
	running(t, e)
	cfg := e.cfg
	n, err := Measure(e.model, cfg, 1<<40)
	if err != nil || n.Weights != 0 || n.Scratch != 0 {
		t.Fatalf("%+v, %v", n, err)
	}
	want := *n
	want.Weights, want.Scratch = 17, 19
	if n, err = Measure(owning{e.model}, cfg, 1<<40); err != nil || *n != want {
		t.Errorf("%+v, %v; want %+v", n, err, want)
	}
	s := *e.setup
	s.model = owning{e.model}
	l := &loop{setup: &s, passes: e.loop.passes}
	m := memoryOf(l, &cacheSize{bytes: 5, states: 7}, 13)
	if m != (Memory{Weights: 17, Cache: 5, States: 7, Arena: m.Arena, Scratch: 19, Device: 13}) {
		t.Errorf("%+v", m)
	}
}

// If passes overlap, requests with adaptive drafting whose next token is sampled get a common number of drafts in a
// batch. For blocks this number is chosen before the drafts are known, unless using the drafter's confidence saves more
// time than waiting for it costs.
func TestHowABatchAgreesOnDrafts(t *testing.T) {
	const block = 5
	told := func() *spec.Controller { // confidence predicts which drafts are right
		c := spec.New(spec.Auto(), block)
		for rows := range 7 {
			c.ForwardPass(1+rows, 1+0.5*float64(rows))
			c.DraftPass(block, 0.5, false)
		}
		r := c.Request()
		for i := 0; c.Blind() || i < 100; i++ {
			if i == 3000 {
				t.Fatal("confidence is worth nothing")
			}
			p := []spec.Proposal{{Request: &r, Drafts: block}}
			good := i * 7 / 3 % 2 * block
			for k := range p[0].Confidence {
				p[0].Confidence[k] = float32(good - 2)
			}
			c.Seen(p)
			r.Judged(block, good)
		}
		return c
	}
	for _, c := range []struct {
		what           string
		block          int
		overlap, ahead bool
		told           bool // using the confidence saves more time than the wait costs
		adaptive       bool
		agree          int // requests
		blind          bool
	}{
		{"no overlap", 0, false, false, false, true, 0, false},
		{"no overlap, blocks", block, false, true, false, true, 0, false},
		{"one by one", 0, true, false, false, true, 1, false},
		{"fixed numbers", 0, true, false, false, false, 0, false},
		{"blocks that are seen", block, true, false, false, true, 1, false},
		{"blocks ahead", block, true, true, false, true, 1, true},
		{"blocks ahead of which more is known", block, true, true, true, true, 1, false},
		{"blocks ahead of fixed numbers", block, true, true, true, false, 0, true},
	} {
		control := spec.New(spec.Auto(), c.block)
		if c.told {
			control = told()
		}
		d := &drafter{setup: &setup{overlap: c.overlap, model: roomy{}}, control: control,
			adapting: make([]*spec.Request, 4), blind: true, together: 99}
		d.info.Config.Model.Block = c.block
		request := func() *choice {
			x := &choice{drafts: control.Exactly(2), job: &Job{}}
			if c.adaptive {
				x.drafts = control.Request()
			}
			x.seq.Owner = x
			return x
		}
		x, prompt, gone := request(), request(), request()
		gone.ended = true
		b := &batch{ahead: ahead{on: c.ahead}, items: []sched.Item{{Seq: &x.seq, Last: true}, {Seq: &prompt.seq},
			{Seq: &gone.seq, Last: true}}}
		d.agree(b)
		want := c.block
		if c.agree > 0 && (c.block == 0 || c.blind) {
			want = control.Together([]*spec.Request{&x.drafts})
		}
		if len(d.adapting) != c.agree || c.agree > 0 && d.adapting[0] != &x.drafts || d.blind != c.blind ||
			d.together != want {
			t.Errorf("%s: %d requests agree on %d, blind %v; want %d on %d, %v", c.what, len(d.adapting), d.together,
				d.blind, c.agree, want, c.blind)
		}
	}
}

// roomy is a model with many positions.
type roomy struct{ *proposing }

func (roomy) Config() *config.Config { return &config.Config{MaxPositions: 1 << 20} }
