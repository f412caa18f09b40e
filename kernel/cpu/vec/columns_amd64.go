//go:build !purego

package vec

import "unsafe"

// packColumns packs a group of float32 rows. Where rows are missing the group's
// first is packed again: nobody reads those columns.
func packColumns(c *Columns, g int, x []float32, ldx int) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	a := &ts.pack
	first := g * c.rows
	for r := range c.rows {
		if row := first + r; row < c.m {
			a.rows[r] = at(x, row*ldx)
		} else {
			a.rows[r] = a.rows[0]
		}
	}
	c.run(a, c.kernel(), g, 4)
}

// packGathered is packColumns for rows in any order.
func packGathered(c *Columns, g int, x []float32, ldx int, index []int32) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	a := &ts.pack
	for r := range c.rows {
		a.rows[r] = at(x, 0)
		if r < len(index) && index[r] >= 0 {
			a.rows[r] = at(x, int(index[r])*ldx)
		}
	}
	c.run(a, c.kernel(), g, 4)
}

// kernel packs a group of float32.
func (c *Columns) kernel() func(*packArgs) {
	if c.rows == 1 {
		return packOne
	}
	return packEight
}

// packColumnsBF16 is packColumns for bfloat16.
func packColumnsBF16(c *Columns, g int, x []byte, ldx int) {
	ts := tileScratches.get()
	defer tileScratches.put(ts)
	a := &ts.pack
	first := g * c.rows
	for r := range c.rows {
		if row := first + r; row < c.m {
			a.rows[r] = at(x, 2*row*ldx)
		} else {
			a.rows[r] = a.rows[0]
		}
	}
	c.run(a, packPlain, g, 2)
}

// packSteps is the steps of one call: a few microseconds.
const packSteps = 128

// run packs all steps of a group from rows whose elements have size bytes.
func (c *Columns) run(a *packArgs, kernel func(*packArgs), g, size int) {
	steps := c.steps()
	for s := 0; s < steps; s += packSteps {
		a.columns = at(c.mem[:cap(c.mem)], g*c.groupBytes()+s*16*c.lineBytes())
		a.steps = min(packSteps, steps-s)
		a.mask = 1<<stepDepth - 1
		if rest := c.k - stepDepth*(s+a.steps-1); rest < stepDepth {
			a.mask = 1<<rest - 1
		}
		runPack(kernel, a)
		for r := range a.rows[:c.rows] {
			a.rows[r] = skip(a.rows[r], size*stepDepth*a.steps, s+a.steps < steps)
		}
	}
	a.rows, a.columns = [16]unsafe.Pointer{}, nil
}

// skip moves p on by n bytes where more follows.
func skip(p unsafe.Pointer, n int, more bool) unsafe.Pointer {
	if !more {
		return p
	}
	// In bounds: the row has elements beyond these n bytes.
	return unsafe.Add(p, n)
}
