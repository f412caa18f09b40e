package cuda

import "time"

// Bounds of sums over ranks.
const (
	MaxRanks         = 8
	maxReduceBlocks  = 32
	reduceFlagWords  = 2 * maxReduceBlocks * MaxRanks
	reduceStateWords = 4
)

// ReduceFlagBytes and ReduceStateBytes are the sizes of what every rank keeps for sums; zero at first.
const (
	ReduceFlagBytes  = 4 * reduceFlagWords
	ReduceStateBytes = 4 * reduceStateWords
)

// The words of a rank's state.
const reduceFault = 2 // 1 + the number of a rank that did not come, 0 for none

// AllReduceArgs are the arguments of a sum over ranks that read each other's memory.
type AllReduceArgs struct {
	X       Ptr           // [Bytes]: this rank's part of the sum, then the sum; multiple of 16, as the other addresses
	Staging [MaxRanks]Ptr // of every rank: two halves that rounds use in turn
	Flags   [MaxRanks]Ptr // of every rank: ReduceFlagBytes
	State   Ptr           // of this rank: ReduceStateBytes
	Half    int64         // bytes of a half
	Bytes   int64         // of X, a multiple of 16
	Timeout int64         // nanoseconds that a block waits for another rank
	Type    ElementType   // f32 or bf16
	Rank    int32
	Ranks   int32
	Blocks  int32 // set by the launchers
}

// oneShotBytes is the largest sum that one shot computes faster than two, by the number of ranks: every rank reads all
// of every other, which two shots spare for one more wait.
func oneShotBytes(ranks int32) int64 {
	switch {
	case ranks <= 2:
		return 1 << 62
	case ranks <= 4:
		return 512 << 10
	}
	return 256 << 10
}

// AllReduce sums x over all ranks, each of which launches it on its own stream, with the kernel for its size. All
// blocks of all ranks must be resident at the same time.
func (k *Kernels) AllReduce(s *Stream, a *AllReduceArgs) error {
	if a.Bytes <= oneShotBytes(a.Ranks) {
		return k.allReduce(s, "all_reduce_once", a)
	}
	return k.allReduce(s, "all_reduce_twice", a)
}

func (k *Kernels) allReduce(s *Stream, kernel string, a *AllReduceArgs) error {
	c := checks{kernel: kernel}
	c.memory("x", a.X, 16)
	c.multiple("bytes", a.Bytes, 16, 0)
	if a.Ranks < 1 || a.Ranks > MaxRanks || a.Rank < 0 || a.Rank >= a.Ranks {
		c.fail("rank %d of %d, want up to %d ranks", a.Rank, a.Ranks, MaxRanks)
		return c.err
	}
	for r := range a.Ranks {
		c.memory("staging", a.Staging[r], 16)
		c.memory("flags", a.Flags[r], 16)
	}
	c.memory("state", a.State, 16)
	if a.Half < a.Bytes || a.Half%16 != 0 {
		c.fail("%d bytes in halves of %d", a.Bytes, a.Half)
	}
	if a.Timeout <= 0 || a.Timeout > int64(time.Hour) {
		c.fail("a time-out of %d ns, want up to an hour", a.Timeout)
	}
	if a.Type != ElementF32 && a.Type != ElementBF16 {
		c.fail("type %v, want f32 or bf16", a.Type)
	}
	each := int64(16 * portableThreads)
	a.Blocks = int32(min((a.Bytes+each-1)/each, maxReduceBlocks))
	if c.err != nil || a.Blocks == 0 {
		return c.err
	}
	fn, err := k.Function(kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Blocks)}, Block: Dim{X: portableThreads}, Overlap: s.overlap}, a)
}
