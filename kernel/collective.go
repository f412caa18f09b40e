package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// MaxRanks is the maximum number of ranks that share a model: an upper limit for the GPUs or memory nodes of a machine.
const MaxRanks = 64

// Member is the index of one device among the ranks that run a model together. The zero value is a device that runs
// alone.
type Member struct {
	Rank  int
	Ranks int        // number of ranks; 0 and 1 mean that the device runs alone
	Comm  Collective // nil for a device that runs alone
	// Requests means that attention is divided by requests: each rank has all heads, and the pages of some sequences.
	// Otherwise it is divided by heads, and each rank has all pages.
	Requests bool
	// Beats counts the rank's operations, so that other ranks can check whether it makes progress; nil for a single
	// device.
	Beats *atomic.Uint64
}

// Heads returns the device's index among the ranks that divide the heads of attention: the zero Member if requests are
// divided instead, because each rank then has all heads.
func (m Member) Heads() Member {
	if m.Requests {
		return Member{}
	}
	return m
}

// Count returns the number of ranks; 1 for a device that runs alone.
func (m Member) Count() int { return max(m.Ranks, 1) }

// Share returns the rank's range of n items that are divided equally among the ranks.
func (m Member) Share(n int) (first, last int) {
	each := n / m.Count()
	return m.Rank * each, (m.Rank + 1) * each
}

// Part returns the rank's share of n items as a Part; for a device that runs alone it is the zero Part.
func (m Member) Part(n int) Part {
	if m.Count() == 1 {
		return Part{}
	}
	first, _ := m.Share(n)
	return Part{First: first, Of: n}
}

// Part is the range of numbered items (experts, tokens) that a rank has: it starts at item First, and all ranks
// together have Of items. The zero Part means all items.
type Part struct{ First, Of int }

// Local returns the index of item i among the n items of this rank, or false if another rank has it.
func (p Part) Local(i, n int) (int, bool) {
	i -= p.First
	return i, i >= 0 && i < n
}

// Valid reports whether i is the number of an item of any rank, if this rank has n items.
func (p Part) Valid(i, n int) bool { return i >= 0 && i < max(p.Of, n) }

// check records an error if the part's n items are not within 0 to Of.
func (p Part) check(c *checker, n int) {
	if p != (Part{}) && (p.First < 0 || p.First+n > p.Of) {
		c.fail("the part has %d items from number %d on, but all ranks together have %d items", n, p.First, p.Of)
	}
}

// Collective moves rows between ranks. Every rank calls the same operations in the same order with tensors of equal
// shape; an operation runs in order with the other operations of its rank. Sums are added in the order of the ranks, so
// all ranks get bitwise equal results. An error is returned on all ranks and names the rank that caused it.
type Collective interface {
	AllReduce(AllReduceArgs) error
	AllGather(AllGatherArgs) error
	ReduceScatter(ReduceScatterArgs) error
	Broadcast(BroadcastArgs) error
	ShareRows(ShareArgs) error
}

// Peer is a device, such as a GPU, that exchanges rows with other devices of its kind in its own queue. Devices without
// this interface exchange rows on the host.
type Peer interface {
	// Peers creates the collective operations of several devices of this kind; a device may be listed several times.
	// If a rank makes others wait longer than the time-out, the error of the next Sync or Wait names it.
	Peers(all []Device, timeout time.Duration) ([]Collective, error)
}

// AllReduceArgs replaces X on every rank by the sum of X over all ranks.
type AllReduceArgs struct {
	X Tensor // activation or f32 [T, n], without gaps between rows
}

// Name returns the name of the operation.
func (AllReduceArgs) Name() string { return "all-reduce" }

func (a AllReduceArgs) among(c Collective) error { return c.AllReduce(a) }

// Check validates the arguments.
func (a AllReduceArgs) Check() error {
	c := checker{op: a.Name()}
	c.float("x", a.X, a.X.Rows, a.X.Cols)
	if c.err == nil && a.X.Rows > 1 && a.X.Stride != a.X.Cols {
		c.fail("x has rows of %d columns and a stride of %d, want no gaps", a.X.Cols, a.X.Stride)
	}
	return c.err
}

// AllGatherArgs concatenates the columns of all ranks on every rank: columns r*n to (r+1)*n of Out are X of rank r.
type AllGatherArgs struct {
	Out Tensor // any type [T, ranks*n]
	X   Tensor // [T, n], element type of Out
}

// Name returns the name of the operation.
func (AllGatherArgs) Name() string { return "all-gather" }

func (a AllGatherArgs) among(c Collective) error { return c.AllGather(a) }

// Check validates the arguments.
func (a AllGatherArgs) Check() error { return a.Fits(a.Out.Cols / max(a.X.Cols, 1)) }

// Fits validates the arguments for a number of ranks.
func (a AllGatherArgs) Fits(ranks int) error {
	c := checker{op: a.Name()}
	c.shape("x", a.X, a.X.Rows, a.X.Cols)
	c.tensor("out", a.Out, a.X.DType, a.X.Rows, ranks*a.X.Cols)
	return c.err
}

// ReduceScatterArgs computes the sum of X over all ranks and leaves on every rank its own columns: Out of rank r is
// columns r*n to (r+1)*n of the sum. Out and X do not overlap.
type ReduceScatterArgs struct {
	Out Tensor // activation or f32 [T, n]
	X   Tensor // [T, ranks*n], element type of Out
}

// Fits validates the arguments for a number of ranks.
func (a ReduceScatterArgs) Fits(ranks int) error {
	c := checker{op: "reduce-scatter"}
	c.float("out", a.Out, a.Out.Rows, a.Out.Cols)
	c.tensor("x", a.X, a.Out.DType, a.Out.Rows, ranks*a.Out.Cols)
	return c.err
}

// BroadcastArgs copies X of rank From to X of all other ranks.
type BroadcastArgs struct {
	X    Tensor // any type [T, n]
	From int
}

// Fits validates the arguments for a number of ranks.
func (a BroadcastArgs) Fits(ranks int) error {
	c := checker{op: "broadcast"}
	c.shape("x", a.X, a.X.Rows, a.X.Cols)
	if a.From < 0 || a.From >= ranks {
		c.fail("the root is rank %d, want one of %d ranks", a.From, ranks)
	}
	return c.err
}

// ShareArgs copies rows between ranks, so that every rank has all rows of X: rows Bounds[r] to Bounds[r+1] are copied
// from rank r.
type ShareArgs struct {
	X      Tensor // any type [T, n]
	Bounds []int  // [ranks+1], from 0 to T
}

// Name returns the name of the operation.
func (ShareArgs) Name() string { return "share of rows" }

func (a ShareArgs) among(c Collective) error { return c.ShareRows(a) }

// Check validates the arguments.
func (a ShareArgs) Check() error { return a.Fits(len(a.Bounds) - 1) }

// Fits validates the arguments for a number of ranks.
func (a ShareArgs) Fits(ranks int) error {
	c := checker{op: a.Name()}
	c.shape("x", a.X, a.X.Rows, a.X.Cols)
	if len(a.Bounds) != ranks+1 || a.Bounds[0] != 0 || a.Bounds[ranks] != a.X.Rows || !slices.IsSorted(a.Bounds) {
		c.fail("the bounds are %v for %d rows on %d ranks, want ascending bounds from 0 to the number of "+
			"rows", a.Bounds, a.X.Rows, ranks)
	}
	return c.err
}

// Rows returns rows [from, to) of a weight whose other rows are on other ranks. Unlike in Slice, the first row may be
// inside a block of scales.
func (w Weight) Rows(from, to int) (Weight, error) {
	if err := within("rows", from, to, w.Out()); err != nil {
		return Weight{}, err
	}
	if w.Scale.Given() {
		first, skip := w.ScaleRow(from)
		last, _ := w.ScaleRow(to - 1)
		w.Scale, w.SkipRows = w.Scale.Slice(first, last+1), skip
	}
	if w.Zero.Given() {
		w.Zero = w.Zero.Slice(from, to)
	}
	w.Data = w.Data.Slice(from, to)
	return w, nil
}

// Columns returns columns [from, to) of a weight whose other columns are on other ranks. The range has whole elements,
// and either whole blocks of scales or a part of one block.
func (w Weight) Columns(from, to int) (Weight, error) {
	if err := within("columns", from, to, w.In()); err != nil {
		return Weight{}, err
	}
	if n := w.Data.DType.Values(); from%n != 0 || to%n != 0 {
		return Weight{}, fmt.Errorf("%w: columns %d to %d cut an element of %s, which holds %d values", ErrArgument,
			from, to, w.Data.DType, n)
	}
	if w.Scale.Given() {
		first, last := from/w.BlockCols, ceilDiv(to, w.BlockCols)
		if from%w.BlockCols != 0 && last-first > 1 {
			return Weight{}, fmt.Errorf("%w: columns %d to %d begin inside a block of %d and end after it",
				ErrArgument, from, to, w.BlockCols)
		}
		w.Scale = w.Scale.Columns(first, last)
		if w.Zero.Given() {
			w.Zero = w.Zero.Columns(first, last)
		}
	}
	n := w.Data.DType.Values()
	w.Data = w.Data.Columns(from/n, to/n)
	return w, nil
}

// PaddedRows is like Rows, but rows after the last row of the weight are zeros, in newly allocated memory.
func (w Weight) PaddedRows(from, to int) (Weight, error) {
	n := w.Out()
	if to <= n {
		return w.Rows(from, to)
	}
	own := max(n-from, 0)
	if own > 0 {
		var err error
		if w, err = w.Rows(from, n); err != nil {
			return Weight{}, err
		}
	} else {
		w.SkipRows = 0
	}
	var errs [3]error
	if w.Scale.Given() {
		rows, scales := 0, ceilDiv(w.SkipRows+to-from, w.BlockRows)
		if own > 0 {
			rows = w.Scale.Rows
		}
		w.Scale, errs[0] = w.Scale.padded(rows, w.Scale.Cols, scales, w.Scale.Cols)
		if w.Zero.Given() {
			w.Zero, errs[2] = w.Zero.padded(rows, w.Zero.Cols, scales, w.Zero.Cols)
		}
	}
	w.Data, errs[1] = w.Data.padded(own, w.Data.Cols, to-from, w.Data.Cols)
	return w, errors.Join(errs[:]...)
}

// PaddedColumns is like Columns, but columns after the last column of the weight are zeros. The result is newly
// allocated.
func (w Weight) PaddedColumns(from, to int) (Weight, error) {
	n, values := w.In(), w.Data.DType.Values()
	if to <= n {
		return w.Columns(from, to)
	}
	if from%values != 0 || to%values != 0 {
		return Weight{}, fmt.Errorf("%w: columns %d to %d cut an element of %s, which holds %d values", ErrArgument,
			from, to, w.Data.DType, values)
	}
	own := max(n-from, 0)
	if own > 0 {
		if w.Scale.Given() {
			if first := from % w.BlockCols; first != 0 && first+to-from > w.BlockCols {
				return Weight{}, fmt.Errorf("%w: columns %d to %d (%d of them padding) begin inside a block of "+
					"%d and end after it", ErrArgument, from, to, to-n, w.BlockCols)
			}
		}
		var err error
		if w, err = w.Columns(from, n); err != nil {
			return Weight{}, err
		}
	}
	var errs [3]error
	if w.Scale.Given() {
		columns, scales := 0, ceilDiv(to-from, w.BlockCols)
		if own > 0 {
			columns = w.Scale.Cols
		}
		w.Scale, errs[0] = w.Scale.padded(w.Scale.Rows, columns, w.Scale.Rows, scales)
		if w.Zero.Given() {
			w.Zero, errs[2] = w.Zero.padded(w.Zero.Rows, columns, w.Zero.Rows, scales)
		}
	}
	w.Data, errs[1] = w.Data.padded(w.Data.Rows, own/values, w.Data.Rows, (to-from)/values)
	return w, errors.Join(errs[:]...)
}

// padded returns a host tensor [rows, cols]: its first ownRows rows and ownCols columns are copied from t, and its
// other elements are zero.
func (t Tensor) padded(ownRows, ownCols, rows, cols int) (Tensor, error) {
	out := t
	out.Buf, out.Off = make(HostBuffer, rows*cols*t.DType.Size()), 0
	out.Rows, out.Cols, out.Stride = rows, cols, cols
	if ownRows == 0 || ownCols == 0 {
		return out, nil
	}
	if err := t.onHost(func(bytes int64) (HostBuffer, error) { return make(HostBuffer, bytes), nil }); err != nil {
		return t, err
	}
	from, ok := t.Buf.(HostBuffer)
	if !ok {
		return t, fmt.Errorf("%w: a weight that is not in host memory cannot be padded", ErrArgument)
	}
	to, size := out.Buf.(HostBuffer), t.DType.Size()
	for i := range ownRows {
		copy(to[i*cols*size:][:ownCols*size], from[t.Off+int64(i*t.Stride*size):])
	}
	return out, nil
}

func within(what string, from, to, n int) error {
	if from < 0 || from >= to || to > n {
		return fmt.Errorf("%w: %s %d to %d are outside 0 to %d", ErrArgument, what, from, to, n)
	}
	return nil
}
