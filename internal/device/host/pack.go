package host

import (
	"fmt"
	"runtime"

	"sparrow/internal/numa"
	"sparrow/internal/sysmem"
	"sparrow/kernel"
)

// packer copies weights to blocks of memory on huge pages, aligned to cache lines. Mapped files have small pages, and
// their tensors may be unaligned.
type packer struct {
	block []byte       // unused rest of the current block
	nodes *numa.Layout // nil if blocks are spread over all memory nodes
}

// packLine is the alignment of packed weights, in bytes: a cache line.
const packLine = 64

// packBlock is the size of a block; it holds many tensors, so that few bytes are lost at the ends of its huge pages.
const packBlock = 64 << 20

// Packed returns a memory that prepares weights as copies that are fast to read: on huge pages, distributed over all
// memory nodes, aligned to a cache line.
func Packed() Memory { return Memory{pack: &packer{}} }

// PackedOn is like Packed, and places the rows of every weight on the memory node of the workers that read them.
func PackedOn(nodes *numa.Layout) Memory { return Memory{pack: &packer{nodes: nodes}} }

// MemoryFor returns the memory of a device with these options.
func MemoryFor(o kernel.Options) Memory {
	if o.Pack {
		return Packed()
	}
	return Memory{}
}

// CheckPackSpace returns an error if a copy of the weights does not fit in free memory: otherwise the system would kill
// the process later.
func CheckPackSpace(weights int64) error {
	free := sysmem.Available()
	if free == 0 || weights <= free-free/8 {
		return nil
	}
	const gib = 1 << 30
	return fmt.Errorf("packing copies %.1f GiB of weights, but %.1f GiB are free; open the model without Pack "+
		"(--pack) to read the weights from their file",
		float64(weights)/gib, float64(free)/gib)
}

// rows copies the rows of a tensor, without the memory between them, which may belong to columns of another matrix.
func (p *packer) rows(t kernel.Tensor) []byte {
	if p.nodes != nil {
		return p.divided(t)
	}
	if t.Rows < 2 || t.Stride == t.Cols {
		return p.copy(Bytes(t))
	}
	each := t.Cols * t.DType.Size()
	to := p.take(t.Rows * each)
	for r := range t.Rows {
		copy(to[r*each:], Bytes(t.Slice(r, r+1)))
	}
	return to
}

// divided copies the rows of a tensor so that pages are allocated on the node of the workers that read them. A page is
// allocated on the node of the thread that first writes it. A page at the border between two nodes' rows is on one of
// the two nodes.
func (p *packer) divided(t kernel.Tensor) []byte {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	each := t.Cols * t.DType.Size()
	to := p.take(t.Rows * each)
	for i, n := range p.nodes.Nodes {
		first, end := p.nodes.Rows(t.Rows, i)
		// The error is ignored: numa.Several has tested that the system allows this, and without it the copy is only
		// slower to read.
		_ = p.nodes.Prefer(n.ID)
		for r := first; r < end; r++ {
			copy(to[r*each:][:each], Bytes(t.Slice(r, r+1)))
		}
	}
	_ = p.nodes.Prefer(-1)
	return to
}

func (p *packer) copy(data []byte) []byte {
	to := p.take(len(data))
	copy(to, data)
	return to
}

// take returns memory for the given number of bytes.
func (p *packer) take(bytes int) []byte {
	n := (bytes + packLine - 1) &^ (packLine - 1)
	var to []byte
	switch {
	case n > len(p.block) && n > packBlock/4:
		to = p.allocate(n)
	case n > len(p.block):
		p.block = p.allocate(packBlock)
		fallthrough
	default:
		to, p.block = p.block[:n], p.block[n:]
	}
	return to[:bytes:bytes]
}

// oneBlock returns a packer with a block of the given number of bytes; p may be nil.
func (p *packer) oneBlock(bytes int64) *packer {
	one := &packer{}
	if p != nil {
		one.nodes = p.nodes
	}
	one.block = one.allocate(int(bytes))
	return one
}

// allocate returns a block of memory on huge pages.
func (p *packer) allocate(bytes int) []byte {
	if p.nodes == nil {
		return aligned(bytes)
	}
	b := lines(bytes)
	requestHuge(b)
	return b
}
