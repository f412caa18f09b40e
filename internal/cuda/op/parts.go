package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// heldParts are operations of a layer of DeepSeek-V4 between two products: storing entries and keys, compressing
// groups, storing rows, preparing heads and indexer queries. No part reads or writes memory that another part writes.
// They are delayed until another operation is called, and then run in one launch, together with a norm if that was
// called last.
type heldParts struct {
	args   cuda.PartsArgs
	counts [3]int // number of copies to places, of copies from places, and of rotations
	reads  []kernel.Tensor
	writes []kernel.Tensor
}

// mostAlike is the maximum number of parts of one kind, copies or rotations, in one launch.
const mostAlike = 4

// held reports whether any parts are delayed.
func (p *heldParts) held() bool { return len(p.writes) > 0 }

// apart reports whether an operation can run in parallel with the delayed parts.
func (p *heldParts) apart(reads, writes []kernel.Tensor) bool {
	for _, w := range p.writes {
		for _, t := range reads {
			if meet(w, t) {
				return false
			}
		}
	}
	for _, w := range writes {
		for _, list := range [][]kernel.Tensor{p.reads, p.writes} {
			for _, t := range list {
				if meet(w, t) {
					return false
				}
			}
		}
	}
	return true
}

// addPart is called before a part is delayed, with the tensors that it reads and writes. It first launches all delayed
// operations if one of them is not a part, if they share memory with the new part, or if taken is set: no place for a
// part of this kind is left.
func addPart(d *Device, taken bool, reads, writes []kernel.Tensor) error {
	h := &d.held
	if h.kind != holdNothing || h.routes || taken || !h.parts.apart(reads, writes) {
		if err := d.settle(); err != nil {
			return err
		}
	}
	h.parts.reads, h.parts.writes = append(h.parts.reads, reads...), append(h.parts.writes, writes...)
	return nil
}

// releaseParts launches the parts, together with a norm if one is given.
func releaseParts(d *Device, norm *cuda.NormQuantiseArgs) error {
	p := &d.held.parts
	args := p.args
	if norm != nil {
		args.Norm = *norm
	}
	*p = heldParts{reads: p.reads[:0], writes: p.writes[:0]}
	return cuda.Parts(d.kernels, d.stream, &args)
}

// joinsParts reports whether a norm can run in one launch with the delayed parts.
func joinsParts(d *Device, a *kernel.NormArgs) bool {
	h := &d.held
	return h.kind == holdNothing && !h.routes && h.parts.held() && a.X.Cols <= cuda.PartColumns &&
		h.parts.apart([]kernel.Tensor{a.X}, []kernel.Tensor{a.Out})
}

// meet reports whether two tensors share bytes. Tensors with different columns of the same rows do not.
func meet(a, b kernel.Tensor) bool {
	if !overlap(a, b) {
		return false
	}
	row := stride(a) * int64(a.DType.Size())
	if row != stride(b)*int64(b.DType.Size()) || row == 0 {
		return true
	}
	behind := (int64(at(a)) - int64(at(b))) % row // offset of the start of a's row within b's row
	if behind < 0 {
		behind += row
	}
	return behind < int64(b.Cols*b.DType.Size()) || behind+int64(a.Cols*a.DType.Size()) > row
}
