package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/step"
	"sparrow/internal/testmodel"
	"sparrow/sample"
	"sparrow/weight"
)

// Invariants of this file: a step that fails or panics loses only the requests that fail by themselves; all others get
// the tokens of a run without faults; pages are released; the engine continues. If the engine's own state is broken, it
// stops and reports that.

// marked is the first token of the prompts that get injected faults.
const marked = 639

func aimed(w *step.Work) bool { return w.Cached == 0 && w.Tokens[0] == marked }

func TestOnlyTheFaultyRequestIsLost(t *testing.T) {
	poison := func(works []step.Work) bool {
		return slices.ContainsFunc(works, func(w step.Work) bool { return aimed(&w) })
	}
	for _, c := range []struct {
		name  string
		fault func(works []step.Work) error
		lost  bool // the marked request fails
		alone bool
	}{
		{"an error of one sequence", func(works []step.Work) error {
			if poison(works) {
				return errFault
			}
			return nil
		}, true, true},
		{"a panic of one sequence", func(works []step.Work) error {
			if poison(works) {
				panic(errFault)
			}
			return nil
		}, true, true},
		{"an error of every batch", func(works []step.Work) error {
			if len(works) > 1 {
				return errFault
			}
			return nil
		}, false, true},
		{"a panic of every batch", func(works []step.Work) error {
			if len(works) > 1 {
				panic("too many")
			}
			return nil
		}, false, true},
		{"no fault", nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, testmodel.V32(t), Config{Policy: deterministic("")}, before(c.fault), checked(t))
			list := make([]Request, 5)
			for i := range list {
				list[i] = Request{Prompt: tokens(i, 40+10*i), Sampling: seeded(int64(i)), MaxTokens: 12,
					IgnoreEOS: true}
			}
			list[2].Prompt[0] = marked
			want := undisturbed(t, list)
			streams := make([]*Job, len(list))
			for i := range list {
				streams[i] = open(t, e, list[i])
			}
			for i, s := range streams {
				tokens, last := collect(s)
				switch {
				case i == 2 && c.lost:
					if last.Finish != FinishError || !errors.Is(last.Err, ErrStep) ||
						!strings.Contains(last.Err.Error(), errFault.Error()) || !last.Last {
						t.Errorf("the faulty request ended with %+v", last)
					}
				case last.Finish != FinishLength || !slices.Equal(tokens, want[i].Choices[0].Tokens):
					t.Errorf("request %d: %v, finish %s %v; want %v", i, tokens, last.Finish, last.Err,
						want[i].Choices[0].Tokens)
				}
			}
			st := e.Stats()
			if lost := st.Failed == 1; lost != c.lost || st.Finished+st.Failed != 5 || (st.Isolated > 0) != c.alone {
				t.Errorf("%d requests finished, %d failed, the items of %d batches were run one by one", st.Finished,
					st.Failed, st.Isolated)
			}
		})
	}
}

// undisturbed runs requests one after another, without faults, and returns the answers.
func undisturbed(t *testing.T, list []Request) []*response {
	t.Helper()
	e := start(t, testmodel.V32(t), Config{Policy: deterministic(""), NoReuse: true})
	out := make([]*response, len(list))
	for i, r := range list {
		out[i] = generate(t, e, r)
	}
	return out
}

// If the first choice of a request fails, the other choices, which waited for its prompt, compute the prompt
// themselves.
func TestChoicesGoOnWithoutTheFirst(t *testing.T) {
	failed := false
	e := start(t, testmodel.V32(t), Config{}, before(func([]step.Work) error {
		if !failed {
			failed = true
			return errFault
		}
		return nil
	}))
	p := seeded(3)
	p.N = 3
	r := Request{Prompt: tokens(1, 100), Sampling: p, MaxTokens: 4, IgnoreEOS: true}
	ends := map[int]Finish{}
	for ev := range open(t, e, r).events() {
		if ev.Finish != "" {
			ends[ev.Choice] = ev.Finish
		}
	}
	if ends[0] != FinishError || ends[1] != FinishLength || ends[2] != FinishLength {
		t.Errorf("got %v", ends)
	}
	failed = false
	if _, err := open(t, e, r).whole(); !errors.Is(err, errFault) {
		t.Errorf("Generate: error %v", err)
	}
}

// A request whose logits are NaN or infinite fails.
func TestLogitsThatAreNotNumbers(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{}, func(e *Engine) {
		e.loop.passes.runner = &tap{runner: e.loop.passes.runner, after: func(works []step.Work, res step.Result) {
			row := 0
			for i := range works {
				if works[i].Logits > 0 {
					if aimed(&works[i]) {
						res.Row(row)[5] = float32(math.NaN())
					}
					row++
				}
			}
		}}
	})
	bad := Request{Prompt: append([]int32{marked}, tokens(1, 20)...), Sampling: greedy(), MaxTokens: 3}
	good := Request{Prompt: tokens(2, 20), Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true}
	a, b := open(t, e, bad), open(t, e, good)
	if _, last := collect(a); last.Finish != FinishError || !errors.Is(last.Err, ErrStep) {
		t.Errorf("NaN: %+v", last)
	}
	if _, last := collect(b); last.Finish != FinishLength {
		t.Errorf("the other request ended with %+v", last)
	}
}

// A token whose embedding is NaN makes the rows of its own request NaN, also in layers with experts. Only this request
// fails: no batch is run again for it.
func TestRowsThatAreNotNumbersFailAlone(t *testing.T) {
	dir := t.TempDir()
	damageEmbedding(t, tinyBF16, dir, marked)
	list := make([]Request, 5)
	for i := range list {
		list[i] = Request{Prompt: tokens(i, 20+10*i), Sampling: greedy(), MaxTokens: 6, IgnoreEOS: true}
	}
	idle := start(t, dir, Config{Policy: deterministic(""), NoReuse: true})
	want := make([]*response, len(list))
	for i := range list {
		want[i] = generate(t, idle, list[i])
	}
	list[2].Prompt = append(slices.Clone(list[2].Prompt), marked)
	e, run := prepared(t, dir, Config{Policy: deterministic("")}, checked(t))
	jobs := make([]*Job, len(list))
	for i := range list {
		jobs[i] = open(t, e, list[i])
	}
	run()
	for i, j := range jobs {
		got, last := collect(j)
		if i == 2 {
			if last.Finish != FinishError || !errors.Is(last.Err, ErrStep) || !errors.Is(last.Err, sample.ErrLogits) {
				t.Errorf("the request with NaN ended with %+v", last)
			}
		} else if last.Finish != FinishLength || !slices.Equal(got, want[i].Choices[0].Tokens) {
			t.Errorf("request %d: tokens %v, last event %+v; want tokens %v", i, got, last, want[i].Choices[0].Tokens)
		}
	}
	if st := e.Stats(); st.Isolated != 0 || st.Failed != 1 || st.Finished != 4 {
		t.Errorf("the items of %d batches ran again, %d requests failed, %d finished", st.Isolated, st.Failed,
			st.Finished)
	}
}

// damageEmbedding copies a checkpoint and makes the embedding of a token NaN.
func damageEmbedding(t *testing.T, from, to string, token int) {
	t.Helper()
	const name = "model.embed_tokens.weight"
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	c, err := weight.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all []weight.Source
	for _, n := range c.Names() {
		x, _ := c.Tensor(n)
		data := slices.Clone(x.Data)
		if n == name {
			row := len(data) / x.Shape[0]
			copy(data[token*row:], bytes.Repeat([]byte{0xc0, 0x7f}, row/2)) // NaN as BF16 and as F32
		}
		all = append(all, weight.SourceBytes(n, x.DType, x.Shape, data))
	}
	path := filepath.Join(to, "model.safetensors")
	if err := errors.Join(os.Remove(path), weight.Create(path, all, nil)); err != nil {
		t.Fatal(err)
	}
}

// If sampling a token or turning it into text panics, only the request of that token fails.
func TestAPanicInSamplingLosesOneRequest(t *testing.T) {
	e := start(t, testmodel.V32(t), Config{}, checked(t), func(e *Engine) {
		e.loop.passes.runner = &tap{runner: e.loop.passes.runner, before: func(works []step.Work) error {
			for i := range works {
				if aimed(&works[i]) {
					e.owner(&works[i]).stops = nil // breaks an invariant, so that emit panics
				}
			}
			return nil
		}}
	})
	a := open(t, e, Request{Prompt: append([]int32{marked}, tokens(1, 20)...), Sampling: greedy(), MaxTokens: 3})
	b := open(t, e, Request{Prompt: tokens(2, 20), Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true})
	if _, last := collect(a); last.Finish != FinishError || !strings.Contains(fmt.Sprint(last.Err), "panic") {
		t.Errorf("got %+v", last)
	}
	if got, last := collect(b); last.Finish != FinishLength || len(got) != 3 {
		t.Errorf("the other request ended with %+v", last)
	}
}

// If the loop's own state is broken the engine stops: every stream fails, later requests are refused, and the process
// continues.
func TestABrokenLoopFailsEveryStream(t *testing.T) {
	e := still(t, testmodel.V32(t), Config{MaxRunning: 1})
	steps := 0
	var streams []*Job
	e.cfg.Observe = func(bool) {
		if steps++; steps == 3 {
			// The loop has not received this request yet.
			streams = append(streams, open(t, e, Request{Prompt: tokens(9, 10), Sampling: greedy()}))
			panic("broken invariant")
		}
	}
	for i := range 3 {
		streams = append(streams, open(t, e,
			Request{Prompt: tokens(i, 10), Sampling: greedy(), MaxTokens: 50, IgnoreEOS: true}))
	}
	e.Run()
	allFailed(t, e, streams)
}

// If the loop's state breaks between the operations of a batch, the engine stops as well: every stream fails.
func TestABrokenLoopBetweenOperations(t *testing.T) {
	alone(t, "models on several ranks are not divided")
	e := still(t, testmodel.V32(t), Config{MaxStall: time.Microsecond})
	e.cfg.Observe = func(between bool) {
		if between {
			panic("broken invariant")
		}
	}
	go e.Run()
	stream := open(t, e, Request{Prompt: tokens(1, 8), Sampling: greedy(), MaxTokens: 1 << 10, IgnoreEOS: true})
	stream.Next()
	prompt := open(t, e, Request{Prompt: tokens(7, 600), Sampling: greedy(), MaxTokens: 1})
	allFailed(t, e, []*Job{stream, prompt})
}

// allFailed checks that every stream of an engine whose loop has panicked ends with an error.
func allFailed(t *testing.T, e *Engine, streams []*Job) {
	t.Helper()
	for i, s := range streams {
		if _, last := collect(s); last.Finish != FinishError || !errors.Is(last.Err, ErrClosed) ||
			!strings.Contains(last.Err.Error(), "broken invariant") {
			t.Errorf("stream %d ended with %+v", i, last)
		}
		s.Cancel()
	}
	if _, err := e.Submit(Request{Prompt: tokens(1, 1), Sampling: greedy()}); !errors.Is(err, ErrClosed) {
		t.Errorf("a request after the panic: error %v", err)
	}
	e.Close(context.Background())
	if st := e.Stats(); st.Failed != int64(len(streams)) || st.Running+st.Waiting != 0 || e.inbox.queued.waiting != 0 {
		t.Errorf("statistics %+v, %d sequences queued", st, e.inbox.queued.waiting)
	}
}
