package op

import (
	"errors"
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

var _ kernel.ExpertPoster = (*Device)(nil)

// Hosted reports whether the host's workers compute some of the experts.
func (x *experts) Hosted() bool { return x.split != nil && (x.split.hosted[0] || x.split.hosted[1]) }

// splitPart holds the arguments of running experts, some of them in host memory, over rows of one phase.
type splitPart struct {
	p        *experts
	a        kernel.ExpertArgs
	phase    int              // 1 for prompt rows
	args     cuda.ExpertsArgs // arguments for the resident experts; IDs are positions among them
	exchange cuda.ExchangeArgs
	places   cuda.Ptr // i32 [rows, top]: positions in groups of fetched experts
}

// mostSplit returns the maximum number of rows of a phase in one run.
func mostSplit(d *Device, p *experts, top, phase int) int {
	if p.split.hosted[phase] {
		return min(mailRows, mailPairs/top)
	}
	return cuda.MaxExpertPairs / top
}

// splitScratch returns the bytes of scratch memory of a run: for the matrix products, and for each of two tables of the
// positions of choices.
func splitScratch(s cuda.ExpertShape, rows, top int32) (products, places int64) {
	return s.ScratchBytes(rows, top), (4*int64(rows)*int64(top) + 255) / 256 * 256
}

// newPart assigns scratch memory to a run and sets its arguments.
func newPart(d *Device, p *experts, a *kernel.ExpertArgs, phase int, scratch cuda.Ptr) (*splitPart, error) {
	rows, top := int32(a.X.Rows), int32(a.IDs.Cols)
	products, each := splitScratch(p.shape, rows, top)
	o := &d.offload
	s := &o.part
	*s = splitPart{p: p, a: *a, phase: phase, places: scratch.Add(products + each)}
	own := scratch.Add(products)
	x := cuda.Experts{Shape: p.shape, Packed: p.at, X: at(a.X), Out: at(a.Out), IDs: own, Weights: at(a.Weights),
		Faults: d.faults.Ptr(), Scratch: scratch, XStride: stride(a.X), OutStride: stride(a.Out), IDStride: int64(top),
		WeightStride: stride(a.Weights), Rows: rows, Top: top, Limit: a.Limit, Scales: p.scales}
	var err error
	if s.args, err = x.Encode(); err != nil || !p.split.hosted[phase] {
		return s, err
	}
	shape := kernel.MailboxShape{Activation: kernel.BF16, Hidden: int(p.shape.Hidden), Rows: mailRows, Pairs: mailPairs}
	mailX, mailIDs, mailResults, _ := shape.Offsets()
	s.exchange = cuda.ExchangeArgs{X: at(a.X), IDs: at(a.IDs), Table: p.split.tables[phase], Places: own,
		Results: s.args.Results, Words: o.at, MailX: o.at.Add(mailX), MailIDs: o.at.Add(mailIDs),
		MailResults: o.at.Add(mailResults), State: o.state.Ptr(), Faults: d.faults.Ptr(), XStride: stride(a.X),
		IDStride: stride(a.IDs), Timeout: o.timeout.Nanoseconds(), Rows: rows, Top: top, Hidden: p.shape.Hidden,
		Experts: p.shape.Experts, Layer: int32(p.split.host.Layer()), Prompt: int32(phase), Limit: a.Limit}
	return s, nil
}

func takeScratch(d *Device, p *experts, rows, top int) (cuda.Ptr, error) {
	products, places := splitScratch(p.shape, int32(rows), int32(top))
	return d.scratch.Get(products + 2*places)
}

// PostExperts passes rows to the host's workers, so that operations before Experts run in parallel with them. If the
// rows need several exchanges, or if only some are prompt rows, PostExperts does nothing, and Experts passes the rows.
func (d *Device) PostExperts(a kernel.ExpertArgs) error {
	p, err := checkExperts(d, &a)
	if err != nil || p == nil || !p.Hosted() {
		return err
	}
	o, phase := &d.offload, 0
	if a.Prompt > 0 {
		phase = 1
	}
	if o.posted.active { // an earlier pass failed between PostExperts and Experts
		err := errors.Join(cuda.WaitForHost(d.kernels, d.stream, &o.part.exchange), d.scratch.Put(o.posted.scratch))
		if o.posted = (posted{}); err != nil {
			return err
		}
	}
	if !p.split.hosted[phase] || a.Prompt%a.X.Rows != 0 || a.X.Rows > mostSplit(d, p, a.IDs.Cols, phase) {
		return nil
	}
	if err := d.settle(); err != nil {
		return err
	}
	scratch, err := takeScratch(d, p, a.X.Rows, a.IDs.Cols)
	if err != nil {
		return err
	}
	s, err := newPart(d, p, &a, phase, scratch)
	if err == nil {
		err = cuda.PostRows(d.kernels, d.stream, &s.exchange)
	}
	if err != nil {
		return errors.Join(err, d.scratch.Put(scratch))
	}
	expectPosts(d, 1)
	o.posted = posted{active: true, x: a.X, ids: a.IDs, scratch: scratch}
	return nil
}

// runSplit runs experts of which some are in host memory: for prompt rows first, then for the other rows.
func runSplit(d *Device, p *experts, a *kernel.ExpertArgs) error {
	rows, top, h := a.X.Rows, a.IDs.Cols, &d.held
	first := 0
	if a.Prompt > 0 {
		first = 1
	}
	whole := a.Prompt%rows == 0 && rows <= mostSplit(d, p, top, first)
	holds := whole && normable(a.Out) && top <= cuda.MaxTop
	if h.routes { // positions of choices are looked up first: routing and sorting cannot run in one launch
		h.routes = false
		if err := cuda.RouteExperts(d.kernels, d.stream, &h.route); err != nil {
			return err
		}
	}
	if !holds || h.kind != holdSum || h.sum.rows != a.Out || overlap(a.Out, a.X) {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if whole {
		return runPart(d, p, a, first, holds)
	}
	if d.offload.posted.active {
		return fmt.Errorf("%w: experts: these rows are not the ones that were given to the host's "+
			"workers", kernel.ErrArgument)
	}
	for from := 0; from < rows; {
		phase, end := 0, rows
		if from < a.Prompt {
			phase, end = 1, a.Prompt
		}
		to := min(from+mostSplit(d, p, top, phase), end)
		part := *a
		part.Out, part.X, part.IDs, part.Weights = a.Out.Slice(from, to), a.X.Slice(from, to), a.IDs.Slice(from, to),
			a.Weights.Slice(from, to)
		if err := runPart(d, p, &part, phase, false); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// runPart runs experts for rows of one phase. The weighted sum of their results is delayed or, if hold is false,
// launched at once.
func runPart(d *Device, p *experts, a *kernel.ExpertArgs, phase int, hold bool) (err error) {
	o := &d.offload
	ahead := o.posted
	o.posted = posted{}
	scratch := ahead.scratch
	if ahead.active && (ahead.x != a.X || ahead.ids != a.IDs) {
		err = fmt.Errorf("%w: experts: these rows are not the ones that were given to the host's "+
			"workers", kernel.ErrArgument)
		return errors.Join(err, d.scratch.Put(scratch))
	}
	if !ahead.active {
		if scratch, err = takeScratch(d, p, a.X.Rows, a.IDs.Cols); err != nil {
			return err
		}
	}
	s, err := newPart(d, p, a, phase, scratch)
	if err == nil {
		err = multiplyPart(d, s, ahead.active)
	}
	if err != nil {
		return errors.Join(err, d.scratch.Put(scratch))
	}
	sum := s.args
	sum.IDs, sum.IDStride = at(a.IDs), stride(a.IDs)
	if hold {
		holdResults(d, a.Out, &sum, scratch)
		return nil
	}
	return errors.Join(cuda.CombineExperts(d.kernels, d.stream, &sum), d.scratch.Put(scratch))
}

// multiplyPart computes the results of all choices.
func multiplyPart(d *Device, s *splitPart, posted bool) error {
	x, hosted := s.p.split, s.p.split.hosted[s.phase]
	switch {
	case hosted && !posted:
		if err := cuda.PostRows(d.kernels, d.stream, &s.exchange); err != nil {
			return err
		}
		expectPosts(d, 1)
	case !hosted:
		if err := lookUp(d, s, x.tables[s.phase], s.args.IDs); err != nil {
			return err
		}
	}
	// The first groups of a prompt were copied while the previous layer ran. Further groups are copied while the
	// resident experts are multiplied.
	early := min(len(x.groups[s.phase]), s.phase*len(d.offload.halves))
	for i, g := range x.groups[s.phase] {
		if i == early {
			if err := multiplyHere(d, s); err != nil {
				return err
			}
		}
		if err := multiplyGroup(d, s, g); err != nil {
			return err
		}
	}
	if early == len(x.groups[s.phase]) {
		if err := multiplyHere(d, s); err != nil {
			return err
		}
	}
	if !hosted {
		return nil
	}
	if err := cuda.WaitForHost(d.kernels, d.stream, &s.exchange); err != nil {
		return err
	}
	return cuda.TakeResults(d.kernels, d.stream, &s.exchange)
}

// multiplyHere computes the results of the resident experts.
func multiplyHere(d *Device, s *splitPart) error {
	if !s.p.split.here[s.phase] {
		return nil
	}
	if err := cuda.PrepareExperts(d.kernels, d.stream, s.p.shape, &s.args); err != nil {
		return err
	}
	return multiplySorted(d, s.p.shape, &s.args)
}

// lookUp launches the lookup of choices in a table.
func lookUp(d *Device, s *splitPart, table, places cuda.Ptr) error {
	return cuda.LookUpPlaces(d.kernels, d.stream, &cuda.PlacesArgs{IDs: at(s.a.IDs), Table: table, Places: places,
		Faults: d.faults.Ptr(), IDStride: stride(s.a.IDs), Rows: s.args.Rows, Top: s.args.Top,
		Experts: s.p.shape.Experts})
}

// multiplyGroup copies a group of fetched experts to the device and computes their results.
func multiplyGroup(d *Device, s *splitPart, g group) error {
	if err := lookUp(d, s, g.table, s.places); err != nil {
		return err
	}
	packed, done, err := bring(d, s, g)
	if err != nil {
		return err
	}
	args := s.args
	args.GateUp, args.Down, args.GateUpScales, args.DownScales = packed.GateUp, packed.Down, packed.GateUpScales,
		packed.DownScales
	args.IDs = s.places
	if err := cuda.PrepareExperts(d.kernels, d.stream, s.p.shape, &args); err != nil {
		return err
	}
	return errors.Join(multiplySorted(d, s.p.shape, &args), done())
}

// bring enqueues the copy of a group to device memory; for prompt rows on a separate stream, before the main stream
// needs the group. The caller calls done after the products.
func bring(d *Device, s *splitPart, g group) (at cuda.PackedExperts, done func() error, err error) {
	o, nothing := &d.offload, func() error { return nil }
	if g.shared {
		at, err = bringShared(d, s, g)
		return at, nothing, err
	}
	shape, bytes := s.p.shape, pieceSizes(s.p.shape)
	source := piecesOf(packedAt(s.p.split.store, int64(len(s.p.split.stored)), shape), g.first, shape)
	if s.phase == 0 || d.capture || o.dry {
		to := packedAt(o.ring, int64(slotsOf(s.phase)), shape)
		return to, nothing, cuda.FetchExperts(d.kernels, d.stream, &cuda.FetchArgs{Places: s.places, From: source,
			To: piecesOf(to, 0, shape), Bytes: bytes, Pairs: s.args.Rows * s.args.Top, Slots: int32(g.count)})
	}
	h, err := takeHalf(o)
	if err != nil {
		return at, nil, err
	}
	at = packedAt(h.at, groupSlots, shape)
	for i, to := range piecesOf(at, 0, shape) {
		if err := o.copies.CopyFromLocked(to, source[i], int64(g.count)*bytes[i]); err != nil {
			return at, nil, err
		}
	}
	return at, func() error { return h.free.Record(d.stream) }, h.filled(d)
}

// takeHalf returns the half of the buffer that was used longer ago. The copy engine waits until it is free.
func takeHalf(o *offloaded) (*half, error) {
	h := &o.halves[o.turn]
	o.turn = 1 - o.turn
	if h.used {
		return h, o.copies.Wait(h.free)
	}
	return h, nil
}

// filled makes the main stream wait for the copies to a half.
func (h *half) filled(d *Device) error {
	h.used = true
	return errors.Join(h.ready.Record(d.offload.copies), d.stream.Wait(h.ready))
}
