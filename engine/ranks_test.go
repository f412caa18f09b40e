package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/internal/device/group"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testkit/strict"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
)

// Invariants of this file: if a rank fails or hangs at any operation, every request ends with an error that names the
// rank and the engine is no longer ready. No page stays in use, and no goroutine or caller waits forever.

// marking is a device that calls mark before each operation of a pass.
type marking struct {
	kernel.Device
	mark func() error
}

func (d *marking) Mark(kernel.Mark) error { return d.mark() }
func (d *marking) Reached() kernel.Mark   { return 0 }

// opening opens the device of a rank. Unless mark is nil, the device calls it before each operation.
type opening func(t *testing.T, mark func() error) kernel.Device

// onCPU opens a CPU device.
func onCPU(t *testing.T, mark func() error) kernel.Device {
	t.Helper()
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if mark != nil {
		return &marking{dev, mark}
	}
	return dev
}

// byGPURules opens a device with the rules of a GPU.
func byGPURules(t *testing.T, mark func() error) kernel.Device {
	t.Helper()
	dev, err := strict.Open(onCPU(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	dev.OnCall = mark
	return dev
}

// onRanks returns an engine on two ranks, one of which calls mark before each operation.
func onRanks(t *testing.T, open opening, rank int, timeout time.Duration, mark func() error) (*Engine, *group.Group) {
	t.Helper()
	how, err := plan.ParseDivision(*division)
	if err != nil {
		t.Fatal(err)
	}
	return dividedBy(t, how, open, rank, timeout, mark)
}

// dividedBy returns an engine on two ranks, like onRanks, with the given division of attention.
func dividedBy(t *testing.T, how plan.Division, open opening, rank int, timeout time.Duration, mark func() error) (
	*Engine, *group.Group) {
	t.Helper()
	source, err := family.Open(testmodel.V32(t))
	if err != nil {
		t.Fatal(err)
	}
	var devs []kernel.Device
	for r := range 2 {
		if r == rank {
			devs = append(devs, open(t, mark))
		} else {
			devs = append(devs, open(t, nil))
		}
	}
	g, err := group.New(devs, group.Options{Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	m, err := source.LoadRanks(g, how, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	e, err := New(m, testConfig(source, Config{SelfTest: SelfTestOff, CacheTokens: 1024, StepTokens: 64}))
	if err != nil {
		t.Fatal(err)
	}
	return e, g
}

// A sequence has its pages on one rank: if each rank has its own pages, the reported cache is the sum over all ranks,
// and the context is at most the cache of one rank.
func TestTheContextFitsOnOneRank(t *testing.T) {
	for how, pools := range map[plan.Division]int{plan.ByHeads: 1, plan.ByRequests: 2} {
		e, g := dividedBy(t, how, onCPU, 0, 0, nil)
		i := e.Info()
		if i.ContextTokens != 1024 || i.CacheTokens != 1024*pools || i.Pages*i.PageTokens != i.CacheTokens {
			t.Errorf("attention by %v: the context has %d tokens, the cache %d tokens and %d pages", how,
				i.ContextTokens,
				i.CacheTokens, i.Pages)
		}
		go e.Run()
		e.Close(t.Context())
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Every draft of a chain is made on the rank with the pages of its sequence, and follows the latest draft.
func TestDraftsAreMadeOnTheRankOfTheirSequence(t *testing.T) {
	e, g := dividedBy(t, plan.ByRequests, onCPU, 0, 0, nil)
	var jobs []*Job
	for i := range 2 {
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 20), Sampling: greedy(), MaxTokens: 9,
			IgnoreEOS: true}))
	}
	e.iterations(1)
	for rank, j := range jobs {
		c := j.choices[0]
		c.seq.Drafts = []int32{7, 8}
		p, k := &passes{drafts: make([]step.Draft, 3)}, &chain{c: c, work: 2}
		p.draftNext(k)
		want := step.Draft{Kind: plan.ModeDraft, Tokens: []int32{8}, Cached: 21, Rank: rank, Pages: c.seq.Pages(),
			Logits: true, Best: true, From: 2}
		if got := p.drafts[3]; c.seq.Rank() != rank || !reflect.DeepEqual(got, want) || k.work != 3 {
			t.Errorf("a sequence on rank %d: %+v, work %d; want %+v", c.seq.Rank(), got, k.work, want)
		}
		c.seq.Drafts = nil
		j.Cancel()
	}
	go e.Run()
	e.Close(t.Context())
	checkEmpty(t, e)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// failures runs requests on two ranks until the given rank fails, and checks that everything is released. It runs under
// synctest, so that time passes only while ranks wait and the test waits for all goroutines to end.
func failures(t *testing.T, on opening, rank int, timeout time.Duration, fault func() error, free func(),
	says ...string) {
	t.Helper()
	e, g := onRanks(t, on, rank, timeout, fault)
	var jobs []*Job
	for i := range 3 {
		jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 20), Sampling: greedy(), MaxTokens: 40,
			IgnoreEOS: true}))
	}
	go e.Run()
	for i, j := range jobs {
		_, last := collect(j)
		if last.Finish != FinishError || !errors.Is(last.Err, ErrDevice) || !last.Last {
			t.Errorf("request %d ended with %+v", i, last)
		}
		for _, part := range says {
			if !strings.Contains(fmt.Sprint(last.Err), part) {
				t.Errorf("request %d: error %q does not contain %q", i, last.Err, part)
			}
		}
	}
	if _, err := e.Submit(Request{Prompt: tokens(9, 5), Sampling: greedy(), MaxTokens: 1}); !errors.Is(err, ErrDevice) {
		t.Errorf("a request after the loss: %v", err)
	}
	if st := e.Stats(); !strings.Contains(st.Device, says[0]) || st.Failed != 3 {
		t.Errorf("Stats.Device is %q, %d requests failed", st.Device, st.Failed)
	}
	e.Close(context.Background())
	checkEmpty(t, e)
	free()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// operations returns how many operations a rank enqueues for the requests of failures.
func operations(t *testing.T, on opening) int {
	t.Helper()
	n := 0
	e, g := onRanks(t, on, 0, 0, func() error { n++; return nil })
	go e.Run()
	for i := range 3 {
		if _, err := open(t, e, Request{Prompt: tokens(i, 20), Sampling: greedy(), MaxTokens: 2,
			IgnoreEOS: true}).whole(); err != nil {
			t.Fatal(err)
		}
	}
	e.Close(context.Background())
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	return n
}

// faults runs requests once for each multiple of the given number of operations and makes a rank fail after that many
// operations. The two ranks take turns.
func faults(t *testing.T, on opening, each int, timeout time.Duration) {
	all := operations(t, on)
	if all < 60 {
		t.Fatalf("the requests take %d operations, want those of several passes", all)
	}
	for at := 1; at <= all; at += each {
		synctest.Test(t, func(t *testing.T) {
			rank, n := at%2, 0
			failures(t, on, rank, timeout, func() error {
				if n++; n == at {
					return errFault
				}
				return nil
			}, func() {}, fmt.Sprintf("rank %d of 2", rank), errFault.Error())
		})
		if t.Failed() {
			t.Fatalf("with a fault of rank %d at operation %d of %d", at%2, at, all)
		}
	}
}

func TestARankThatFails(t *testing.T) {
	each := 7 // number of operations between tested faults; the two ranks take turns
	switch {
	case raceEnabled:
		each = 17
	case *everything || *everyFault:
		each = 1
	}
	faults(t, onCPU, each, 0)
}

var everyFault = flag.Bool("every-fault", false, "let ranks with the rules of a GPU fail at every operation, not "+
	"only at some")

// A failing rank also ends every request under the rules of a GPU. The other ranks then wait in the exchange until its
// timeout, as GPUs do.
func TestARankByADevicesRulesThatFails(t *testing.T) {
	notUnderRace(t)
	testmodel.OnGPU(t)
	each := 29
	if *everyFault {
		each = 1
	}
	faults(t, byGPURules, each, 50*time.Millisecond)
}

func TestARankThatHangs(t *testing.T) {
	for _, at := range []int{1, 20, 33} {
		synctest.Test(t, func(t *testing.T) {
			free, n := make(chan struct{}), 0
			failures(t, onCPU, 1, 500*time.Millisecond, func() error {
				if n++; n == at {
					<-free
				}
				return nil
			}, func() { close(free) }, "rank 1 of 2", "did not")
		})
		if t.Failed() {
			t.Fatalf("with a hang at operation %d", at)
		}
	}
}
