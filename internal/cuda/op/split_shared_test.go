package op

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"sparrow/internal/device/host"
	"sparrow/internal/device/offload"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// sharedWeights returns experts of bf16, e4m3 in blocks of 128 x 128, or e2m1 in groups of 32, with methods that are
// given as letters (splitWeights). The bytes of each tensor differ.
func sharedWeights(t *testing.T, d kernel.DType, experts, hidden, inner int, decode, prefill string) (
	kernel.ExpertWeights, *offload.Host) {
	t.Helper()
	n := byte(0)
	tensor := func(d kernel.DType, rows, cols int) kernel.Tensor {
		n += 3
		return kernel.Tensor{Buf: kernel.HostBuffer(bytes.Repeat([]byte{n}, rows*cols*d.Size())), DType: d, Rows: rows,
			Cols: cols, Stride: cols}
	}
	matrix := func(out, in int) kernel.Weight {
		switch d {
		case kernel.BF16:
			return kernel.Weight{Data: tensor(d, out, in)}
		case kernel.E2M1x2:
			return kernel.Weight{Data: tensor(d, out, in/2), Scale: tensor(kernel.E8M0, out, in/32), BlockRows: 1,
				BlockCols: 32}
		}
		return kernel.Weight{Data: tensor(d, out, in), Scale: tensor(kernel.F32, (out+127)/128, (in+127)/128),
			BlockRows: 128, BlockCols: 128}
	}
	w := splitWeights(experts, hidden, inner, decode, prefill, nil)
	for e := range experts {
		w.Gate[e], w.Up[e], w.Down[e] = matrix(inner, hidden), matrix(inner, hidden), matrix(hidden, inner)
	}
	w.Shared = true
	h, err := offload.New(cpu.Open(vec.Best(), kernel.Options{Workers: 1, Pack: true}), offload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.Host, err = h.Prepare(3, w); err != nil {
		t.Fatal(err)
	}
	return w, h
}

// Experts that the host computes for decode rows are fetched for prompt rows from the copy of the host: each address
// has the bytes of its tensor, also after experts were moved, and host memory has no second copy.
func TestSharedExpertsAreFetchedFromTheCopyOfTheHost(t *testing.T) {
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3, kernel.E2M1x2} {
		d := withoutGPU(t)
		w, h := sharedWeights(t, kind, 12, 256, 128, "rrcccccccccc", "rrfffffffffc")
		w.Movable = true
		var err error
		if w.Host, err = h.Prepare(3, w); err != nil { // the host keeps the weights of movable experts
			t.Fatal(err)
		}
		x, err := d.PrepareExperts(w)
		if err != nil {
			t.Fatal(err)
		}
		s := x.(*experts).split
		check := func(when string, want []int) {
			t.Helper()
			if !slices.Equal(s.shared, want) || len(s.stored) != 0 || s.memory != nil {
				t.Fatalf("%v, %s: shared %v, want %v; stored %v", kind, when, s.shared, want, s.stored)
			}
			for i, e := range s.shared {
				for j, m := range []kernel.Weight{w.Gate[e], w.Up[e], w.Down[e]} {
					for k, of := range []kernel.Tensor{m.Data, m.Scale} {
						if !of.Given() {
							continue
						}
						size := plainSizes(x.(*experts).shape)[2*j+k]
						got := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&w.Host.Block()[0]),
							int64(s.sharedAt[i][2*j+k])-int64(d.offload.locked[0].Ptr()))), size)
						if !bytes.Equal(got, host.Bytes(of)) {
							t.Errorf("%v, %s: tensor %d of expert %d differs", kind, when, 2*j+k, e)
						}
					}
				}
			}
		}
		check("prepared", []int{2, 3, 4, 5, 6, 7, 8, 9, 10})
		g := s.groups[1]
		if len(s.groups[0]) != 0 || len(g) != 2 || !g[0].shared || g[0].count != 8 || g[1].count != 1 {
			t.Errorf("%v: groups %+v", kind, s.groups)
		}
		if err := d.SwapExperts(x, 4, 1); err != nil {
			t.Fatal(err)
		}
		check("moved", []int{2, 3, 1, 5, 6, 7, 8, 9, 10})
		table, any := s.slots(1, s.groups[1][0])
		const n = notHere
		if want := []int32{n, 2, 0, 1, n, 3, 4, 5, 6, 7, n, n}; !any || !slices.Equal(table, want) {
			t.Errorf("%v: slots %v, want %v", kind, table, want)
		}
	}
}

// Prompts with shared experts use the copies and launches that the experts need: one copy for a group of adjacent
// experts, otherwise 6 for each expert; two launches to pack an expert, and as with other fetched experts 4 for the
// group and 5 or 4 for the rest.
func TestLaunchesOfSharedExperts(t *testing.T) {
	for _, c := range []struct {
		decode, prefill string
		launches        int64
	}{
		{"rrrrrccccccc", "rrrrrfffffff", 1 + 7*2 + 4 + 5},
		{"ccrcccrcrccc", "cfcfcfcfcfcf", 6*6 + 6*2 + 4 + 4}, // the group has others between; the host computes the rest
	} {
		testLaunchesOfSharedExperts(t, c.decode, c.prefill, c.launches)
	}
}

func testLaunchesOfSharedExperts(t *testing.T, decode, prefill string, want int64) {
	d := withoutGPU(t)
	w, _ := sharedWeights(t, kernel.E4M3, 12, 256, 128, decode, prefill)
	x, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(kind kernel.DType, cols int) kernel.Tensor {
		x, err := kernel.New(d, kind, 4, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	a := kernel.ExpertArgs{Out: tensor(kernel.BF16, 256), X: tensor(kernel.BF16, 256), IDs: tensor(kernel.I32, 2),
		Weights: tensor(kernel.F32, 2), Experts: x, Prompt: 4}
	run := func() error { return errors.Join(d.Do(a), d.settle()) }
	launches := func() int64 { return d.Launches() + d.offload.copies.Launches() }
	for range 3 {
		before := launches()
		if err := run(); err != nil {
			t.Fatal(err)
		}
		if n := launches() - before; n != want {
			t.Errorf("%s, %s: %d launches, want %d", decode, prefill, n, want)
		}
	}
	before := d.offload.copies.Launches()
	g, err := d.Capture(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Launch(), g.Close()); err != nil || d.offload.copies.Launches() != before {
		t.Errorf("a graph uses the stream of copies, or fails: %v", err)
	}
}

// One copy for both methods is refused for types that are converted when they are loaded, and for tensors that the host
// has not stored in its block.
func TestSharedExpertsThatCannotBeFetched(t *testing.T) {
	d := withoutGPU(t)
	w, _ := sharedWeights(t, kernel.E4M3, 6, 256, 128, "rrrccc", "rrrfff")
	w.Down[5] = splitWeights(1, 256, 128, "r", "r", nil).Down[0]
	_, err := d.PrepareExperts(w)
	if !errors.Is(err, kernel.ErrArgument) || !strings.Contains(err.Error(), "store two copies") {
		t.Errorf("an expert in another type: %v", err)
	}
	block := make(kernel.HostBuffer, 64)
	in := kernel.Tensor{Buf: block, Off: 16, DType: kernel.E4M3, Rows: 2, Cols: 8, Stride: 8}
	for _, c := range []struct {
		block []byte
		of    kernel.Tensor
		bytes int64
		at    int64 // -1 for an error
	}{{block, in, 16, 16}, {block, in, 17, -1}, {block[:31], in, 16, -1}, {block[17:], in, 16, -1}, {nil, in, 16, -1},
		{block, kernel.Tensor{Buf: kernel.Repeated{Bytes: 16}, DType: kernel.E4M3, Rows: 2, Cols: 8, Stride: 8}, 16,
			-1}} {
		at, err := offsetIn(c.block, c.of, c.bytes)
		if (err != nil) != (c.at < 0) || err == nil && at != c.at {
			t.Errorf("%s: position %d, %v", fmt.Sprint(len(c.block), c.bytes), at, err)
		}
	}
}
