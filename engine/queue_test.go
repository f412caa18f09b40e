package engine

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"

	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// Invariants of this file: the number of waiting sequences is limited as configured; a long prompt or a slow reader
// does not delay other requests.

func TestTheQueueIsBounded(t *testing.T) {
	hook, entered, leave := gate()
	e := start(t, testmodel.V32(t), Config{MaxRunning: 1, MaxQueue: 3}, hook)
	r := Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: 1}
	two := r
	two.Sampling.N = 2
	streams := []*Job{open(t, e, r)}
	<-entered // the first request runs; three places are free
	streams = append(streams, open(t, e, r), open(t, e, two))
	for range 3 {
		if _, err := e.Submit(r); !errors.Is(err, ErrQueueFull) {
			t.Fatalf("a request beyond the queue: error %v", err)
		}
	}
	if st := e.Stats(); st.Refused != 3 || st.Requests != 3 || st.Waiting != 3 {
		t.Errorf("%d requests refused, %d accepted, %d sequences wait; want 3 each", st.Refused, st.Requests,
			st.Waiting)
	}
	leave <- struct{}{}
	<-entered // the second request runs; one place is free
	streams = append(streams, open(t, e, r))
	if _, err := e.Submit(two); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("a request with two choices and one free place: error %v", err)
	}
	streams[1].Cancel()
	streams[2].Cancel() // frees two places at the next step boundary
	leave <- struct{}{}
	<-entered
	streams = append(streams, open(t, e, two))
	go func() {
		for range entered {
			leave <- struct{}{}
		}
	}()
	leave <- struct{}{}
	for _, s := range streams {
		collect(s)
	}
	var field *RequestError
	two.Sampling.N = 4
	if _, err := e.Submit(two); !errors.As(err, &field) || field.Field != "n" {
		t.Errorf("a request with more choices than may wait: error %v", err)
	}
}

// A prompt of thousands of tokens runs while other streams decode: between two tokens of a stream there is one step,
// and a short prompt that arrives later gets its first token long before the long prompt is done.
func TestALongPromptHoldsNobodyUp(t *testing.T) {
	length := 4000
	if raceEnabled {
		length = 2000
	}
	type seen struct{ step, tokens int }
	last, most := map[string]seen{}, 0
	firsts := map[string]int{}
	n := 0
	begun := make(chan struct{})
	e := start(t, testmodel.V32(t), Config{StepTokens: 128}, func(e *Engine) {
		e.loop.passes.runner = &tap{runner: e.loop.passes.runner, before: func(works []step.Work) error {
			n++
			total := 0
			for i := range works {
				total += len(works[i].Tokens)
				c := e.owner(&works[i])
				id := c.job.request.ID
				if id == "long" && works[i].Cached > 0 {
					select {
					case <-begun:
					default:
						close(begun)
					}
				}
				if c.limits.made > 0 {
					if before, ok := last[id]; ok {
						most = max(most, n-before.step)
					}
					last[id] = seen{n, c.limits.made}
				} else if works[i].Logits > 0 {
					firsts[id] = n
				}
			}
			if total > 128 {
				t.Errorf("step %d has %d tokens", n, total)
			}
			return nil
		}}
	})
	var streams []*Job
	for _, id := range []string{"a", "b", "c"} {
		s := open(t, e, Request{ID: id, Prompt: tokens(1, 8), Sampling: seeded(1), MaxTokens: 200, IgnoreEOS: true})
		s.Next()
		streams = append(streams, s)
	}
	streams = append(streams, open(t, e, Request{ID: "long", Prompt: tokens(2, length), Sampling: greedy(),
		MaxTokens: 1}))
	<-begun
	streams = append(streams, open(t, e, Request{ID: "short", Prompt: tokens(3, 60), Sampling: greedy(), MaxTokens: 1}))
	for _, s := range streams {
		collect(s)
	}
	e.Close(context.Background())
	if most != 1 {
		t.Errorf("up to %d steps between two tokens of a decoding stream, want 1", most)
	}
	if firsts["long"]-firsts["short"] < length/256 {
		t.Errorf("the short prompt's first token came in step %d, the long one's in step %d", firsts["short"],
			firsts["long"])
	}
}

// If the events of one job are not read, the other jobs continue, and the job that is not read loses no event.
func TestASlowReaderHoldsNobodyUp(t *testing.T) {
	dir := testmodel.V32(t)
	synctest.Test(t, func(t *testing.T) {
		e, err := buildOver(t, dir, Config{}, kernel.Options{Workers: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, run := running(t, e)
		run()
		slow := open(t, e, Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: 300, IgnoreEOS: true})
		generate(t, e, Request{Prompt: tokens(2, 10), Sampling: greedy(), MaxTokens: 300, IgnoreEOS: true})
		synctest.Wait() // returns when the loop waits for requests
		if n := e.Stats().Finished; n != 2 {
			t.Fatalf("%d requests finished; want also the request that is not read", n)
		}
		if got, last := collect(slow); len(got) != 300 || last.Finish != FinishLength {
			t.Errorf("%d tokens, %+v", len(got), last)
		}
	})
}

func TestQueueKeepsOrderAndStaysSmall(t *testing.T) {
	var q queue
	q.init()
	next := int32(0)
	for i := range int32(1000) {
		q.push(Event{Token: i, Text: "text"})
		if i >= 3 { // the reader is always three events late
			if ev := q.pop(); ev.Token != next {
				t.Fatalf("got event %d, want %d", ev.Token, next)
			}
			next++
		}
		for at, ev := range q.events[:cap(q.events)] { // what was read keeps nothing else in memory
			if read := at < q.head || at >= len(q.events); read && !reflect.DeepEqual(ev, Event{}) {
				t.Fatalf("place %d of %d still has the read event %+v", at, len(q.events), ev)
			}
		}
	}
	if cap(q.events) > 16 {
		t.Errorf("three unread events take the memory of %d events", cap(q.events))
	}
}

// A tenant that fills its share of the queue does not block other tenants, and the number of sequences of all tenants
// together is limited.
func TestTheQueueIsSharedByTenants(t *testing.T) {
	q := backlog{most: 100}
	accept := func(tenant string, n int, want bool) {
		t.Helper()
		if err := q.add(tenant, n); (err == nil) != want || err != nil && !errors.Is(err, ErrQueueFull) {
			t.Errorf("%d sequences of tenant %q with %d waiting: error %v", n, tenant, q.waiting, err)
		}
	}
	accept("a", 60, true)
	accept("a", 40, true)
	accept("a", 1, false)
	accept("b", 80, true) // the tenant's only request
	accept("b", 10, true) // the tenant's second request
	accept("b", 1, false) // the tenant would exceed its half of the queue
	accept("c", 1, true)
	accept("c", 32, true) // the tenant uses a third of the queue
	accept("c", 1, false)
	for i := range 4 {
		accept(string(rune('d'+i)), 40, true)
	}
	accept("h", 40, false) // all tenants together would exceed the limit
	accept("h", 10, true)
	for tenant, list := range map[string][]int{"a": {60, 40}, "b": {80, 10}, "c": {1, 32}, "d": {40}, "e": {40},
		"f": {40}, "g": {40}, "h": {10}} {
		for _, n := range list {
			for i := range n {
				q.done(tenant, i == n-1)
			}
		}
	}
	if q.waiting != 0 || len(q.tenants) != 0 {
		t.Errorf("%d sequences of %d tenants wait", q.waiting, len(q.tenants))
	}
	accept("a", 101, true) // the engine is idle
	accept("a", 101, true) // a second large request is not refused because of the first
	accept("a", 1, false)
}
