package vec

import (
	"fmt"

	"sparrow/internal/block"
)

// Values of BlockRows.group: the number of values of x that share a scale, for weights of block formats that are
// multiplied by one row of x at a time on every tier. Other formats have groups of 32 and 256 values.
const (
	QuantRows32  = 32 + 1
	QuantRows256 = 256 + 1
)

// BlockGroup returns the number of values of a row of x that share a scale in products with weights of a format, or 0
// for a format without such products.
func BlockGroup(f block.Format) int {
	switch {
	case f == block.Q8_0 || f == block.Q4_0 || f == block.MXFP4:
		return 32
	case f == block.Q4_K || f == block.Q6_K:
		return 256
	case f == block.NVFP4:
		return 0
	case f.Values() == 32:
		return QuantRows32
	}
	return QuantRows256
}

// unpacked reports whether products with a format unpack its blocks first, and take rows of x one at a time.
func unpacked(f block.Format) bool { return BlockGroup(f)%2 != 0 }

// BlockRows is a left factor x [m, k] quantised for products with block formats. The zero value is empty; its memory
// grows to the largest size used.
//
// It consists of units of one row or of sixteen rows. A row has these arrays, each padded to whole lines of 64 bytes:
//
//	codes   [k]              int8
//	scales  [k/group]        float32
//	parts   [k/256, 2, 8]    bfloat16   groups of 256: the sums of 32 codes, each exactly as two numbers
//	sums    [k/32]           int32      groups of 32: the sums of 32 codes
//	        [k/256, 16]      int16      groups of 256: the sums of 16 codes
//	planes  [k/256, 8, 64]   int8       groups of 256, if the tier uses them: codes in orders of its kernels (planes)
//
// Units of sixteen rows have codes, scales and parts, each with the words of the rows interleaved: [words, 16] of four
// bytes.
type BlockRows struct {
	mem   []byte
	m, k  int
	group int // values that share a scale, or QuantU4, QuantE2M1 or QuantBytes
	rows  int // rows of a unit
	bytes int // bytes of a row for weights with scales per group, otherwise 0

	planes *planes // how the array planes is computed, or nil
}

// planes describes the order of the codes in the array planes of a row. fill computes the array from the row's codes.
type planes struct {
	fill func(q quantRow)
}

const lineBytes = 64

// blockRowsOnce is the maximum number of single rows that one kernel multiplies at a time.
const blockRowsOnce = 4

// fewBlockRows is the maximum number of rows of x for which single rows are faster than a unit of sixteen.
const fewBlockRows = 4

// lines returns n bytes rounded up to whole cache lines.
func lines(n int) int { return (n + lineBytes - 1) / lineBytes * lineBytes }

// codesBytes and the following functions return the bytes of a row's arrays.
func (b *BlockRows) codesBytes() int  { return lines(b.k) }
func (b *BlockRows) scalesBytes() int { return lines(4 * b.k / b.group) }

func (b *BlockRows) partsBytes() int {
	if b.group == 32 {
		return 0
	}
	return lines(b.k / 256 * 32)
}

func (b *BlockRows) sumsBytes() int {
	if b.group == 32 {
		return lines(b.k / 32 * 4)
	}
	return lines(b.k / 256 * 32)
}

func (b *BlockRows) planesBytes() int {
	if b.planes == nil {
		return 0
	}
	return lines(2 * b.k)
}

// sumsAt returns the offset of the sums of a row.
func (b *BlockRows) sumsAt() int { return b.codesBytes() + b.scalesBytes() + b.partsBytes() }

// rowBytes returns the size in bytes of a single row, and unitBytes that of a unit.
func (b *BlockRows) rowBytes() int { return b.sumsAt() + b.sumsBytes() + b.planesBytes() }

func (b *BlockRows) unitBytes() int {
	if b.bytes > 0 {
		return b.bytes
	}
	if b.rows == 1 {
		return b.rowBytes()
	}
	return b.rows * (b.rowBytes() - b.sumsBytes())
}

// Units returns the number of units, which can be filled independently.
func (b *BlockRows) Units() int { return (b.m + b.rows - 1) / max(1, b.rows) }

// unit returns the memory of unit i.
func (b *BlockRows) unit(i int) []byte { return b.mem[i*b.unitBytes():][:b.unitBytes()] }

// row returns the arrays of a row in its memory.
func (b *BlockRows) row(mem []byte) quantRow {
	var q quantRow
	q.codes, mem = mem[:b.codesBytes()], mem[b.codesBytes():]
	q.scales, mem = mem[:b.scalesBytes()], mem[b.scalesBytes():]
	q.parts, mem = mem[:b.partsBytes()], mem[b.partsBytes():]
	q.sums, mem = mem[:b.sumsBytes()], mem[b.sumsBytes():]
	q.planes = mem[:b.planesBytes()]
	return q
}

// quantRow holds the arrays of one row.
type quantRow struct{ codes, scales, parts, sums, planes []byte }

// blockOps holds the functions that a tier implements for products with block formats.
type blockOps struct {
	together int // rows of a unit if there are several rows of x
	quant    func(q quantRow, x []float32, group int)
	planes   *planes // nil for tiers without planes
	// turn interleaves sixteen rows, each of the given number of bytes and ld bytes apart.
	turn func(to, from []byte, ld, bytes int)
	mul  func(c BlockCut, f block.Format, w []byte, ldw int)
	// unpacks reports whether there are kernels for formats whose blocks are unpacked first.
	unpacks bool
	// groups are the products with weights whose scales belong to groups; nil if there are none.
	groups *groupOps
}

// Blocks reports whether this tier has products with block formats.
func (t *Tier) Blocks() bool { return t.ops.blocks != nil }

// SlowBlocks describes how products with a format are computed if that is slow; it is empty for formats with kernels.
func (t *Tier) SlowBlocks(f block.Format) string {
	switch {
	case !t.Blocks() || BlockGroup(f) == 0:
		return "widened to float32 row by row"
	case unpacked(f) && !t.ops.blocks.unpacks:
		return "multiplied without vector instructions"
	}
	return ""
}

// BlockTogether returns the number of quantised rows of a unit if x has several rows. Parts of products begin at a
// unit.
func (t *Tier) BlockTogether() int { return t.ops.blocks.together }

// ResetBlocks allocates memory for m rows of k values with a scale for each group of values; k is a multiple of group.
// If alone is true, rows are multiplied one at a time.
func (t *Tier) ResetBlocks(b *BlockRows, m, k, group int, alone bool) {
	if quantZero(group) != 0 {
		b.m, b.k, b.group, b.rows, b.bytes = m, k, group, 1, t.ops.blocks.groups.rowBytes(group, k)
		b.planes = nil
		if n := m * b.bytes; cap(b.mem) < n {
			b.mem = alignedBytes(n + n/4)
		}
		b.mem = b.mem[:cap(b.mem)]
		return
	}
	b.planes = nil
	if group == QuantRows256 {
		b.planes = t.ops.blocks.planes
	}
	if group == QuantRows32 || group == QuantRows256 {
		group, alone = group-1, true
	}
	if m < 0 || k < 0 || group != 32 && group != 256 || k%group != 0 {
		panic(fmt.Sprintf("vec: BlockRows: the shape is [%d, %d] in groups of %d, want whole groups", m, k, group))
	}
	b.m, b.k, b.group, b.rows, b.bytes = m, k, group, 1, 0
	if m > fewBlockRows && !alone {
		b.rows = t.ops.blocks.together
	}
	// Kernels that take several single rows may also compute rows after the last row, whose results are not stored.
	more := blockRowsOnce - 1
	if n := (b.Units() + more) * b.unitBytes(); cap(b.mem) < n {
		b.mem = alignedBytes(n + n/4)
	}
	b.mem = b.mem[:cap(b.mem)]
	for i := range more {
		clear(b.row(b.unit(b.Units() + i)).scales) // any number is valid, but subnormal numbers would be slow
	}
}

// QuantUnit fills unit i from x [m, k], rows ldx apart.
func (t *Tier) QuantUnit(b *BlockRows, i int, x []float32, ldx int) {
	needMatrix("QuantUnit", "x", len(x), b.m, b.k, ldx)
	t.ops.blocks.quantUnit(b, i, func(r int) []float32 { return x[r*ldx:][:b.k] })
}

// QuantGathered fills unit i; row r of the columns is row index[r] of x [rows, k]. For a negative index the row is
// undefined.
func (t *Tier) QuantGathered(b *BlockRows, i int, x []float32, ldx, rows int, index []int32) {
	needMatrix("QuantGathered", "x", len(x), rows, b.k, ldx)
	needLen("QuantGathered", "index", len(index), b.m)
	t.ops.blocks.quantUnit(b, i, func(r int) []float32 {
		at := int(index[r])
		if at < 0 {
			return nil
		}
		if at >= rows {
			panic(fmt.Sprintf("vec: QuantGathered: row %d is outside the %d rows", at, rows))
		}
		return x[at*ldx:][:b.k]
	})
}

// quantUnit fills a unit from rows of x; row returns nil for rows that do not exist.
func (o *blockOps) quantUnit(b *BlockRows, i int, row func(r int) []float32) {
	if i < 0 || i >= b.Units() {
		panic(fmt.Sprintf("vec: BlockRows: unit %d is outside the %d units", i, b.Units()))
	}
	unit := b.unit(i)
	if b.bytes > 0 {
		if x := row(i); x != nil {
			o.quantGroups(unit, x, b.group)
		}
		return
	}
	if b.rows == 1 {
		if x := row(i); x != nil {
			q := b.row(unit)
			o.quant(q, x, b.group)
			if b.planes != nil {
				b.planes.fill(q)
			}
		}
		return
	}
	mem := quantScratches.get()
	defer quantScratches.put(mem)
	wide := sizedBytes(mem, b.rows*b.rowBytes())
	for r := range b.rows {
		to := wide[r*b.rowBytes():][:b.rowBytes()]
		var x []float32
		if at := i*b.rows + r; at < b.m {
			x = row(at)
		}
		if x == nil {
			clear(to) // any number is valid, but subnormal numbers would be slow
			continue
		}
		o.quant(b.row(to), x, b.group)
	}
	o.turn(unit, wide, b.rowBytes(), b.rowBytes()-b.sumsBytes())
}

// quantScratches recycles the memory for rows that are not yet interleaved.
var quantScratches recycler[[]byte]

// sizedBytes returns n bytes that begin at a cache line; it reallocates mem only if that is too small.
func sizedBytes(mem *[]byte, n int) []byte {
	if cap(*mem) < n {
		*mem = alignedBytes(n)
	}
	return (*mem)[:n]
}

// BlockCut is a part of a product with quantised rows: rows [M0, M1) of x are multiplied by N rows of weights, and the
// results go to Y [M1-M0, N], whose rows are Ldy apart. M0 is the start of a unit.
type BlockCut struct {
	Y      []float32
	Ldy    int
	X      *BlockRows
	M0, M1 int
	N      int
	Add    bool // add to the values of Y
}

// MulBlocks multiplies quantised rows by weights [N, k] of a block format, ldw bytes between rows.
func (t *Tier) MulBlocks(c BlockCut, f block.Format, w []byte, ldw int) {
	const method = "MulBlocks"
	if group := BlockGroup(f); !t.Blocks() || group == 0 || group&^1 != c.X.group || unpacked(f) && c.X.rows > 1 {
		panic(fmt.Sprintf("vec: %s: tier %s does not multiply by %v with x in groups of "+
			"%d", method, t.Name, f, c.X.group))
	}
	if c.M0 < 0 || c.M1 < c.M0 || c.M1 > c.X.m || c.M0%c.X.rows != 0 {
		panic(fmt.Sprintf("vec: %s: rows %d to %d are outside %d rows or not in units of "+
			"%d", method, c.M0, c.M1, c.X.m, c.X.rows))
	}
	needMatrix(method, "y", len(c.Y), c.M1-c.M0, c.N, c.Ldy)
	needMatrix(method, "w", len(w), c.N, c.X.k/f.Values()*f.Bytes(), ldw)
	if c.M0 == c.M1 || c.N == 0 {
		return
	}
	if c.X.k == 0 {
		for i := range c.M1 - c.M0 {
			if !c.Add {
				clear(c.Y[i*c.Ldy:][:c.N])
			}
		}
		return
	}
	t.ops.blocks.mul(c, f, w, ldw)
}
