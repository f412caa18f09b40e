//go:build !purego

package vec

import (
	"unsafe"

	"sparrow/internal/num"
)

// nibbleArgs are the arguments of kernels that multiply up to four reordered rows of x by e2m1 weight rows. Strides are
// in bytes.
type nibbleArgs struct {
	//lint:ignore U1000 only the assembly uses it
	spill                  [64]byte // 8 lanes: decoded codes of a block
	y, x, w                unsafe.Pointer
	scale                  unsafe.Pointer // float32 scales
	ldy, ldx, ldw, ldScale int
	rows                   int // weight rows; the kernel counts it down
	blocks                 int // blocks of a row, eight registers of x each
}

// nibbleKernels are the kernels of an instruction set for e2m1 weights: products, indexed by the number of rows of x
// minus one; the reordering of x; and the conversion of scales.
type nibbleKernels struct {
	rows   [4]func(*nibbleArgs)
	order  func(*vecArgs)
	scales func(*vecArgs)
	factor float32 // factor of scales
}

// nibbleScratch is the memory of one product with e2m1 weights.
type nibbleScratch struct {
	args   nibbleArgs
	vec    vecArgs
	x      []float32 // [m, kp] in the order of the codes
	row    []float32 // zero-padded row of x before it is reordered
	scales []float32 // [rows of a chunk, kp/32]
	codes  []byte    // [rows of a chunk, kp/2], zero-padded, if k is not whole blocks
}

var nibbleScratches recycler[nibbleScratch]

// matMulFP4 multiplies x by weight rows, chunk by chunk. The rows of x are reordered as the codes are decoded, and
// padded with zeros to whole blocks.
func (s *isa) matMulFP4(p product, w, scale []byte, ldScale int) {
	ns := nibbleScratches.get()
	defer releaseNibbles(ns)
	block := 8 * s.vec.lanes
	kp := (p.k + block - 1) / block * block
	s.orderRows(ns, &p, kp)
	a := &ns.args
	a.blocks = kp / block
	a.ldx, a.ldy, a.ldScale = 4*kp, 4*p.ldy, kp/GroupFP4*4
	chunk := max(1, rowsChunk/(kp/2))
	for j := 0; j < p.n; j += chunk {
		rows := min(chunk, p.n-j)
		s.scalesOf(ns, &p, scale[j*ldScale:], ldScale, rows, kp)
		codes, ldw := w[j*p.ldw:], p.ldw
		if p.k < kp {
			codes, ldw = ns.padded(codes, p.ldw, rows, p.k/2, kp/2), kp/2
		}
		for i := 0; i < p.m; i += len(s.nibbles.rows) {
			m := min(len(s.nibbles.rows), p.m-i)
			a.rows, a.ldw, a.w, a.scale = rows, ldw, at(codes, 0), at(ns.scales, 0)
			a.x, a.y = at(ns.x, i*kp), at(p.y, i*p.ldy+j)
			runKernel(s.nibbles.rows[m-1], a)
		}
	}
}

// orderRows writes the rows of x in the order in which codes are decoded.
func (s *isa) orderRows(ns *nibbleScratch, p *product, kp int) {
	ns.x = sized(&ns.x, p.m*kp)
	a := &ns.vec
	a.steps = kp / (8 * s.vec.lanes)
	for i := range p.m {
		row := p.x[i*p.ldx:][:p.k]
		if p.k < kp {
			ns.row = sized(&ns.row, kp)
			clear(ns.row[copy(ns.row, row):])
			row = ns.row
		}
		a.dst, a.a = at(ns.x, i*kp), at(row, 0)
		runKernel(s.nibbles.order, a)
	}
}

// scalesOf writes the scales of rows as float32, times the factor of the kernels, and zeros for padding.
func (s *isa) scalesOf(ns *nibbleScratch, p *product, scale []byte, ldScale, rows, kp int) {
	groups, ld := (p.k+GroupFP4-1)/GroupFP4, kp/GroupFP4
	ns.scales = sized(&ns.scales, rows*ld)
	a := &ns.vec
	a.steps = groups / s.vec.lanes
	for r := range rows {
		from, to := scale[r*ldScale:][:groups], ns.scales[r*ld:][:ld]
		if a.steps > 0 {
			a.dst, a.a = at(to, 0), at(from, 0)
			runKernel(s.nibbles.scales, a)
		}
		for g := a.steps * s.vec.lanes; g < groups; g++ {
			to[g] = num.FromE8M0(from[g]) * s.nibbles.factor
		}
		clear(to[groups:])
	}
}

// padded copies rows of codes and pads each with zeros.
func (ns *nibbleScratch) padded(codes []byte, ld, rows, size, whole int) []byte {
	if cap(ns.codes) < rows*whole {
		ns.codes = make([]byte, rows*whole)
	}
	to := ns.codes[:rows*whole]
	for r := range rows {
		row := to[r*whole:][:whole]
		clear(row[copy(row, codes[r*ld:][:size]):])
	}
	return to
}

// releaseNibbles drops the pointers into the caller's memory and returns ns.
func releaseNibbles(ns *nibbleScratch) {
	a := &ns.args
	a.y, a.x, a.w, a.scale = nil, nil, nil, nil
	ns.vec.dst, ns.vec.a = nil, nil
	nibbleScratches.put(ns)
}
