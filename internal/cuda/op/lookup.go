package op

import (
	"errors"
	"runtime"
	"sync"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// hostTables are tables in host memory. A lookup of few rows reads them in place over the bus. For a lookup of many
// rows, goroutines first copy the rows to adjacent memory, while the GPU runs the operations before: an H200
// read single rows of a table of 95 GiB at only 4.2 GB/s.
type hostTables struct {
	dev *Device
	all map[*kernel.Table]*table
}

// copiedFrom is the least number of rows of a lookup that are copied by the host.
const copiedFrom = 1 << 14

// table is a table that kernels can read.
type table struct {
	values, scales hostArray
	copies         [2]rowCopy // used in turn, so that a copy is filled while the GPU reads the other one
	turn           int
}

// hostArray is a tensor in host memory.
type hostArray struct {
	at      cuda.Ptr // the address for kernels; not valid in a dry run
	bytes   []byte
	row     int // bytes of a row
	reached *cuda.Reachable
	drawn   *cuda.HostBuffer
}

// rowCopy is page-locked memory with the rows of one lookup: the values of all rows, then their scales.
type rowCopy struct {
	memory *cuda.HostBuffer
	ids    cuda.Ptr // the row numbers that the lookup reads on the device; 0 if no lookup waits for the rows
	rows   []int32  // the row numbers
	filled sync.WaitGroup
	read   *cuda.Event // after the last launch that reads the memory
}

// Tables returns the reader of tables in host memory.
func (d *Device) Tables() kernel.TableReader {
	d.tables.dev = d
	return &d.tables
}

// Prepare makes a table readable by kernels: in place or, for random values, in page-locked memory.
func (h *hostTables) Prepare(t *kernel.Table) error {
	if h.all[t] != nil {
		return nil
	}
	own := &table{}
	err := own.values.open(h.dev, t.Values)
	if err == nil && t.Scales.Given() {
		err = own.scales.open(h.dev, t.Scales)
	}
	if err != nil {
		return errors.Join(err, own.close())
	}
	if h.all == nil {
		h.all = map[*kernel.Table]*table{}
	}
	h.all[t] = own
	return nil
}

// Announce starts to copy the rows of a lookup if there are many. Row numbers outside the table are not copied: the
// lookup itself reports them.
func (h *hostTables) Announce(a kernel.TableArgs, ids []int32) error {
	t := h.all[a.Table]
	if t == nil || h.dev.tried {
		return nil
	}
	for i := range t.copies {
		if c := &t.copies[i]; c.ids == at(a.IDs) { // of an earlier pass that did not run
			c.ids = 0
		}
	}
	n := a.IDs.Rows * a.IDs.Cols
	if n < copiedFrom || a.IDs.Rows > mostCounted {
		return nil
	}
	c := &t.copies[t.turn]
	t.turn = 1 - t.turn
	c.ids = 0
	if err := c.wait(); err != nil {
		return err
	}
	c.rows = c.rows[:0]
	for r := range a.IDs.Rows {
		for _, id := range ids[r*a.IDs.Stride:][:a.IDs.Cols] {
			if id < 0 || int(id) >= a.Table.Values.Rows {
				return nil
			}
			c.rows = append(c.rows, id)
		}
	}
	if err := c.reserve(h.dev.gpu, int64(n)*int64(t.values.row+t.scales.row)); err != nil {
		return err
	}
	c.ids = at(a.IDs)
	c.fill(t)
	return nil
}

// copied returns the copied rows of a lookup, or nil if there are none. A graph must not read a copy, because a replay
// of the graph would read it again.
func (t *table) copied(d *Device, a *kernel.TableArgs) *rowCopy {
	for i := range t.copies {
		c := &t.copies[i]
		if c.ids != 0 && c.ids == at(a.IDs) && len(c.rows) == a.IDs.Rows*a.IDs.Cols && !d.capture {
			c.ids = 0
			return c
		}
	}
	return nil
}

func (t *table) close() error {
	errs := []error{t.values.close(), t.scales.close()}
	for i := range t.copies {
		errs = append(errs, t.copies[i].close())
	}
	return errors.Join(errs...)
}

// open makes a tensor in host memory readable by kernels.
func (x *hostArray) open(d *Device, t kernel.Tensor) (err error) {
	r := require{op: "prepare table"}
	r.packed("table", t)
	mapped, inPlace := t.Buf.(kernel.HostBuffer)
	random, drawn := t.Buf.(kernel.Drawn)
	if !inPlace && !drawn {
		r.fail("the table is not in host memory")
	}
	x.row = t.Cols * t.DType.Size()
	switch {
	case d.tried || r.err != nil:
		x.at = d.faults.Ptr()
		return r.err
	case drawn:
		if x.drawn, err = d.gpu.AllocHost(t.Extent()); err != nil {
			return err
		}
		x.at, x.bytes = x.drawn.Ptr(), x.drawn.Bytes()
		return fillDrawn(x.bytes, t.DType, random)
	}
	x.bytes = mapped[t.Off:][:t.Extent()]
	if x.reached, err = d.gpu.Reach(x.bytes); err != nil {
		return err
	}
	x.at = x.reached.Ptr()
	return nil
}

func (x *hostArray) close() error { return errors.Join(x.reached.Free(), x.drawn.Free()) }

// wait waits until the memory is neither filled nor read by launches.
func (c *rowCopy) wait() error {
	c.filled.Wait()
	if c.read == nil {
		return nil
	}
	return c.read.Sync()
}

// reserve allocates the memory and the event, unless there is enough memory. The memory is not in use.
func (c *rowCopy) reserve(gpu *cuda.Device, bytes int64) (err error) {
	if c.memory != nil && int64(len(c.memory.Bytes())) >= bytes {
		return nil
	}
	if c.read == nil {
		if c.read, err = gpu.NewMarker(); err != nil {
			return err
		}
	}
	if err = c.memory.Free(); err == nil {
		c.memory, err = gpu.AllocHost(bytes)
	}
	return err
}

// fill starts goroutines that copy the rows of a table.
func (c *rowCopy) fill(t *table) {
	to := c.memory.Bytes()
	workers, n := runtime.GOMAXPROCS(0), len(c.rows)
	for w := range workers {
		c.filled.Go(func() {
			first, end := w*n/workers, (w+1)*n/workers
			t.values.copyRows(to, c.rows, first, end)
			t.scales.copyRows(to[n*t.values.row:], c.rows, first, end)
		})
	}
}

// copyRows copies the rows with the numbers rows[first:end] to the places first to end of to.
func (x *hostArray) copyRows(to []byte, rows []int32, first, end int) {
	for i := first; i < end; i++ {
		copy(to[i*x.row:][:x.row], x.bytes[int(rows[i])*x.row:])
	}
}

func (c *rowCopy) close() error {
	c.filled.Wait()
	return errors.Join(c.memory.Free(), c.read.Close())
}

// fillDrawn writes random values, with several goroutines.
func fillDrawn(to []byte, t kernel.DType, x kernel.Drawn) error {
	const piece = 1 << 22
	var all sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for w := range errs {
		all.Go(func() {
			for at := w * piece; at < len(to) && errs[w] == nil; at += len(errs) * piece {
				errs[w] = x.Fill(to[at:min(at+piece, len(to))], t, int64(at/t.Size()))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// readTable looks rows of a table up.
func readTable(d *Device, a kernel.TableArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	if err := d.Tables().Prepare(a.Table); err != nil {
		return err
	}
	r := require{op: "read table"}
	r.dtype("out", a.Out, kernel.BF16)
	own := d.tables.all[a.Table]
	args := cuda.ReadTableArgs{Values: own.values.at, Scales: own.scales.at, IDs: at(a.IDs), Out: at(a.Out),
		Faults: d.faults.Ptr(), TableRows: int64(a.Table.Values.Rows), IDStride: stride(a.IDs),
		OutStride: stride(a.Out), Rows: r.count("rows", a.Out.Rows), Columns: r.count("rows of the table", a.IDs.Cols),
		Dim: r.count("values of a row", a.Table.Values.Cols), Type: int32(a.Table.Values.DType.Size())}
	if r.err != nil || args.Rows == 0 || args.Columns == 0 {
		return r.err
	}
	c := own.copied(d, &a)
	if c == nil {
		return cuda.ReadTable(d.kernels, d.stream, &args)
	}
	c.filled.Wait()
	// The copied rows of a token are adjacent: to the kernel they are one row, whose number is that of the token.
	args.Values, args.TableRows, args.IDs, args.IDStride = c.memory.Ptr(), int64(a.IDs.Rows), d.count.Ptr(), 1
	if args.Scales != 0 {
		args.Scales = args.Values.Add(int64(len(c.rows)) * int64(own.values.row))
	}
	args.Dim, args.Columns = args.Dim*args.Columns, 1
	return errors.Join(cuda.ReadTable(d.kernels, d.stream, &args), c.read.Record(d.stream))
}
