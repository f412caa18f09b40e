package op

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"sparrow/kernel"
)

// Pages are copied in stream order without waits on the host: after an earlier graph has written them, and before a
// later graph overwrites them.
func TestGPUPagesMoveInOrder(t *testing.T) {
	b := onGPU(t)
	sizes := []int{64 * 656, 64 * 132, 37, 8 << 20} // pages of two streams, an odd one, one that takes long
	var total int64
	set := func() (tensors []kernel.Tensor, content []byte) {
		for _, n := range sizes {
			v := make([]byte, n)
			for i := range v {
				v[i] = byte(b.rng.Uint32())
			}
			tensors, content = append(tensors, b.place(b.gpu, kernel.U8, 1, n, v)), append(content, v...)
		}
		total = int64(len(content))
		return tensors, content
	}
	pages, _ := set()
	one, oneBytes := set()
	other, otherBytes := set()
	before, _ := set()
	after, _ := set()
	// copies captures a graph that copies tensors often enough to run for a while.
	copies := func(to, from []kernel.Tensor, times int) kernel.Graph {
		g, err := b.gpu.Capture(func() error {
			for range times {
				for i := range to {
					if err := b.gpu.Copy(kernel.CopyArgs{Out: to[i], X: from[i]}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		b.must(err)
		t.Cleanup(func() { b.must(g.Close()) })
		return g
	}
	fillOne, fillOther := copies(pages, one, 50), copies(pages, other, 50)
	lookBefore, lookAfter := copies(before, pages, 1), copies(after, pages, 1)
	content := func(list []kernel.Tensor) []byte {
		var all []byte
		for _, x := range list {
			all = append(all, b.bytes(b.gpu, x)...)
		}
		return all
	}
	host, err := b.gpu.HostAlloc(total)
	b.must(err)
	for range 5 {
		clear(host)
		b.must(fillOne.Launch())
		done, err := b.gpu.Collect(host, pages)
		b.must(err)
		b.must(fillOther.Launch(), done.Wait())
		if !bytes.Equal(host, oneBytes) {
			t.Fatal("pages that came out are not those of the graph before")
		}
		b.must(lookBefore.Launch(), kernel.Distribute(b.gpu, pages, host), lookAfter.Launch(), fillOther.Launch(),
			b.gpu.Sync())
		for name, c := range map[string]struct{ got, want []byte }{
			"before they came in": {content(before), otherBytes}, "after they came in": {content(after), oneBytes},
			"in the end": {content(pages), otherBytes},
		} {
			if !bytes.Equal(c.got, c.want) {
				t.Fatalf("the bytes of pages %s changed", name)
			}
		}
	}
	if _, err := b.gpu.Collect(host[:total-1], pages); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("pages that do not fit: %v", err)
	}
	b.must(b.gpu.HostFree(host))
	for name, memory := range map[string][]byte{"freed twice": host, "of Go": make([]byte, 8), "empty": nil} {
		if err := b.gpu.HostFree(slices.Clip(memory)); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("memory that is %s: %v", name, err)
		}
	}
}
