package cpu

import (
	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Tiles of a matrix product: a worker multiplies a band of weight rows by a tile of rows of x at a time. The result
// does not depend on these sizes.
const (
	bandRows = 64
	tileRows = 128
	// Weight rows of a band if x is not packed: whole panels of six rows or of four.
	plainBand = 96
	// With packed columns, a band is eight blocks of weight rows of the matrix unit, and a tile is the number of
	// columns that it multiplies at once.
	packedBand     = 256
	packedBandFew  = 64
	packedTileRows = 256
)

// streamBand returns the number of rows in a band of streamed weights, for weights with the given number of rows of
// size bytes. There is one band for a single worker, and otherwise several bands per worker. A band is a multiple of
// the rows that the kernels for few rows multiply at once. A worker computes adjacent bands together.
func streamBand(rows, size, workers int) int {
	return max(1, ceilDiv(rows, shareCount(rows*size, workers)*packedBandFew)) * packedBandFew
}

// multiplyState holds the matrix products in progress, which share the rows of x.
type multiplyState struct {
	parts   []part
	columns [orders]vec.Columns // packed x, for each order of columns
	packed  [orders]bool        // true if columns of this order are packed
	quant   quantised           // quantised x, for block formats
	shares  shares              // shares of products of few rows
	few     shareTask
}

// part is one of the products. It is divided into tiles, or into shares if it has few rows.
type part struct {
	kernel.MultiplyArgs
	w       *host.Matrix
	from    int            // first weight row, for few rows
	to      int            // end of the weight rows, for few rows
	columns *vec.Columns   // packed x, or nil
	rows    *vec.BlockRows // quantised x, or nil; if columns and rows are nil, x is read as it is
	band    int            // weight rows of a tile
	bands   int
	tile    int // rows of x of a tile
	tiles   int
}

// bytes returns the memory of the weight rows [from, to), without scales.
func (p *part) bytes() []byte { return host.Bytes(p.w.Data.Slice(p.from, p.to)) }

// arranged reports whether x is packed or quantised.
func (p *part) arranged() bool { return p.columns != nil || p.rows != nil }

// cut chooses the tiles of a product of many rows.
func (p *part) cut(workers int) {
	p.band, p.tile = plainBand, tileRows
	if p.arranged() {
		p.band = packedBand
		tiles := ceilDiv(p.X.Rows, packedTileRows)
		p.tile = ceilDiv(p.X.Rows, tiles*2*vec.GroupRows) * 2 * vec.GroupRows // tiles of equal size
		for p.band > packedBandFew && ceilDiv(p.w.Out(), p.band)*ceilDiv(p.X.Rows, p.tile) < 4*workers {
			p.band /= 2
		}
	}
	p.bands, p.tiles = ceilDiv(p.w.Out(), p.band), ceilDiv(p.X.Rows, p.tile)
}

// multiply multiplies by a stored weight.
func multiply(d *Device, a kernel.MultiplyArgs) error {
	d.multiply.parts = append(d.multiply.parts[:0], part{MultiplyArgs: a})
	return multiplyParts(d, "multiply")
}

// project multiplies by several weights, in one run of the workers.
func project(d *Device, a kernel.ProjectArgs) error {
	d.multiply.parts = d.multiply.parts[:0]
	for i := range a.To {
		d.multiply.parts = append(d.multiply.parts, part{MultiplyArgs: a.Product(i)})
	}
	return multiplyParts(d, "project")
}

// multiplyParts computes the products of all parts.
func multiplyParts(d *Device, op string) error {
	st := &d.multiply
	defer st.forget()
	st.packed, st.quant.done = [orders]bool{}, [len(quantGroups)]bool{}
	few := st.parts[0].X.Rows <= fewPlain
	if d.tier.Tiled() {
		few = st.parts[0].X.Rows <= 2*vec.GroupRows
	}
	for i := range st.parts {
		p := &st.parts[i]
		if err := onlyF32(op, p.Out, p.X); err != nil {
			return err
		}
		var err error
		if p.w, err = host.Own(op, p.W); err != nil {
			return err
		}
		p.to = p.w.Out()
		if p.rows, err = d.quantFor(&st.quant, p.w, p.X); err != nil {
			return err
		}
		if !packs(d.tier, p.w) {
			continue
		}
		o := orderFor(p.w)
		p.columns = &st.columns[o]
		if st.packed[o] {
			continue
		}
		st.packed[o] = true
		if err := d.packRows(p.columns, p.X, o); err != nil {
			return err
		}
	}
	if few {
		if d.numa != nil {
			st.spread(d.numa.Layout)
		}
		d.pool.SetLimit(d.few)
		st.shares.cut(st.parts, d.few)
		d.ahead.begin(stageKey{w: st.parts[0].w}, st.shares.bytes, d.few,
			func() [][][]byte { return shareSpans(d, st) })
		st.few.dev = d
		return d.run(st.shares.count(), &st.few)
	}
	d.pool.SetLimit(d.pool.Workers())
	items := 0
	for i := range st.parts {
		p := &st.parts[i]
		p.cut(d.pool.Limit())
		items += p.bands * p.tiles
	}
	return each(d, items, st, multiplyItem)
}

// forget clears references to the memory of finished products, so that it can be freed.
func (st *multiplyState) forget() { clear(st.parts) }

// multiplyItem computes one tile of one of the products. Adjacent items share a tile of x: its rows fill half of the L2
// cache, and the kernels prefetch weights but not x.
func multiplyItem(d *Device, st **multiplyState, worker, item int) {
	for i := range (*st).parts {
		p := &(*st).parts[i]
		if n := p.bands * p.tiles; item >= n {
			item -= n
			continue
		}
		n0, m0 := item%p.bands*p.band, item/p.bands*p.tile
		multiplyTile(d, p, worker, tileCut{n0: n0, n1: min(n0+p.band, p.w.Out()), m0: m0,
			m1: min(m0+p.tile, p.X.Rows)})
		return
	}
}

// shareTask is the task of computing shares of products of few rows.
type shareTask struct{ dev *Device }

// Do computes one share.
func (t *shareTask) Do(worker, item int) { t.DoRange(worker, item, item+1) }

// DoRange computes the shares first to end.
func (t *shareTask) DoRange(worker, first, end int) {
	d, st := t.dev, &t.dev.multiply
	last := st.shares.at[end].part
	if st.shares.at[end].row == 0 {
		last--
	}
	for i := st.shares.at[first].part; i <= last; i++ {
		p := &st.parts[i]
		n0, n1 := st.shares.rows(first, end, i, p.to-p.from)
		if n0 >= n1 { // no rows of this part
			continue
		}
		c := tileCut{n0: p.from + n0, n1: p.from + n1, m1: p.X.Rows}
		if i < last {
			c.next = st.parts[i+1].bytes()
		} else {
			c.next = afterShares(d, worker, end)
		}
		multiplyTile(d, p, worker, c)
	}
}

// afterShares returns the memory that a worker reads after a range of shares that ends at end: the following shares if
// they belong to the worker, otherwise the beginning of the next product.
func afterShares(d *Device, worker, end int) []byte {
	st := &d.multiply
	first, n := d.pool.Share(st.shares.count(), worker)
	if end > first && end < first+n {
		at := st.shares.at[end]
		p := &st.parts[at.part]
		return host.Bytes(p.w.Data.Slice(p.from+at.row, p.to))
	}
	return d.ahead.first(worker)
}

// tileCut is rows m0 to m1 of x and rows n0 to n1 of a weight, and the memory that the worker reads after multiplying
// them.
type tileCut struct {
	n0, n1, m0, m1 int
	next           []byte
}

// multiplyTile multiplies the rows of one tile.
func multiplyTile(d *Device, p *part, worker int, c tileCut) {
	n0, n1, m0, m1 := c.n0, c.n1, c.m0, c.m1
	out := p.Out.Slice(m0, m1).Columns(n0, n1)
	if p.columns != nil {
		packedProduct(d.tier, vec.Cut{Y: host.F32(out), Ldy: out.Stride, X: p.columns, M0: m0, M1: m1, N: n1 - n0,
			Add: p.Accumulate, Next: c.next}, p.w, n0)
		return
	}
	if p.rows != nil {
		blockProduct(d.tier, vec.BlockCut{Y: host.F32(out), Ldy: out.Stride, X: p.rows, M0: m0, M1: m1, N: n1 - n0,
			Add: p.Accumulate}, p.w, n0)
		return
	}
	x := p.X.Slice(m0, m1)
	y, ldy := host.F32(out), out.Stride
	if p.Accumulate {
		y, ldy = grow(&d.scratch[worker].tile, (m1-m0)*(n1-n0)), n1-n0
	}
	d.product(worker, product{y: y, ldy: ldy, x: host.F32(x), ldx: x.Stride, m: m1 - m0}, p.w, n0, n1)
	if p.Accumulate {
		for m := range m1 - m0 {
			to := host.RowF32(out, m)
			for n, v := range y[m*ldy:][:ldy] {
				to[n] += v
			}
		}
	}
}
