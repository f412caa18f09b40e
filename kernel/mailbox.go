package kernel

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// MailboxShape holds the sizes of a mailbox.
type MailboxShape struct {
	Activation DType // element type of rows and results
	Hidden     int   // columns of rows and results
	Rows       int   // maximum number of rows of an exchange
	Pairs      int   // maximum number of pairs of a row and a chosen expert in an exchange
}

// The words at the beginning of a mailbox. The words that the device writes and those that the host writes are in
// different cache lines.
const (
	// MailPosted is the number of exchanges that the device has posted, modulo 2^32.
	MailPosted = 0
	// MailMessage is the index of the first word of the message of the latest exchange: layer, number of rows, choices
	// per row, the clamp of activations as float32 bits, and 1 if the rows belong to prompts.
	MailMessage = 1
	// MailFinished is the number of exchanges that the host's workers have answered.
	MailFinished = 16
	// MailFailed is not 0 if the workers could not answer; Mailbox.Err returns the reason. The device then stops
	// waiting.
	MailFailed = 17

	mailWords = 64
)

const mailAlign = 256

func (s MailboxShape) rowBytes() int64 { return int64(s.Hidden) * int64(s.Activation.Size()) }

// Offsets returns the offsets in bytes of rows, ids and results in the memory of a mailbox, and the size of that
// memory.
func (s MailboxShape) Offsets() (x, ids, results, size int64) {
	up := func(n int64) int64 { return (n + mailAlign - 1) / mailAlign * mailAlign }
	x = up(4 * mailWords)
	ids = up(x + int64(s.Rows)*s.rowBytes())
	results = up(ids + 4*int64(s.Pairs))
	return x, ids, results, up(results + int64(s.Pairs)*s.rowBytes())
}

// Fit returns the maximum number of rows of an exchange if each row has k choices.
func (s MailboxShape) Fit(k int) int { return min(s.Rows, s.Pairs/max(k, 1)) }

// Mailbox is host memory through which a device passes rows of a layer to workers on the host. The workers compute some
// of the layer's experts and return results. Device and workers run at the same time and communicate through words in
// that memory.
//
// In an exchange, the device writes rows, ids and the message, and then increments MailPosted. The workers compute,
// write results, and then set MailFinished to the value of MailPosted. The device waits for MailFinished, with a
// time-out, before it reads results, and only then begins the next exchange. On an asynchronous device, Expect is
// called when an exchange is enqueued, so that workers can sleep while none is.
type Mailbox struct {
	MailboxShape
	X       Tensor // activation [Rows, Hidden]
	IDs     Tensor // i32 [Pairs, 1]: the chosen experts, row after row without gaps
	Results Tensor // activation [Pairs, Hidden], by row and choice; undefined for experts of the device
	// Awake is optional and set before the first call of Next. Next calls it with true when exchanges are expected, and
	// with false before it sleeps, after no exchange was expected for the time lingers.
	Awake func(on bool)

	words    []uint32
	expected atomic.Uint32 // number of exchanges that were enqueued, modulo 2^32
	taken    uint32        // number of exchanges that the workers have taken, modulo 2^32
	wake     chan struct{} // receives when expected has grown
	done     chan struct{} // receives when MailFinished has grown
	closed   chan struct{}
	once     sync.Once
	serving  atomic.Bool
	ended    chan struct{} // closed when the workers no longer use the memory
	timer    *time.Timer   // time-out of Await

	mu  sync.Mutex
	err error // first reason why the workers could not answer
}

// Message describes an exchange without its rows and ids.
type Message struct {
	Layer  int // layer number (HostExperts.Layer)
	Rows   int
	Top    int // choices per row
	Limit  float32
	Prompt bool // the rows belong to prompts
}

// NewMailbox makes a mailbox in zeroed memory. The memory has at least the size of the shape and starts at a multiple
// of 64 bytes.
func NewMailbox(s MailboxShape, memory []byte) (*Mailbox, error) {
	x, ids, results, size := s.Offsets()
	if int64(len(memory)) < size || s.Rows < 1 || s.Pairs < 1 || s.Hidden < 1 {
		return nil, fmt.Errorf("%w: a mailbox of %d rows and %d choices of %d columns was given %d bytes, want at "+
			"least %d", ErrArgument, s.Rows, s.Pairs, s.Hidden, len(memory), size)
	}
	at := func(off int64, d DType, rows, cols int) Tensor {
		return Tensor{Buf: HostBuffer(memory), Off: off, DType: d, Rows: rows, Cols: cols, Stride: cols}
	}
	b := &Mailbox{MailboxShape: s, X: at(x, s.Activation, s.Rows, s.Hidden), IDs: at(ids, I32, s.Pairs, 1),
		Results: at(results, s.Activation, s.Pairs, s.Hidden), wake: make(chan struct{}, 1),
		done: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}),
		timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	// The first 4*mailWords bytes of memory, which is aligned for words.
	b.words = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(memory))), mailWords)
	return b, nil
}

// Expect reports that n more exchanges were enqueued on the device.
func (b *Mailbox) Expect(n int) {
	b.expected.Add(uint32(n))
	notify(b.wake)
}

// Expected returns the number of exchanges that were enqueued so far, modulo 2^32.
func (b *Mailbox) Expected() uint32 { return b.expected.Load() }

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close makes the device and the workers stop waiting. A second call does nothing.
func (b *Mailbox) Close() {
	if b != nil {
		b.once.Do(func() { close(b.closed) })
	}
}

// Begin announces that workers will call Next, until it returns false.
func (b *Mailbox) Begin() { b.serving.Store(true) }

// Drain closes the mailbox and waits until the workers have ended an exchange in progress. It returns false if they do
// not end within the given time; the memory must then not be freed.
func (b *Mailbox) Drain(most time.Duration) bool {
	b.Close()
	if !b.serving.Load() {
		return true
	}
	select {
	case <-b.ended:
		return true
	case <-time.After(most):
		return false
	}
}

// Err returns the reason why the workers could not answer an exchange; nil if they could.
func (b *Mailbox) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// fail records an error, if none was recorded before, and returns the recorded error.
func (b *Mailbox) fail(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	return b.err
}

// Clear removes the recorded error, after which the mailbox can be used again.
func (b *Mailbox) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = nil
	atomic.StoreUint32(&b.words[MailFailed], 0)
}

// Counts and times of the ways in which workers wait for an expected exchange. They first poll without a pause, then
// yield to other goroutines between polls, then sleep. During decoding, the interval between exchanges is a few hundred
// microseconds.
const (
	looks     = 1000
	yieldsFor = 2 * time.Millisecond
	shortNap  = 50 * time.Microsecond
	longNap   = 2 * time.Millisecond
	napsFor   = 200 * time.Millisecond
	// lingers is how long workers poll for the next pass before they sleep. During decoding the next pass is enqueued
	// sooner.
	lingers = 2 * time.Millisecond
)

// Next waits for the next exchange and returns false if the mailbox was closed. Workers call Next and then Finish for
// each exchange.
func (b *Mailbox) Next() (Message, bool) {
	m, ok := b.next()
	if !ok {
		if b.Awake != nil {
			b.Awake(false)
		}
		close(b.ended)
	}
	return m, ok
}

func (b *Mailbox) next() (Message, bool) {
	if !b.expects() {
		return Message{}, false
	}
	var begun time.Time
	for i := 0; atomic.LoadUint32(&b.words[MailPosted]) == b.taken; i++ {
		if i%looks != 0 {
			continue
		}
		select {
		case <-b.closed:
			return Message{}, false
		default:
		}
		if i == 0 {
			begun = time.Now()
		}
		switch waited := time.Since(begun); {
		case waited < yieldsFor:
			runtime.Gosched()
		case waited < napsFor:
			time.Sleep(shortNap)
		default:
			time.Sleep(longNap)
		}
	}
	b.taken++
	m := b.words[MailMessage:]
	return Message{Layer: int(m[0]), Rows: int(m[1]), Top: int(m[2]), Limit: math.Float32frombits(m[3]),
		Prompt: m[4] != 0}, true
}

// expects waits until an exchange is expected and returns false if the mailbox was closed.
func (b *Mailbox) expects() bool {
	if b.Awake != nil {
		for begun := time.Now(); b.expected.Load() == b.taken && time.Since(begun) < lingers; {
			runtime.Gosched()
		}
	}
	if b.expected.Load() != b.taken {
		return true
	}
	if b.Awake != nil {
		b.Awake(false)
	}
	for b.expected.Load() == b.taken {
		select {
		case <-b.wake:
		case <-b.closed:
			return false
		}
	}
	if b.Awake != nil {
		b.Awake(true)
	}
	return true
}

// Finish answers the exchange that Next returned. err is nil if the results were written; otherwise it is the reason.
func (b *Mailbox) Finish(err error) {
	if err != nil {
		b.fail(err)
		atomic.StoreUint32(&b.words[MailFailed], 1)
	}
	atomic.StoreUint32(&b.words[MailFinished], b.taken)
	notify(b.done)
}

// Post posts an exchange after its rows and ids were written and Err returned nil. Synchronous devices call it; on
// other devices, kernels write the words of the message.
func (b *Mailbox) Post(m Message) {
	w := b.words[MailMessage:]
	w[0], w[1], w[2], w[3], w[4] = uint32(m.Layer), uint32(m.Rows), uint32(m.Top), math.Float32bits(m.Limit), 0
	if m.Prompt {
		w[4] = 1
	}
	atomic.AddUint32(&b.words[MailPosted], 1)
	b.Expect(1)
}

// Await waits until the workers have answered the latest exchange. An error of the workers is returned once. After a
// time-out no further exchange may be posted.
func (b *Mailbox) Await(timeout time.Duration) error {
	defer b.timer.Stop()
	b.timer.Reset(timeout)
	for posted := b.words[MailPosted]; atomic.LoadUint32(&b.words[MailFinished]) != posted; {
		select {
		case <-b.done:
		case <-b.closed:
			return b.fail(fmt.Errorf("%w: the workers of experts in host memory were stopped", ErrLost))
		case <-b.timer.C:
			return b.fail(b.Late(timeout))
		}
	}
	err := b.Err()
	if err != nil {
		b.Clear()
	}
	return err
}

// Late returns the error for workers that did not answer in time.
func (b *Mailbox) Late(timeout time.Duration) error {
	m := b.words[MailMessage:]
	return fmt.Errorf("%w: the workers of experts in host memory did not answer for %v: exchange %d, layer %d, "+
		"%d rows (they have answered %d exchanges); look for other programs on the cores, or for weights on a disk "+
		"that does not answer", ErrLost, timeout, b.words[MailPosted], m[0], m[1],
		atomic.LoadUint32(&b.words[MailFinished]))
}
