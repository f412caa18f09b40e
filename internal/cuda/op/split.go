package op

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// This file prepares experts that are partly in host memory. The resident experts of a layer are packed in device
// memory without gaps; a table in device memory has the position of each expert. Rows that chose experts of the host's
// workers are copied to page-locked memory, and the workers' results are copied back to the results of these choices.
// So the weighted sum is computed as with all experts on the device. Fetched experts are packed in page-locked memory
// and are multiplied group by group after they are copied: for prompts by the copy engine, alternately into two halves
// of a buffer, before the stream needs them; for decodes by a kernel that copies only the chosen experts. The number of
// rows affects only how rows are divided into launches, which does not change the results.

const (
	// mailRows and mailPairs are the limits of an exchange: results of 4096 pairs of 7168 columns are 56 MiB.
	mailRows  = 512
	mailPairs = 4096
	// groupSlots and ringSlots are the numbers of fetched experts that are copied and multiplied together, for prompts
	// and for decodes: 107 and 214 MB for DeepSeek-V4-Flash. In a decode, a group needs five launches, even if no row
	// has chosen its experts.
	groupSlots = 8
	ringSlots  = 16
	// drainTime is the maximum time that Close waits for workers that are computing.
	drainTime = 2 * time.Second
)

// notHere is the table entry of experts that are neither on this device nor computed by the host's workers.
const notHere = cuda.OnHost - 1

// split describes where the experts of a layer are stored, for a layer with experts in host memory.
type split struct {
	methods  kernel.ExpertMethods
	resident []int       // experts packed on the device, in this order
	here     [2]bool     // whether any experts are resident, for decode rows and for prompt rows
	tables   [2]cuda.Ptr // i32 [experts]: tables for decode rows and for prompt rows
	hosted   [2]bool     // whether the host's workers compute some experts, for decode rows and for prompt rows
	groups   [2][]group  // groups of fetched experts, for decode rows and for prompt rows
	shared   []int       // experts that are fetched for prompt rows from the copy of the host's workers
	sharedAt [][plainPieces]cuda.Ptr
	stored   []int            // experts packed in page-locked memory, in this order
	store    cuda.Ptr         // packed weights of the stored experts
	memory   *cuda.HostBuffer // memory of store; nil in a dry run
	host     kernel.HostExperts
	weights  *kernel.ExpertWeights // all experts, if they are movable; otherwise nil
}

// group is a range of the experts in split.stored or split.shared.
type group struct {
	first, count int
	shared       bool
	table        cuda.Ptr // i32 [experts]: slot of each expert, negative for experts of other groups
}

// slotsOf returns the maximum number of experts of a group in a phase: 0 for decode rows, 1 for prompt rows.
func slotsOf(phase int) int {
	if phase == 1 {
		return groupSlots
	}
	return ringSlots
}

// storedOf returns the experts that are fetched in at least one phase and are not shared. Experts that are fetched for
// decode rows come first, so that groups have no gaps.
func storedOf(m kernel.ExpertMethods, shared []int) []int {
	list := slices.DeleteFunc(m.Where(kernel.Fetched), func(e int) bool { return slices.Contains(shared, e) })
	slices.SortStableFunc(list, func(a, b int) int {
		switch first := m.Decode[a] == kernel.Fetched; {
		case first == (m.Decode[b] == kernel.Fetched):
			return 0
		case first:
			return -1
		}
		return 1
	})
	return list
}

// places returns the table of expert positions in a phase.
func (s *split) places(phase int) []int32 {
	method := s.methods.Of(phase == 1)
	table := make([]int32, len(method))
	for e := range table {
		if table[e] = notHere; method[e] == kernel.Computed {
			table[e] = cuda.OnHost
		}
	}
	for slot, e := range s.resident {
		if method[e] == kernel.Resident {
			table[e] = int32(slot)
		}
	}
	return table
}

// slots returns the table of a group's experts in a phase, and whether any of them is fetched.
func (s *split) slots(phase int, g group) (table []int32, any bool) {
	method, list := s.methods.Of(phase == 1), s.stored
	if g.shared {
		list = s.shared
	}
	table = make([]int32, len(method))
	for e := range table {
		table[e] = notHere
	}
	for slot, e := range list[g.first : g.first+g.count] {
		if method[e] == kernel.Fetched {
			table[e], any = int32(slot), true
		}
	}
	return table, any
}

// offloaded holds a device's data for experts in host memory.
type offloaded struct {
	box      *kernel.Mailbox // nil if no workers compute experts
	memory   *cuda.HostBuffer
	at       cuda.Ptr     // device address of memory
	state    *cuda.Buffer // state of exchanges
	timeout  time.Duration
	stores   []*cuda.HostBuffer
	locked   []*cuda.Reachable // memory of the host's workers with shared experts
	ring     cuda.Ptr
	stage    cuda.Ptr // memory for a packed expert that is being moved
	halves   [2]half
	turn     int
	copies   *cuda.Stream // stream of the copy engine
	dry      bool         // operations are checked but not enqueued
	captured int          // exchanges in the capture
	posted   posted
	part     splitPart // run in progress; a field, so that a run does not allocate
}

// half is one of two buffers into which packed experts are copied.
type half struct {
	at          cuda.Ptr
	ready, free *cuda.Event
	used        bool // the event free has been recorded
}

// posted is an exchange that PostExperts has begun.
type posted struct {
	active  bool
	x, ids  kernel.Tensor
	scratch cuda.Ptr
}

// packedAt returns the addresses of n packed experts in one block of memory.
func packedAt(base cuda.Ptr, n int64, s cuda.ExpertShape) cuda.PackedExperts {
	gateUp, gateUpScales, down, _ := s.PackedBytes()
	return cuda.PackedExperts{GateUp: base, Down: base.Add(n * gateUp), GateUpScales: base.Add(n * (gateUp + down)),
		DownScales: base.Add(n * (gateUp + down + gateUpScales))}
}

func packedSize(n int64, s cuda.ExpertShape) int64 {
	gateUp, gateUpScales, down, downScales := s.PackedBytes()
	return n*(gateUp+down+gateUpScales+downScales) + 16
}

// prepareSplit assigns positions to the experts of a layer. x has the shape of the experts.
func prepareSplit(d *Device, u *upload, x *experts, w *kernel.ExpertWeights) error {
	m := w.Methods.Clone() // Swap changes the methods of movable experts
	s := &split{methods: m, resident: m.Where(kernel.Resident), host: w.Host}
	if w.Shared {
		s.shared = m.Shared()
	}
	s.stored = storedOf(m, s.shared)
	size := packedSize(int64(len(s.resident)), x.shape)
	base, err := u.room(size, size)
	if err != nil {
		return err
	}
	x.at, x.split = packedAt(base, int64(len(s.resident)), x.shape), s
	here := w.Select(s.resident)
	if err := u.pack(x, &here, x.at, nil); err != nil {
		return err
	}
	if len(s.stored) > 0 {
		if err := keepPacked(d, u, x, w.Select(s.stored)); err != nil {
			return err
		}
	}
	if err := lockShared(d, x, w.Host); err != nil {
		return err
	}
	for phase := range s.tables {
		s.hosted[phase] = slices.Contains(m.Of(phase == 1), kernel.Computed)
		s.here[phase] = slices.Contains(m.Of(phase == 1), kernel.Resident)
		if s.tables[phase], err = u.table(s.places(phase)); err != nil {
			return err
		}
		if s.groups[phase], err = u.groups(s, phase); err != nil {
			return err
		}
	}
	if w.Movable {
		if err := openStage(d, u, x.shape); err != nil {
			return err
		}
		s.weights = w
	}
	if s.groups[0] != nil || s.groups[1] != nil {
		if err := openRing(d, u, x.shape, w.Shared); err != nil {
			return err
		}
	}
	if s.hosted[0] || s.hosted[1] {
		return openMailbox(d, w.Host, int(x.shape.Hidden))
	}
	return nil
}

// table copies a table to device memory.
func (u *upload) table(list []int32) (cuda.Ptr, error) {
	bytes := make([]byte, 0, 4*len(list))
	for _, v := range list {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(v))
	}
	at, err := u.room(int64(len(bytes)), int64(len(bytes)))
	if err != nil {
		return 0, err
	}
	return at, u.copy(at, bytes)
}

// groups divides the stored and the shared experts into groups, for the methods of one phase.
func (u *upload) groups(s *split, phase int) ([]group, error) {
	var out []group
	for _, g := range slices.Concat(ranges(len(s.stored), slotsOf(phase), false),
		ranges(len(s.shared), slotsOf(phase), true)) {
		table, any := s.slots(phase, g)
		if !any {
			continue
		}
		var err error
		if g.table, err = u.table(table); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// ranges divides n experts into groups of at most the given number.
func ranges(n, most int, shared bool) []group {
	var out []group
	for first := 0; first < n; first += most {
		out = append(out, group{first: first, count: min(most, n-first), shared: shared})
	}
	return out
}

// hostMemory allocates page-locked memory. A dry run gets an address without memory.
func hostMemory(d *Device, bytes int64) (cuda.Ptr, *cuda.HostBuffer, error) {
	if d.tried {
		b, err := d.gpu.Alloc(bytes)
		if err != nil {
			return 0, nil, err
		}
		d.spare = append(d.spare, b)
		return b.Ptr(), nil, nil
	}
	m, err := d.gpu.AllocHost(bytes)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: allocating %d bytes of page-locked host memory for experts: %w; keep more "+
			"experts on the "+
			"device, or raise the limit of locked memory (ulimit -l)", kernel.ErrMemory, bytes, err)
	}
	return m.Ptr(), m, nil
}

// keepPacked packs experts on the device and copies them to page-locked memory, from which passes fetch them.
func keepPacked(d *Device, u *upload, x *experts, w kernel.ExpertWeights) error {
	n := int64(len(w.Gate))
	size := packedSize(n, x.shape)
	at, memory, err := hostMemory(d, size)
	if err != nil {
		return err
	}
	x.split.store, x.split.memory = at, memory
	if memory == nil {
		return nil
	}
	d.offload.stores = append(d.offload.stores, memory)
	return u.temporary(packedSize(1, x.shape), func(slot cuda.Ptr) error {
		from := packedAt(slot, 1, x.shape)
		return u.pack(x, &w, from, func(e int) error { return keep(u.stream, memory, int(n), e, from, 0, x.shape) })
	})
}

// keep copies packed expert i of from to position e in page-locked memory for n experts.
func keep(stream *cuda.Stream, memory *cuda.HostBuffer, n, e int, from cuda.PackedExperts, i int,
	s cuda.ExpertShape) error {
	at := int64(0)
	for j, piece := range piecesOf(from, i, s) {
		bytes := pieceSizes(s)[j]
		if err := stream.CopyToHost(memory.Bytes()[at+int64(e)*bytes:][:bytes], piece); err != nil {
			return err
		}
		at += int64(n) * bytes
	}
	return nil
}

// pieceSizes returns the sizes in bytes of the parts of a packed expert (weights and scales), in their order in memory.
func pieceSizes(s cuda.ExpertShape) [4]int64 {
	gateUp, gateUpScales, down, downScales := s.PackedBytes()
	return [4]int64{gateUp, down, gateUpScales, downScales}
}

// piecesOf returns the addresses of the parts of packed expert i, in the order of pieceSizes.
func piecesOf(p cuda.PackedExperts, i int, s cuda.ExpertShape) [4]cuda.Ptr {
	out := [4]cuda.Ptr{p.GateUp, p.Down, p.GateUpScales, p.DownScales}
	for j, bytes := range pieceSizes(s) {
		out[j] = out[j].Add(int64(i) * bytes)
	}
	return out
}

// openRing allocates the buffers into which experts are fetched.
func openRing(d *Device, u *upload, s cuda.ExpertShape, shared bool) (err error) {
	o := &d.offload
	if o.ring != 0 {
		return nil
	}
	ring, size := packedSize(ringSlots, s), packedSize(groupSlots, s)
	if shared {
		ring, size = max(ring, aligned256(size)+groupSlots*plainSize(s)), max(size, groupSlots*plainSize(s))
	}
	if o.ring, err = u.room(ring, 0); err != nil {
		return err
	}
	for i := range o.halves {
		h := &o.halves[i]
		if h.at, err = u.room(size, 0); err != nil {
			return err
		}
		if h.ready, err = d.gpu.NewMarker(); err != nil {
			return err
		}
		if h.free, err = d.gpu.NewMarker(); err != nil {
			return err
		}
	}
	o.copies, err = d.gpu.NewStream()
	return err
}

// openMailbox makes the mailbox that all layers use.
func openMailbox(d *Device, to kernel.HostExperts, hidden int) (err error) {
	o := &d.offload
	if o.state != nil {
		return nil
	}
	if o.state, err = d.gpu.Alloc(cuda.ExchangeStateBytes); err != nil {
		return err
	}
	if err = d.stream.Fill(o.state.Ptr(), 0, cuda.ExchangeStateBytes); err != nil {
		return err
	}
	o.timeout = to.Timeout()
	shape := kernel.MailboxShape{Activation: kernel.BF16, Hidden: hidden, Rows: mailRows, Pairs: mailPairs}
	_, _, _, size := shape.Offsets()
	if o.at, o.memory, err = hostMemory(d, size); err != nil || o.memory == nil {
		return err
	}
	clear(o.memory.Bytes())
	if o.box, err = kernel.NewMailbox(shape, o.memory.Bytes()); err != nil {
		return err
	}
	return to.Serve(o.box)
}

// expectPosts announces n enqueued exchanges to the workers.
func expectPosts(d *Device, n int) {
	o := &d.offload
	switch {
	case o.dry || o.box == nil || n == 0:
	case d.capture:
		o.captured += n
	default:
		o.box.Expect(n)
	}
}

// failed returns the error for workers that failed or did not answer.
func (o *offloaded) failed() error {
	if o.box == nil {
		return fmt.Errorf("%w: cuda: experts are in host memory, but there are no workers that compute "+
			"them", kernel.ErrLost)
	}
	if err := o.box.Err(); err != nil {
		o.box.Clear()
		return err
	}
	return o.box.Late(o.timeout)
}

// close releases everything. The stream must be idle.
func (o *offloaded) close() error {
	var errs []error
	if o.box != nil && !o.box.Drain(drainTime) {
		errs = append(errs, errors.New("cuda: the workers of experts in host memory do not stop; their memory is not "+
			"released"))
	} else {
		errs = append(errs, o.memory.Free())
	}
	errs = append(errs, o.state.Free())
	if o.copies != nil {
		errs = append(errs, o.copies.Sync(), o.copies.Close())
	}
	for _, h := range o.halves {
		errs = append(errs, h.ready.Close(), h.free.Close())
	}
	for _, m := range o.stores {
		errs = append(errs, m.Free())
	}
	for _, m := range o.locked {
		errs = append(errs, m.Free())
	}
	return errors.Join(errs...)
}
