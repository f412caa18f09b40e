package group

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/testkit/await"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

// The tests of this file check these invariants: after a collective operation the results of all ranks are bitwise
// equal to a sum in the order of the ranks. A rank that fails, hangs or runs a different operation ends the group with
// an error that names the rank, and no call waits forever.

// open calls openBare and checks that closing the group ends all goroutines.
func open(t *testing.T, ranks int, o Options) *Group {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() { await.Goroutines(t, before) })
	return openBare(t, ranks, o)
}

// openBare returns a group of reference devices. Tests of timeouts use it directly, because synctest waits for
// goroutines itself.
func openBare(t *testing.T, ranks int, o Options) *Group {
	t.Helper()
	devs := make([]kernel.Device, ranks)
	for i := range devs {
		devs[i] = &ref.Device{}
	}
	g, err := New(devs, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil && !t.Failed() {
			t.Log(err)
		}
	})
	return g
}

// tensors returns a tensor for each rank with random values of very different magnitudes, so that the order of sums
// matters.
func tensors(t *testing.T, g *Group, random *rand.Rand, rows, cols int) []kernel.Tensor {
	t.Helper()
	out := make([]kernel.Tensor, g.Ranks())
	for r := range out {
		x, err := kernel.New(g.Device(r), kernel.F32, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		for i := range host.F32(x) {
			host.F32(x)[i] = float32(random.NormFloat64() * math.Exp(random.NormFloat64()*4))
		}
		out[r] = x
	}
	return out
}

func clone(list []kernel.Tensor) [][]float32 {
	out := make([][]float32, len(list))
	for i, x := range list {
		out[i] = append([]float32(nil), host.F32(x)...)
	}
	return out
}

// sum adds element i of all ranks in their order.
func sum(all [][]float32, i int) float32 {
	s := all[0][i]
	for _, x := range all[1:] {
		s += x[i]
	}
	return s
}

func TestCollectives(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 8} {
		g := open(t, ranks, Options{})
		random := rand.New(rand.NewPCG(1, uint64(ranks)))
		members := make([]kernel.Collective, ranks)
		for r := range members {
			members[r] = g.Member(r).Comm
		}
		for _, shape := range [][2]int{{1, 1}, {1, 7}, {3, 5}, {2, 128}, {17, 96}} {
			rows, cols := shape[0], shape[1]
			x, wide := tensors(t, g, random, rows, cols), tensors(t, g, random, rows, cols*ranks)
			narrow := tensors(t, g, random, rows, cols)
			first, before := clone(x), clone(wide)
			must := func(name string, f func(rank int) error) {
				t.Helper()
				if err := g.Do(f); err != nil {
					t.Fatalf("%s of %d ranks: error %v", name, ranks, err)
				}
			}
			check := func(name string, rank int, got []float32, want func(i int) float32) {
				t.Helper()
				for i, v := range got {
					if w := want(i); math.Float32bits(v) != math.Float32bits(w) {
						t.Fatalf("%s [%d, %d] of %d ranks: element %d of rank %d is %v, want %v", name, rows, cols,
							ranks, i, rank, v, w)
					}
				}
			}
			must("reduce-scatter", func(r int) error {
				return members[r].ReduceScatter(kernel.ReduceScatterArgs{Out: narrow[r], X: wide[r]})
			})
			for r := range ranks {
				check("reduce-scatter", r, host.F32(narrow[r]), func(i int) float32 {
					return sum(before, i/cols*cols*ranks+r*cols+i%cols)
				})
			}
			must("all-gather", func(r int) error {
				return members[r].AllGather(kernel.AllGatherArgs{Out: wide[r], X: x[r]})
			})
			for r := range ranks {
				check("all-gather", r, host.F32(wide[r]), func(i int) float32 {
					row, col := i/(cols*ranks), i%(cols*ranks)
					return first[col/cols][row*cols+col%cols]
				})
			}
			must("all-reduce", func(r int) error { return members[r].AllReduce(kernel.AllReduceArgs{X: x[r]}) })
			for r := range ranks {
				check("all-reduce", r, host.F32(x[r]), func(i int) float32 { return sum(first, i) })
			}
			// Each rank has some of the rows, except one rank, which has none.
			bounds := make([]int, ranks+1)
			for r := range ranks {
				bounds[r+1] = min(bounds[r]+r, rows)
			}
			bounds[ranks] = rows
			wide = tensors(t, g, random, rows, cols*ranks) // the ranks have different rows again
			held := clone(wide)
			must("share of rows", func(r int) error {
				return members[r].ShareRows(kernel.ShareArgs{X: wide[r], Bounds: bounds})
			})
			for r := range ranks {
				check("share of rows", r, host.F32(wide[r]), func(i int) float32 {
					owner := 0
					for i/(cols*ranks) >= bounds[owner+1] {
						owner++
					}
					return held[owner][i]
				})
			}
			from := ranks - 1
			sent := clone(narrow)[from]
			must("broadcast", func(r int) error {
				return members[r].Broadcast(kernel.BroadcastArgs{X: narrow[r], From: from})
			})
			for r := range ranks {
				check("broadcast", r, host.F32(narrow[r]), func(i int) float32 { return sent[i] })
			}
		}
	}
}

// Ranks that reach operations at different times never read data of another operation.
func TestRanksAtTheirOwnPace(t *testing.T) {
	const ranks, rounds = 4, 300
	g := open(t, ranks, Options{})
	random := rand.New(rand.NewPCG(7, 7))
	x := tensors(t, g, random, 3, 11)
	err := g.Do(func(r int) error {
		own := rand.New(rand.NewPCG(uint64(r), 1))
		c := g.Member(r).Comm
		for round := range rounds {
			if own.IntN(20) == 0 {
				time.Sleep(time.Duration(own.IntN(200)) * time.Microsecond)
			}
			for i := range host.F32(x[r]) {
				host.F32(x[r])[i] = float32(round*ranks + r)
			}
			if err := c.AllReduce(kernel.AllReduceArgs{X: x[r]}); err != nil {
				return err
			}
			want := float32(round*ranks*ranks + ranks*(ranks-1)/2)
			for i, v := range host.F32(x[r]) {
				if v != want {
					return fmt.Errorf("round %d, element %d of rank %d: %v, want %v", round, i, r, v, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A pass of several ranks allocates nothing.
func TestPassesAllocateNothing(t *testing.T) {
	g := open(t, 2, Options{})
	random := rand.New(rand.NewPCG(5, 5))
	x, wide := tensors(t, g, random, 4, 16), tensors(t, g, random, 4, 32)
	members := []kernel.Collective{g.Member(0).Comm, g.Member(1).Comm}
	pass := func(r int) error {
		if err := members[r].AllReduce(kernel.AllReduceArgs{X: x[r]}); err != nil {
			return err
		}
		return members[r].AllGather(kernel.AllGatherArgs{Out: wide[r], X: x[r]})
	}
	n := testing.AllocsPerRun(50, func() {
		if err := g.Do(pass); err != nil {
			t.Error(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations in a pass, want 0", n)
	}
}

// reduce calls fault on each rank, makes all ranks sum a tensor, and returns the error of the group.
func reduce(t *testing.T, g *Group, fault func(rank int) error) error {
	t.Helper()
	x := tensors(t, g, rand.New(rand.NewPCG(3, 3)), 2, 8)
	return g.Do(func(r int) error {
		if err := fault(r); err != nil {
			return err
		}
		return g.Member(r).Comm.AllReduce(kernel.AllReduceArgs{X: x[r]})
	})
}

func wantLost(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kernel.ErrLost) {
		t.Fatalf("%s: error %v, want a lost device", what, err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %q does not contain %q", what, err, p)
		}
	}
}

var errFault = errors.New("an injected fault")

func TestARankThatFails(t *testing.T) {
	g := open(t, 3, Options{})
	err := reduce(t, g, func(r int) error {
		if r == 1 {
			return errFault
		}
		return nil
	})
	wantLost(t, "one rank fails", err, "rank 1 of 3 (ref)", errFault.Error())
	wantLost(t, "afterwards", reduce(t, g, func(int) error { return nil }), "rank 1 of 3")
}

func TestARankThatPanics(t *testing.T) {
	g := open(t, 2, Options{})
	err := reduce(t, g, func(r int) error {
		if r == 0 {
			panic("broken")
		}
		return nil
	})
	wantLost(t, "one rank panics", err, "rank 0 of 2", "panic: broken")
}

func TestRanksThatAllFailGoOn(t *testing.T) {
	g := open(t, 3, Options{})
	err := reduce(t, g, func(int) error { return errFault })
	if !errors.Is(err, errFault) || errors.Is(err, kernel.ErrLost) {
		t.Fatalf("if all ranks fail: error %v", err)
	}
	x := tensors(t, g, rand.New(rand.NewPCG(4, 4)), 2, 8)
	before := clone(x)
	if err := g.Do(func(r int) error { return g.Member(r).Comm.AllReduce(kernel.AllReduceArgs{X: x[r]}) }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	for r := range x {
		for i, v := range host.F32(x[r]) {
			if v != sum(before, i) {
				t.Fatalf("afterwards element %d of rank %d is %v, want %v", i, r, v, sum(before, i))
			}
		}
	}
}

// A rank that fails after a pass in which all ranks failed ends the pass of the others at once.
func TestARankThatFailsAfterAllFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openBare(t, 3, Options{Timeout: time.Minute})
		if err := reduce(t, g, func(int) error { return errFault }); errors.Is(err, kernel.ErrLost) {
			t.Fatal(err)
		}
		begun := time.Now()
		err := reduce(t, g, func(r int) error {
			if r == 1 {
				return errFault
			}
			return nil
		})
		wantLost(t, "one rank fails", err, "rank 1 of 3 (ref)", errFault.Error())
		if took := time.Since(begun); took != 0 {
			t.Errorf("the other ranks waited for %v", took)
		}
		if err := g.Close(); err != nil {
			t.Log(err)
		}
	})
}

// Calls of two ranks are one operation only if the operation, the type and the shape of their tensors are equal; rows
// may be apart.
func TestWhichCallsAreOneOperation(t *testing.T) {
	x := kernel.Tensor{DType: kernel.F32, Rows: 2, Cols: 8, Stride: 8}
	a := call{op: "all-reduce", x: x}
	for name, c := range map[string]struct {
		change func(c *call)
		alike  bool
	}{
		"equal":                 {func(*call) {}, true},
		"rows that are apart":   {func(c *call) { c.x.Stride = 16 }, true},
		"another operation":     {func(c *call) { c.op = "all-gather" }, false},
		"another type":          {func(c *call) { c.x.DType = kernel.BF16 }, false},
		"more rows":             {func(c *call) { c.x.Rows++ }, false},
		"more columns":          {func(c *call) { c.x.Cols++ }, false},
		"another output tensor": {func(c *call) { c.out = x }, true},
	} {
		b := a
		c.change(&b)
		if a.alike(&b) != c.alike || b.alike(&a) != c.alike {
			t.Errorf("%s: one operation %t", name, a.alike(&b))
		}
	}
}

// described is a device with a description and its own memory.
type described struct {
	kernel.Device
	name        string
	free, total int64
	err         error
}

func (d described) Describe() string                           { return d.name }
func (d described) MemoryFree() (free, total int64, err error) { return d.free, d.total, d.err }
func (d described) Close() error                               { return nil }

// peer is a described device of a GPU.
type peer struct{ described }

func (peer) Peers([]kernel.Device, time.Duration) ([]kernel.Collective, error) { return nil, nil }

// The free memory of a group is the least that a rank has; ranks on one memory have equal parts of it.
func TestTheFreeMemoryOfRanks(t *testing.T) {
	gpu := func(name string, free, total int64) kernel.Device {
		return peer{described{Device: &ref.Device{}, name: name, free: free, total: total}}
	}
	host := func(free, total int64) kernel.Device {
		return described{Device: &ref.Device{}, name: "cpu", free: free, total: total}
	}
	for _, c := range []struct {
		name        string
		ranks       []kernel.Device
		free, total int64
	}{
		{"one rank", []kernel.Device{gpu("a", 30, 40)}, 30, 40},
		{"the last has least", []kernel.Device{gpu("a", 30, 40), gpu("b", 20, 80)}, 20, 80},
		{"the first has least", []kernel.Device{gpu("a", 20, 40), gpu("b", 30, 80)}, 20, 40},
		{"two on one GPU", []kernel.Device{gpu("a", 30, 40), gpu("a", 30, 40)}, 15, 20},
		{"two on one of two GPUs", []kernel.Device{gpu("a", 30, 40), gpu("b", 20, 24), gpu("a", 30, 40)}, 15, 20},
		{"three on the host", []kernel.Device{host(30, 60), host(33, 60), host(36, 60)}, 10, 20},
	} {
		g := &Group{}
		for _, d := range c.ranks {
			g.ranks = append(g.ranks, &rank{dev: d})
		}
		if free, total, err := g.MemoryFree(); err != nil || free != c.free || total != c.total {
			t.Errorf("%s: %d bytes of %d are free, want %d of %d, error %v", c.name, free, total, c.free, c.total, err)
		}
	}
	g := &Group{ranks: []*rank{{dev: gpu("a", 1, 1)},
		{dev: peer{described{Device: &ref.Device{}, name: "b", err: errFault}}}}}
	if _, _, err := g.MemoryFree(); !errors.Is(err, errFault) || !strings.Contains(err.Error(), "rank 1 of 2") {
		t.Errorf("a rank whose memory is not known: %v", err)
	}
}

// A tensor of a single rank is written and read on that rank only.
func TestATensorOfOneRank(t *testing.T) {
	g := open(t, 3, Options{Compare: true})
	b, err := g.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free(b)
	everywhere := kernel.Tensor{Buf: b, DType: kernel.I32, Rows: 2, Cols: 1, Stride: 1}
	if err := kernel.WriteI32(g, everywhere, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	for rank := range 3 {
		alone := everywhere
		alone.Buf = Alone(rank, Of(b, rank))
		want := []int32{int32(10 + rank), int32(20 + rank)}
		if err := kernel.WriteI32(g, alone, want); err != nil {
			t.Fatal(err)
		}
		got := make([]int32, 2)
		if err := kernel.ReadI32(g, got, alone); err != nil || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("rank %d has %v, want %v, error %v", rank, got, want, err)
		}
		block := make([]byte, 8)
		if _, err := g.Fetch(block, alone); err != nil || block[0] != byte(10+rank) || block[4] != byte(20+rank) {
			t.Errorf("%v was fetched from rank %d, want %v, error %v", block, rank, want, err)
		}
		for other := rank + 1; other < 3; other++ {
			if v := host.I32(on(everywhere, other)); v[0] != 1 || v[1] != 2 {
				t.Errorf("rank %d has %v after a write to rank %d", other, v, rank)
			}
		}
	}
	for rank := range 3 {
		if m := g.Member(rank); m.Rank != rank || m.Ranks != 3 || m.Comm == nil || m.Beats == nil {
			t.Errorf("rank %d is %+v", rank, m)
		}
	}
}

func TestARankThatHangs(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(g *Group, free chan struct{}) error
		says []string
	}{
		{"before a collective operation", func(g *Group, free chan struct{}) error {
			return reduce(t, g, func(r int) error {
				if r == 2 {
					<-free
				}
				return nil
			})
		}, []string{"rank 2 of 3 did not reach all-reduce of f32[2,8] within 60ms"}},
		{"at the end", func(g *Group, free chan struct{}) error {
			return g.Do(func(r int) error {
				if r == 1 {
					<-free
				}
				return nil
			})
		}, []string{"rank 1 of 3 did not end a pass within 60ms of the others"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := openBare(t, 3, Options{Timeout: 60 * time.Millisecond})
				free := make(chan struct{})
				begun := time.Now()
				err := c.f(g, free)
				wantLost(t, c.name, err, c.says...)
				wantLost(t, "afterwards", g.Do(func(int) error { return nil }), c.says...)
				if took := time.Since(begun); took < 60*time.Millisecond || took > 200*time.Millisecond {
					t.Errorf("took %v", took)
				}
				close(free)
			})
		})
	}
}

// Close does not wait forever for a rank that hangs, and reports that the rank was not closed.
func TestCloseLeavesARankThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openBare(t, 2, Options{Timeout: 20 * time.Millisecond})
		free := make(chan struct{})
		wantLost(t, "a hang", g.Do(func(r int) error {
			if r == 1 {
				<-free
			}
			return nil
		}))
		if err := g.Close(); err == nil || !strings.Contains(err.Error(), "rank 1 of 2 (ref) does not stop") {
			t.Errorf("Close returned %v", err)
		}
		close(free)
	})
}

// unclosed is a device whose Close fails.
type unclosed struct {
	kernel.Device
	err error
}

func (d unclosed) Close() error { return d.err }

// The error of Close names every rank that was not closed, at each call.
func TestCloseNamesEveryRankThatFails(t *testing.T) {
	first, last := errors.New("first"), errors.New("last")
	g, err := New([]kernel.Device{unclosed{&ref.Device{}, first}, &ref.Device{}, unclosed{&ref.Device{}, last},
		&ref.Device{}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Close(); !errors.Is(err, first) || !errors.Is(err, last) {
			t.Errorf("Close returned %v", err)
		}
	}
}

func TestRanksThatDoNotAgree(t *testing.T) {
	g := open(t, 2, Options{})
	x := tensors(t, g, rand.New(rand.NewPCG(1, 1)), 2, 8)
	err := g.Do(func(r int) error {
		return g.Member(r).Comm.AllReduce(kernel.AllReduceArgs{X: x[r].Slice(0, r+1)})
	})
	wantLost(t, "other shapes", err,
		"rank 0 has reached all-reduce of f32[1,8], but rank 1 has reached all-reduce of f32[2,8]")
}

// If one rank fails and another rank then does not end, the error names the rank that failed.
func TestARankThatFailsIsNamedBeforeThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openBare(t, 2, Options{Timeout: 20 * time.Millisecond})
		free := make(chan struct{})
		defer close(free)
		err := g.Do(func(r int) error {
			if r == 0 {
				<-free
				return nil
			}
			return errFault
		})
		wantLost(t, "a rank that failed", err, "rank 1 of 2", errFault.Error())
	})
}

// The option Compare detects a bit that differs between ranks; without it the result of the first rank is returned.
func TestCompare(t *testing.T) {
	for _, compare := range []bool{false, true} {
		g := open(t, 3, Options{Compare: compare})
		b, err := g.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		x := kernel.Tensor{Buf: b, DType: kernel.F32, Rows: 2, Cols: 8, Stride: 8}
		if err := kernel.WriteF32(g, x, []float32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 16)
		if err := kernel.ReadF32(g, got, x); err != nil || got[2] != 3 {
			t.Fatalf("%v, %v", got, err)
		}
		host.Bytes(on(x, 2))[5] ^= 1
		for name, read := range map[string]func() error{
			"read": func() error { return kernel.ReadF32(g, got, x) },
			"same": func() error { return g.Same(x) },
		} {
			err := read()
			if !compare && name == "read" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			wantLost(t, name, err, "a tensor of 64 bytes: byte 5 is", "rank 2 of 3")
		}
		g.Free(b)
	}
}

// A move of rows is done on all ranks.
func TestRowsMoveOnEveryRank(t *testing.T) {
	g := open(t, 3, Options{Compare: true})
	b, err := g.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free(b)
	x := kernel.Tensor{Buf: b, DType: kernel.I32, Rows: 4, Cols: 1, Stride: 1}
	y, rows := x, x
	y.Off, rows.Off = 64, 128
	for at, v := range map[*kernel.Tensor][]int32{&x: {5, 6, 7, 8}, &rows: {3, 0, 0, 2}} {
		if err := kernel.WriteI32(g, *at, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Take(kernel.TakeArgs{Out: y, X: x, Rows: rows}); err != nil {
		t.Fatal(err)
	}
	if err := g.Copy(kernel.CopyArgs{Out: x, X: y}); err != nil {
		t.Fatal(err)
	}
	got := make([]int32, 4)
	if err := kernel.ReadI32(g, got, x); err != nil || got[0] != 8 || got[1] != 5 || got[3] != 7 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := New(nil, Options{}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a group without ranks: error %v", err)
	}
	g := open(t, 2, Options{})
	x, err := kernel.New(g.Device(0), kernel.BF16, 2, 8)
	if err != nil {
		t.Fatal(err)
	}
	c := g.Member(0).Comm
	half := x
	half.DType = kernel.F16
	if err := c.ReduceScatter(kernel.ReduceScatterArgs{Out: half.Columns(0, 4), X: half}); !errors.Is(err,
		kernel.ErrArgument) {
		t.Errorf("a scattered sum of f16: error %v", err)
	}
	if err := c.ShareRows(kernel.ShareArgs{X: x, Bounds: []int{0, 3, 2}}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("rows beyond the last: error %v", err)
	}
	if err := c.AllReduce(kernel.AllReduceArgs{X: x.Columns(0, 4)}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("rows with gaps: error %v", err)
	}
	if err := c.AllGather(kernel.AllGatherArgs{Out: x, X: x}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a gather of too few columns: error %v", err)
	}
	if err := c.Broadcast(kernel.BroadcastArgs{X: x, From: 2}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a broadcast from a rank that does not exist: error %v", err)
	}
}

// A rank counts as hanging if a single operation takes longer than the timeout. It does not count as hanging while it
// completes operations.
func TestAWatchTellsSlowRanksFromThoseThatHang(t *testing.T) {
	g := open(t, 2, Options{Timeout: time.Nanosecond})
	w := newWatch([]*atomic.Uint64{g.Member(0).Beats, g.Member(1).Beats}, time.Nanosecond)
	first := func(rank int) bool { return rank == 0 }
	w.begin()
	if w.stuck(first) {
		t.Error("stuck returned true at the first check")
	}
	for range 100 {
		g.Member(1).Beats.Add(1)
		if w.stuck(first) {
			t.Fatal("stuck returned true for a rank that makes progress")
		}
	}
	// Reading pages of mapped files during an operation extends the timeout.
	await.True(t, "a rank that stays at one operation is stuck", func() bool { return w.stuck(first) })
	if w.stuck(func(int) bool { return true }) {
		t.Error("stuck returned true although all ranks have arrived")
	}
	w.begin()
	if w.stuck(first) {
		t.Error("stuck returned true at the first check of another wait")
	}
}

// Sums of bf16 are computed in float32, in the order of the ranks, and rounded once.
func TestSumsOfBF16(t *testing.T) {
	const ranks, n = 3, 51
	list, random := Meet(ranks, time.Minute), rand.New(rand.NewPCG(5, 5))
	x, want := make([]kernel.Tensor, ranks), make([]float32, n)
	own := make([]kernel.Tensor, ranks) // each rank holds its columns of the sum
	for r := range x {
		own[r] = kernel.Tensor{Buf: make(kernel.HostBuffer, 2*n/ranks), DType: kernel.BF16, Rows: 1, Cols: n / ranks,
			Stride: n / ranks}
		x[r] = kernel.Tensor{Buf: make(kernel.HostBuffer, 2*n), DType: kernel.BF16, Rows: 1, Cols: n, Stride: n}
		for i := range want {
			v := num.BF16(float32(random.NormFloat64() * math.Exp(random.NormFloat64()*4)))
			if host.U16(x[r])[i] = v; r == 0 {
				want[i] = num.FromBF16(v)
			} else {
				want[i] += num.FromBF16(v)
			}
		}
	}
	var wait sync.WaitGroup
	for r := range x {
		wait.Go(func() {
			if err := errors.Join(list[r].ReduceScatter(kernel.ReduceScatterArgs{Out: own[r], X: x[r]}),
				list[r].AllReduce(kernel.AllReduceArgs{X: x[r]})); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for r := range x {
		for i, v := range want {
			if got := host.U16(x[r])[i]; got != num.BF16(v) {
				t.Fatalf("element %d of rank %d is %#x, want %#x", i, r, got, num.BF16(v))
			}
			if got := host.U16(own[i/(n/ranks)])[i%(n/ranks)]; got != num.BF16(v) {
				t.Fatalf("element %d of the scattered sum is %#x, want %#x", i, got, num.BF16(v))
			}
		}
	}
}
