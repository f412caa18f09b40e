package op

import (
	"errors"
	"runtime"
	"sync"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Weights are copied through page-locked memory: reader goroutines copy parts of the mapped files into buffers, while
// the copy engine copies other buffers to the device. Pieces, and the kernels that rearrange them, are enqueued in the
// order in which weights are prepared.

const (
	// pieceBytes is the size of a buffer: copies of 4 MiB reach 53 of the bus's 54 GB/s, and page-locking memory takes
	// 0.5 ms per MiB.
	pieceBytes = 4 << 20
	// mostReaders is the number of goroutines that read files: each copies 6 to 7 GB/s of cached pages.
	mostReaders = 12
	// sparePieces is the number of buffers that are being copied to the device while readers fill others.
	sparePieces = 4
	// smallBytes is the maximum size of a copy that shares a buffer with others, such as block scales. Small copies
	// also use page-locked buffers, because a copy from other memory waits for all earlier copies.
	smallBytes = 256 << 10
)

// upload is the state between BeginLoad and EndLoad.
type upload struct {
	d       *Device
	stream  *cuda.Stream // separate from the device's stream, which the goroutine that prepares weights uses
	pool    *cuda.Pool   // device memory for weights that are rearranged; the stream orders its reuse
	readers int
	made    int // number of buffers that were allocated
	free    chan *piece
	fills   chan *piece
	order   chan task // tasks for the stream, in order
	wait    sync.WaitGroup
	all     []*piece
	small   [2]*piece         // buffers for small copies; the enqueuing goroutine fills them alternately
	turn    int               // index of the small buffer in use
	used    int               // bytes used in that buffer
	joins   [][]kernel.Matrix // groups of matrices to join at the end of the load

	mu  sync.Mutex
	err error // first error of the enqueuing goroutine
}

// piece is a buffer of page-locked memory with its contents.
type piece struct {
	memory *cuda.HostBuffer
	used   *cuda.Event // recorded after the last copy from the buffer
	sent   bool        // used has been recorded
	from   []byte
	filled chan struct{} // receives a value each time the buffer was filled
}

// task is work to enqueue on the stream: the copy of a filled piece, or another operation.
type task struct {
	piece *piece
	to    cuda.Ptr
	run   func() error
}

// BeginLoad makes Prepare asynchronous: weights may be used once EndLoad has returned.
func (d *Device) BeginLoad() error {
	if d.upload != nil {
		return nil
	}
	readers := min(mostReaders, max(1, runtime.GOMAXPROCS(0)-1))
	stream, err := d.gpu.NewStream()
	if err != nil {
		return err
	}
	u := &upload{d: d, stream: stream, pool: d.gpu.NewPool(), readers: readers,
		free: make(chan *piece, readers+sparePieces), fills: make(chan *piece, readers+sparePieces),
		order: make(chan task, 256)}
	for range readers {
		u.wait.Go(u.read)
	}
	u.wait.Go(u.enqueue)
	d.upload = u
	return nil
}

// EndLoad waits until all weights are in device memory and frees the buffers.
func (d *Device) EndLoad() error {
	u := d.upload
	if u == nil {
		return nil
	}
	d.upload = nil
	close(u.fills)
	close(u.order)
	u.wait.Wait()
	errs := []error{u.err, u.stream.Sync(), u.stream.Close(), u.pool.Close()}
	for _, p := range append(u.all, u.small[:]...) {
		if p != nil {
			errs = append(errs, p.used.Close(), p.memory.Free())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, list := range u.joins {
		if err := joinMatrices(d, list); err != nil {
			return err
		}
	}
	return nil
}

// loaded calls body as part of the load in progress, or of a new load.
func loaded(d *Device, body func(*upload) error) error {
	if d.upload != nil {
		return body(d.upload)
	}
	if err := d.BeginLoad(); err != nil {
		return err
	}
	err := body(d.upload)
	return errors.Join(err, d.EndLoad())
}

// read fills pieces from files until the channel fills is closed.
func (u *upload) read() {
	for p := range u.fills {
		if p.sent {
			u.fail(p.used.Sync())
		}
		copy(p.memory.Bytes(), p.from)
		p.filled <- struct{}{}
	}
}

// enqueue passes tasks to the stream in order. After an error it enqueues nothing more.
func (u *upload) enqueue() {
	for t := range u.order {
		if t.piece != nil {
			<-t.piece.filled
		}
		if u.failed() == nil {
			u.fail(u.one(t))
		}
		if t.piece != nil {
			u.free <- t.piece
		}
	}
}

func (u *upload) one(t task) error {
	if t.piece == nil {
		return t.run()
	}
	p := t.piece
	if err := u.stream.CopyToDevice(t.to, p.memory.Bytes()[:len(p.from)]); err != nil {
		return err
	}
	p.sent = true
	return p.used.Record(u.stream)
}

func (u *upload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// do enqueues an operation on the stream.
func (u *upload) do(run func() error) { u.order <- task{run: run} }

// copy copies host memory to device memory. The host memory must not change before EndLoad.
func (u *upload) copy(to cuda.Ptr, from []byte) error {
	if len(from) <= smallBytes {
		u.do(func() error { return u.copySmall(to, from) })
		return nil
	}
	for at := 0; at < len(from); at += pieceBytes {
		p, err := u.piece()
		if err != nil {
			return err
		}
		p.from = from[at:min(at+pieceBytes, len(from))]
		u.fills <- p
		u.order <- task{piece: p, to: to.Add(int64(at))}
	}
	return nil
}

// piece returns a free buffer. If none is free, it allocates one or, at the maximum number of buffers, waits.
func (u *upload) piece() (*piece, error) {
	select {
	case p := <-u.free:
		return p, nil
	default:
	}
	if u.made == u.readers+sparePieces {
		return <-u.free, nil
	}
	u.made++
	p, err := u.newPiece(pieceBytes)
	if err == nil {
		u.all = append(u.all, p)
	}
	return p, err
}

func (u *upload) newPiece(bytes int64) (*piece, error) {
	memory, err := u.d.gpu.AllocHost(bytes)
	if err != nil {
		return nil, err
	}
	used, err := u.d.gpu.NewMarker()
	if err != nil {
		return nil, errors.Join(err, memory.Free())
	}
	return &piece{memory: memory, used: used, filled: make(chan struct{}, 1)}, nil
}

// copySmall copies through one of two buffers for small copies: one is filled while the other is copied to the device.
func (u *upload) copySmall(to cuda.Ptr, from []byte) error {
	if p := u.small[u.turn]; p != nil && u.used+len(from) > len(p.memory.Bytes()) {
		p.sent = true
		if err := p.used.Record(u.stream); err != nil {
			return err
		}
		u.turn, u.used = 1-u.turn, 0
		if p := u.small[u.turn]; p != nil && p.sent {
			if err := p.used.Sync(); err != nil {
				return err
			}
		}
	}
	if u.small[u.turn] == nil {
		p, err := u.newPiece(4 * smallBytes)
		if err != nil {
			return err
		}
		u.small[u.turn] = p
	}
	at := u.small[u.turn].memory.Bytes()[u.used:][:len(from)]
	copy(at, from)
	u.used += len(from)
	return u.stream.CopyToDevice(to, at)
}

// temporary allocates device memory, calls use, and frees the memory after the tasks that use enqueued.
func (u *upload) temporary(bytes int64, use func(cuda.Ptr) error) error {
	p, err := u.pool.Get(max(bytes, 16))
	if err != nil {
		return err
	}
	return errors.Join(use(p), u.pool.Put(p))
}
