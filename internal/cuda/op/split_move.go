package op

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.ExpertSwapper = (*Device)(nil)

// openStage allocates the memory into which an expert is copied before it replaces another.
func openStage(d *Device, u *upload, s cuda.ExpertShape) (err error) {
	if d.offload.stage == 0 {
		d.offload.stage, err = u.room(packedSize(1, s), 0)
	}
	return err
}

// SwapExperts exchanges the locations of two experts. It first copies the incoming expert to separate memory, and then
// replaces the expert of the workers; an error until then leaves everything unchanged. After that, only an error of the
// driver is possible.
func (d *Device) SwapExperts(x kernel.Experts, in, out int) error {
	p, ok := x.(*experts)
	if !ok || p.split == nil || p.split.weights == nil {
		return fmt.Errorf("%w: cuda: swap experts: the experts were not prepared to be moved", kernel.ErrUnsupported)
	}
	s, o := p.split, &d.offload
	next := s.methods.Clone()
	if err := next.Swap(in, out); err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return err
	}
	kept, slot := slices.Index(s.stored, in), slices.Index(s.resident, out)
	staged := packedAt(o.stage, 1, p.shape)
	if err := stageExpert(d, p, in, kept, staged); err != nil {
		return err
	}
	if o.box != nil && s.host != nil {
		if err := s.host.Swap(in, out); err != nil {
			return err
		}
	}
	s.moveShared(in, out)
	if kept >= 0 {
		if s.memory != nil {
			if err := keep(d.stream, s.memory, len(s.stored), kept, p.at, slot, p.shape); err != nil {
				return halfMoved(err)
			}
		}
		s.stored[kept] = out
	}
	for i, to := range piecesOf(p.at, slot, p.shape) {
		from := piecesOf(staged, 0, p.shape)[i]
		if err := d.stream.CopyOnDevice(to, from, pieceSizes(p.shape)[i]); err != nil {
			return halfMoved(err)
		}
	}
	s.resident[slot], s.methods = in, next
	if err := errors.Join(rewriteTables(d, s), d.Sync()); err != nil {
		return halfMoved(err)
	}
	return nil
}

// stageExpert copies a packed expert to separate memory: from page-locked memory if it is stored there, otherwise
// from the checkpoint.
func stageExpert(d *Device, p *experts, e, kept int, to cuda.PackedExperts) error {
	if kept < 0 {
		w := p.split.weights.Select([]int{e})
		return loaded(d, func(u *upload) error { return u.pack(p, &w, to, nil) })
	}
	from := piecesOf(packedAt(p.split.store, int64(len(p.split.stored)), p.shape), kept, p.shape)
	for i, at := range piecesOf(to, 0, p.shape) {
		if err := d.stream.CopyFromLocked(at, from[i], pieceSizes(p.shape)[i]); err != nil {
			return err
		}
	}
	return d.stream.Sync()
}

// rewriteTables copies the tables of a layer to the memory that graphs read.
func rewriteTables(d *Device, s *split) error {
	write := func(to cuda.Ptr, table []int32) error {
		var bytes []byte
		for _, v := range table {
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(v))
		}
		return d.stream.CopyToDevice(to, bytes)
	}
	for phase, at := range s.tables {
		if err := write(at, s.places(phase)); err != nil {
			return err
		}
		for _, g := range s.groups[phase] {
			table, _ := s.slots(phase, g)
			if err := write(g.table, table); err != nil {
				return err
			}
		}
	}
	return nil
}

// halfMoved returns the error for a move that failed after it had changed memory, so that the weights of an expert are
// undefined.
func halfMoved(err error) error {
	return fmt.Errorf("%w: cuda: an expert was moved only in part: %w", kernel.ErrLost, err)
}
