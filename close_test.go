package sparrow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// Invariants of this file: Close finishes or fails every stream, may be called several times and from any goroutine,
// and releases all memory and goroutines. If Open fails, Open releases all memory and goroutines.

func TestCloseLetsRequestsFinish(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	e, err := Open(context.Background(), Config{Model: testmodel.V32(t), MaxRunning: 2})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*Stream
	for i := range 6 {
		streams = append(streams, open(t, e,
			Request{Tokens: tokens(i, 20), Sampling: greedy(), MaxTokens: 20, IgnoreEOS: true}))
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if _, err := e.Stream(context.Background(),
				Request{Tokens: tokens(1, 2), Sampling: greedy()}); !errors.Is(err, ErrClosed) {
				t.Errorf("a request after Close: error %v", err)
			}
		})
	}
	for i, s := range streams {
		n := 0
		for ev := range s.All() {
			n += len(ev.Tokens)
			if ev.Finish != "" && ev.Finish != FinishLength {
				t.Errorf("stream %d ended with %q: %v", i, ev.Finish, ev.Err)
			}
		}
		if n != 20 {
			t.Errorf("stream %d got %d tokens", i, n)
		}
		s.Close() // closing a finished stream has no effect
	}
	wait.Wait()
	checkEmpty(t, e)
	await.Goroutines(t, goroutines)
}

func TestCloseFailsWhatIsLeftWhenItsContextEnds(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	e, err := Open(context.Background(), Config{Model: testmodel.V32(t), MaxRunning: 2})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*Stream
	for i := range 5 {
		streams = append(streams, open(t, e,
			Request{Tokens: tokens(i, 20), Sampling: greedy(), MaxTokens: 8000, IgnoreEOS: true}))
	}
	streams[0].Next()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	for i, s := range streams {
		var last Event
		for ev := range s.All() {
			last = ev
		}
		if last.Finish != FinishError || !errors.Is(last.Err, ErrClosed) || last.Usage == nil {
			t.Errorf("stream %d ended with %+v", i, last)
		}
	}
	if st := e.Stats(); st.Failed != 5 {
		t.Errorf("%d requests failed, want 5", st.Failed)
	}
	checkEmpty(t, e)
	await.Goroutines(t, goroutines)
}

func TestOpenThatFailsGivesEverythingBack(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(tinyFP8, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "model.safetensors" {
			data = data[:len(data)/2]
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	goroutines := runtime.NumGoroutine()
	for _, c := range []struct {
		name string
		ctx  context.Context
		cfg  Config
	}{
		{"no such folder", context.Background(), Config{Model: filepath.Join(dir, "none")}},
		{"weights cut off", context.Background(), Config{Model: dir}},
		{"a context beyond the cache", context.Background(),
			Config{Model: tinyFP8, CacheTokens: 64, ContextTokens: 65}},
		{"unknown kernels", context.Background(), Config{Model: tinyFP8, Kernels: "abacus"}},
		{"unknown cache layout", context.Background(), Config{Model: tinyFP8, Policy: plan.Policy{KV: "fp7"}}},
		{"unknown chat format", context.Background(), Config{ChatFormat: "carrier pigeon"}},
		{"negative number", context.Background(), Config{Model: tinyFP8, Workers: -1}},
		{"cancelled while weights load", cancelled, Config{Model: tinyFP8, OnLoad: func(int64, int64) { cancel() }}},
		{"cancelled before", cancelled, Config{Model: tinyFP8}},
	} {
		if e, err := Open(c.ctx, c.cfg); err == nil {
			t.Errorf("%s: opened", c.name)
			e.Close(context.Background())
		}
	}
	await.Goroutines(t, goroutines)
}
