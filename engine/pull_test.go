package engine

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/testmodel"
)

// Invariants of this file: if one engine computes a prompt and another continues it, the tokens are those of a single
// engine. If the first engine fails in any way, the second engine computes the pages that it does not receive.

// serving returns an engine that serves its pages, and its address.
func serving(t *testing.T, dir string, c Config, hooks ...func(*Engine)) (*Engine, string) {
	t.Helper()
	e := startTiered(t, dir, c, hooks...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ServePages(l); err != nil {
		t.Fatal(err)
	}
	return e, l.Addr().String()
}

// A request that names an engine fetches from there the pages after those that are in the pool.
func TestAPeerGivesThePagesThatAreMissing(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close() // the listener accepts connections and sends nothing
	e := still(t, testmodel.V32(t), tiered("", 16, 64, tier.Options{Pull: true}))
	emptied(t, e)
	running(t, e)
	prompt := tokens(1, 400)
	for pages := range 4 {
		if pages > 0 { // computes them
			j := queuedJob(t, e, Request{Prompt: prompt[:pages*64+1], Sampling: greedy(), MaxTokens: 1})
			for _, ok := j.Poll(); !ok; _, ok = j.Poll() {
				e.iterations(1)
			}
		}
		j := queuedJob(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1,
			PagesFrom: nobody.Addr().String()})
		if r := j.choices[0].restore; r == nil || r.next != pages || r.admit {
			t.Errorf("%d pages are in the pool: %+v", pages, r)
		}
		j.Cancel()
		e.loop.receive()
	}
}

func TestPrefillApartFromDecode(t *testing.T) {
	for _, f := range families {
		if f.name != "v32-fp8-656" && f.name != "glm-fp8" {
			continue // pages of the other models use the same code when they come from a store
		}
		t.Run(f.name, func(t *testing.T) {
			if raceEnabled && !f.racesToo {
				t.Skip("the test of another checkpoint covers the same races")
			}
			r := Request{ID: "r", Prompt: tokens(1, f.pages*f.page+f.page/2), Sampling: seeded(3), MaxTokens: 6,
				IgnoreEOS: true, Trace: true}
			wantRows, gotRows := keepLogits(), keepLogits()
			want := lone(t, f.dir(t), Config{Policy: deterministic(f.kv)}, []Request{r}, wantRows.watch)
			prefill, at := serving(t, f.dir(t), tiered(f.kv, f.pages+2, f.page,
				tier.Options{HostBytes: 1 << 28, KeepEarly: true}))
			decode := startTiered(t, f.dir(t), tiered(f.kv, f.pages+2, f.page, tier.Options{Pull: true}), gotRows.watch)
			first := r
			first.MaxTokens = 1
			generate(t, prefill, first)
			prefill.Settle(t.Context())
			r.PagesFrom = at
			got := generate(t, decode, r)
			sameTokens(t, "continued", got.Choices[0], want[0].Choices[0])
			sameRows(t, gotRows, wantRows)
			if m := got.Trace.Restored; m.Tiers["peer"] != f.pages*f.page || m.Stop != "" {
				t.Errorf("%+v", m)
			}
		})
	}
}

// A request gets the right answer if its prefill engine fails: no server listens at the address, another program
// listens there, the server ends during the request, or the server has other weights.
func TestADecodeWithoutItsPrefillComputes(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := nobody.Addr().String()
	nobody.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	other := tiered("", 12, 64, tier.Options{HostBytes: 1 << 26, KeepEarly: true})
	other.Weights.Whole = &tier.Fingerprint{9}
	prefill, at := serving(t, testmodel.V32(t), other)
	patient := startTiered(t, testmodel.V32(t), tiered("", 12, 64, tier.Options{Pull: true}))
	hurried := startTiered(t, testmodel.V32(t), tiered("", 12, 64, tier.Options{Pull: true, Wait: time.Millisecond}))
	r := Request{Prompt: tokens(1, 500), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true, Trace: true}
	want := lone(t, testmodel.V32(t), Config{Policy: deterministic("")}, []Request{r})
	generate(t, prefill, r)
	prefill.Settle(t.Context())
	for name, c := range map[string]struct {
		e          *Engine
		peer, stop string
	}{
		"dead":          {patient, dead, "peer: does not answer"},
		"silent":        {hurried, silent.Addr().String(), ""},
		"other weights": {patient, at, "peer: not held"},
	} {
		r.PagesFrom, r.Tenant = c.peer, name // each request has its own tenant, so that no page is shared
		got := generate(t, c.e, r)
		sameTokens(t, name, got.Choices[0], want[0].Choices[0])
		if m := got.Trace.Restored; m.Tokens != 0 || c.stop != "" && m.Stop != c.stop {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Random prompts that run on two engines, several at a time, get the answers of a single engine, although some requests
// are cancelled.
func TestRandomRequestsThroughTwoEngines(t *testing.T) {
	n := 60
	if raceEnabled {
		n = 16
	}
	c := tiered("fp8-656", 40, 64, tier.Options{HostBytes: 1 << 24, KeepEarly: true})
	prefill, at := serving(t, testmodel.V32Draft(t), c)
	c.Tiers = tier.Options{Pull: true}
	decode := startTiered(t, testmodel.V32Draft(t), c, checked(t))
	var list []Request
	random := rand.New(rand.NewPCG(26, 4))
	for i := range 20 {
		r := Request{Prompt: slices.Concat(tokens(i%4, 64*(i%5)), tokens(30+i, 10+random.IntN(200))), MaxTokens: 5,
			Sampling: greedy(), IgnoreEOS: true}
		if i%2 == 1 {
			r.Sampling = seeded(int64(i))
		}
		list = append(list, r)
	}
	want := lone(t, testmodel.V32Draft(t), Config{Policy: deterministic("fp8-656")}, list)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for range n {
		which, kind := random.IntN(len(list)), random.IntN(5)
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			r := list[which]
			r.MaxTokens = 1
			j := open(t, prefill, r)
			if kind == 0 {
				j.Cancel()
			}
			if _, err := j.whole(); err != nil {
				t.Error(err)
			}
			prefill.Settle(t.Context())
			r.MaxTokens, r.PagesFrom = 5, at
			j = open(t, decode, r)
			if kind == 1 {
				time.Sleep(time.Millisecond)
				j.Cancel()
			}
			got, err := j.whole()
			if err != nil {
				t.Error(err)
			} else if a := got.Choices[0]; a.Finish != FinishCancelled {
				sameTokens(t, fmt.Sprintf("prompt %d", which), a, want[which].Choices[0])
			}
		})
	}
	wait.Wait()
	if st := decode.Stats().Tiers; st.Tokens == 0 {
		t.Errorf("no page was pulled: %+v", st)
	}
}
