// Package offload computes experts that are in host memory, for a device that computes the other experts.
//
// When a device prepares a layer, the package makes a kernel.HostExperts from the weights of the layer's experts. When
// the device runs, rows and routing arrive in a kernel.Mailbox; a device in host memory computes the results, which are
// returned by row and choice.
package offload

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"sparrow/internal/device/host"
	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
	"sparrow/kernel"
)

// Timeout is the default time that a device waits for the workers. An exchange takes milliseconds, but much longer if
// weights must first be read from a disk.
const Timeout = time.Minute

// Options are the settings of a host.
type Options struct {
	// Timeout is the maximum time that a device waits for a result.
	Timeout time.Duration
	// Awake prevents the workers from sleeping while a pass is enqueued. The device waits for each exchange, and the
	// workers use all cores but one.
	Awake bool
	// Memory is the maximum number of bytes of experts on the host; 0 means seven eighths of the free memory.
	Memory int64
}

// Host holds the experts that are in host memory, by layer, and computes them for devices. Prepare is called by one
// goroutine; exchanges run on goroutines of the host.
type Host struct {
	dev     kernel.Device // device that computes the experts, in the host's memory
	rows    kernel.ExpertRower
	opts    Options
	used    int64 // size of the stored experts in bytes
	counts  bool  // bytes are only counted, and no weights are stored
	mu      sync.Mutex
	layers  []*layer
	serving []*serving
	lost    error

	// Fields of the exchange in progress.
	exchange  sync.Mutex
	x, result kernel.Tensor // f32: converted rows and results, for a mailbox with another type
	ids       kernel.Tensor // i32: indices of the experts among the host's experts
	work      Work
	seen      []bool // experts that occurred in the exchange
}

// Work holds counters of the host's work.
type Work struct {
	Exchanges int64
	Experts   int64         // number of computed experts, each counted once for each exchange
	Bytes     int64         // size of the weights of these experts in bytes
	Busy      time.Duration // time from arrival to answer, of exchanges with experts
}

// Work returns the counters of the host's work so far.
func (h *Host) Work() Work {
	h.exchange.Lock()
	defer h.exchange.Unlock()
	return h.work
}

// layer holds the experts of a layer.
type layer struct {
	host    *Host
	number  int
	experts kernel.Experts
	stored  kernel.StoredExperts // the same experts, if another device fetches them; else nil
	// local holds, for decodes and for prompts, the index of each expert among the host's experts, -1 for experts of a
	// device.
	local   [2][]int32
	weights *kernel.ExpertWeights // weights of all experts if experts may move; else nil
	each    int64                 // size of an expert in bytes
}

// serving is a mailbox that the host serves.
type serving struct {
	box   *kernel.Mailbox
	ended chan struct{}
}

// New makes a host with a device in host memory, which it closes.
func New(dev kernel.Device, o Options) (*Host, error) {
	rows, ok := dev.(kernel.ExpertRower)
	if !ok || dev.Activation() != kernel.F32 {
		return nil, fmt.Errorf("%w: %s cannot compute experts in host memory; use the CPU kernels",
			kernel.ErrUnsupported, dev.Name())
	}
	if o.Timeout <= 0 {
		o.Timeout = Timeout
	}
	if o.Memory <= 0 {
		free := sysmem.Available()
		o.Memory = free - free/8
	}
	return &Host{dev: dev, rows: rows, opts: o}, nil
}

// DryRun returns a host with the same settings that stores no weights: its method Used returns the bytes that the
// weights would need.
func (h *Host) DryRun() *Host { return &Host{dev: h.dev, rows: h.rows, opts: h.opts, counts: true} }

// Used returns the size of the experts in host memory, in bytes.
func (h *Host) Used() int64 { return h.used }

// Memory returns the maximum number of bytes of experts on the host; 0 if the system does not report its free memory.
func (h *Host) Memory() int64 { return h.opts.Memory }

// Fits returns an error with the missing memory if experts of the given number of bytes exceed the host's limit.
func (h *Host) Fits(bytes int64) error {
	// A limit of 0 means that the system does not report its free memory.
	if h.opts.Memory == 0 || bytes <= h.opts.Memory {
		return nil
	}
	return fmt.Errorf("%w: experts in host memory need %s, but the limit is %s, %s less; keep more experts on the "+
		"device, or free memory", kernel.ErrMemory, unit.Bytes(bytes), unit.Bytes(h.opts.Memory),
		unit.Bytes(bytes-h.opts.Memory))
}

// Prepare stores the experts of a layer whose method is Computed, and returns what the device needs to run them. number
// is the layer's number for messages.
func (h *Host) Prepare(number int, w kernel.ExpertWeights) (kernel.HostExperts, error) {
	own := w.Methods.Where(kernel.Computed)
	if len(own) == 0 {
		return nil, nil
	}
	some := w.Select(own)
	if err := some.Check(); err != nil {
		return nil, err
	}
	bytes := some.StoredBytes(1)
	some.Together = w.Shared
	l := &layer{host: h, number: number, each: bytes / int64(len(own))}
	if h.used += bytes; h.counts {
		return l, nil
	}
	if err := h.Fits(h.used); err != nil {
		return nil, fmt.Errorf("layer %d: %w", number, err)
	}
	for phase := range l.local {
		l.local[phase] = make([]int32, len(w.Gate))
		for e := range w.Gate {
			l.local[phase][e] = -1
		}
		for i, e := range own {
			if w.Methods.Of(phase == 1)[e] == kernel.Computed {
				l.local[phase][e] = int32(i)
			}
		}
	}
	var err error
	if l.experts, err = h.dev.PrepareExperts(some); err != nil {
		return nil, err
	}
	if w.Shared {
		var ok bool
		if l.stored, ok = l.experts.(kernel.StoredExperts); !ok {
			return nil, fmt.Errorf("%w: layer %d: %s does not store experts in one block of memory, from which "+
				"another device fetches them", kernel.ErrUnsupported, number, h.dev.Name())
		}
	}
	if w.Movable {
		l.weights = &w
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.layers = append(h.layers, l)
	return l, nil
}

func (l *layer) Layer() int { return l.number }

// Timeout returns the maximum time that a device waits.
func (l *layer) Timeout() time.Duration { return l.host.opts.Timeout }

// Stored returns the matrices of expert e as the host stores them.
func (l *layer) Stored(e int) (gate, up, down kernel.Weight) {
	return l.stored.Stored(int(max(l.local[0][e], l.local[1][e])))
}

// Block returns the memory that contains the matrices of all experts stored by the host. A dry run has none.
func (l *layer) Block() []byte {
	if l.stored == nil {
		return nil
	}
	return l.stored.Block()
}

// Swap replaces expert in, which the host computes, by expert out of a device.
func (l *layer) Swap(in, out int) error {
	h := l.host
	if h.counts {
		return nil
	}
	h.exchange.Lock()
	defer h.exchange.Unlock()
	place := max(l.local[0][in], l.local[1][in])
	if place < 0 { // the expert is fetched for decodes and for prompts
		return nil
	}
	dev, ok := h.dev.(kernel.ExpertReplacer)
	if l.weights == nil || !ok {
		return fmt.Errorf("%w: experts in host memory of layer %d (%s) were not prepared to be moved",
			kernel.ErrUnsupported, l.number, h.dev.Name())
	}
	some := l.weights.Select([]int{out})
	onHeap := func(bytes int64) (kernel.HostBuffer, error) { return make(kernel.HostBuffer, bytes), nil }
	if err := some.OnHost(onHeap); err != nil {
		return err
	}
	if err := dev.ReplaceExpert(l.experts, int(place), some); err != nil {
		return err
	}
	for phase := range l.local {
		l.local[phase][in], l.local[phase][out] = l.local[phase][out], l.local[phase][in]
	}
	return nil
}

// Serve handles the requests of a device, on its own goroutine.
func (l *layer) Serve(box *kernel.Mailbox) error {
	h := l.host
	if h.counts {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	s := &serving{box: box, ended: make(chan struct{})}
	if w, ok := h.dev.(kernel.Waker); ok && h.opts.Awake {
		box.Awake = w.KeepAwake
	}
	box.Begin()
	h.serving = append(h.serving, s)
	go func() {
		defer close(s.ended)
		for {
			m, ok := box.Next()
			if !ok {
				return
			}
			box.Finish(h.guard(box, m))
		}
	}()
	return nil
}

// guard adds the host and the layer to errors, and converts a panic to an error.
func (h *Host) guard(box *kernel.Mailbox, m kernel.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		if err != nil {
			err = fmt.Errorf("experts in host memory of layer %d (%s): %w", m.Layer, h.dev.Name(), err)
		}
	}()
	return h.answer(box, m)
}

// answer computes the host's experts of an exchange.
func (h *Host) answer(box *kernel.Mailbox, m kernel.Message) error {
	h.exchange.Lock()
	defer h.exchange.Unlock()
	begun := time.Now()
	l := h.find(m.Layer)
	if l == nil || m.Rows < 0 || m.Top < 1 || m.Rows > box.Fit(m.Top) {
		return fmt.Errorf("%w: the layer is unknown, or %d rows of %d choices do not fit in the mailbox, want at "+
			"most %d rows",
			kernel.ErrArgument, m.Rows,
			m.Top, box.Fit(max(m.Top, 1)))
	}
	phase := 0
	if m.Prompt {
		phase = 1
	}
	ids, err := h.memory(&h.ids, kernel.I32, m.Rows, m.Top)
	if err != nil {
		return err
	}
	to, local := host.I32(ids), l.local[phase]
	for i, e := range host.I32(box.IDs)[:m.Rows*m.Top] {
		switch {
		case int(e) >= len(local):
			return fmt.Errorf("%w: row %d chose expert %d, outside the %d experts", kernel.ErrArgument, i/m.Top, e,
				len(local))
		case e < 0: // a choice that is not of the host's experts
			to[i] = -1
		default:
			to[i] = local[e]
		}
	}
	defer h.note(l, to, begun)
	a := kernel.ExpertRowsArgs{Results: box.Results.Slice(0, m.Rows*m.Top), X: box.X.Slice(0, m.Rows), IDs: ids,
		Experts: l.experts, Limit: m.Limit}
	if box.Activation == kernel.F32 {
		return h.rows.ExpertRows(a)
	}
	if a.X, err = h.memory(&h.x, kernel.F32, m.Rows, box.Hidden); err != nil {
		return err
	}
	if a.Results, err = h.memory(&h.result, kernel.F32, m.Rows*m.Top, box.Hidden); err != nil {
		return err
	}
	widen(a.X, box.X, to, m.Top)
	if err := h.rows.ExpertRows(a); err != nil {
		return err
	}
	narrow(box.Results, a.Results, to)
	return nil
}

// note counts an exchange with the given experts of a layer.
func (h *Host) note(l *layer, ids []int32, begun time.Time) {
	if n := l.experts.Count(); len(h.seen) < n {
		h.seen = make([]bool, n)
	}
	clear(h.seen)
	experts := int64(0)
	for _, e := range ids {
		if e >= 0 && !h.seen[e] {
			h.seen[e] = true
			experts++
		}
	}
	h.work.Exchanges++
	if experts > 0 {
		h.work.Experts += experts
		h.work.Bytes += experts * l.each
		h.work.Busy += time.Since(begun)
	}
}

// find returns the layer with the given number, or nil.
func (h *Host) find(number int) *layer {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.layers {
		if l.number == number {
			return l
		}
	}
	return nil
}

// memory returns a tensor [rows, cols] in reused memory that grows as needed.
func (h *Host) memory(kept *kernel.Tensor, d kernel.DType, rows, cols int) (kernel.Tensor, error) {
	if n := rows * cols; kept.Cols < n {
		t, err := kernel.New(h.dev, d, 1, n+n/4)
		if err != nil {
			return t, err
		}
		*kept = t
	}
	t := *kept
	t.Rows, t.Cols, t.Stride = rows, cols, cols
	return t, nil
}

// closeWait is the maximum time that Close waits for workers in the middle of an exchange.
const closeWait = 2 * time.Second

// Close ends the goroutines and closes the device. If workers hang, the device is not closed and Close returns an
// error. A second call does
// nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.lost != nil || h.counts {
		h.mu.Unlock()
		return nil
	}
	h.lost = fmt.Errorf("%w: the experts in host memory were used after Close", kernel.ErrLost)
	list := h.serving
	h.mu.Unlock()
	for _, s := range list {
		s.box.Close()
	}
	deadline := time.Now().Add(closeWait)
	for _, s := range list {
		select {
		case <-s.ended:
		case <-time.After(max(time.Until(deadline), time.Millisecond)):
			return errors.New("offload: the workers of experts in host memory do not stop; their threads and memory " +
				"are not released")
		}
	}
	return h.dev.Close()
}
