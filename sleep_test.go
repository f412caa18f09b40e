package sparrow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model/synth"
	"sparrow/internal/testmodel"
	"sparrow/plan"
	"sparrow/sample"
)

// hearing counts the calls of a listener.
type hearing struct{ stored, cleared int }

func (h *hearing) Stored(prefix.Stored) { h.stored++ }
func (h *hearing) Removed(prefix.Hash)  {}
func (h *hearing) Cleared()             { h.cleared++ }

// An engine that slept, or whose weights were replaced, gives the same answers as an engine that was opened with the
// new weights.
func TestSleepWakeAndOtherWeights(t *testing.T) {
	if raceEnabled {
		t.Skip("the model is computed five times")
	}
	ctx := context.Background()
	first := testmodel.V32(t)
	write := func(seed uint64, config string) string {
		text, err := os.ReadFile(filepath.Join(first, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := synth.New("other", []byte(strings.Replace(string(text), `"vocab_size": 640`, config, 1)),
			synth.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "other")
		if err := c.Write(ctx, dir, nil, nil); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	second, smaller := write(77, `"vocab_size": 640`), write(77, `"vocab_size": 512`)
	broken := write(78, `"vocab_size": 640`)
	if err := os.Truncate(filepath.Join(broken, "model.safetensors"), 5000); err != nil {
		t.Fatal(err)
	}
	prompt := make([]int32, 200)
	for i := range prompt {
		prompt[i] = int32(i*7%600 + 2)
	}
	r := Request{Tokens: prompt, MaxTokens: 8, IgnoreEOS: true, Sampling: sample.Default()}
	r.Sampling.Temperature = 0
	heard := &hearing{}
	config := func(dir string) Config {
		return Config{Model: dir, Kernels: "cpu", CacheTokens: 1024, CacheEvents: heard,
			Policy: plan.Policy{Deterministic: true}, Tiers: tier.Options{HostBytes: 1 << 20}}
	}
	ask := func(e *Engine) string {
		t.Helper()
		got, err := e.Generate(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, tok := range got.Choices[0].Tokens {
			text += string(rune('A' + tok.ID))
		}
		return text
	}
	open := func(dir string) *Engine {
		t.Helper()
		e, err := Open(ctx, config(dir))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	other := ask(open(second))
	e := open(first)
	want := ask(e)
	if want == other {
		t.Fatal("the old and the new weights give the same answer")
	}
	stream, err := e.Stream(ctx, Request{Tokens: prompt, MaxTokens: 500, IgnoreEOS: true, Sampling: r.Sampling})
	if err != nil {
		t.Fatal(err)
	}
	cleared := heard.cleared
	if err := e.Sleep(ctx, true); err != nil {
		t.Fatal(err)
	}
	for ev := range stream.All() {
		if ev.Finish != "" && !errors.Is(ev.Err, ErrClosed) {
			t.Errorf("the running request ended with %+v", ev)
		}
	}
	if _, err := e.Generate(ctx, r); !errors.Is(err, ErrAsleep) || !e.Stats().Asleep || heard.cleared == cleared {
		t.Errorf("asleep: %v, %+v, cleared %d times", err, e.Stats(), heard.cleared-cleared)
	}
	if err := e.Sleep(ctx, false); err != nil {
		t.Errorf("asleep already: %v", err)
	}
	for range 2 {
		if err := e.Wake(ctx); err != nil {
			t.Fatal(err)
		}
		if got := ask(e); got != want || e.Stats().Asleep {
			t.Errorf("awake: %q, want %q", got, want)
		}
	}
	for _, dir := range []string{smaller, broken, filepath.Join(first, "none")} {
		if err := e.UpdateWeights(ctx, dir, false); err == nil {
			t.Errorf("UpdateWeights accepted %s", dir)
		}
		if got := ask(e); got != want {
			t.Errorf("after a failed update: %q, want %q", got, want)
		}
	}
	if err := e.UpdateWeights(ctx, second, false); err != nil {
		t.Fatal(err)
	}
	if got := ask(e); got != other {
		t.Errorf("with the new weights: %q, want %q", got, other)
	}
	if err := errors.Join(e.Sleep(ctx, false), e.UpdateWeights(ctx, first, false)); err != nil || !e.Stats().Asleep {
		t.Errorf("updated while asleep: %v", err)
	}
	if err := e.Wake(ctx); err != nil {
		t.Fatal(err)
	}
	if got := ask(e); got != want {
		t.Errorf("with the first weights again: %q, want %q", got, want)
	}
}

// A closed engine is not asleep, whether it was asleep before or not, and no call wakes it up.
func TestAClosedEngineIsNotAsleep(t *testing.T) {
	ctx, dir := t.Context(), testmodel.V32(t)
	for _, sleeps := range []bool{false, true} {
		e, err := Open(ctx, Config{Model: dir, MaxRunning: 1})
		if err == nil && sleeps {
			err = e.Sleep(ctx, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
		for range 2 {
			if _, err := e.Generate(ctx, Request{Tokens: tokens(1, 5), Sampling: greedy()}); !errors.Is(err,
				ErrClosed) || e.Stats().Asleep {
				t.Errorf("asleep before %t: asleep is %t, error %v", sleeps, e.Stats().Asleep, err)
			}
			if err := e.Wake(ctx); !errors.Is(err, ErrClosed) {
				t.Errorf("asleep before %t: Wake returned error %v", sleeps, err)
			}
			if err := e.UpdateWeights(ctx, dir, false); !errors.Is(err, ErrClosed) {
				t.Errorf("asleep before %t: UpdateWeights returned error %v", sleeps, err)
			}
			if err := e.Sleep(ctx, false); err != nil {
				t.Errorf("asleep before %t: error %v", sleeps, err)
			}
		}
	}
}
