//go:build !purego

package vec

import (
	"unsafe"

	"sparrow/internal/num"
)

// groupArgs are the arguments of kernels that multiply up to four quantised rows of x by weight rows whose scales
// belong to groups. Strides are in bytes.
type groupArgs struct {
	y, x, w                unsafe.Pointer
	scale                  unsafe.Pointer // float32 scales; e4m3 for e2m1 codes
	zero                   int            // bytes from scales to zero points, float32
	ldy, ldx, ldw, ldScale int
	rows                   int       // weight rows; the kernel counts it down
	groups                 int       // groups of a row; a group counts several times if a block holds more than one
	blocks                 int       // blocks of a group; always 1 in kernels of nibbles with AVX-512
	step                   int       // bytes from the scales of a group to those of the next
	index                  [16]int32 // index of the scale of each lane
	middle                 float32   // zero point of codes without a stored zero point
	factor                 float32   // factor of all sums
}

// groupKernels are the kernels of an instruction set, indexed by the number of rows of x minus one.
type groupKernels struct {
	u4, u4Zeros, e2m1, u8, u8Zeros, i8 [4]func(*groupArgs)
	widenF16, widenU8                  func(*vecArgs)
	lanes                              int
	signed                             bool // codes of eight bits are added up as signed numbers
}

// groups512 are the kernels with VNNI, and groups2 those with AVX2.
var (
	groups512 = &groupOps{lanes: 16, depth: 2, mul: groupMul(&groupKernels{lanes: 16,
		u4: [4]func(*groupArgs){groupU41avx512, groupU42avx512, groupU43avx512, groupU44avx512},
		u4Zeros: [4]func(*groupArgs){groupU4Zeros1avx512, groupU4Zeros2avx512, groupU4Zeros3avx512,
			groupU4Zeros4avx512},
		e2m1: [4]func(*groupArgs){groupE2M11avx512, groupE2M12avx512, groupE2M13avx512, groupE2M14avx512},
		u8:   [4]func(*groupArgs){groupU81avx512, groupU82avx512, groupU83avx512, groupU84avx512},
		u8Zeros: [4]func(*groupArgs){groupU8Zeros1avx512, groupU8Zeros2avx512, groupU8Zeros3avx512,
			groupU8Zeros4avx512},
		i8:       [4]func(*groupArgs){groupI81avx512, groupI82avx512, groupI83avx512, groupI84avx512},
		widenF16: widenF16avx512, widenU8: widenU8avx512})}
	groups2 = &groupOps{lanes: 8, depth: 1, mul: groupMul(&groupKernels{lanes: 8, signed: true,
		u4: [4]func(*groupArgs){groupU41avx2, groupU42avx2, groupU43avx2, groupU44avx2},
		u4Zeros: [4]func(*groupArgs){groupU4Zeros1avx2, groupU4Zeros2avx2, groupU4Zeros3avx2,
			groupU4Zeros4avx2},
		e2m1: [4]func(*groupArgs){groupE2M11avx2, groupE2M12avx2, groupE2M13avx2, groupE2M14avx2},
		u8:   [4]func(*groupArgs){groupU81avx2, groupU82avx2, groupU83avx2, groupU84avx2},
		u8Zeros: [4]func(*groupArgs){groupU8Zeros1avx2, groupU8Zeros2avx2, groupU8Zeros3avx2,
			groupU8Zeros4avx2},
		i8:       [4]func(*groupArgs){groupI81avx2, groupI82avx2, groupI83avx2, groupI84avx2},
		widenF16: widenF16avx2, widenU8: widenU8avx2})}
)

// of returns the kernels for weights with the given codes, scales and zero points.
func (g *groupKernels) of(w *GroupWeights) *[4]func(*groupArgs) {
	switch {
	case w.Codes == CodesU4 && w.Zero != nil:
		return &g.u4Zeros
	case w.Codes == CodesU4:
		return &g.u4
	case w.Codes == CodesE2M1:
		return &g.e2m1
	case w.Codes == CodesU8 && w.Zero != nil:
		return &g.u8Zeros
	case w.Codes == CodesU8:
		return &g.u8
	}
	return &g.i8
}

// groupScratch is the memory of one product.
type groupScratch struct {
	args   groupArgs
	vec    vecArgs
	scales []float32 // [rows of a chunk, counts] scales, then as many zero points, then one register of padding
	codes  []byte    // [rows of a chunk, whole blocks], if k is not whole blocks
	e4m3   []byte    // scales of the rows in codes
	y      []float32 // [4, rows of a chunk] results that are added to the output
}

var groupScratches recycler[groupScratch]

// groupMul returns the function that multiplies weight rows chunk by chunk.
func groupMul(g *groupKernels) func(t *Tier, c BlockCut, w GroupWeights) {
	return func(t *Tier, c BlockCut, w GroupWeights) {
		s := groupScratches.get()
		defer func() {
			s.args, s.vec = groupArgs{}, vecArgs{}
			groupScratches.put(s)
		}()
		ops := t.ops.blocks.groups
		k, values := c.X.k, ops.values(c.X.group)
		groups, blocks, lanes := (k+w.Group-1)/w.Group, (k+values-1)/values, g.lanes
		size, whole := w.rowBytes(k), blocks*4*lanes*ops.depth
		a, kernels := &s.args, g.of(&w)
		var count, each int
		if part := values / ops.depth; w.Group < k && w.Group > part && w.Group%values != 0 {
			// A block may belong to two groups: each scale is repeated for every half of a block.
			count, each = (k+part-1)/part, w.Group/part
			a.shape(ops, count, blocks, part, c.X.group)
		} else {
			a.shape(ops, groups, blocks, w.Group, c.X.group)
			count, each = a.repeat(groups, blocks, w.Codes.nibbles() && lanes == 16)
		}
		a.ldx, a.ldScale = c.X.unitBytes(), 4*count
		if a.middle, a.factor = w.middle(); g.signed && !w.Codes.nibbles() {
			a.middle = 0
		}
		narrow := w.Codes == CodesE2M1 // the kernel widens the scales itself
		if narrow {
			a.factor, a.step, a.ldScale = 256*a.factor, values/w.Group, w.LdScale
		}
		chunk := max(1, min(rowsChunk/whole, c.N))
		a.zero = 4 * chunk * count
		sized(&s.scales, 2*chunk*count+lanes)
		for j := 0; j < c.N; j += chunk {
			n := min(chunk, c.N-j)
			data, ld := w.Data[j*w.Ld:], w.Ld
			if size < whole {
				data, ld = paddedRows(&s.codes, data, ld, n, size, whole), whole
			}
			switch {
			case narrow && size < whole:
				a.ldScale = blocks * a.step
				a.scale = at(paddedRows(&s.e4m3, w.Scale[j*w.LdScale:], w.LdScale, n, groups, a.ldScale), 0)
			case narrow:
				a.scale = at(w.Scale, j*w.LdScale)
			default:
				s.widen(t, g, &w, j, n, groups)
				repeated(s.scales, n, groups, count, each)
				if w.Zero != nil {
					repeated(s.scales[a.zero/4:], n, groups, count, each)
				}
				a.scale = at(s.scales, 0)
				w.prefetch(j+n, min(chunk, c.N-j-n), groups)
			}
			for m := c.M0; m < c.M1; m += len(kernels) {
				rows := min(len(kernels), c.M1-m)
				a.rows, a.w, a.ldw = n, at(data, 0), ld
				a.x = at(c.X.unit(m), 0)
				s.run(kernels[rows-1], &c, m, rows, j, n)
			}
		}
	}
}

// shape sets the fields that map scales to blocks.
func (a *groupArgs) shape(o *groupOps, groups, blocks, group, quant int) {
	values := o.values(quant)
	each := max(1, values/group) // scales of a block
	if group >= values {
		each = 1
	}
	a.groups, a.blocks, a.step = (groups+each-1)/each, 1, 4*each
	if group > values {
		a.blocks = min(group/values, blocks)
		if groups == 1 {
			a.blocks = blocks
		}
	}
	for l := range o.lanes {
		a.index[l] = int32(o.dword(l, 0) * dwordValues(quant) * each / values)
	}
}

// repeat divides groups into equal parts, of one block if single is set, so that a row has whole parts. It returns the
// number of scales of a row and how often each scale of a group is repeated.
func (a *groupArgs) repeat(groups, blocks int, single bool) (count, each int) {
	part := 1
	for n := a.blocks; !single && n > 1; n-- {
		if a.blocks%n == 0 && blocks%n == 0 {
			part = n
			break
		}
	}
	switch each = a.blocks / part; {
	case each == 1:
		return groups, 1
	case groups == 1:
		a.step, count, each = 0, 1, 1
	default:
		count = blocks / part
	}
	a.groups, a.blocks = blocks/part, part
	return count, each
}

// repeated turns rows of groups into rows of count scales, in which each scale is repeated.
func repeated(scales []float32, rows, groups, count, each int) {
	for r := rows - 1; r >= 0 && each > 1; r-- {
		to := scales[r*count:][:count]
		for g := groups - 1; g >= 0; g-- {
			v := scales[r*groups+g]
			for i := g * each; i < min(count, (g+1)*each); i++ {
				to[i] = v
			}
		}
	}
}

// prefetch fetches the scales and zero points of n rows, starting at row j, which are widened after the weights of the
// rows before have been read.
func (w *GroupWeights) prefetch(j, n, groups int) {
	if n == 0 {
		return
	}
	size := w.Type.size()
	Prefetch(w.Scale[j*w.LdScale*size:][:((n-1)*w.LdScale+groups)*size])
	if w.Zero != nil {
		Prefetch(w.Zero[j*w.LdZero:][:(n-1)*w.LdZero+groups])
	}
}

// run calls a kernel for rows of x from m on and weight rows from j on.
func (s *groupScratch) run(kernel func(*groupArgs), c *BlockCut, m, rows, j, n int) {
	a := &s.args
	to := c.Y[(m-c.M0)*c.Ldy+j:]
	if !c.Add {
		a.y, a.ldy = at(to, 0), 4*c.Ldy
		runKernel(kernel, a)
		return
	}
	y := sized(&s.y, rows*n)
	a.y, a.ldy = at(y, 0), 4*n
	runKernel(kernel, a)
	for r := range rows {
		for i, v := range y[r*n:][:n] {
			to[r*c.Ldy+i] += v
		}
	}
}

// widen writes the scales and zero points of n rows, starting at row j, as float32.
func (s *groupScratch) widen(t *Tier, g *groupKernels, w *GroupWeights, j, n, groups int) {
	if w.LdScale == groups { // no gaps between rows
		s.widenScales(t, g, w, j, s.scales[:n*groups])
	} else {
		for r := range n {
			s.widenScales(t, g, w, j+r, s.scales[r*groups:][:groups])
		}
	}
	if w.Zero == nil {
		return
	}
	zeros := s.scales[s.args.zero/4:]
	for r := range n {
		to, from := zeros[r*groups:][:groups], w.Zero[(j+r)*w.LdZero:]
		done := s.vecRun(g.widenU8, g.lanes, to, from)
		for i := done; i < groups; i++ {
			to[i] = float32(from[i])
		}
		if g.signed && w.Codes == CodesU8 {
			for i := range to {
				to[i] -= 128
			}
		}
	}
}

// widenScales writes scales, starting at row j, as float32.
func (s *groupScratch) widenScales(t *Tier, g *groupKernels, w *GroupWeights, j int, to []float32) {
	from := w.Scale[j*w.LdScale*w.Type.size():]
	switch w.Type {
	case ScaleF16:
		for i := s.vecRun(g.widenF16, g.lanes, to, from); i < len(to); i++ {
			to[i] = num.FromF16(uint16(from[2*i]) | uint16(from[2*i+1])<<8)
		}
	default:
		widenScales(t, to, w, j, 1)
	}
}

// vecRun widens the numbers that fill whole registers and returns how many it has widened.
func (s *groupScratch) vecRun(kernel func(*vecArgs), lanes int, to []float32, from []byte) int {
	if s.vec.steps = len(to) / lanes; s.vec.steps == 0 {
		return 0
	}
	s.vec.dst, s.vec.a = at(to, 0), at(from, 0)
	runKernel(kernel, &s.vec)
	return len(to) / lanes * lanes
}

// paddedRows copies rows of bytes and pads each with zeros.
func paddedRows(mem *[]byte, codes []byte, ld, rows, size, whole int) []byte {
	if cap(*mem) < rows*whole {
		*mem = make([]byte, rows*whole)
	}
	to := (*mem)[:rows*whole]
	for r := range rows {
		row := to[r*whole:][:whole]
		clear(row[copy(row, codes[r*ld:][:size]):])
	}
	return to
}

// rowBytes returns the number of bytes of a row of k weights.
func (w *GroupWeights) rowBytes(k int) int {
	if w.Codes.nibbles() {
		return k / 2
	}
	return k
}
