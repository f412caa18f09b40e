//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

// packColumns packs a piece of float32 rows. If a group is not full, only its existing rows are packed: the columns
// after them are not read.
func packColumns(c *Columns, i int, x []float32, ldx int) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	a := &ts.pack
	first := i / c.chunks() * c.rows
	a.count = min(c.rows, c.m-first)
	for r := range a.count {
		a.rows[r] = at(x, (first+r)*ldx+c.start(i))
	}
	c.run(a, c.kernel(), i)
}

// fillUp uses the first row for each missing row, whose column is not read.
func (a *packArgs) fillUp(rows int) {
	for r := a.count; r < rows; r++ {
		a.rows[r] = a.rows[0]
	}
}

// packGathered is packColumns for the rows that index lists.
func packGathered(c *Columns, i int, x []float32, ldx int, index []int32) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	a := &ts.pack
	a.count = 0
	for _, r := range c.indexOf(i, index) {
		if r < 0 {
			break
		}
		a.rows[a.count] = at(x, int(r)*ldx+c.start(i))
		a.count++
	}
	if c.rest[i] = false; a.count > 0 {
		c.run(a, c.kernel(), i)
	}
}

// packColumnsBF16 is packColumns for bfloat16. For missing rows it packs the first row of the group.
func packColumnsBF16(c *Columns, i int, x []byte, ldx int) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	a := &ts.pack
	first := i / c.chunks() * c.rows
	for r := range c.rows {
		row := first + r
		if row >= c.m {
			row = first
		}
		a.rows[r] = at(x, 2*(row*ldx+c.from(i)))
	}
	c.run(a, packKernels[c.order].plain, i)
}

// from returns the first element along k of piece i. start returns the element from which the kernel reads rows: planes
// depend on whole rows.
func (c *Columns) from(i int) int { return i % c.chunks() * chunkSteps * c.order.depth() }
func (c *Columns) start(i int) int {
	if c.order == Nibbles {
		return 0
	}
	return c.from(i)
}

// kernel returns the kernel that packs float32 rows for these columns.
func (c *Columns) kernel() func(*packArgs) {
	k := &packKernels[c.order]
	switch c.rows {
	case 1:
		return k.one
	case fewRows:
		return k.four
	case halfRows:
		return k.eight
	default:
		return k.sixteen
	}
}

// packKernels is indexed by order.
var packKernels = [...]struct{ one, four, eight, sixteen, plain func(*packArgs) }{
	InOrder: {packOne, packFour, packEight, packSixteen, packPlain},
	Nibbles: {packPlanesOne, packPlanesFour, packPlanesEight, packPlanesSixteen, nil},
	Halves:  {packOneHalves, packFourHalves, packEightHalves, packSixteenHalves, packPlainHalves},
}

// run packs piece i from the rows of a.
func (c *Columns) run(a *packArgs, kernel func(*packArgs), i int) {
	if c.rows < GroupRows {
		a.fillUp(c.rows)
	}
	step := i % c.chunks() * chunkSteps
	a.columns = at(c.mem[:cap(c.mem)], i/c.chunks()*c.groupBytes()+step*c.stepBytes())
	a.steps = min(chunkSteps, c.steps()-step)
	last := c.k - c.order.depth()*(step+a.steps-c.order.turn())
	if c.order == Nibbles {
		for r := range a.lanes {
			a.lanes[r], a.last[r] = math.MaxUint16, uint16(1<<max(0, min(tileSide, last-r*tileSide))-1)
		}
		c.scaleRows(a, i)
	} else {
		a.mask = 1<<min(stepDepth*c.order.turn(), last) - 1
	}
	runKernel(kernel, a)
	c.rest[i] = a.rest != 0
	a.rows, a.columns = [GroupRows]unsafe.Pointer{}, nil
}

// scaleRows computes the exponents of the rows of a. Every piece of a group computes them, and the first piece stores
// them.
func (c *Columns) scaleRows(a *packArgs, i int) {
	a.elements, a.offset = c.k, 4*c.from(i)
	runKernel(planePeaks, a)
	for r := range a.count {
		e := planeExponent(a.peaks[r])
		a.scales[r] = e
		if i%c.chunks() == 0 {
			if a.peaks[r] >= firstNaN {
				e = nan32
			}
			c.exponents[i/c.chunks()*c.rows+r] = -e
		}
	}
	for r := a.count; r < c.rows; r++ {
		a.scales[r] = a.scales[0]
	}
}

// firstNaN is the bit pattern of +Inf; patterns above it are NaN.
const firstNaN = 0x7F800000

var nan32 = float32(math.NaN())

// planeMost is the largest number of two signed digits of eight bits, and planeBits the number of bits of its
// magnitude.
const (
	planeMost = 0x7F7F
	planeBits = 15
)

// planeExponent returns the exponent of the power of two by which a row is multiplied to make integers of two digits
// that are as large as possible. bits is the row's largest magnitude as float32 bits.
func planeExponent(bits uint32) float32 {
	if bits == 0 || bits >= firstNaN {
		return 0
	}
	m, e := math.Frexp(float64(math.Float32frombits(bits)))
	if m*(1<<planeBits) > planeMost {
		e++
	}
	return float32(planeBits - e)
}
