package host

import (
	"fmt"

	"sparrow/internal/sysmem"
	"sparrow/kernel"
)

// packer copies weights to blocks on huge pages, one after the other, aligned to cache lines. The pages of a mapped
// file are small, and its tensors may be unaligned.
type packer struct {
	block []byte // rest of the current block
}

// packBlock holds many tensors, so that few bytes are lost at the ends of its huge pages.
const packBlock = 64 << 20

// Packed is a memory that prepares weights as copies that are fast to read: on huge pages, on all memory nodes, aligned
// to a cache line.
func Packed() Memory { return Memory{pack: &packer{}} }

// MemoryFor is the memory of a device opened with these options.
func MemoryFor(o kernel.Options) Memory {
	if o.Pack {
		return Packed()
	}
	return Memory{}
}

// CheckPackSpace returns an error if a copy of the weights does not fit in free memory: the system would kill the
// process.
func CheckPackSpace(weights int64) error {
	free := sysmem.Available()
	if free == 0 || weights <= free-free/8 {
		return nil
	}
	const gib = 1 << 30
	return fmt.Errorf("packing copies %.1f GiB of weights and %.1f GiB are free; open the model without Pack "+
		"(--pack), and they are read from their file",
		float64(weights)/gib, float64(free)/gib)
}

// rows copies the rows of a tensor, without what lies between them: columns of a matrix that belong to others.
func (p *packer) rows(t kernel.Tensor) []byte {
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

func (p *packer) copy(data []byte) []byte {
	to := p.take(len(data))
	copy(to, data)
	return to
}

// take is memory for that many bytes.
func (p *packer) take(bytes int) []byte {
	const line = 64
	n := (bytes + line - 1) &^ (line - 1)
	var to []byte
	switch {
	case n > packBlock/4:
		to = aligned(n)
	case n > len(p.block):
		p.block = aligned(packBlock)
		fallthrough
	default:
		to, p.block = p.block[:n], p.block[n:]
	}
	return to[:bytes:bytes]
}
