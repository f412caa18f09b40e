package group

import (
	"bytes"
	"errors"
	"fmt"

	"sparrow/kernel"
)

// buffer is a buffer of each rank, all of one size.
type buffer []kernel.Buffer

func (b buffer) Len() int64 { return b[0].Len() }

// Join is the buffers of all ranks as one: writes go to all of them, reads come from the first.
func Join(ranks []kernel.Buffer) kernel.Buffer { return buffer(ranks) }

// Of is a rank's part of a buffer of the group; a buffer without memory is that of every rank.
func Of(b kernel.Buffer, rank int) kernel.Buffer {
	if all, ok := b.(buffer); ok {
		return all[rank]
	}
	return b
}

// on is a rank's part of a tensor of the group.
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

// Write writes the same bytes on every rank.
func (g *Group) Write(dst kernel.Tensor, src []byte) error {
	return g.each(func(i int, d kernel.Device) error { return d.Write(on(dst, i), src) })
}

// Read reads from the first rank.
func (g *Group) Read(dst []byte, src kernel.Tensor) error {
	if err := g.ranks[0].dev.Read(dst, on(src, 0)); err != nil {
		return fmt.Errorf("%s: %w", g.describe(0), err)
	}
	if !g.opts.Compare {
		return nil
	}
	return g.compare(dst, src)
}

// Compares reports whether ranks are to be compared.
func (g *Group) Compares() bool { return g.opts.Compare }

// Same refuses tensors without gaps whose bytes differ between ranks.
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

// compare refuses bytes of other ranks that differ from those of the first.
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
		return fmt.Errorf("%w: byte %d of %d is %#x on rank 0 and %#x on %s; ranks must have the same bits",
			kernel.ErrLost, at, len(first), first[at], other[at], g.describe(i))
	}
	return nil
}

// Fetch reads from the first rank. It does not compare: a block of results has bytes between them that mean nothing.
func (g *Group) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	e, err := g.ranks[0].dev.Fetch(dst, on(src, 0))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.describe(0), err)
	}
	return e, nil
}

// Copy copies a tensor on every rank.
func (g *Group) Copy(a kernel.CopyArgs) error {
	return g.each(func(i int, d kernel.Device) error {
		return d.Copy(kernel.CopyArgs{Out: on(a.Out, i), X: on(a.X, i)})
	})
}

// Take picks rows on every rank.
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

// MemoryFree is a rank's share of the machine's memory: ranks on CPUs have it together.
func (g *Group) MemoryFree() (free, total int64, err error) {
	free, total, err = kernel.MemoryFree(g.ranks[0].dev)
	n := int64(len(g.ranks))
	return free / n, total / n, err
}
