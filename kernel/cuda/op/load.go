package op

import (
	"errors"
	"runtime"
	"sync"

	"sparrow/internal/mmap"
	"sparrow/kernel/cuda"
)

// Weights travel through page-locked memory: readers copy pieces of the mapped files into buffers while the copy engine
// empties others. Pieces and the kernels that rearrange them are enqueued in the order in which weights are prepared.

const (
	// pieceBytes is the size of a buffer: long enough that the copy engine's start does not count, short enough that
	// the buffers are locked in a fraction of the time that a large model takes.
	pieceBytes = 8 << 20
	// mostReaders is how many goroutines read files: each reaches 5 to 10 GB/s where the files are in memory.
	mostReaders = 12
	// directBytes is the largest piece that is left to the driver's own staging memory.
	directBytes = 64 << 10
)

// upload is the state between BeginLoad and EndLoad.
type upload struct {
	d       *Device
	stream  *cuda.Stream // of its own: the device's belongs to the goroutine that prepares weights
	pool    *cuda.Pool   // device memory of weights that are rearranged; the stream orders its uses
	readers int
	made    int // buffers
	free    chan *piece
	fills   chan *piece
	order   chan task // what goes to the stream, in order
	wait    sync.WaitGroup
	all     []*piece

	mu  sync.Mutex
	err error // the first of the enqueuing goroutine
}

// piece is a buffer of page-locked memory with what it carries.
type piece struct {
	memory *cuda.HostBuffer
	used   *cuda.Event // recorded behind the last copy out of it
	sent   bool        // used was recorded
	from   []byte
	filled chan struct{} // a value for each time that it was filled
}

// task is one thing to enqueue: the copy of a filled piece, or anything else.
type task struct {
	piece *piece
	to    cuda.Ptr
	run   func() error
}

// BeginLoad starts to prepare weights asynchronously: they may be used once EndLoad has returned.
func (d *Device) BeginLoad() error {
	if d.upload != nil {
		return nil
	}
	readers := min(mostReaders, max(1, runtime.GOMAXPROCS(0)-1))
	stream, err := d.gpu.NewStream()
	if err != nil {
		return err
	}
	u := &upload{d: d, stream: stream, pool: d.gpu.NewPool(), readers: readers, free: make(chan *piece, 2*readers),
		fills: make(chan *piece, 2*readers), order: make(chan task, 256)}
	for range readers {
		u.wait.Go(u.read)
	}
	u.wait.Go(u.enqueue)
	d.upload = u
	return nil
}

// EndLoad waits until all weights are in device memory and frees what carried them.
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
	for _, p := range u.all {
		errs = append(errs, p.used.Close(), p.memory.Free())
	}
	return errors.Join(errs...)
}

// loaded runs body as part of a load: the one in progress, or one of its own.
func (d *Device) loaded(body func(*upload) error) error {
	if d.upload != nil {
		return body(d.upload)
	}
	if err := d.BeginLoad(); err != nil {
		return err
	}
	err := body(d.upload)
	return errors.Join(err, d.EndLoad())
}

// read fills pieces until there are no more.
func (u *upload) read() {
	for p := range u.fills {
		if p.sent {
			u.fail(p.used.Sync())
		}
		mmap.Populate(p.from)
		copy(p.memory.Bytes(), p.from)
		p.filled <- struct{}{}
	}
}

// enqueue passes tasks to the stream in order. After an error nothing more is enqueued.
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

// do enqueues anything that the stream takes.
func (u *upload) do(run func() error) { u.order <- task{run: run} }

// copy brings host memory, which must not change before EndLoad, to device memory.
func (u *upload) copy(to cuda.Ptr, from []byte) error {
	if len(from) <= directBytes {
		u.do(func() error { return u.stream.CopyToDevice(to, from) })
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

// piece takes a free buffer, or makes one where there are few.
func (u *upload) piece() (*piece, error) {
	select {
	case p := <-u.free:
		return p, nil
	default:
	}
	if u.made == 2*u.readers {
		return <-u.free, nil
	}
	u.made++
	p := &piece{filled: make(chan struct{}, 1)}
	var err error
	if p.memory, err = u.d.gpu.AllocHost(pieceBytes); err != nil {
		return nil, err
	}
	u.all = append(u.all, p)
	p.used, err = u.d.gpu.NewMarker()
	return p, err
}

// temporary takes device memory for the tasks that use enqueues.
func (u *upload) temporary(bytes int64, use func(cuda.Ptr) error) error {
	p, err := u.pool.Get(max(bytes, 16))
	if err != nil {
		return err
	}
	return errors.Join(use(p), u.pool.Put(p))
}
