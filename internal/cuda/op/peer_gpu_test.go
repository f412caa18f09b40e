package op

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	ranked "sparrow/internal/device/group"
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Ranks that are streams of one GPU give bitwise equal results to ranks in host memory, for all five operations, in
// launches and in graphs that run again. Some sizes need several launches.
func TestGPURanksExchangeAsCPUsDo(t *testing.T) {
	onGPU(t)
	for _, ranks := range []int{2, 4, 8} {
		t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) {
			x := newExchange(t, ranks)
			for _, d := range []kernel.DType{kernel.BF16, kernel.F32} {
				for _, shape := range [][2]int{{1, 8}, {1, 7168}, {64, 7168}, {3, 96}, {600, 7168}} {
					x.sums(d, shape[0], shape[1])
				}
			}
			for _, cols := range []int{1, 6, 160, 16160} { // widths of ids, and of narrow and wide parts of logits
				x.gathers(5, cols)
			}
			x.gathers(300, 16160) // more bytes than one exchange holds
			for _, dev := range x.devs {
				if err := dev.Sync(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// exchange holds several ranks on a GPU and the same number of ranks in host memory.
type exchange struct {
	*testing.T
	rng  *rand.Rand
	devs []*Device
	gpu  []kernel.Collective
	cpu  []kernel.Collective
}

func newExchange(t *testing.T, ranks int) *exchange {
	t.Helper()
	x := &exchange{T: t, rng: rand.New(rand.NewPCG(9, uint64(ranks))), cpu: ranked.Meet(ranks, time.Minute)}
	var all []kernel.Device
	for range ranks {
		d, err := Open(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		x.devs, all = append(x.devs, d), append(all, d)
	}
	var err error
	if x.gpu, err = x.devs[0].Peers(all, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	return x
}

// shared is a tensor of every rank, on the GPU and in host memory, with the same values.
type shared struct{ gpu, cpu []kernel.Tensor }

func (x *exchange) tensor(d kernel.DType, rows, cols int) shared {
	x.Helper()
	var s shared
	// Long tensors repeat a shorter one, because generating random values takes longer than exchanging.
	piece := make([]byte, min(rows*cols*d.Size(), 1<<16))
	for r := range x.devs {
		for i := 0; i+d.Size() <= len(piece); i += d.Size() {
			v := float32(x.rng.NormFloat64() * math.Exp(x.rng.NormFloat64()*4))
			switch h := num.BF16(v); d {
			case kernel.BF16:
				piece[i], piece[i+1] = byte(h), byte(h>>8)
			default:
				u := math.Float32bits(v)
				piece[i], piece[i+1], piece[i+2], piece[i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
			}
		}
		all := bytes.Repeat(piece, rows*cols*d.Size()/len(piece)+1)[:rows*cols*d.Size()]
		at, err := kernel.New(x.devs[r], d, rows, cols)
		if err == nil {
			err = x.devs[r].Write(at, all)
		}
		if err != nil {
			x.Fatal(err)
		}
		x.Cleanup(func() { x.devs[r].Free(at.Buf) })
		own := at
		own.Buf, own.Off = kernel.HostBuffer(all), 0
		s.gpu, s.cpu = append(s.gpu, at), append(s.cpu, own)
	}
	return s
}

// do runs an operation on all ranks of both devices and compares one tensor of each rank. The GPU runs it once in
// launches and twice in a graph, each time from equal inputs.
func (x *exchange) do(what string, restore, result shared, run func(c kernel.Collective, rank int, gpu bool) error) {
	x.Helper()
	var before [][]byte
	for _, t := range restore.cpu {
		before = append(before, bytes.Clone(host.Bytes(t)))
	}
	var wait sync.WaitGroup
	for r := range x.cpu {
		wait.Go(func() {
			if err := run(x.cpu[r], r, false); err != nil {
				x.Errorf("%s: rank %d: %v", what, r, err)
			}
		})
	}
	wait.Wait()
	graphs := make([]kernel.Graph, len(x.devs))
	for turn := range 3 {
		for r, d := range x.devs {
			if err := d.Write(restore.gpu[r], before[r]); err != nil {
				x.Fatal(err)
			}
			if err := d.Sync(); err != nil {
				x.Fatal(err)
			}
		}
		for r, d := range x.devs {
			var err error
			switch turn {
			case 0:
				err = run(x.gpu[r], r, true)
			case 1:
				graphs[r], err = d.Capture(func() error { return run(x.gpu[r], r, true) })
			}
			if err != nil {
				x.Fatalf("%s: rank %d: %v", what, r, err)
			}
		}
		for _, g := range graphs {
			if g == nil {
				continue
			}
			if err := g.Launch(); err != nil {
				x.Fatal(err)
			}
		}
		for r, d := range x.devs {
			if err := d.Sync(); err != nil {
				x.Fatalf("%s: rank %d: %v", what, r, err)
			}
		}
		for r, d := range x.devs {
			got := make([]byte, result.gpu[r].Extent())
			if err := d.Read(got, result.gpu[r]); err != nil {
				x.Fatal(err)
			}
			if want := host.Bytes(result.cpu[r]); !bytes.Equal(got, want) {
				at := 0
				for got[at] == want[at] {
					at++
				}
				x.Fatalf("%s on %d ranks, turn %d: byte %d of %d of rank %d is %#x, want %#x", what, len(x.devs), turn,
					at, len(want), r, got[at], want[at])
			}
		}
	}
	for _, g := range graphs {
		if err := g.Close(); err != nil {
			x.Error(err)
		}
	}
}

// on returns a rank's tensor, on the GPU or in host memory.
func (s shared) on(rank int, gpu bool) kernel.Tensor {
	if gpu {
		return s.gpu[rank]
	}
	return s.cpu[rank]
}

func (x *exchange) sums(d kernel.DType, rows, cols int) {
	x.Helper()
	what := fmt.Sprintf("of %v [%d, %d]", d, rows, cols)
	t := x.tensor(d, rows, cols)
	x.do("all-reduce "+what, t, t, func(c kernel.Collective, rank int, gpu bool) error {
		return c.AllReduce(kernel.AllReduceArgs{X: t.on(rank, gpu)})
	})
	wide, own := x.tensor(d, rows, cols*len(x.devs)), x.tensor(d, rows, cols)
	x.do("reduce-scatter "+what, wide, own, func(c kernel.Collective, rank int, gpu bool) error {
		return c.ReduceScatter(kernel.ReduceScatterArgs{Out: own.on(rank, gpu), X: wide.on(rank, gpu)})
	})
}

func (x *exchange) gathers(rows, cols int) {
	x.Helper()
	ranks := len(x.devs)
	what := fmt.Sprintf("of [%d, %d]", rows, cols)
	part, all := x.tensor(kernel.F32, rows, cols), x.tensor(kernel.F32, rows, cols*ranks)
	x.do("all-gather "+what, part, all, func(c kernel.Collective, rank int, gpu bool) error {
		return c.AllGather(kernel.AllGatherArgs{Out: all.on(rank, gpu), X: part.on(rank, gpu)})
	})
	// The first rank has no rows and the last rank has the most rows.
	bounds := make([]int, ranks+1)
	for r := 1; r < ranks; r++ {
		bounds[r] = min(r-1, rows)
	}
	bounds[ranks] = rows
	t := x.tensor(kernel.F32, rows, cols)
	x.do("share of rows "+what, t, t, func(c kernel.Collective, rank int, gpu bool) error {
		return c.ShareRows(kernel.ShareArgs{X: t.on(rank, gpu), Bounds: bounds})
	})
	for _, from := range []int{0, ranks - 1} {
		t := x.tensor(kernel.F32, rows, cols)
		x.do("broadcast "+what, t, t, func(c kernel.Collective, rank int, gpu bool) error {
			return c.Broadcast(kernel.BroadcastArgs{X: t.on(rank, gpu), From: from})
		})
	}
}
