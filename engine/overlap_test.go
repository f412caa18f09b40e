package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// Invariants of this file: forming and enqueueing a batch while the previous one runs changes no answer, even if
// requests end, fail, or are cancelled or preempted meanwhile. No page is leaked. Package sim tests more cases.

// beside is a device that reports that it computes asynchronously. Each call computes its result before it returns, so
// operations run in the order of the calls, as on a real device.
type beside struct{ kernel.Device }

func (beside) Asynchronous() bool { return true }

// overlapping prepares an engine on a device that reports that it computes asynchronously.
func overlapping(t testing.TB, dir string, c Config, hooks ...func(*Engine)) (*Engine, func()) {
	t.Helper()
	e, err := buildOver(t, dir, c, kernel.Options{}, func(d kernel.Device) kernel.Device {
		if kernel.IsAsynchronous(d) {
			return d
		}
		return beside{d}
	})
	if err != nil {
		t.Fatal(err)
	}
	return running(t, e, hooks...)
}

// plain returns n greedy requests; some of them stop early, at stop tokens that occur in their answers.
func plain(n int, stops []int32) []Request {
	list := crowd(n)
	for i := range list {
		list[i].Sampling = greedy()
		if i%3 == 0 {
			list[i].Sampling.StopTokenIDs = stops
		}
		if i%7 == 3 {
			list[i].Sampling.N = 2
		}
	}
	return list
}

// Overlapping batches changes no answer. Many requests run with stop tokens, shared prefixes and too few pages: in one
// case all requests are greedy, in another the host samples the tokens of some requests.
func TestOverlappedBatchesChangeNoAnswer(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	dir := testmodel.V32(t)
	free := lone(t, dir, Config{Policy: deterministic("")}, plain(6, nil))
	var stops []int32 // tenth token of some answers
	for _, r := range free {
		if a := r.Choices[0].Tokens; len(a) > 10 {
			stops = append(stops, a[9])
		}
	}
	for _, c := range []struct {
		name     string
		list     []Request
		pages    int
		overlaps bool // want most batches to overlap
	}{
		{"greedy", plain(24, stops), 64, true},
		{"greedy, few pages", plain(24, stops), 9, true},
		{"some are sampled by the host", crowd(16), 16, false},
	} {
		if standIn != nil && c.pages == 64 && !*everything {
			continue // cases with few pages enqueue the same operations as other cases
		}
		t.Run(c.name, func(t *testing.T) {
			want := lone(t, dir, Config{Policy: deterministic("")}, c.list)
			cfg := Config{Policy: deterministic(""), CacheTokens: 64 * c.pages, StepTokens: 96}
			e, run := overlapping(t, dir, cfg, checked(t))
			got := jointly(t, e, c.list, run)
			for i := range got {
				for k := range got[i].Choices {
					sameTokens(t, fmt.Sprintf("request %d, choice %d", i, k), got[i].Choices[k], want[i].Choices[k])
				}
			}
			st := e.Stats()
			if st.Overlapped == 0 || c.overlaps && (2*st.Overlapped < st.Steps || st.Unused == 0) {
				t.Errorf("%d of %d passes overlapped, %d unused tokens", st.Overlapped, st.Steps, st.Unused)
			}
			if c.pages < 16 && st.Preempted == 0 {
				t.Error("no sequence was preempted")
			}
		})
	}
}

// If requests are cancelled at any moment, the other requests get the tokens that they get alone.
func TestOverlapAndCancellations(t *testing.T) {
	testCancellations(t, plain(24, nil), Config{Policy: deterministic(""), CacheTokens: 64 * 12})
}

func testCancellations(t *testing.T, list []Request, cfg Config) {
	alone(t, "passes of several ranks do not overlap")
	dir := testmodel.V32(t)
	// Long enough for the slowest reader to cancel the request before its end.
	list[0].MaxTokens, list[0].IgnoreEOS = 200, true
	want := lone(t, dir, Config{Policy: cfg.Policy}, list)
	e, run := overlapping(t, dir, cfg, checked(t))
	random := rand.New(rand.NewPCG(3, 4))
	var wait sync.WaitGroup
	for i, r := range list {
		s, most := open(t, e, r), random.IntN(40)
		wait.Go(func() {
			got := make([][]int32, s.Choices())
			n := 0
			for ev := range s.events() {
				if ev.Token < 0 {
					continue
				}
				got[ev.Choice] = append(got[ev.Choice], ev.Token)
				if n++; i%2 == 0 && n > most {
					s.Cancel()
				}
			}
			for k := range got {
				all := want[i].Choices[k].Tokens
				if len(got[k]) > len(all) || !slices.Equal(got[k], all[:len(got[k])]) ||
					i%2 == 1 && len(got[k]) != len(all) {
					t.Errorf("request %d, choice %d: tokens %v; alone %v", i, k, got[k], all)
				}
			}
		})
	}
	run()
	wait.Wait()
	if st := e.Stats(); st.Aborted == 0 || st.Overlapped == 0 {
		t.Errorf("%d requests cancelled, %d passes overlapped", st.Aborted, st.Overlapped)
	}
}

// Requests get their tokens even if a pass fails when it is enqueued after another pass, or in Wait while another pass
// is enqueued after it.
func TestFaultsOfOverlappedPasses(t *testing.T) {
	alone(t, "passes of several ranks do not overlap")
	dir := testmodel.V32(t)
	list := plain(8, nil)
	want := lone(t, dir, Config{Policy: deterministic("")}, list)
	for _, c := range []struct {
		name string
		tap  func(runner) runner
	}{
		{"enqueued", func(r runner) runner {
			return &tap{runner: r, before: everyNth(7, func(works []step.Work) bool {
				return slices.ContainsFunc(works, func(w step.Work) bool { return w.Sampled > 0 })
			})}
		}},
		{"waited for", func(r runner) runner { return &late{t: t, runner: r, every: 7} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Policy: deterministic(""), CacheTokens: 64 * 64}
			e, run := overlapping(t, dir, cfg, checked(t),
				func(e *Engine) { e.loop.passes.runner = c.tap(e.loop.passes.runner) })
			got := jointly(t, e, list, run)
			for i := range got {
				for k := range got[i].Choices {
					sameTokens(t, fmt.Sprintf("request %d, choice %d", i, k), got[i].Choices[k], want[i].Choices[k])
				}
			}
			if st := e.Stats(); st.Overlapped == 0 || st.Failed > 0 || c.name == "waited for" && st.Isolated == 0 {
				t.Errorf("%d passes overlapped, %d requests failed, %d batches isolated", st.Overlapped, st.Failed,
					st.Isolated)
			}
		})
	}
}

// everyNth returns a function that makes every n-th pass fail, counting only passes of several requests for which the
// function some returns true.
func everyNth(n int, some func([]step.Work) bool) func([]step.Work) error {
	seen := 0
	return func(works []step.Work) error {
		if len(works) > 1 && some(works) {
			if seen++; seen%n == 0 {
				return errFault
			}
		}
		return nil
	}
}

// late makes passes of several requests fail in Wait. It checks that the loop waits for every pass, also for those
// whose results are not used: when a pass begins, at most one other pass is in flight.
type late struct {
	runner
	t           *testing.T
	every, seen int
	flying      int
}

func (l *late) Begin(works []step.Work) (step.Started, error) {
	if l.flying > 1 {
		l.t.Errorf("a pass begins while %d other passes are in flight", l.flying)
		l.flying = 1 // each pass is reported once
	}
	return l.runner.Begin(works)
}

func (l *late) End(s *step.Started) (step.Pending, error) {
	p, err := l.runner.End(s)
	if err == nil {
		l.flying++
	}
	return p, err
}

func (l *late) Wait(p step.Pending) (step.Result, error) {
	l.flying--
	res, err := l.runner.Wait(p)
	if err == nil && p.Plan().Requests > 1 {
		if l.seen++; l.seen%l.every == 0 {
			return step.Result{}, errFault
		}
	}
	return res, err
}
