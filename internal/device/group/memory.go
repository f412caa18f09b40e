package group

import (
	"bytes"
	"errors"
	"fmt"

	"sparrow/kernel"
)

// buffer holds one buffer of each rank, all of equal size.
type buffer []kernel.Buffer

func (b buffer) Len() int64 { return b[0].Len() }

// Join returns the buffers of all ranks as one: writes go to all ranks, reads come from the first rank.
func Join(ranks []kernel.Buffer) kernel.Buffer { return buffer(ranks) }

// single is a buffer on one rank.
type single struct {
	kernel.Buffer
	rank int
}

// Alone returns a buffer that only one rank has: writes and reads use that rank's memory.
func Alone(rank int, b kernel.Buffer) kernel.Buffer { return single{b, rank} }

// holders returns the ranks that have a tensor, from first to last: one rank, or all ranks.
func (g *Group) holders(t kernel.Tensor) (first, last int) {
	if s, ok := t.Buf.(single); ok {
		return s.rank, s.rank + 1
	}
	return 0, len(g.ranks)
}

// Of returns a rank's part of a buffer of the group; a buffer without memory belongs to every rank.
func Of(b kernel.Buffer, rank int) kernel.Buffer {
	switch b := b.(type) {
	case buffer:
		return b[rank]
	case single:
		return b.Buffer
	}
	return b
}

// on returns a rank's part of a tensor of the group.
func on(t kernel.Tensor, rank int) kernel.Tensor {
	t.Buf = Of(t.Buf, rank)
	return t
}

// Alloc allocates on every rank.
func (g *Group) Alloc(n int64) (kernel.Buffer, error) {
	all := make(buffer, 0, len(g.ranks))
	for i, r := range g.ranks {
		b, err := r.dev.Alloc(n)
		if err != nil {
			g.Free(all)
			return nil, fmt.Errorf("%s: %w", g.describe(i), err)
		}
		all = append(all, b)
	}
	return all, nil
}

// Free frees on every rank.
func (g *Group) Free(b kernel.Buffer) {
	for i, own := range b.(buffer) {
		g.ranks[i].dev.Free(own)
	}
}

// Write writes the same bytes on every rank that has the tensor.
func (g *Group) Write(dst kernel.Tensor, src []byte) error {
	first, last := g.holders(dst)
	for i := first; i < last; i++ {
		if err := g.ranks[i].dev.Write(on(dst, i), src); err != nil {
			return fmt.Errorf("%s: %w", g.describe(i), err)
		}
	}
	return nil
}

// Read reads from the first rank that has the tensor.
func (g *Group) Read(dst []byte, src kernel.Tensor) error {
	first, last := g.holders(src)
	if err := g.ranks[first].dev.Read(dst, on(src, first)); err != nil {
		return fmt.Errorf("%s: %w", g.describe(first), err)
	}
	if !g.opts.Compare || first+1 == last {
		return nil
	}
	return g.compare(dst, src)
}

// Compares reports whether results of ranks are compared (Options.Compare).
func (g *Group) Compares() bool { return g.opts.Compare }

// Same returns an error if the bytes of a contiguous tensor differ between ranks.
func (g *Group) Same(t kernel.Tensor) error {
	if !t.Given() || t.Rows == 0 {
		return nil
	}
	first := make([]byte, t.Extent())
	if err := g.ranks[0].dev.Read(first, on(t, 0)); err != nil {
		return fmt.Errorf("%s: %w", g.describe(0), err)
	}
	return g.compare(first, t)
}

// compare returns an error if the bytes of other ranks differ from those of the first rank.
func (g *Group) compare(first []byte, src kernel.Tensor) error {
	other := make([]byte, len(first))
	for i := 1; i < len(g.ranks); i++ {
		if err := g.ranks[i].dev.Read(other, on(src, i)); err != nil {
			return fmt.Errorf("%s: %w", g.describe(i), err)
		}
		if bytes.Equal(first, other) {
			continue
		}
		at := 0
		for first[at] == other[at] {
			at++
		}
		return fmt.Errorf("%w: ranks disagree on a tensor of %d bytes: byte %d is %#x on rank 0 and %#x on %s; want "+
			"equal bytes on all ranks", kernel.ErrLost, len(first), at, first[at], other[at], g.describe(i))
	}
	return nil
}

// Fetch reads from the first rank that has the tensor. It does not compare ranks, because a block of results has unused
// bytes between the results.
func (g *Group) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	i, _ := g.holders(src)
	e, err := g.ranks[i].dev.Fetch(dst, on(src, i))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.describe(i), err)
	}
	return e, nil
}

// Copy copies a tensor on every rank.
func (g *Group) Copy(a kernel.CopyArgs) error {
	return g.each(func(i int, d kernel.Device) error {
		return d.Copy(kernel.CopyArgs{Out: on(a.Out, i), X: on(a.X, i)})
	})
}

// Take copies selected rows on every rank.
func (g *Group) Take(a kernel.TakeArgs) error {
	return g.each(func(i int, d kernel.Device) error {
		return d.Take(kernel.TakeArgs{Out: on(a.Out, i), X: on(a.X, i), Rows: on(a.Rows, i)})
	})
}

// each calls f with every rank's device, up to the first error. No rank may be in Do.
func (g *Group) each(f func(i int, d kernel.Device) error) error {
	for i, r := range g.ranks {
		if err := f(i, r.dev); err != nil {
			return fmt.Errorf("%s: %w", g.describe(i), err)
		}
	}
	return nil
}

// Sync waits for every rank.
func (g *Group) Sync() error {
	var all error
	for i, r := range g.ranks {
		if err := r.dev.Sync(); err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", g.describe(i), err))
		}
	}
	return all
}

// MemoryFree returns the smallest free memory of any rank; memory that several ranks use, such as that of the machine,
// is divided among them.
func (g *Group) MemoryFree() (free, total int64, err error) {
	together := map[string]int64{}
	for _, r := range g.ranks {
		together[memoryOf(r.dev)]++
	}
	for i, r := range g.ranks {
		f, t, err := kernel.MemoryFree(r.dev)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", g.describe(i), err)
		}
		n := together[memoryOf(r.dev)]
		if f, t = f/n, t/n; i == 0 || f < free {
			free, total = f, t
		}
	}
	return free, total, nil
}

// memoryOf returns the name of a device's memory: the name of its GPU, or of the machine.
func memoryOf(dev kernel.Device) string {
	if d, ok := dev.(interface{ Describe() string }); ok {
		if _, peer := dev.(kernel.Peer); peer {
			return d.Describe()
		}
	}
	return ""
}
