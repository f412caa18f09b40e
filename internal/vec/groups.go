package vec

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/num"
)

// Products with weights that are small integers or e2m1 codes, with a scale for each group of a row. x is quantised to
// eight bits with a scale for each 32 values, products are added as integers, and their sums are scaled:
//
//	y = Σ over lanes of (Σ code·x - zero·Σ x) · scale of x · scale of the group
//
// A dword holds eight codes of four bits, or four of eight bits. A lane holds depth adjacent dwords (see groupOps). The
// order of sums depends only on the tier.

// Rows of x for such weights, as [Tier.ResetBlocks] takes them in place of a group: a row is a list of blocks of
//
//	codes    [depth, 2, lanes, 4] int8   nibbles: those of even columns, then of odd ones
//	         [depth, lanes, 4]           bytes: in order
//	scales   [lanes] float32
//	sums     [lanes] float32             of the codes of a lane
//	starts   [lanes] int32               if depth is 2: those sums times the negative default of zero points
const (
	QuantU4    = 128
	QuantE2M1  = 128 + 1
	QuantBytes = 64
)

// quantZero returns the default zero point of weights for which x is quantised so, or 0 for groups of block formats.
func quantZero(quant int) int32 {
	switch quant {
	case QuantU4:
		return zeroU4
	case QuantE2M1:
		return zeroE2M1
	case QuantBytes:
		return zeroU8
	}
	return 0
}

// Codes is the packing of weights whose scales belong to groups.
type Codes uint8

// The codes.
const (
	CodesU4   Codes = iota + 1 // two codes in a byte, the first in the low nibble; the zero point is 8 by default
	CodesE2M1                  // two codes in a byte, the first in the low nibble, with an e4m3 scale for each 16
	CodesU8                    // one code in a byte; the zero point is 128 by default
	CodesI8
)

// nibbles reports whether a byte has two codes.
func (c Codes) nibbles() bool { return c == CodesU4 || c == CodesE2M1 }

// Quant returns the group value with which x is quantised for such weights.
func (c Codes) Quant() int {
	switch c {
	case CodesU4:
		return QuantU4
	case CodesE2M1:
		return QuantE2M1
	}
	return QuantBytes
}

// ScaleType is the type of the scales of groups.
type ScaleType uint8

// The types.
const (
	ScaleF32 ScaleType = iota + 1
	ScaleBF16
	ScaleF16
	ScaleE4M3
)

func (s ScaleType) size() int {
	return [...]int{ScaleF32: 4, ScaleBF16: 2, ScaleF16: 2, ScaleE4M3: 1}[s]
}

// GroupWeights are weight rows whose scales belong to groups of columns.
type GroupWeights struct {
	Codes   Codes
	Group   int    // values that share a scale
	Data    []byte // [N, k]
	Ld      int    // bytes between rows
	Scale   []byte // [N, ceil(k/Group)], not aligned
	Type    ScaleType
	LdScale int     // elements between rows
	Factor  float32 // factor of all scales
	Zero    []byte  // zero points in the shape of Scale; nil if all are the default
	LdZero  int
}

// groupOps holds the functions that a tier implements for weights whose scales belong to groups.
type groupOps struct {
	lanes int
	// depth is the number of dwords of a lane: 1, or 2 of a block of two registers. Four lanes, of 128 bits, hold
	// the dwords of the same 128 bits of each register in order.
	depth int
	mul   func(t *Tier, c BlockCut, w GroupWeights)
}

// Groups reports whether this tier multiplies weights with the given codes, group size and k columns.
func (t *Tier) Groups(c Codes, group, k int) bool {
	if t.ops.blocks == nil || t.ops.blocks.groups == nil {
		return false
	}
	n := t.ops.blocks.groups.values(c.Quant()) / t.ops.blocks.groups.depth
	const most = 8 // scales of a register
	if c == CodesE2M1 {
		return group == 16
	}
	return group >= k || group%n == 0 || n%group == 0 && n/group <= most
}

// values returns the number of values in a block of a row with this quantisation.
func (o *groupOps) values(quant int) int {
	return o.depth * o.lanes * dwordValues(quant)
}

// dwordValues returns the number of values in a dword of codes.
func dwordValues(quant int) int {
	if quant == QuantBytes {
		return 4
	}
	return 8
}

// dword returns which dword of a block is the r-th of lane l.
func (o *groupOps) dword(l, r int) int {
	in := l%4*o.depth + r
	return in/4*o.lanes + l/4*4 + in%4
}

// blockBytes returns the number of bytes of a block of a row.
func (o *groupOps) blockBytes(quant int) int { return o.values(quant) + 4*(1+o.depth)*o.lanes }

// rowBytes returns the number of bytes of a quantised row of k values.
func (o *groupOps) rowBytes(quant, k int) int {
	n := o.values(quant)
	return (k + n - 1) / n * o.blockBytes(quant)
}

// quantGroups writes a row of x as blocks. Values past the end are zeros.
func (o *blockOps) quantGroups(to []byte, x []float32, quant int) {
	mem := quantScratches.get()
	defer quantScratches.put(mem)
	g, k := o.groups, (len(x)+31)/32*32
	plain := BlockRows{m: 1, k: k, group: 32, rows: 1}
	wide := sizedBytes(mem, plain.rowBytes()+4*k)
	q := plain.row(wide)
	if k > len(x) {
		padded := make([]float32, k) // rows of released models are whole groups
		copy(padded, x)
		x = padded
	}
	o.quant(q, x, 32)
	n, each, size := g.values(quant), dwordValues(quant), g.blockBytes(quant)
	zero := quantZero(quant)
	for at := 0; at < k; at += n {
		block, codes := to[:size], q.codes[at:min(at+n, k)]
		if len(codes) < n {
			clear(block)
		}
		for l := range g.lanes {
			first, sum := g.dword(l, 0)*each, int32(0)
			if first >= len(codes) {
				continue
			}
			for r := range g.depth {
				plane := g.lanes * each * r
				if from := g.dword(l, r) * each; from < len(codes) {
					sum += placeDword(block[plane+4*l:], codes[from:][:each], 4*g.lanes)
				}
			}
			lane := block[n+4*l:]
			copy(lane[:4], q.scales[(at+first)/32*4:])
			binary.LittleEndian.PutUint32(lane[4*g.lanes:], math.Float32bits(float32(sum)))
			if g.depth == 2 {
				binary.LittleEndian.PutUint32(lane[8*g.lanes:], uint32(-zero*sum))
			}
		}
		to = to[size:]
	}
}

// placeDword writes the codes of x for a dword of four or eight weights and returns their sum. Those of odd columns of
// eight are odd bytes away.
func placeDword(to, codes []byte, odd int) int32 {
	if len(codes) == 4 {
		of := (*[4]byte)(codes)
		copy(to[:4], of[:])
		return int32(int8(of[0])) + int32(int8(of[1])) + int32(int8(of[2])) + int32(int8(of[3]))
	}
	of := (*[8]byte)(codes)
	a, b := (*[4]byte)(to), (*[4]byte)(to[odd:])
	*a, *b = [4]byte{of[0], of[2], of[4], of[6]}, [4]byte{of[1], of[3], of[5], of[7]}
	return int32(int8(of[0])) + int32(int8(of[1])) + int32(int8(of[2])) + int32(int8(of[3])) +
		int32(int8(of[4])) + int32(int8(of[5])) + int32(int8(of[6])) + int32(int8(of[7]))
}

// MulGroups multiplies quantised rows by weights [N, k] whose scales belong to groups.
func (t *Tier) MulGroups(c BlockCut, w GroupWeights) {
	const method = "MulGroups"
	k := c.X.k
	if c.X.group != w.Codes.Quant() || !t.Groups(w.Codes, w.Group, k) ||
		(w.Codes == CodesE2M1) != (w.Type == ScaleE4M3) {
		panic(fmt.Sprintf("vec: %s: tier %s does not multiply by codes %d in groups of %d with x as "+
			"%d", method, t.Name, w.Codes, w.Group,
			c.X.group))
	}
	if c.M0 < 0 || c.M1 < c.M0 || c.M1 > c.X.m {
		panic(fmt.Sprintf("vec: %s: rows %d to %d are outside the %d rows", method, c.M0, c.M1, c.X.m))
	}
	size, groups := k, (k+w.Group-1)/w.Group
	if w.Codes.nibbles() {
		size = k / 2
	}
	needMatrix(method, "y", len(c.Y), c.M1-c.M0, c.N, c.Ldy)
	needMatrix(method, "w", len(w.Data), c.N, size, w.Ld)
	needMatrix(method, "scale", len(w.Scale)/w.Type.size(), c.N, groups, w.LdScale)
	if w.Zero != nil {
		needMatrix(method, "zero", len(w.Zero), c.N, groups, w.LdZero)
	}
	if c.M0 < c.M1 && c.N > 0 {
		t.ops.blocks.groups.mul(t, c, w)
	}
}

// Zero points of the integers that kernels multiply by x, for codes without stored ones. An e2m1 weight becomes twice
// its value plus 12.
const (
	zeroU4   = 8
	zeroE2M1 = 12
	zeroU8   = 128
)

// middle returns the zero point of the integers that kernels multiply by x, and the factor of the scale.
func (w *GroupWeights) middle() (zero, factor float32) {
	factor = w.Factor
	if factor == 0 {
		factor = 1
	}
	switch w.Codes {
	case CodesU4:
		return zeroU4, factor
	case CodesE2M1:
		return zeroE2M1, factor / 2
	}
	return zeroU8, factor
}

// widenScales writes the scales of row n as float32.
func widenScales(t *Tier, to []float32, w *GroupWeights, n int, factor float32) {
	from := w.Scale[n*w.LdScale*w.Type.size():]
	switch w.Type {
	case ScaleE4M3:
		t.ops.widenE4M3(to, from[:len(to)], factor)
		return
	case ScaleBF16:
		t.ops.widenBF16(to, from[:2*len(to)])
	case ScaleF16:
		for i := range to {
			to[i] = num.FromF16(binary.LittleEndian.Uint16(from[2*i:]))
		}
	default:
		for i := range to {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:]))
		}
	}
	if factor != 1 {
		for i := range to {
			to[i] *= factor
		}
	}
}

// portableGroups is the reference implementation in plain Go.
var portableGroups = &groupOps{lanes: 16, depth: 1, mul: mulGroupsGo}

func mulGroupsGo(t *Tier, c BlockCut, w GroupWeights) {
	o, k := t.ops.blocks.groups, c.X.k
	n, groups := o.values(c.X.group), (k+w.Group-1)/w.Group
	scales, codes := make([]float32, groups), make([]int32, (k+n-1)/n*n)
	middle, factor := w.middle()
	for row := range c.N {
		widenScales(t, scales, &w, row, factor)
		w.codes(codes[:k], row)
		for m := c.M0; m < c.M1; m++ {
			y, x := float32(0), c.X.unit(m)
			for lane := range len(codes) * o.lanes / n {
				block, l := lane/o.lanes, lane%o.lanes
				at := x[block*o.blockBytes(c.X.group):]
				first := block*n + l*(n/o.lanes)
				if first >= k {
					break
				}
				g := first / w.Group
				zero := middle
				if w.Zero != nil {
					zero = float32(w.Zero[row*w.LdZero+g])
				}
				float := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(at[i+4*l:])) }
				sum := float32(laneSum(codes[first:], at, l, o.lanes, c.X.group))
				y = fma32(fma32(-zero, float(n+4*o.lanes), sum), scales[g]*float(n), y)
			}
			to := &c.Y[(m-c.M0)*c.Ldy+row]
			if c.Add {
				y += *to
			}
			*to = y
		}
	}
}

// laneSum returns the sum of the products of lane l. codes holds the weights as integers (see GroupWeights.codes), and
// block holds the values of x.
func laneSum(codes []int32, block []byte, l, lanes, quant int) (sum int32) {
	for i := range 4 {
		if quant == QuantBytes {
			sum += codes[i] * int32(int8(block[4*l+i]))
			continue
		}
		sum += codes[2*i]*int32(int8(block[4*l+i])) + codes[2*i+1]*int32(int8(block[4*(lanes+l)+i]))
	}
	return sum
}

// codes writes the weights of a row to `to` as integers from 0 to 255, which kernels multiply by x: raw codes, e2m1
// weights as twice their value plus 12, and signed bytes plus 128.
func (w *GroupWeights) codes(to []int32, row int) {
	for i := range to {
		switch data := w.Data[row*w.Ld:]; w.Codes {
		case CodesU4:
			to[i] = int32(data[i/2] >> (i % 2 * 4) & 15)
		case CodesE2M1:
			to[i] = 12 + twiceE2M1[data[i/2]>>(i%2*4)&15]
		case CodesU8:
			to[i] = int32(data[i])
		default:
			to[i] = int32(data[i] ^ 0x80)
		}
	}
}
