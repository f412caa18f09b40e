package cpu

import (
	"fmt"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// expertTokens is the maximum number of tokens that are grouped at once; it limits the memory of their intermediate
// rows.
const expertTokens = 1024

// expertState holds grouped expert products: the tokens are sorted by expert, so that each expert's weights are read
// once.
type expertState struct {
	first []int32         // [experts+1]: first sorted row of each expert; a multiple of group if rows are packed
	count []int32         // [experts]: number of rows of each expert
	token []int32         // [rows]: token of each sorted row, -1 for padding of a group
	own   []int32         // [rows]: number of the sorted row, -1 for padding of a group
	place []int32         // [tokens*k]: sorted row of each choice, -1 if another rank has the expert
	x     []float32       // [rows, hidden]: inputs, unless packed; later outputs
	gate  []float32       // [rows, inner]
	up    []float32       // [rows, inner]
	items [2][]expertItem // items of gate and up, and of down
	bands expertBands
	part  expertArgs // tokens grouped now; a field, because an argument that workers read would be on the heap

	// The rows of an expert are padded to a multiple of this group size. It is the smallest size that holds the rows of
	// any expert, because kernels for fewer rows read weights faster.
	group int
	// No expert has two rows: packed or quantised rows are multiplied one at a time, with inputs in the order of the
	// tokens.
	alone   bool
	columns vec.Columns   // packed inputs; later packed outputs of the gate
	rows    vec.BlockRows // quantised inputs and later outputs of the gate, for block formats
}

// expertItem is a band, rows n0 to n1, of one expert's matrix.
type expertItem struct{ expert, n0, n1 int }

type expertWork struct {
	*expertArgs
	down bool
}

// half returns the index in items: 0 for gate and up, 1 for down.
func (w *expertWork) half() int {
	if w.down {
		return 1
	}
	return 0
}

// expertBands is the task of computing the items of gate and up with the activation, or of down.
type expertBands struct {
	dev  *Device
	work expertWork
}

// run computes all items on the workers.
func (b *expertBands) run(d *Device, w expertWork) error {
	b.dev, b.work = d, w
	return d.run(len(d.experts.items[w.half()]), b)
}

// Do computes one item.
func (b *expertBands) Do(worker, item int) { b.DoRange(worker, item, item+1) }

// DoRange computes adjacent items; the items of one expert are adjacent.
func (b *expertBands) DoRange(worker, first, end int) {
	items := b.dev.experts.items[b.work.half()]
	for i := first; i < end; {
		it := items[i]
		for i++; i < end && items[i].expert == it.expert; i++ {
			it.n1 = items[i].n1
		}
		expertBand(b.dev, &b.work, worker, it, b.after(worker, i, end))
	}
}

// after returns the memory that a worker reads after the items before i, in a range up to end. That is the memory of
// item i if it belongs to the worker or is in the range; after the last item of gate and up, the beginning of the
// worker's part of down; and after that, the beginning of the next product.
func (b *expertBands) after(worker, i, end int) []byte {
	d, w := b.dev, &b.work
	first, n := d.pool.Share(len(d.experts.items[w.half()]), worker)
	if i < end || i > first && i < first+n {
		list := w.Gate
		if w.down {
			list = w.Down
		}
		return d.experts.items[w.half()][i].of(list)
	}
	if w.down {
		return d.ahead.first(worker)
	}
	if first, n = d.pool.Share(len(d.experts.items[1]), worker); n > 0 {
		return d.experts.items[1][first].of(w.Down)
	}
	return nil
}

// of returns the memory of the item's rows in a list of matrices.
func (it expertItem) of(list []*host.Matrix) []byte {
	return host.Bytes(list[it.expert].Data.Slice(it.n0, it.n1))
}

type expertArgs struct {
	kernel.ExpertArgs
	*experts           // nil if none of the layer's experts is on this rank
	far      []float32 // [rows*k, hidden]: results of experts in the other memory; nil for none
}

// runExperts runs the chosen experts, grouped by expert, and adds their weighted outputs in the order of each token's
// choice.
func runExperts(d *Device, a kernel.ExpertArgs) error {
	if err := onlyF32("experts", a.Out, a.X); err != nil {
		return err
	}
	for t := range a.X.Rows {
		for _, e := range host.RowI32(a.IDs, t) {
			if !a.Part.Valid(int(e), a.Experts.Count()) {
				return fmt.Errorf("%w: experts: token %d chose expert %d, outside the %d experts", kernel.ErrArgument,
					t, e, max(a.Part.Of, a.Experts.Count()))
			}
		}
	}
	if split, ok := a.Experts.(*splitExperts); ok {
		return runSplit(d, &a, split)
	}
	own, ok := a.Experts.(*experts)
	if !ok {
		return fmt.Errorf("%w: experts: the experts were prepared by another device", kernel.ErrArgument)
	}
	for t := 0; t < a.X.Rows; t += expertTokens {
		end := min(t+expertTokens, a.X.Rows)
		part := &d.experts.part
		*part = expertArgs{ExpertArgs: a, experts: own}
		part.Out, part.X, part.IDs, part.Weights = a.Out.Slice(t, end), a.X.Slice(t, end), a.IDs.Slice(t, end),
			a.Weights.Slice(t, end)
		if err := expertBlock(d, part); err != nil {
			return err
		}
	}
	return nil
}

// expertBlock runs the experts of at most expertTokens tokens and adds their outputs.
func expertBlock(d *Device, a *expertArgs) error {
	if err := expertProducts(d, a); err != nil {
		return err
	}
	return each(d, ceilDiv(a.X.Rows, rowBlock), expertWork{a, true}, addExperts)
}

// expertProducts runs gate and up, and then down, of the experts. It leaves the outputs in x, in the order of the
// sorted choices. Between the two, the outputs of the gate are packed or quantised again.
func expertProducts(d *Device, a *expertArgs) error {
	st := &d.experts
	st.sort(a)
	rows := len(st.token)
	if rows == 0 { // all choices are experts of other ranks
		return nil
	}
	hidden, inner := a.X.Cols, a.Inner()
	grow(&st.x, rows*hidden)
	grow(&st.gate, rows*inner)
	grow(&st.up, rows*inner)
	if err := expertInputs(d, a); err != nil {
		return err
	}
	st.cut(0, a.Gate[0], d)
	st.cut(1, a.Down[0], d)
	after := expertsAhead(d, a)
	if err := st.bands.run(d, expertWork{a, false}); err != nil {
		return err
	}
	d.ahead.now.Store(after)
	if a.packed || a.quantised() {
		if err := packBetween(d, a, rows, inner); err != nil {
			return err
		}
	}
	return st.bands.run(d, expertWork{a, true})
}

// expertsAhead prevents workers from prefetching other products before the experts and while gate and up are
// multiplied, because the next experts are not known and down comes before other products. It returns the stage to
// prefetch afterwards.
func expertsAhead(d *Device, a *expertArgs) *stage {
	if !d.experts.few() {
		return d.ahead.now.Load()
	}
	d.ahead.begin(stageKey{a.Gate[0], expertRows}, 0, 0,
		func() [][][]byte { return make([][][]byte, d.pool.Workers()) })
	return d.ahead.now.Swap(nil)
}

// few reports whether every expert has so few rows that the time of products is bound by reading weights.
func (st *expertState) few() bool {
	return (st.part.packed || st.part.quantised()) && slices.Max(st.count) <= vec.GroupRows
}

// expertInputs copies the tokens' rows into the order of the experts, packed or quantised if the products need that.
func expertInputs(d *Device, a *expertArgs) error {
	st := &d.experts
	if a.quantised() {
		if st.alone {
			d.tier.ResetBlocks(&st.rows, a.X.Rows, a.X.Cols, a.quantIn, true)
			return d.quantUnits(quantWork{to: &st.rows, x: a.X})
		}
		d.tier.ResetBlocks(&st.rows, len(st.token), a.X.Cols, a.quantIn, false)
		return d.quantUnits(quantWork{to: &st.rows, x: a.X, index: st.token})
	}
	if st.alone {
		st.columns.ResetGroups(a.X.Rows, a.X.Cols, orderFor(a.Gate[0]), 1)
		return d.packChunks(packWork{to: &st.columns, x: a.X})
	}
	if a.packed {
		return d.packGathered(&st.columns, a.X, orderFor(a.Gate[0]), st.token, st.group)
	}
	return each(d, ceilDiv(len(st.token), rowBlock), expertWork{a, false},
		func(d *Device, w *expertWork, _, item int) {
			st, hidden := &d.experts, w.X.Cols
			for r := item * rowBlock; r < min((item+1)*rowBlock, len(st.token)); r++ {
				copy(st.x[r*hidden:(r+1)*hidden], host.RowF32(w.X, int(st.token[r])))
			}
		})
}

// packBetween packs or quantises the outputs of the gate. Few single rows are packed by the caller, because starting
// workers would take longer.
func packBetween(d *Device, a *expertArgs, rows, inner int) error {
	st := &d.experts
	if a.quantised() {
		d.tier.ResetBlocks(&st.rows, rows, inner, a.quantBetween, st.alone)
		return packUnits(d, st.rows.Units(), expertWork{a, true}, quantGated)
	}
	st.columns.ResetGroups(rows, inner, orderFor(a.Down[0]), st.group)
	return packUnits(d, st.columns.Chunks(), expertWork{a, true}, packGated)
}

// packUnits calls pack for n pieces of the outputs of the gate, on the workers unless the rows are single rows.
func packUnits(d *Device, n int, w expertWork, pack func(d *Device, w *expertWork, worker, i int)) error {
	st := &d.experts
	if !st.alone {
		return each(d, n, w, pack)
	}
	t := taskOf[expertWork](d)
	t.args = w // in the task, because a parameter whose address is taken would be on the heap
	for i := range n {
		pack(d, &t.args, 0, i)
	}
	return nil
}

// quantGated quantises a unit of the outputs of the gate.
func quantGated(d *Device, w *expertWork, _, i int) {
	st, inner := &d.experts, w.Inner()
	d.tier.QuantGathered(&st.rows, i, st.gate[:len(st.own)*inner], inner, len(st.own), st.own)
}

// packGated packs a piece of the outputs of the gate.
func packGated(d *Device, w *expertWork, _, i int) {
	st, inner := &d.experts, w.Inner()
	d.tier.PackGathered(&st.columns, i, st.gate[:len(st.own)*inner], inner, len(st.own), st.own)
}

// sort groups the choices of all tokens by expert, with the tokens of an expert in ascending order. The packed rows of
// an expert start at a multiple of the group size.
func (st *expertState) sort(a *expertArgs) {
	k := a.IDs.Cols
	if a.experts == nil {
		st.token, st.place = st.token[:0], grow(&st.place, a.X.Rows*k)
		for i := range st.place {
			st.place[i] = -1
		}
		return
	}
	st.first = grow(&st.first, a.Count()+1)
	st.count = grow(&st.count, a.Count())
	st.place = grow(&st.place, a.X.Rows*k)
	clear(st.count)
	for t := range a.X.Rows {
		for _, id := range host.RowI32(a.IDs, t) {
			if e, here := a.Part.Local(int(id), a.Count()); here {
				st.count[e]++
			}
		}
	}
	st.alone = (a.packed || a.quantised()) && slices.Max(st.count) <= 1
	st.group = 1
	switch {
	case st.alone:
	case a.packed:
		st.group = vec.GroupFor(int(slices.Max(st.count)))
	case a.quantised():
		st.group = a.together
	}
	st.first[0] = 0
	for e, n := range st.count {
		st.first[e+1] = st.first[e] + int32(ceilDiv(int(n), st.group)*st.group)
	}
	st.token = grow(&st.token, int(st.first[a.Count()]))
	st.own = grow(&st.own, len(st.token))
	for i := range st.token {
		st.token[i], st.own[i] = -1, -1
	}
	clear(st.count)
	for t := range a.X.Rows {
		for j, id := range host.RowI32(a.IDs, t) {
			e, here := a.Part.Local(int(id), a.Count())
			if !here {
				st.place[t*k+j] = -1
				continue
			}
			row := st.first[e] + st.count[e]
			st.count[e]++
			st.token[row], st.own[row] = int32(t), row
			st.place[t*k+j] = row
		}
	}
}

// cut lists the bands of every expert that has rows, for matrices like w in one half. The bands of a memory node are
// consecutive. With few rows, weights are streamed, in bands as in a single product.
func (st *expertState) cut(half int, w *host.Matrix, d *Device) {
	out, band := w.Out(), bandRows
	if st.few() {
		active := 0
		for _, rows := range st.count {
			active += min(int(rows), 1)
		}
		band = streamBand(active*out, rowBytes(w), d.pool.Limit())
	}
	items := &st.items[half]
	*items = (*items)[:0]
	if d.numa == nil {
		st.list(items, 0, out, band)
		return
	}
	for node := range d.numa.Count() {
		first, end := d.numa.Rows(out, node)
		st.list(items, first, end, band)
	}
}

// list appends the bands of rows first to end of the matrices of every expert that has inputs.
func (st *expertState) list(items *[]expertItem, first, end, band int) {
	for e, rows := range st.count {
		if rows == 0 {
			continue
		}
		for n := first; n < end; n += band {
			*items = append(*items, expertItem{e, n, min(n+band, end)})
		}
	}
}

// expertBand computes one band of gate and up with the activation, or one band of down, for all rows of one expert.
// Down writes its outputs over the inputs of gate and up, which are no longer needed. next is the memory that the
// worker reads afterwards.
func expertBand(d *Device, w *expertWork, worker int, it expertItem, next []byte) {
	st := &d.experts
	r0, rows := int(st.first[it.expert]), int(st.count[it.expert])
	hidden, inner := w.X.Cols, w.Inner()
	x := st.x[r0*hidden : (r0+rows)*hidden]
	gate, up := st.gate[r0*inner:(r0+rows)*inner], st.up[r0*inner:(r0+rows)*inner]
	if w.down {
		expertProduct(d, worker, product{y: x[it.n0:], ldy: hidden, x: gate, ldx: inner, m: rows}, w.Down, it, r0, next)
		return
	}
	packed := r0
	if st.alone {
		packed = int(st.token[r0])
	}
	expertProduct(d, worker, product{y: gate[it.n0:], ldy: inner, x: x, ldx: hidden, m: rows}, w.Gate, it, packed,
		it.of(w.Up))
	expertProduct(d, worker, product{y: up[it.n0:], ldy: inner, x: x, ldx: hidden, m: rows}, w.Up, it, packed, next)
	for r := range rows {
		g := gate[r*inner+it.n0 : r*inner+it.n1]
		u := up[r*inner+it.n0 : r*inner+it.n1]
		if w.Limit > 0 {
			clampGate(g, u, w.Limit)
		}
		d.tier.SiluMul(g, g, u)
	}
}

// expertProduct computes a band of one matrix of a list. The inputs are the expert's rows: unpacked, or packed from the
// given row on.
func expertProduct(d *Device, worker int, p product, list []*host.Matrix, it expertItem, row int, next []byte) {
	st, w := &d.experts, list[it.expert]
	if st.part.quantised() {
		blockProduct(d.tier, vec.BlockCut{Y: p.y, Ldy: p.ldy, X: &st.rows, M0: row, M1: row + p.m, N: it.n1 - it.n0},
			w, it.n0)
		return
	}
	if !st.part.packed {
		d.product(worker, p, w, it.n0, it.n1)
		return
	}
	packedProduct(d.tier, vec.Cut{Y: p.y, Ldy: p.ldy, X: &st.columns, M0: row, M1: row + p.m, N: it.n1 - it.n0,
		Next: next}, w, it.n0)
}

// addExperts adds the weighted expert outputs of rowBlock tokens to their rows.
func addExperts(d *Device, w *expertWork, _, item int) {
	st, hidden, k := &d.experts, w.X.Cols, w.IDs.Cols
	for t := item * rowBlock; t < min((item+1)*rowBlock, w.X.Rows); t++ {
		out := host.RowF32(w.Out, t)
		for j, weight := range host.RowF32(w.Weights, t) {
			if place := int(st.place[t*k+j]); place >= 0 {
				d.tier.Axpy(out, weight, st.x[place*hidden:][:hidden])
			} else if w.far != nil {
				d.tier.Axpy(out, weight, w.far[(t*k+j)*hidden:][:hidden])
			}
		}
	}
}
