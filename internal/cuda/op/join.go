package op

import (
	"errors"
	"slices"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.Joiner = (*Device)(nil)

// joined are matrices that are adjacent in memory, so that one product multiplies by all of them.
type joined struct {
	whole   matrix
	members []*matrix
}

// Join moves matrices to adjacent memory, at the end of a load if one is in progress. Matrices that multiply one set of
// rows, or adjacent columns of one tensor (bands.go), are then multiplied in one launch.
func (d *Device) Join(list ...kernel.Matrix) error {
	if d.upload != nil {
		d.upload.joins = append(d.upload.joins, list)
		return nil
	}
	return joinMatrices(d, list)
}

// joinMatrices moves matrices. A block of scales must not span two of them: all except the last matrix must have rows
// in multiples of a block. Matrices that cannot be joined are not moved.
func joinMatrices(d *Device, list []kernel.Matrix) (err error) {
	g := &joined{}
	for i, m := range list {
		w, err := own("join", m)
		if err != nil {
			return err
		}
		side := productSide
		if w.kind == cuda.ProductFP8 {
			side = blockSide
		}
		if f := g.members; w.group != nil || w.turned != 0 || w.role != kernel.Projected || w.stored != w.out ||
			w.packed != "" || w.folded ||
			i > 0 && (w.kind != f[0].kind || w.in != f[0].in || w.exact != f[0].exact ||
				(w.factors != 0) != (f[0].factors != 0)) ||
			i < len(list)-1 && w.out%side != 0 {
			return nil
		}
		g.members = append(g.members, w)
		g.whole.out += w.out
	}
	if len(g.members) < 2 {
		return nil
	}
	f := g.members[0]
	g.whole.role, g.whole.in, g.whole.stored, g.whole.kind, g.whole.exact = f.role, f.in, g.whole.out, f.kind, f.exact
	size := int64(2)
	if f.kind == cuda.ProductFP8 {
		size = 1
		if g.whole.scales, err = gatherPieces(d, g.members, func(w *matrix) (*cuda.Ptr, int64) {
			return &w.scales, 4 * int64((w.out+blockSide-1)/blockSide) * int64((w.in+blockSide-1)/blockSide)
		}); err != nil {
			return err
		}
	}
	if f.factors != 0 {
		if g.whole.factors, err = gatherPieces(d, g.members, func(w *matrix) (*cuda.Ptr, int64) {
			return &w.factors, 4 * int64(w.stored)
		}); err != nil {
			return err
		}
	}
	g.whole.data, err = gatherPieces(d, g.members, func(w *matrix) (*cuda.Ptr, int64) {
		return &w.data, size * int64(w.stored) * int64(w.in)
	})
	for _, w := range g.members {
		w.group = g
	}
	return err
}

// gatherPieces copies a part of each matrix (values or scales) to new memory, without gaps, and frees the old memory.
func gatherPieces(d *Device, list []*matrix, piece func(*matrix) (*cuda.Ptr, int64)) (cuda.Ptr, error) {
	total := int64(0)
	for _, w := range list {
		_, n := piece(w)
		total += n
	}
	to, err := d.gpu.Alloc(total)
	if err != nil {
		return 0, err
	}
	d.weights = append(d.weights, to)
	next := to.Ptr()
	for _, w := range list {
		from, n := piece(w)
		if err := d.stream.CopyOnDevice(next, *from, n); err != nil {
			return 0, err
		}
		old := slices.IndexFunc(d.weights, func(b *cuda.Buffer) bool { return b.Ptr() == *from })
		if old < 0 {
			return 0, errors.New("cuda: join: a matrix has no memory of its own")
		}
		if err := d.weights[old].Free(); err != nil { // waits for the copy
			return 0, err
		}
		d.weights = slices.Delete(d.weights, old, old+1)
		*from, next = next, next.Add(n)
	}
	return to.Ptr(), nil
}

// together returns the number of projections, from the first on, that one product can compute: all members of a group
// in their order, whose outputs are adjacent columns of one tensor. It returns 1 if there is no such group.
func together(to []kernel.Projection) int {
	g := to[0].W.(*matrix).group
	if g == nil || len(to) < len(g.members) {
		return 1
	}
	next := to[0].Out
	for i, w := range g.members {
		out := to[i].Out
		if to[i].W.(*matrix) != w || out.Buf != next.Buf || out.Off != next.Off || out.DType != next.DType ||
			out.Rows != next.Rows || stride(out) != stride(to[0].Out) && out.Rows > 1 {
			return 1
		}
		next.Off += int64(out.Cols) * int64(out.DType.Size())
	}
	if all := g.out(to[0].Out); !direct(all, &g.whole) {
		return 1
	}
	return len(g.members)
}

// out returns the output of all members; first is the output of the first member.
func (g *joined) out(first kernel.Tensor) kernel.Tensor {
	first.Cols = g.whole.out
	return first
}
