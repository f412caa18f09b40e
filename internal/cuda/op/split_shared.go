package op

import (
	"fmt"
	"slices"
	"unsafe"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// This file fetches experts for prompt rows from the copy with which the host's workers compute decode rows, so that
// host memory needs no second copy. That copy has the form of the checkpoint: a group is copied to device memory and
// packed there, as when a model is loaded. So the packed bytes are those of a resident expert.

// plainPieces is the number of tensors of an expert: values and scales of gate, up and down, in this order.
const plainPieces = 6

// plainSizes returns the sizes in bytes of the tensors of an expert as a checkpoint stores them: e2m1, bf16 or e4m3.
func plainSizes(s cuda.ExpertShape) [plainPieces]int64 {
	hidden, inner := int64(s.Hidden), int64(s.Inner)
	values, scales := hidden*inner, 4*ceil(hidden, blockSide)*ceil(inner, blockSide)
	switch {
	case s.E2M1:
		values, scales = hidden*inner/2, hidden*inner/packedGroup
	case s.BF16:
		values, scales = 2*hidden*inner, 0
	}
	return [plainPieces]int64{values, scales, values, scales, values, scales}
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }

// plainAt returns the addresses of the tensors of expert i in device memory, each aligned for kernels.
func plainAt(base cuda.Ptr, i int, s cuda.ExpertShape) [plainPieces]cuda.Ptr {
	at := base.Add(int64(i) * plainSize(s))
	var out [plainPieces]cuda.Ptr
	for j, bytes := range plainSizes(s) {
		out[j], at = at, at.Add(aligned256(bytes))
	}
	return out
}

// plainSize returns the bytes between two experts in device memory.
func plainSize(s cuda.ExpertShape) int64 {
	n := int64(0)
	for _, bytes := range plainSizes(s) {
		n += aligned256(bytes)
	}
	return n
}

// lockShared makes the copies of shared experts readable for the copy engine. A dry run has no copies.
func lockShared(d *Device, x *experts, host kernel.HostExperts) error {
	s := x.split
	s.sharedAt = make([][plainPieces]cuda.Ptr, len(s.shared))
	if d.tried || len(s.shared) == 0 {
		return nil
	}
	block := host.Block()
	locked, err := d.gpu.Lock(block)
	if err != nil {
		return fmt.Errorf("%w: locking %d bytes of host memory for experts: %w; keep more experts on the device, or "+
			"raise the limit of locked memory (ulimit -l)", kernel.ErrMemory, len(block), err)
	}
	d.offload.locked = append(d.offload.locked, locked)
	for i, e := range s.shared {
		gate, up, down := host.Stored(e)
		tensors := [plainPieces]kernel.Tensor{gate.Data, gate.Scale, up.Data, up.Scale, down.Data, down.Scale}
		for j, t := range tensors {
			if plainSizes(x.shape)[j] == 0 {
				continue
			}
			at, err := offsetIn(block, t, plainSizes(x.shape)[j])
			if err != nil {
				return fmt.Errorf("expert %d: %w", e, err)
			}
			s.sharedAt[i][j] = locked.Ptr().Add(at)
		}
	}
	return nil
}

// offsetIn returns the position of a tensor in a block of memory.
func offsetIn(block []byte, t kernel.Tensor, want int64) (int64, error) {
	b, ok := t.Buf.(kernel.HostBuffer)
	if !ok || t.Extent() != want || len(block) == 0 {
		return 0, fmt.Errorf("%w: %v is not stored in host memory with %d bytes", kernel.ErrArgument, t, want)
	}
	at := int64(uintptr(unsafe.Pointer(&b[t.Off])) - uintptr(unsafe.Pointer(&block[0])))
	if at < 0 || at+want > int64(len(block)) {
		return 0, fmt.Errorf("%w: %v is outside the memory of the experts on the host", kernel.ErrArgument, t)
	}
	return at, nil
}

// bringShared enqueues the copy of a group of shared experts to device memory, and its packing.
func bringShared(d *Device, s *splitPart, g group) (cuda.PackedExperts, error) {
	o, shape := &d.offload, s.p.shape
	to := packedAt(o.ring, groupSlots, shape)
	plain, copies, h := o.ring.Add(aligned256(packedSize(groupSlots, shape))), d.stream, (*half)(nil)
	if !d.capture && !o.dry {
		var err error
		if h, err = takeHalf(o); err != nil {
			return to, err
		}
		plain, copies = h.at, o.copies
	}
	at, err := copyShared(copies, s.p.split.sharedAt[g.first:g.first+g.count], plain, shape)
	if err != nil {
		return to, err
	}
	if h != nil {
		if err := h.filled(d); err != nil {
			return to, err
		}
	}
	for i := range g.count {
		p := &at[i]
		if err := cuda.PackExpert(d.kernels, d.stream, shape, int32(i), plainMatrix(p[:2], shape.Hidden, shape),
			plainMatrix(p[2:4], shape.Hidden, shape), plainMatrix(p[4:], shape.Inner, shape), to); err != nil {
			return to, err
		}
	}
	if h == nil {
		return to, nil
	}
	return to, h.free.Record(d.stream)
}

// copyShared enqueues the copy of experts to device memory and returns the addresses of their tensors there. The host
// stores experts one after the other, so that a group is usually one copy.
func copyShared(copies *cuda.Stream, from [][plainPieces]cuda.Ptr, to cuda.Ptr, s cuda.ExpertShape) (
	at [groupSlots][plainPieces]cuda.Ptr, err error) {
	first, end, sizes := from[0][0], cuda.Ptr(0), plainSizes(s)
	for _, x := range from {
		for j, p := range x {
			if sizes[j] > 0 {
				first, end = min(first, p), max(end, p.Add(sizes[j]))
			}
		}
	}
	whole := int64(end-first) <= groupSlots*plainSize(s)
	for i, x := range from {
		if at[i] = plainAt(to, i, s); whole {
			for j, p := range x {
				at[i][j] = to.Add(int64(p - first))
			}
			continue
		}
		for j, p := range x {
			if err := copies.CopyFromLocked(at[i][j], p, sizes[j]); err != nil {
				return at, err
			}
		}
	}
	if whole {
		err = copies.CopyFromLocked(to, first, int64(end-first))
	}
	return at, err
}

// plainMatrix returns a matrix with the given number of columns; at has the addresses of its values and scales.
func plainMatrix(at []cuda.Ptr, columns int32, s cuda.ExpertShape) cuda.Matrix {
	group := int64(blockSide)
	if s.E2M1 {
		group = packedGroup
	}
	return cuda.Matrix{Data: at[0], Scales: at[1], Stride: int64(columns), ScaleStride: ceil(int64(columns), group)}
}

// moveShared replaces shared expert in by out, whose copy the host has stored at the same address.
func (s *split) moveShared(in, out int) {
	if i := slices.Index(s.shared, in); i >= 0 {
		s.shared[i] = out
	}
}
