package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"sparrow/internal/kv/tier"
	"sparrow/internal/model/family"
	"sparrow/internal/model/usage"
	"sparrow/internal/sched"
	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
)

// Invariants of this file: a request releases its pages and memory when it ends or is refused, and counters are exact.

// A request that is refused for any reason, or cancelled while it waits, changes no counter: Config.Observe compares
// the counters with the open requests after every iteration.
func TestRefusedAndCancelledRequestsAreNotCounted(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, testmodel.V32(t), Config{MaxRunning: 1, MaxQueue: 2, RecordBytes: 1 << 20}, checked(t), hook)
	record := func(tenant string) Request {
		return Request{Prompt: tokens(1, 40), Sampling: greedy(), MaxTokens: 1, Tenant: tenant,
			Record: &Record{Selections: true, Tokens: RecordRange, To: 4}}
	}
	first := open(t, e, record("a"))
	<-entered
	waits := open(t, e, record("b"))
	open(t, e, record("b")).Cancel()
	if _, err := e.Submit(record("b")); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("error %v", err)
	}
	if e.tally.Lock(); e.inbox.records != 3*first.records || first.records == 0 {
		t.Errorf("%d bytes are reserved for records, each request reserves %d", e.inbox.records, first.records)
	}
	e.tally.Unlock()
	if got := e.Wait("b", ""); got < 0 {
		t.Errorf("waiting requests by tenant: %v", got)
	}
	waits.Cancel()
	leave <- struct{}{}
	go func() {
		for range entered {
			leave <- struct{}{}
		}
	}()
	for _, j := range []*Job{first, waits} {
		collect(j)
	}
	e.tally.Lock()
	defer e.tally.Unlock()
	if err := e.checkCounts(); err != nil {
		t.Error(err)
	}
	if s := &e.tally.stats; s.Requests != 3 || s.Refused != 1 || s.Aborted != 2 || s.Finished != 1 {
		t.Errorf("%+v", s)
	}
}

// If a hung pass ends after the device was lost, the engine keeps the error message of the lost device.
func TestTheTextOfALostDeviceStays(t *testing.T) {
	var y tally
	y.noteHang("hangs")
	if y.stats.Device != "hangs" {
		t.Errorf("device %q", y.stats.Device)
	}
	y.lost, y.stats.Device = errFault, "lost"
	for _, text := range []string{"hangs", ""} {
		if y.noteHang(text); y.stats.Device != "lost" {
			t.Errorf("device %q", y.stats.Device)
		}
	}
}

// Need.Total includes every kind of memory: the model does not fit if one byte is missing.
func TestNeedCountsEveryKind(t *testing.T) {
	v := reflect.ValueOf(&Need{}).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Free" || name == "Tokens" {
			continue
		}
		v.SetZero()
		v.Field(i).SetInt(1 << 30)
		n := v.Addr().Interface().(*Need)
		if n.Total() != 1<<30+ownUse {
			t.Errorf("%s: total of %d bytes", name, n.Total())
		}
		for free, fits := range map[int64]bool{n.Total(): true, n.Total() - 1: false} {
			if n.Free = free; (n.Err("a GPU") == nil) != fits {
				t.Errorf("%s: %d bytes of %d are free: %v", name, free, n.Total(), n.Err("a GPU"))
			}
		}
	}
}

// If a request has several choices, only the first choice has the scores of the prompt.
func TestTheFirstChoiceScoresThePrompt(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{})
	r := Request{Prompt: tokens(1, 70), Sampling: seeded(3), MaxTokens: 2, IgnoreEOS: true, Score: &Score{}}
	r.Sampling.N = 3
	for i, got := range scoresOf(t, open(t, e, r)) {
		if want := []int{70, 0, 0}[i]; len(got) != want {
			t.Errorf("choice %d has %d scores, want %d", i, len(got), want)
		}
	}
	if st := e.Stats(); st.ScoredTokens != 70 {
		t.Errorf("%d tokens were scored", st.ScoredTokens)
	}
}

// Pages on disk that were written by an engine with another plan, another layout or other weights are not used.
func TestPagesOfAnotherPlanAreNotUsed(t *testing.T) {
	ask := func(dir string, change func(*Config)) int {
		t.Helper()
		c := tiered("bf16", 8, 64, tier.Options{DiskDir: dir, DiskBytes: 1 << 26})
		change(&c)
		e := startTiered(t, testmodel.V32(t), c)
		defer e.Close(t.Context())
		return generate(t, e, Request{Prompt: tokens(1, 300), Sampling: greedy(), MaxTokens: 1}).Usage.CachedTokens
	}
	for what, c := range map[string]struct {
		change func(*Config)
		want   int
	}{
		"the same":       {func(*Config) {}, 256},
		"another plan":   {func(c *Config) { c.Policy.Deterministic = false }, 0},
		"another layout": {func(c *Config) { c.Policy.KV = "f32" }, 0},
		"other weights":  {func(c *Config) { c.Weights = tier.Weights{Whole: &tier.Fingerprint{1}} }, 0},
	} {
		dir := t.TempDir()
		ask(dir, func(*Config) {})
		if got := ask(dir, c.change); got != c.want {
			t.Errorf("%s: %d tokens came from the disk, want %d", what, got, c.want)
		}
	}
}

// A pass is enqueued after another pass only for tokens that were requested: a single answer of n tokens takes n passes
// and computes no unused token.
func TestOverlapComputesNoTokenBeyondTheLast(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			alone(t, "passes of several ranks do not overlap")
			e, run := overlapping(t, testmodel.V32(t), Config{}, checked(t))
			run()
			got, _ := collect(open(t, e, Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: n,
				IgnoreEOS: true}))
			e.Close(t.Context())
			if st := e.Stats(); len(got) != n || st.Steps != int64(n) || st.Unused != 0 ||
				st.Overlapped != int64(n-1) {
				t.Errorf("%d tokens in %d passes, %d of them overlapped, %d unused tokens", len(got), st.Steps,
					st.Overlapped, st.Unused)
			}
		})
	}
}

// If sequences are preempted while their pass runs and the pass then fails, they are not run again in pages that now
// belong to other sequences.
func TestFaultsOfPreemptedSequences(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	list := plain(24, nil)
	want := lone(t, testmodel.V32(t), Config{Policy: deterministic("")}, list)
	failed := 0
	e, run := overlapping(t, testmodel.V32(t), Config{Policy: deterministic(""), CacheTokens: 64 * 9, StepTokens: 96},
		checked(t), func(e *Engine) {
			e.loop.passes.runner = &spoiled{runner: e.loop.passes.runner, fails: func(p step.Pending) bool {
				for _, b := range e.loop.batches {
					if b.stage == stageRunning && b.pending.Plan() == p.Plan() && len(b.items) > 1 {
						return slices.ContainsFunc(b.items, func(it sched.Item) bool {
							return it.Stale() && !ownerOf(&it).ended
						})
					}
				}
				return false
			}, count: &failed}
		})
	compare(t, list, jointly(t, e, list, run), want)
	if st := e.Stats(); failed == 0 || st.Failed != 0 || st.Isolated == 0 {
		t.Errorf("%d passes with preempted sequences failed, and %d requests; the items of %d batches were run one "+
			"by one", failed,
			st.Failed, st.Isolated)
	}
}

// spoiled makes Wait return an error for the given passes.
type spoiled struct {
	runner
	fails func(step.Pending) bool
	count *int
}

func (s *spoiled) Wait(p step.Pending) (step.Result, error) {
	fails := s.fails(p)
	res, err := s.runner.Wait(p)
	if err == nil && fails {
		*s.count++
		return step.Result{}, errFault
	}
	return res, err
}

// expertCounts returns an empty table of expert counts for a checkpoint.
func expertCounts(t *testing.T, dir string) *usage.Table {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	u, err := usage.For(src.Model)
	if err := errors.Join(err, src.Close()); err != nil {
		t.Fatal(err)
	}
	return u
}

// Expert choices of a drafting layer are counted for this layer, and no row is counted twice.
func TestDraftingLayersCountTheirOwnExperts(t *testing.T) {
	alone(t, "every rank counts its own experts")
	for _, c := range []struct {
		dir    string
		layers int // number of drafting layers
	}{{testmodel.V32Draft(t), 1}, {testmodel.V4Spark(t), 2}, {testmodel.V41Spark(t), 2}} {
		for _, n := range []int{0, 2} {
			u := expertCounts(t, c.dir)
			cfg, rows := Config{Usage: u, Draft: spec.Off()}, 0
			if n > 0 {
				cfg.Draft = drafts(t, n)
			}
			e := start(t, c.dir, cfg, counted(&rows))
			generate(t, e, Request{Prompt: tokens(1, 30), Sampling: greedy(), MaxTokens: 9, IgnoreEOS: true})
			e.Close(t.Context())
			first := len(u.Counts) - c.layers
			for l := range first {
				if got := u.Choices(l); got != 0 && got != float64(rows*u.Chosen) {
					t.Errorf("%s, %d drafts: layer %d has %v expert choices for %d rows", c.dir, n, l, got, rows)
				}
			}
			for l := first; l < len(u.Counts); l++ {
				if got := u.Choices(l); (got > 0) != (n > 0) || got != u.Choices(first) {
					t.Errorf("%s, %d drafts: drafting layer %d has %v expert choices", c.dir, n, l, got)
				}
			}
		}
	}
}
