package host

import (
	"fmt"

	"sparrow/internal/sysmem"
	"sparrow/kernel"
)

// packer copies weights to memory of its own, one behind the other on cache lines, in blocks that lie on huge pages.
// A file's pages are small, and its tensors begin anywhere.
type packer struct {
	block []byte // what is left of the block at hand
}

// packBlock holds many tensors, so that few huge pages are cut off at its ends.
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

// RoomToPack refuses to copy weights that do not fit in what the machine has free: the copy would end the process.
func RoomToPack(weights int64) error {
	free := sysmem.Available()
	if free == 0 || weights <= free-free/8 {
		return nil
	}
	const gib = 1 << 30
	return fmt.Errorf("packing copies %.1f GiB of weights and %.1f GiB are free; open the model without Pack "+
		"(--pack), and they are read from their file",
		float64(weights)/gib, float64(free)/gib)
}

func (p *packer) copy(data []byte) []byte {
	const line = 64
	n := (len(data) + line - 1) &^ (line - 1)
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
	copy(to, data)
	return to[:len(data):len(data)]
}
