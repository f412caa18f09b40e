package cpu

import (
	"errors"
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// Experts in two memories, on a device that has one memory: resident and fetched experts are computed here, and the
// other experts by the workers of a second device (internal/device/offload). This tests the exchange with these workers
// without a GPU.

// mailRows and mailPairs are the limits of an exchange: results of 4096 rows of 7168 columns are 112 MiB.
const (
	mailRows  = 512
	mailPairs = 4096
)

// splitExperts are experts of a layer of which the host's workers compute some.
type splitExperts struct {
	own    *experts // nil if this device computes no expert
	local  [2][]int32
	hosted [2]bool // whether workers compute some experts, for decode rows and for prompt rows
	host   kernel.HostExperts
	hidden int
	inner  int

	// For movable experts: their matrices and methods, and the index of each expert in own, or -1.
	weights *kernel.ExpertWeights
	place   []int32
}

func (x *splitExperts) Count() int  { return len(x.local[0]) }
func (x *splitExperts) Hidden() int { return x.hidden }
func (x *splitExperts) Inner() int  { return x.inner }

// splitState is the memory of operations on split experts.
type splitState struct {
	box    *kernel.Mailbox
	posted bool          // an exchange has begun before Experts was called
	ids    kernel.Tensor // i32 [rows, k]: indices in own, -1 for experts of the workers
	rows   []int32       // [experts]: rows of each expert in an exchange
}

// prepareSplit prepares the experts that the device computes and opens a mailbox for the others.
func prepareSplit(d *Device, w kernel.ExpertWeights) (kernel.Experts, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	w.Methods = w.Methods.Clone() // Swap changes the methods of movable experts
	x := &splitExperts{host: w.Host, hidden: w.Gate[0].In(), inner: w.Gate[0].Out(), place: make([]int32, len(w.Gate))}
	own := w.Methods.Where(kernel.Resident, kernel.Fetched)
	for e := range x.place {
		x.place[e] = -1
	}
	for i, e := range own {
		x.place[e] = int32(i)
	}
	for phase := range x.local {
		x.local[phase] = make([]int32, len(w.Gate))
	}
	x.find(w.Methods)
	if w.Movable {
		x.weights = &w
	}
	if len(own) > 0 {
		p, err := d.PrepareExperts(w.Select(own))
		if err != nil {
			return nil, err
		}
		x.own = p.(*experts)
	}
	if !w.Methods.Has(kernel.Computed) {
		return x, nil
	}
	return x, openMailbox(d, w.Host, x.hidden)
}

// find fills the tables of local experts from the methods.
func (x *splitExperts) find(m kernel.ExpertMethods) {
	for phase := range x.local {
		for e, method := range m.Of(phase == 1) {
			x.local[phase][e] = x.place[e]
			if method == kernel.Computed {
				x.local[phase][e], x.hosted[phase] = -1, true
			}
		}
	}
}

// SwapExperts makes expert in, which the workers compute, resident, and passes expert out to the workers.
func (d *Device) SwapExperts(x kernel.Experts, in, out int) error {
	s, ok := x.(*splitExperts)
	if !ok || s.weights == nil {
		return fmt.Errorf("%w: swap experts: the experts were not prepared to be moved", kernel.ErrUnsupported)
	}
	next := s.weights.Methods.Clone()
	if err := next.Swap(in, out); err != nil {
		return err
	}
	if s.host != nil {
		if err := s.host.Swap(in, out); err != nil {
			return err
		}
	}
	if s.place[in] < 0 { // if the device has both experts, it fetches out from now on
		if err := d.ReplaceExpert(s.own, int(s.place[out]), s.weights.Select([]int{in})); err != nil {
			return errors.Join(err, s.host.Swap(out, in))
		}
		s.place[in], s.place[out] = s.place[out], -1
	}
	s.weights.Methods = next
	s.find(next)
	return nil
}

// openMailbox makes the mailbox of the device, which all layers share.
func openMailbox(d *Device, to kernel.HostExperts, hidden int) error {
	if box := d.split.box; box != nil {
		if box.Hidden != hidden {
			return fmt.Errorf("%w: prepare experts: rows have %d columns, but those of an earlier layer have %d; "+
				"want the same number", kernel.ErrArgument,
				hidden, box.Hidden)
		}
		return nil
	}
	shape := kernel.MailboxShape{Activation: kernel.F32, Hidden: hidden, Rows: mailRows, Pairs: mailPairs}
	_, _, _, size := shape.Offsets()
	memory, err := d.Alloc(size)
	if err != nil {
		return err
	}
	box, err := kernel.NewMailbox(shape, memory.(kernel.HostBuffer))
	if err != nil {
		return err
	}
	d.split.box = box
	return to.Serve(box)
}

// runSplit runs experts in two memories: prompt rows first, then the other rows, in groups of the size of an exchange.
// The grouping does not change the results.
func runSplit(d *Device, a *kernel.ExpertArgs, x *splitExperts) error {
	if a.Part != (kernel.Part{}) {
		return fmt.Errorf("%w: experts are in two memories on several ranks, which is not supported; run on one "+
			"rank", kernel.ErrUnsupported)
	}
	most := expertTokens
	if box := d.split.box; box != nil {
		most = min(most, box.Fit(a.IDs.Cols))
	}
	if most == 0 {
		return fmt.Errorf("%w: experts: a row has %d choices, but the exchange memory holds %d", kernel.ErrUnsupported,
			a.IDs.Cols, d.split.box.Pairs)
	}
	for from := 0; from < a.X.Rows; {
		to, phase := min(from+most, a.X.Rows), 0
		if from < a.Prompt {
			to, phase = min(to, a.Prompt), 1
		}
		part := &d.experts.part
		*part = expertArgs{ExpertArgs: *a, experts: x.own}
		part.Out, part.X, part.IDs, part.Weights = a.Out.Slice(from, to), a.X.Slice(from, to), a.IDs.Slice(from, to),
			a.Weights.Slice(from, to)
		if err := splitBlock(d, part, x, phase); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// Hosted reports whether the host's workers compute some of the experts.
func (x *splitExperts) Hosted() bool { return x.hosted[0] || x.hosted[1] }

// PostExperts passes rows to the host's workers, so that the operations before Experts run in parallel with them. If
// the rows need several exchanges, or are prompt rows and other rows, Experts passes them instead.
func (d *Device) PostExperts(a kernel.ExpertArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	x, ok := a.Experts.(*splitExperts)
	if !ok || a.X.Rows == 0 || !x.Hosted() {
		return nil
	}
	phase := 0
	if a.Prompt > 0 {
		phase = 1
	}
	if d.split.posted { // a pass posted rows and failed before Experts
		d.split.posted = false
		if err := d.split.box.Await(x.host.Timeout()); err != nil {
			return err
		}
	}
	if a.Prompt%a.X.Rows != 0 || !x.hosted[phase] || a.X.Rows > min(expertTokens, d.split.box.Fit(a.IDs.Cols)) {
		return nil
	}
	err := postRows(d, &a, x, phase)
	d.split.posted = err == nil
	return err
}

// postRows copies rows and choices to the mailbox and posts an exchange. After a failed exchange it returns the error
// of that exchange, because workers that are late may still read the mailbox.
func postRows(d *Device, a *kernel.ExpertArgs, x *splitExperts, phase int) error {
	box, k := d.split.box, a.IDs.Cols
	if err := box.Err(); err != nil {
		return err
	}
	for t := range a.X.Rows {
		copy(host.RowF32(box.X, t), host.RowF32(a.X, t))
		copy(host.I32(box.IDs)[t*k:], host.RowI32(a.IDs, t))
	}
	box.Post(kernel.Message{Layer: x.host.Layer(), Rows: a.X.Rows, Top: k, Limit: a.Limit, Prompt: phase == 1})
	return nil
}

// splitBlock passes rows to the workers, computes the device's own experts in parallel, and adds all results in the
// order of the choice.
func splitBlock(d *Device, a *expertArgs, x *splitExperts, phase int) error {
	k, rows := a.IDs.Cols, a.X.Rows
	ids, err := localIDs(d, rows, k)
	if err != nil {
		return err
	}
	local, asked := host.I32(ids), d.split.posted
	for t := range rows {
		for j, id := range host.RowI32(a.IDs, t) {
			local[t*k+j] = x.local[phase][id]
			asked = asked || local[t*k+j] < 0
		}
	}
	box, posted := d.split.box, d.split.posted
	if d.split.posted = false; asked {
		if !posted {
			if err := postRows(d, &a.ExpertArgs, x, phase); err != nil {
				return err
			}
		}
		a.far = host.F32(box.Results)
	}
	a.IDs = ids
	err = expertProducts(d, a)
	if asked { // wait also after an error, because the workers read the mailbox
		if late := box.Await(x.host.Timeout()); late != nil {
			return late
		}
	}
	if err != nil {
		return err
	}
	return each(d, ceilDiv(rows, rowBlock), expertWork{a, true}, addExperts)
}

// localIDs returns memory for the choices of rows as indices in the device's own experts, i32 [rows, k].
func localIDs(d *Device, rows, k int) (kernel.Tensor, error) {
	if t := &d.split.ids; t.Rows*t.Cols < rows*k {
		grown, err := kernel.New(d, kernel.I32, 1, rows*k+rows*k/2)
		if err != nil {
			return grown, err
		}
		*t = grown
	}
	ids := d.split.ids
	ids.Rows, ids.Cols, ids.Stride = rows, k, k
	return ids, nil
}

// ExpertRows computes the result of each choice in its own row, without adding the results.
func (d *Device) ExpertRows(a kernel.ExpertRowsArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("expert rows", a.Results, a.X); err != nil {
		return err
	}
	own, ok := a.Experts.(*experts)
	if !ok {
		return fmt.Errorf("%w: expert rows: the experts were prepared by another device", kernel.ErrArgument)
	}
	k := a.IDs.Cols
	for t := range a.X.Rows {
		for _, e := range host.RowI32(a.IDs, t) {
			if int(e) >= own.Count() {
				return fmt.Errorf("%w: expert rows: row %d chose expert %d, outside the %d experts", kernel.ErrArgument,
					t, e, own.Count())
			}
		}
	}
	for from := 0; from < a.X.Rows; from += expertTokens {
		to := min(from+expertTokens, a.X.Rows)
		part := kernel.ExpertArgs{Out: a.Results.Slice(from*k, to*k), X: a.X.Slice(from, to),
			IDs: a.IDs.Slice(from, to), Limit: a.Limit}
		if err := rowsOfExperts(d, part, own); err != nil {
			return err
		}
	}
	return nil
}

// rowsOfExperts runs the experts of at most expertTokens tokens. Products of single rows read weights twice as fast as
// products of groups, with bitwise equal results, so experts with one row and experts with more rows run separately.
func rowsOfExperts(d *Device, a kernel.ExpertArgs, own *experts) error {
	run := func(ids kernel.Tensor) error {
		part := &d.experts.part
		*part = expertArgs{ExpertArgs: a, experts: own}
		part.IDs = ids
		if err := expertProducts(d, part); err != nil {
			return err
		}
		return each(d, ceilDiv(part.X.Rows, rowBlock), expertWork{part, true}, keepRows)
	}
	k := a.IDs.Cols
	ids, err := localIDs(d, 2*a.X.Rows, k)
	if err != nil {
		return err
	}
	rows := grow(&d.split.rows, own.Count())
	clear(rows)
	for t := range a.X.Rows {
		for _, e := range host.RowI32(a.IDs, t) {
			if e >= 0 {
				rows[e]++
			}
		}
	}
	var some [2]bool
	alone, more := ids.Slice(0, a.X.Rows), ids.Slice(a.X.Rows, 2*a.X.Rows)
	for t := range a.X.Rows {
		one, many := host.RowI32(alone, t), host.RowI32(more, t)
		for j, e := range host.RowI32(a.IDs, t) {
			one[j], many[j] = -1, -1
			switch {
			case e >= 0 && rows[e] == 1:
				one[j], some[0] = e, true
			case e >= 0:
				many[j], some[1] = e, true
			}
		}
	}
	if !some[0] || !some[1] {
		return run(a.IDs)
	}
	if err := run(alone); err != nil {
		return err
	}
	return run(more)
}

// keepRows copies the results of rowBlock tokens to their rows.
func keepRows(d *Device, w *expertWork, _, item int) {
	st, hidden, k := &d.experts, w.X.Cols, w.IDs.Cols
	for pair := item * rowBlock * k; pair < min((item+1)*rowBlock, w.X.Rows)*k; pair++ {
		if place := int(st.place[pair]); place >= 0 {
			copy(host.RowF32(w.Out, pair), st.x[place*hidden:][:hidden])
		}
	}
}
