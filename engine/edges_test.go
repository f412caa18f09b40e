package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/sample"
)

// Invariants of this file: no list keeps a reference to a job or a page that has ended, nothing is copied without need,
// and the number 0 is handled like other page numbers and token ids.

// empty reports whether all places of a list in memory are zero, including those after its end.
func empty[T comparable](list []T) bool {
	var zero T
	return !slices.ContainsFunc(list[:cap(list)], func(v T) bool { return v != zero })
}

// The lists of the inbox keep no reference to requests that were passed on, neither after the loop received them nor
// after the device was lost.
func TestTheInboxKeepsNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		e := still(t, testmodel.V32(t), Config{})
		running(t, e)
		var jobs []*Job
		for i := range 3 {
			jobs = append(jobs, open(t, e, Request{Prompt: tokens(i, 9), Sampling: greedy(), MaxTokens: 1}))
		}
		if lost {
			e.loop.lose(fmt.Errorf("gone: %w", kernel.ErrLost))
		} else {
			e.loop.receive()
			for _, j := range jobs {
				j.Cancel()
			}
			e.loop.receive()
		}
		if b := e.inbox; !empty(b.jobs) || !empty(b.cancels) || cap(b.jobs) == 0 {
			t.Errorf("lost %v: requests %v and cancellations %v are kept", lost, b.jobs[:cap(b.jobs)],
				b.cancels[:cap(b.cancels)])
		}
	}
}

// reads is a device that counts the tensors that are copied from its memory.
type reads struct {
	kernel.Device
	made int
}

func (d *reads) Read(dst []byte, src kernel.Tensor) error {
	d.made++
	return d.Device.Read(dst, src)
}

// A page is copied from the device once for each tier that stores it, and the lists of copies keep no reference to the
// page afterwards.
func TestPagesAreCopiedOnce(t *testing.T) {
	alone(t, "the device of one rank counts")
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26}))
	emptied(t, e)
	running(t, e)
	x := e.loop.tiers
	d := &reads{Device: x.dev.(kernel.Device)}
	x.dev = d
	k := kv.Kept{Stored: prefix.Stored{Hash: prefix.Hash{1}, Tokens: tokens(1, 64)}, Page: 2, Window: -1}
	for range 3 { // from the second round on host memory has the page
		x.Leaving(k)
		x.settle()
	}
	if pages, _ := x.stack.Held(); d.made != len(x.partsOf(2, -1)) || pages != 1 {
		t.Errorf("%d copies of the %d parts of a page, %d pages in host memory", d.made, len(x.parts), pages)
	}
	for i, c := range x.copies[:cap(x.copies)] {
		if c.page != nil || c.done != nil || c.on != nil {
			t.Errorf("copy %d is kept: %+v", i, c)
		}
	}
}

// If the pool has a page before it was fetched from a tier, the fetched page is dropped, and the next page of the
// prompt is expected.
func TestAPageThatThePoolHasIsDropped(t *testing.T) {
	alone(t, "one pool has the pages")
	e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26}))
	emptied(t, e)
	running(t, e)
	x := e.loop.tiers
	j := queuedJob(t, e, Request{Prompt: tokens(1, 64), Sampling: greedy(), MaxTokens: 90, IgnoreEOS: true})
	e.iterations(1)
	c := j.choices[0]
	c.restore = &restore{}
	p := x.stack.Room()
	x.take(c, p, "host")
	if pages, _ := x.stack.Held(); pages != 0 || c.restore.next != 1 || x.stats.RestoredPages != 0 ||
		c.restored.Tokens != 0 || c.seq.Cached() != 64 {
		t.Errorf("%d pages of host memory; page %d is next, %d were restored", pages, c.restore.next,
			x.stats.RestoredPages)
	}
	c.restore = nil
}

// A page that the device may still read is held until the iteration ends, and not longer.
func TestPagesAreHeldUntilTheyAreRead(t *testing.T) {
	alone(t, "one pool has the pages")
	for _, moves := range []bool{false, true} {
		e := still(t, testmodel.V32(t), tiered("", 8, 64, tier.Options{HostBytes: 1 << 26}))
		emptied(t, e)
		running(t, e)
		x := e.loop.tiers
		x.moves = moves
		prompt := tokens(1, 150)
		held(t, e, prompt, prompt)
		j := queuedJob(t, e, Request{Prompt: prompt, Sampling: greedy(), MaxTokens: 1})
		e.loop.turn()
		await.True(t, "both pages", func() bool { x.advance(); return len(x.restoring) == 0 })
		if n := len(x.imports); n != 2 && moves || n != 0 && !moves || x.stats.RestoredPages != 2 {
			t.Errorf("the device reads later %v: %d of %d pages are held", moves, n, x.stats.RestoredPages)
		}
		if x.settle(); len(x.imports) != 0 || !empty(x.imports) {
			t.Errorf("the device reads later %v: %d pages are held after the iteration", moves, len(x.imports))
		}
		j.Cancel()
		e.loop.receive()
		x.timer.Reset(time.Hour)
		if x.close(); x.timer.Stop() {
			t.Error("the loop of closed tiers is woken later")
		}
	}
}

// locking is a device whose page-locked memory cannot be freed.
type locking struct{ kernel.PageMover }

func (locking) HostAlloc(n int64) ([]byte, error) { return make([]byte, n), nil }
func (locking) HostFree([]byte) error             { return errFault }

// The memory of host tiers is allocated and freed by the device, whose errors are returned.
func TestPageLockedMemoryIsTheDevices(t *testing.T) {
	p := pinned{locking{}}
	if b, err := p.Take(7); len(b) != 7 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := p.Free(nil); !errors.Is(err, errFault) {
		t.Errorf("error %v", err)
	}
}

// The parts of a page are the parts of its rows and of its window page, for any page numbers. A page without a window
// page (number -1) has only the parts of its rows.
func TestPartsOfPages(t *testing.T) {
	alone(t, "parts are those of one rank")
	e := still(t, testmodel.V4(t), tiered("", 2, 256, tier.Options{HostBytes: 1 << 28}))
	emptied(t, e)
	running(t, e)
	x := e.loop.tiers
	for page := range 2 {
		rows := x.model.PageParts(nil, page)
		for window := -1; window < 2; window++ {
			want := slices.Clone(rows)
			if window >= 0 {
				want = x.model.WindowParts(want, window)
			}
			if got := x.partsOf(page, window); !reflect.DeepEqual(got, want) || window >= 0 && len(got) == len(rows) {
				t.Errorf("page %d, window page %d: %d parts, want %d", page, window, len(got), len(want))
			}
		}
	}
}

// Every token of the vocabulary, including the first and the last, can be the token that ends reasoning. At the limit
// this token is forced, once.
func TestAnyTokenEndsReasoning(t *testing.T) {
	g := Guide{MaxReasoning: 1}
	for _, vocabulary := range []int{640, 641, 703} {
		for _, end := range []int32{0, 1, 63, 64, 639, int32(vocabulary - 1)} {
			g.ReasoningEnd = end
			want := make(sample.Mask, 11)[:(vocabulary+63)/64]
			want[end/64] = 1 << (end % 64)
			l := g.start(&Request{}, vocabulary, nil)
			for _, step := range []struct {
				token  int32
				forced bool // before it
			}{{7, false}, {end, true}, {7, false}, {end, false}, {7, false}} {
				mask, err := l.allowed()
				if err != nil || (mask != nil) != step.forced || step.forced && !slices.Equal(mask, want) {
					t.Errorf("token %d of %d ends reasoning; after %d tokens: mask %v, %v; want it forced: %v", end,
						vocabulary, l.made, mask, err, step.forced)
				}
				if err := l.accept(step.token); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w := vocabulary(t)
	four, _ := w.TokenID("4")
	r := Guide{Document: schema(t, `{"type": "integer"}`).Document, MaskWords: w.tokens.MaskWords()}
	document := r.start(&Request{}, w.Size(), nil) // token 0 ends reasoning
	for i, token := range []int32{w.eos, 7, 0, four} {
		if mask, err := document.allowed(); err != nil || (mask != nil) != (i == 3) {
			t.Errorf("token %d: mask %v, %v", i, mask != nil, err)
		}
		if err := document.accept(token); err != nil || document.complete() != (i == 3) {
			t.Errorf("token %d: %v, complete %v", i, err, document.complete())
		}
	}
	g.ReasoningEnd = -1
	if l := g.start(&Request{}, 640, nil); l.mustEnd != nil || l.reasoningEnd != -1 {
		t.Errorf("without an end of reasoning: %+v", l)
	}
}
