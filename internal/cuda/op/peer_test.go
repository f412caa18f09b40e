package op

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sparrow/internal/testkit/launches"
	tables "sparrow/internal/testkit/table"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// The tests of this file check these invariants: ranks on GPUs launch their exchanges on their own streams; large
// exchanges are divided into pieces that fit the exchange buffers; errors name unsupported arguments.

// peers returns n ranks that are detached devices of one GPU, with their collectives.
func peers(t *testing.T, n int) ([]*Device, []kernel.Collective) {
	t.Helper()
	var devs []*Device
	var all []kernel.Device
	for range n {
		d := detached(t)
		devs, all = append(devs, d), append(all, d)
	}
	list, err := devs[0].Peers(all, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return devs, list
}

func TestExchangesOfRanks(t *testing.T) {
	devs, list := peers(t, 3)
	tensor := func(d kernel.DType, rows, cols int) kernel.Tensor {
		x, err := kernel.New(devs[1], d, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct {
		name     string
		run      func(kernel.Collective) error
		launches int64
		says     string // expected text of the error
	}{
		{"a sum", func(c kernel.Collective) error {
			return c.AllReduce(kernel.AllReduceArgs{X: tensor(kernel.BF16, 3, 7168)})
		}, 1, ""},
		{"a sum of 40 MiB", func(c kernel.Collective) error {
			return c.AllReduce(kernel.AllReduceArgs{X: tensor(kernel.F32, 1280, 8192)})
		}, 3, ""},
		{"a sum of 12 bytes", func(c kernel.Collective) error {
			return c.AllReduce(kernel.AllReduceArgs{X: tensor(kernel.F32, 1, 3)})
		}, 0, "12 bytes, want a multiple of 16"},
		{"logits", func(c kernel.Collective) error {
			return c.AllGather(kernel.AllGatherArgs{Out: tensor(kernel.F32, 5, 96), X: tensor(kernel.F32, 5, 32)})
		}, 1, ""},
		{"logits of 20 MiB", func(c kernel.Collective) error {
			return c.AllGather(kernel.AllGatherArgs{Out: tensor(kernel.F32, 320, 3*16384),
				X: tensor(kernel.F32, 320, 16384)})
		}, 2, ""},
		{"narrow logits", func(c kernel.Collective) error {
			return c.AllGather(kernel.AllGatherArgs{Out: tensor(kernel.F32, 5, 18), X: tensor(kernel.F32, 5, 6)})
		}, 1, ""},
		{"logits of 6 bytes", func(c kernel.Collective) error {
			return c.AllGather(kernel.AllGatherArgs{Out: tensor(kernel.BF16, 5, 9), X: tensor(kernel.BF16, 5, 3)})
		}, 0, "must be multiples of 4"},
		{"rows", func(c kernel.Collective) error {
			return c.ShareRows(kernel.ShareArgs{X: tensor(kernel.BF16, 9, 512), Bounds: []int{0, 0, 7, 9}})
		}, 1, ""},
		{"rows of 36 MiB", func(c kernel.Collective) error {
			return c.ShareRows(kernel.ShareArgs{X: tensor(kernel.BF16, 2304, 8192), Bounds: []int{0, 2304, 2304, 2304}})
		}, 3, ""},
		{"rows of other bounds", func(c kernel.Collective) error {
			return c.ShareRows(kernel.ShareArgs{X: tensor(kernel.BF16, 9, 512), Bounds: []int{0, 7, 9}})
		}, 0, "the bounds are [0 7 9] for 9 rows on 3 ranks"},
		{"a broadcast", func(c kernel.Collective) error {
			return c.Broadcast(kernel.BroadcastArgs{X: tensor(kernel.I32, 7, 1), From: 2})
		}, 1, ""},
		{"a broadcast from rank 3", func(c kernel.Collective) error {
			return c.Broadcast(kernel.BroadcastArgs{X: tensor(kernel.I32, 7, 1), From: 3})
		}, 0, "the root is rank 3, want one of 3"},
		{"a scattered sum", func(c kernel.Collective) error {
			return c.ReduceScatter(kernel.ReduceScatterArgs{Out: tensor(kernel.BF16, 9, 512),
				X: tensor(kernel.BF16, 9, 3*512)})
		}, 1, ""},
		{"a scattered sum of 36 MiB", func(c kernel.Collective) error {
			return c.ReduceScatter(kernel.ReduceScatterArgs{Out: tensor(kernel.F32, 1024, 3072),
				X: tensor(kernel.F32, 1024, 3*3072)})
		}, 3, ""},
		{"a scattered sum of 8 bytes", func(c kernel.Collective) error {
			return c.ReduceScatter(kernel.ReduceScatterArgs{Out: tensor(kernel.F32, 9, 2), X: tensor(kernel.F32, 9, 6)})
		}, 0, "both must be multiples of 16"},
	} {
		before := devs[1].Launches()
		err := c.run(list[1])
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		fills := int64(1) // number of values in the tensors
		if strings.Contains(c.name, "logits") || strings.Contains(c.name, "scattered") {
			fills = 2
		}
		if got := devs[1].Launches() - before - fills; err != nil || got != c.launches {
			t.Errorf("%s: %d launches, want %d; %v", c.name, got, c.launches, err)
		}
	}
}

// Each exchange launches kernels with the arguments that the golden table lists, for tensors whose rows are adjacent
// and for tensors whose rows are apart.
func TestTableOfExchanges(t *testing.T) {
	devs, list := peers(t, 3)
	var lines []string
	for _, gap := range []int{0, 64} {
		tensor := func(d kernel.DType, rows, cols int) kernel.Tensor {
			x, err := kernel.New(devs[1], d, rows, cols+gap)
			if err != nil {
				t.Fatal(err)
			}
			return x.Columns(0, cols)
		}
		for _, c := range []struct {
			name string
			run  func(c kernel.Collective) error
		}{
			{"sum", func(c kernel.Collective) error {
				return c.AllReduce(kernel.AllReduceArgs{X: tensor(kernel.F32, 3000, 4096)})
			}},
			{"logits", func(c kernel.Collective) error {
				return c.AllGather(kernel.AllGatherArgs{Out: tensor(kernel.F32, 320, 3*16384),
					X: tensor(kernel.F32, 320, 16384)})
			}},
			{"narrow logits", func(c kernel.Collective) error {
				return c.AllGather(kernel.AllGatherArgs{Out: tensor(kernel.F32, 5, 18), X: tensor(kernel.F32, 5, 6)})
			}},
			{"rows", func(c kernel.Collective) error {
				return c.ShareRows(kernel.ShareArgs{X: tensor(kernel.BF16, 2304, 8192),
					Bounds: []int{0, 4, 2000, 2304}})
			}},
			{"broadcast", func(c kernel.Collective) error {
				return c.Broadcast(kernel.BroadcastArgs{X: tensor(kernel.I32, 7, 4), From: 2})
			}},
			{"scattered sum", func(c kernel.Collective) error {
				return c.ReduceScatter(kernel.ReduceScatterArgs{Out: tensor(kernel.BF16, 2000, 3072),
					X: tensor(kernel.BF16, 2000, 3*3072)})
			}},
			{"scattered sum of no rows", func(c kernel.Collective) error {
				return c.ReduceScatter(kernel.ReduceScatterArgs{Out: tensor(kernel.BF16, 1, 32).Slice(0, 0),
					X: tensor(kernel.BF16, 1, 96).Slice(0, 0)})
			}},
		} {
			lines = append(lines, fmt.Sprintf("%s, %d values between rows", c.name, gap))
			numbers := map[cuda.Ptr]int{}
			devs[1].gpu.Watch(func(kernel string, l cuda.Launch, args any) {
				if args != nil {
					lines = append(lines, fmt.Sprint("  ", kernel, " ", l.Grid, launches.Fields(args, numbers)))
				}
			})
			if err := c.run(list[1]); err != nil {
				lines = append(lines, "  refused "+tables.Facts(err.Error()))
			}
			devs[1].gpu.Watch(nil)
		}
	}
	tables.Check(t, "exchanges.txt", lines)
}

// A missing rank is named by the next wait, not by an earlier call.
func TestAMissingRankIsNamed(t *testing.T) {
	devs, _ := peers(t, 2)
	if err := devs[1].Sync(); err != nil {
		t.Fatal(err)
	}
	err := faulted(devs[1], []byte{0, 0, 0, 0, 1, 0, 0, 0})
	if !errors.Is(err, kernel.ErrLost) || !strings.Contains(err.Error(), "rank 0 of 2 did not reach") ||
		!strings.Contains(err.Error(), "rank 1 waited") {
		t.Errorf("got %v", err)
	}
}

func TestPeersAreGPUsThatAreOpenedOnce(t *testing.T) {
	d := detached(t)
	if _, err := d.Peers([]kernel.Device{d, d}, 0); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("one device twice: %v", err)
	}
	var many []kernel.Device
	for range cuda.MaxRanks + 1 {
		many = append(many, d)
	}
	if _, err := d.Peers(many, 0); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("nine ranks: %v", err)
	}
}

// The local indices of a rank's experts and tokens are computed in one additional launch; an index that no rank holds
// raises a fault on the GPU.
func TestPartsOfTablesAndExperts(t *testing.T) {
	d := detached(t)
	host := func(kind kernel.DType, rows, cols int) kernel.Tensor {
		return kernel.Tensor{Buf: make(kernel.HostBuffer, rows*cols*kind.Size()), DType: kind, Rows: rows, Cols: cols,
			Stride: cols}
	}
	var w kernel.ExpertWeights
	for range 4 {
		m := kernel.Weight{Data: host(kernel.BF16, 128, 128)}
		w.Gate, w.Up, w.Down = append(w.Gate, m), append(w.Up, m), append(w.Down, m)
	}
	x, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.Prepare(kernel.Weight{Data: host(kernel.BF16, 64, 128)}, kernel.LookedUp)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(kind kernel.DType, rows, cols int) kernel.Tensor {
		out, err := kernel.New(d, kind, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	rows, ids, weights := tensor(kernel.BF16, 5, 128), tensor(kernel.I32, 5, 2), tensor(kernel.F32, 5, 2)
	out := tensor(kernel.BF16, 5, 128)
	count := func(f func() error) int64 {
		t.Helper()
		before := d.Launches()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if err := d.settle(); err != nil {
			t.Fatal(err)
		}
		return d.Launches() - before
	}
	experts := func(p kernel.Part) int64 {
		return count(func() error {
			return d.Do(kernel.ExpertArgs{Out: out, X: rows, IDs: ids, Weights: weights, Experts: x, Part: p})
		})
	}
	if whole, part := experts(kernel.Part{}), experts(kernel.Part{First: 4, Of: 16}); part != whole+1 {
		t.Errorf("experts: %d launches of a part, %d of all", part, whole)
	}
	embed := func(p kernel.Part) int64 {
		return count(func() error {
			return d.Do(kernel.EmbedArgs{Out: out, Table: table, IDs: ids.Columns(0, 1), Part: p})
		})
	}
	if whole, part := embed(kernel.Part{}), embed(kernel.Part{First: 64, Of: 256}); part != whole+1 {
		t.Errorf("embed: %d launches of a part, %d of all", part, whole)
	}
	if _, busy := d.scratch.Held(); busy != 0 {
		t.Errorf("%d bytes of scratch memory are not given back", busy)
	}
}
