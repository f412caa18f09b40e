package cuda

import "time"

// Limits of sums over ranks.
const (
	MaxRanks         = 8
	maxReduceBlocks  = 32
	reduceFlagWords  = 2 * maxReduceBlocks * MaxRanks
	reduceStateWords = 4
)

// ReduceFlagBytes and ReduceStateBytes are the sizes in bytes of the flags and the state that every rank has for sums.
// Both must be zero at first.
const (
	ReduceFlagBytes  = 4 * reduceFlagWords
	ReduceStateBytes = 4 * reduceStateWords
)

// ReduceFault is the index of the state word that holds 1 + the number of a rank that did not arrive, or 0.
const ReduceFault = 2

// AllReduceArgs are the arguments of a sum over ranks that read each other's memory.
type AllReduceArgs struct {
	X       Ptr           // [Bytes]: this rank's part, overwritten by the sum; all addresses: multiples of 16
	Staging [MaxRanks]Ptr // staging memory of every rank: two halves, used alternately
	Flags   [MaxRanks]Ptr // for every rank: flags of ReduceFlagBytes bytes
	State   Ptr           // this rank's state of ReduceStateBytes bytes
	Half    int64         // bytes of a half of Staging
	Bytes   int64         // bytes of X, a multiple of 16
	Timeout int64         // nanoseconds that a block waits for another rank
	Type    ElementType   // f32 or bf16
	Rank    int32
	Ranks   int32
	Blocks  int32 // maximum number of blocks; 0: the kernel's default. Launchers set the actual number
}

// GatherRanksArgs are the arguments of the kernel that copies the rows of all ranks to every rank.
type GatherRanksArgs struct {
	Peers     AllReduceArgs // X: this rank's rows; Bytes: set by the launcher
	Out       Ptr           // output; the rows of rank r begin First[r] bytes after it
	First     [MaxRanks]int64
	XStride   int64 // bytes between rows; like RowBytes and First a multiple of Unit
	OutStride int64 // bytes between rows
	Rows      [MaxRanks]int32
	RowBytes  int32
	Unit      int32 // bytes that a thread copies at once, 16 or 4; set by the launcher
}

// ReduceScatterArgs are the arguments of the kernel that computes on every rank its columns of a sum over ranks.
type ReduceScatterArgs struct {
	Peers     AllReduceArgs // X: rows of Ranks * RowBytes; Bytes: set by the launcher
	Out       Ptr           // [Rows, RowBytes]: this rank's columns of the sum
	XStride   int64         // bytes between rows; like RowBytes a multiple of 16
	OutStride int64         // bytes between rows
	Rows      int32
	RowBytes  int32 // bytes of a row of Out
}

// PartIdsArgs are the arguments of the kernel that converts global ids to indices within the part of a rank.
type PartIdsArgs struct {
	IDs      Ptr   // i32 [Rows, Columns]; negative: no item
	Out      Ptr   // i32 [Rows, Columns] without gaps: index in the rank's part, or -1
	Faults   Ptr   // one u32 of fault bits, or zero
	IDStride int64 // entries between rows
	Rows     int32
	Columns  int32
	First    int32  // number of the rank's first item
	Count    int32  // number of the rank's items
	All      int32  // number of all ranks' items
	Fault    uint32 // fault bits that are raised by a number that no rank has
}

// oneShotBytes returns the size in bytes up to which a sum in one shot is faster than in two, for a number of ranks. In
// one shot every rank reads all data of every other rank. Two shots read less, but ranks wait for each other twice.
func oneShotBytes(ranks int32) int64 {
	switch {
	case ranks <= 2:
		return 1 << 62
	case ranks <= 4:
		return 512 << 10
	}
	return 256 << 10
}

// AllReduce sums X over all ranks, in one shot or in two depending on its size. Each rank launches it on its own
// stream. All blocks of all ranks must be resident at the same time.
func AllReduce(k *Kernels, s *Stream, a *AllReduceArgs) error {
	if a.Bytes <= oneShotBytes(a.Ranks) {
		return allReduce(k, s, "all_reduce_once", a)
	}
	return allReduce(k, s, "all_reduce_twice", a)
}

func allReduce(k *Kernels, s *Stream, kernel string, a *AllReduceArgs) error {
	c := checks{kernel: kernel}
	c.memory("x", a.X, 16)
	c.summed(a.Type)
	if !a.check(&c) {
		return c.err
	}
	fn, err := k.Function(kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Blocks)}, Block: Dim{X: portableThreads}, Overlap: s.overlap}, a)
}

// check checks the arguments that all operations over ranks have, sets the number of blocks, and reports whether there
// are bytes to process.
func (a *AllReduceArgs) check(c *checks) bool {
	c.multiple("bytes", a.Bytes, 16, 0)
	if a.Ranks < 1 || a.Ranks > MaxRanks || a.Rank < 0 || a.Rank >= a.Ranks {
		c.fail("this is rank %d of %d, want at most %d ranks", a.Rank, a.Ranks, MaxRanks)
		return false
	}
	for r := range a.Ranks {
		c.memory("staging", a.Staging[r], 16)
		c.memory("flags", a.Flags[r], 16)
	}
	c.memory("state", a.State, 16)
	if a.Half < a.Bytes || a.Half%16 != 0 {
		c.fail("x has %d bytes, but half of the staging memory has %d", a.Bytes, a.Half)
	}
	if a.Timeout <= 0 || a.Timeout > int64(time.Hour) {
		c.fail("the time-out is %d ns, want at most an hour", a.Timeout)
	}
	each, most := int64(16*portableThreads), int64(maxReduceBlocks)
	if a.Blocks > 0 {
		most = min(most, int64(a.Blocks))
	}
	a.Blocks = int32(min((a.Bytes+each-1)/each, most))
	return c.err == nil && a.Blocks > 0
}

// GatherRanks copies the rows of all ranks to every rank. Each rank launches it on its own stream.
func GatherRanks(k *Kernels, s *Stream, a *GatherRanksArgs) error {
	c := checks{kernel: "gather_ranks"}
	// All ranks must choose the same unit, so it depends only on the bytes of a row, which are equal on all ranks.
	if a.Unit = 16; a.RowBytes%16 != 0 {
		a.Unit = 4
	}
	unit := int64(a.Unit)
	var most int32
	for r := range a.Peers.Ranks {
		if r >= MaxRanks {
			break // check returns the error
		}
		c.count("rows", a.Rows[r])
		c.multiple("first", a.First[r], unit, 0)
		most = max(most, a.Rows[r])
	}
	c.multiple("row bytes", int64(a.RowBytes), unit, unit)
	c.multiple("x stride", a.XStride, unit, int64(a.RowBytes))
	c.multiple("out stride", a.OutStride, unit, int64(a.RowBytes))
	c.memory("x", a.Peers.X, int(unit))
	c.memory("out", a.Out, int(unit))
	a.Peers.Bytes = (int64(most)*int64(a.RowBytes) + 15) &^ 15
	if !a.Peers.check(&c) {
		return c.err
	}
	return runGrid(k, s, &c, Dim{X: uint32(a.Peers.Blocks)}, a)
}

// ReduceScatter computes on every rank its columns of a sum over ranks. Each rank launches it on its own stream.
func ReduceScatter(k *Kernels, s *Stream, a *ReduceScatterArgs) error {
	c := checks{kernel: "reduce_scatter"}
	c.count("rows", a.Rows)
	c.multiple("row bytes", int64(a.RowBytes), 16, 16)
	whole := int64(a.RowBytes) * int64(a.Peers.Ranks)
	c.multiple("x stride", a.XStride, 16, whole)
	c.multiple("out stride", a.OutStride, 16, int64(a.RowBytes))
	c.memory("x", a.Peers.X, 16)
	c.memory("out", a.Out, 16)
	c.summed(a.Peers.Type)
	if a.Peers.Bytes = int64(a.Rows) * whole; !a.Peers.check(&c) {
		return c.err
	}
	return runGrid(k, s, &c, Dim{X: uint32(a.Peers.Blocks)}, a)
}

// summed checks that a type can be added over ranks.
func (c *checks) summed(t ElementType) {
	if t != ElementF32 && t != ElementBF16 {
		c.fail("the type is %v, want f32 or bf16", t)
	}
}

// PartIDs converts global ids to indices within the part of a rank.
func PartIDs(k *Kernels, s *Stream, a *PartIdsArgs) error {
	c := checks{kernel: "part_ids"}
	c.memory("ids", a.IDs, 4)
	c.memory("out", a.Out, 4)
	c.count("rows", a.Rows)
	c.positive("columns", a.Columns)
	c.multiple("id stride", a.IDStride, 1, int64(a.Columns))
	if a.First < 0 || a.Count < 1 || a.First+a.Count > a.All {
		c.fail("the part has %d items from number %d on, but all ranks together have %d items", a.Count, a.First, a.All)
	}
	if c.err != nil {
		return c.err
	}
	return runGrid(k, s, &c, Dim{X: rowBlocks(a.Rows*a.Columns, portableThreads)}, a)
}
