package cuda

import (
	"math"

	"sparrow/kernel"
)

// SequencesView lists the rows of a pass that belong to each sequence, and the slot of its state.
type SequencesView struct {
	Rows      Ptr // i32 [Count]: rows of the pass, ordered by sequence, then by position
	Spans     Ptr // i32 [Sequences, 6]: as kernel.Sequences.Spans
	Snapshots Ptr // i32 [Count], by row of the pass: slot that receives a copy of the state after the row; -1: none
	Faults    Ptr // one u32 of fault bits, or zero
	Count     int32
	Sequences int32
	Slots     int32 // number of slots of the states
	Kept      int32 // number of slots of snapshots
	Held      int32 // maximum number of held-back rows of a slot
	Reserved  int32
}

// ConvolveArgs are the arguments of causal convolutions over the rows of sequences.
type ConvolveArgs struct {
	Of        SequencesView
	X         Ptr   // bf16 [Count, Columns]
	Out       Ptr   // bf16 [Count, Columns]
	Weight    Ptr   // f32 [Columns, 4]
	State     Ptr   // f32 [Slots*3, Columns]: the oldest row of a sequence first
	Kept      Ptr   // f32 [Kept*3, Columns]
	Held      Ptr   // f32 [Slots*Held, Columns], or zero
	XStride   int64 // elements between rows, a multiple of 4, as are the following strides
	OutStride int64
	Columns   int32 // a multiple of 4
	Reserved  int32
}

// DeltaArgs are the arguments of the gated delta rule.
type DeltaArgs struct {
	Of         SequencesView
	Q          Ptr // bf16 [Count, Heads*128], like K and V
	K          Ptr
	V          Ptr
	Gate       Ptr   // f32 [Count, Heads*128]
	Beta       Ptr   // f32 [Count, Heads]
	ALog       Ptr   // f32 [Heads]
	Bias       Ptr   // f32 [Heads*128]
	Out        Ptr   // bf16 [Count, Heads*128]
	State      Ptr   // f32 [Slots, Heads, 128 keys, 128 values]
	Kept       Ptr   // f32 [Kept, Heads, 128, 128]
	Held       Ptr   // f32 [Slots*Held, 3*Heads*128+Heads]: k, v, gate, beta; or zero
	First      Ptr   // i32 [Sequences]: position of a sequence's first row; or zero: no groups of rows
	QStride    int64 // elements between rows, multiples of 4 except BetaStride
	KStride    int64
	VStride    int64
	GateStride int64
	BetaStride int64
	OutStride  int64
	Heads      int32
	Bound      float32   // bound of the logarithm of a channel's decay
	Part       deltaPart // set by Delta
	Reserved   int32
}

// deltaPart states which rows of sequences a launch computes row by row.
type deltaPart int32

const (
	beforeGroups deltaPart = iota // rows before the first whole group, or all rows if there is none
	afterGroups
)

// GatedNormArgs are the arguments of RMSNorm of heads, multiplied by the sigmoid of a gate.
type GatedNormArgs struct {
	X          Ptr // bf16 [Rows, Heads*Columns], like Gate and Out
	Gate       Ptr
	Weight     Ptr // f32 [Columns]
	Out        Ptr
	Epsilon    float64
	XStride    int64 // elements between rows
	GateStride int64
	OutStride  int64
	Rows       int32
	Heads      int32
	Columns    int32
	Reserved   int32
}

// LayerNormArgs are the arguments of LayerNorm.
type LayerNormArgs struct {
	X         Ptr // f32 or bf16 [Rows, Columns]
	Out       Ptr // f32 or bf16 [Rows, Columns]
	Weight    Ptr // f32 [Columns]
	Bias      Ptr // f32 [Columns]
	Epsilon   float64
	XStride   int64 // elements between rows
	OutStride int64
	Rows      int32
	Columns   int32
	XType     ElementType
	OutType   ElementType
}

// MeanStreamsArgs are the arguments of the mean of residual streams.
type MeanStreamsArgs struct {
	X         Ptr   // bf16 [Rows, Streams*Hidden]
	Out       Ptr   // bf16 [Rows, Hidden]
	XStride   int64 // elements between rows
	OutStride int64
	Rows      int32
	Hidden    int32
	Streams   int32
	Reserved  int32
}

// SpreadPoolsArgs are the arguments of the kernel that converts pools to the slots of their tokens.
type SpreadPoolsArgs struct {
	Pools        Ptr   // i32 [Rows, Columns]: ascending, then -1
	Seen         Ptr   // i32 [Rows]: tokens that a row may attend to
	Table        Ptr   // i32 [Tables, TableStride] pages, or zero
	TableRows    Ptr   // i32 [Rows]
	Offsets      Ptr   // i32 [Rows]: added to a token when there is no table
	Out          Ptr   // i32 [Rows, Columns*Pool+Pool-1]: slots of tokens, then -1
	Lengths      Ptr   // i32 [Rows]
	Faults       Ptr   // one u32 of fault bits, or zero
	PoolStride   int64 // entries between rows
	OutStride    int64
	TableStride  int64
	Rows         int32
	Columns      int32
	Pool         int32 // tokens of a pool
	PageTokens   int32
	TableColumns int32
	Tables       int32
}

// deltaFewRows is the maximum mean number of rows per sequence for which the kernel without separate warps for the
// preparation of rows is used.
const deltaFewRows = 16

// deltaDim is the size of keys and values of a head of linear attention.
const deltaDim = 128

// sequences checks the arrays that assign rows to sequences.
func (c *checks) sequences(v SequencesView, state, kept, held Ptr) {
	c.memory("rows", v.Rows, 4)
	c.memory("spans", v.Spans, 4)
	c.memory("snapshots", v.Snapshots, 4)
	c.count("rows", v.Count)
	c.count("snapshots", v.Kept)
	c.count("held rows", v.Held)
	c.positive("slots", v.Slots)
	c.memory("state", state, 16)
	if v.Kept > 0 {
		c.memory("kept", kept, 16)
	}
	if v.Held > 0 {
		c.memory("held", held, 4)
	}
	if v.Sequences < 0 || v.Sequences > maxGridY {
		c.fail("there are %d sequences, want at most %d", v.Sequences, maxGridY)
	}
}

const (
	convChannels = 4 * portableThreads // channels of a block
	convRun      = 64                  // entries of Rows that a block processes if there are many rows
	// convFewRows is the maximum mean number of rows per sequence for the kernel in which one thread computes all rows
	// of a channel.
	convFewRows = 4
)

// Convolve computes causal convolutions over the rows of each sequence and stores the last three rows. The choice of
// the kernel does not change the bits of results.
func Convolve(k *Kernels, s *Stream, a *ConvolveArgs) error {
	c := checks{kernel: "convolve_few"}
	c.sequences(a.Of, a.State, a.Kept, a.Held)
	c.memory("x", a.X, 8)
	c.memory("out", a.Out, 8)
	c.memory("weight", a.Weight, 16)
	c.positive("columns", a.Columns)
	c.multiple("columns", int64(a.Columns), 4, 4)
	c.multiple("x stride", a.XStride, 4, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 4, int64(a.Columns))
	if a.Held != 0 {
		c.memory("held", a.Held, 16)
	}
	if a.Of.Count == 0 || a.Of.Sequences == 0 {
		return c.err
	}
	each := Dim{X: rowBlocks(a.Columns/4, portableThreads), Y: uint32(a.Of.Sequences)}
	if int64(a.Of.Count) <= convFewRows*int64(a.Of.Sequences) {
		return runGrid(k, s, &c, each, a)
	}
	c.kernel = "convolve_many"
	runs := ceilDiv(a.Of.Count, convRun)
	if runs > maxGridY {
		c.fail("there are %d rows, want at most %d", a.Of.Count, convRun*maxGridY)
	}
	if err := runGrid(k, s, &c, Dim{X: each.X, Y: uint32(runs)}, a); err != nil {
		return err
	}
	c.kernel = "convolve_keep"
	return runGrid(k, s, &c, each, a)
}

// DeltaGroup is the number of rows of a group. A group begins at a position that is a multiple of this number.
const DeltaGroup = 16

// Delta computes the gated delta rule. If First is given, rows of whole groups are computed together, and the rows
// before and after them row by row. Otherwise all rows are computed row by row, and the choice of the kernel does not
// change the bits of results.
func Delta(k *Kernels, s *Stream, a *DeltaArgs) error {
	c := checks{kernel: "delta_rule"}
	c.sequences(a.Of, a.State, a.Kept, a.Held)
	c.positive("heads", a.Heads)
	width := int64(a.Heads) * deltaDim
	for _, t := range [...]struct {
		name   string
		at     Ptr
		align  int
		stride int64
		bytes  int64
	}{{"q", a.Q, 8, a.QStride, 2}, {"k", a.K, 8, a.KStride, 2}, {"v", a.V, 8, a.VStride, 2},
		{"gate", a.Gate, 16, a.GateStride, 4}, {"out", a.Out, 8, a.OutStride, 2}} {
		c.memory(t.name, t.at, t.align)
		c.multiple(t.name+" stride", t.stride, 4, width)
		if a.First != 0 && t.stride > math.MaxInt32/t.bytes {
			c.fail("the stride of %s is %d elements, want at most %d for groups of rows", t.name, t.stride,
				math.MaxInt32/t.bytes)
		}
	}
	c.memory("beta", a.Beta, 4)
	c.multiple("beta stride", a.BetaStride, 1, int64(a.Heads))
	c.memory("a_log", a.ALog, 4)
	c.memory("bias", a.Bias, 16)
	if !(a.Bound < 0) {
		c.fail("the bound of the decay is %g, want a negative number", a.Bound)
	}
	grouped := a.First != 0
	if grouped {
		c.memory("first", a.First, 4)
		if a.Bound < kernel.DeltaChunkBound {
			c.fail("the bound of the decay is %g, want at least %d for groups of rows", a.Bound,
				kernel.DeltaChunkBound)
		}
	}
	if c.err != nil || a.Of.Sequences == 0 {
		return c.err
	}
	// Sequences have few rows outside groups.
	if !grouped && int64(a.Of.Count) > deltaFewRows*int64(a.Of.Sequences) {
		c.kernel = "delta_rule_many"
	}
	kernels := []string{c.kernel, "delta_groups", c.kernel}
	if !grouped {
		kernels = kernels[:1]
	}
	part := *a
	for i, name := range kernels {
		if part.Part = beforeGroups; i == len(kernels)-1 && i > 0 {
			part.Part = afterGroups
		}
		if err := delta(k, s, name, &part); err != nil {
			return err
		}
	}
	if a.Of.Held == 0 {
		return nil
	}
	c.kernel = "delta_hold"
	return runGrid(k, s, &c, Dim{X: rowBlocks(a.Heads, longRows), Y: uint32(a.Of.Sequences)}, a)
}

// delta launches a kernel of the delta rule, with its own number of threads, for the two halves of every head of every
// sequence.
func delta(k *Kernels, s *Stream, name string, a *DeltaArgs) error {
	fn, err := k.Function(name)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: 2 * uint32(a.Heads), Y: uint32(a.Of.Sequences)},
		Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: fn.dynamic, Overlap: s.overlap}, a)
}

// With more than gatedFewBlocks blocks of eight heads, a warp computes up to gatedTogether heads at a time.
const gatedFewBlocks, gatedTogether = 1024, 4

// GatedNorm normalises every head and multiplies it by the sigmoid of its gate.
func GatedNorm(k *Kernels, s *Stream, a *GatedNormArgs) error {
	c := checks{kernel: "gated_norm"}
	c.positive("heads", a.Heads)
	c.positive("columns", a.Columns)
	c.memory("x", a.X, 2)
	c.memory("gate", a.Gate, 2)
	c.memory("out", a.Out, 2)
	c.memory("weight", a.Weight, 4)
	width := int64(a.Heads) * int64(a.Columns)
	c.multiple("x stride", a.XStride, 1, width)
	c.multiple("gate stride", a.GateStride, 1, width)
	c.multiple("out stride", a.OutStride, 1, width)
	c.count("rows", a.Rows)
	blocks := (int64(a.Rows)*int64(a.Heads) + longRows - 1) / longRows
	if blocks > maxGrid {
		c.fail("%d rows of %d heads are more than %d heads in all: launch fewer "+
			"rows", a.Rows, a.Heads, int64(maxGrid)*longRows)
	}
	if blocks > gatedFewBlocks {
		blocks = max(gatedFewBlocks, (blocks+gatedTogether-1)/gatedTogether)
	}
	return runGrid(k, s, &c, Dim{X: uint32(blocks)}, a)
}

// LayerNorm computes LayerNorm of every row.
func LayerNorm(k *Kernels, s *Stream, a *LayerNormArgs) error {
	c := checks{kernel: "layer_norm_rows"}
	c.positive("columns", a.Columns)
	c.element("x", a.X, a.XType, ElementBF16, a.XStride, a.Columns)
	c.element("out", a.Out, a.OutType, ElementBF16, a.OutStride, a.Columns)
	c.memory("weight", a.Weight, 4)
	c.memory("bias", a.Bias, 4)
	c.count("rows", a.Rows)
	return runRows(k, s, &c, a.Rows, longRows, a)
}

// MeanStreams computes the mean of residual streams.
func MeanStreams(k *Kernels, s *Stream, a *MeanStreamsArgs) error {
	c := checks{kernel: "mean_streams"}
	c.streams(a.Streams, a.Hidden)
	c.memory("x", a.X, 2)
	c.memory("out", a.Out, 2)
	c.multiple("x stride", a.XStride, 1, int64(a.Streams)*int64(a.Hidden))
	c.multiple("out stride", a.OutStride, 1, int64(a.Hidden))
	c.count("rows", a.Rows)
	return runGrid(k, s, &c, Dim{X: uint32(max(a.Rows, 0)), Y: min(rowBlocks(a.Hidden, portableThreads), 64)}, a)
}

// SpreadPools converts pools to the slots of their tokens in a paged cache, or to rows of gathered keys. A pool with
// tokens that the row may not attend to, or a token beyond the page table, sets faultPosition.
func SpreadPools(k *Kernels, s *Stream, a *SpreadPoolsArgs) error {
	c := checks{kernel: "spread_pools"}
	for _, t := range [...]struct {
		name string
		at   Ptr
	}{{"pools", a.Pools}, {"seen", a.Seen}, {"out", a.Out}, {"lengths", a.Lengths}} {
		c.memory(t.name, t.at, 4)
	}
	c.positive("pool", a.Pool)
	c.positive("columns", a.Columns)
	if a.Table != 0 {
		c.memory("table", a.Table, 4)
		c.memory("table rows", a.TableRows, 4)
		c.positive("page tokens", a.PageTokens)
		c.count("table columns", a.TableColumns)
		c.count("tables", a.Tables)
		c.multiple("table stride", a.TableStride, 1, int64(a.TableColumns))
	} else {
		c.memory("offsets", a.Offsets, 4)
	}
	width := int64(a.Columns)*int64(a.Pool) + int64(a.Pool) - 1
	if width > math.MaxInt32 {
		c.fail("%d pools of %d tokens are more than %d places: launch fewer rows", a.Columns, a.Pool, math.MaxInt32)
	}
	c.multiple("pool stride", a.PoolStride, 1, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 1, width)
	c.count("rows", a.Rows)
	return runRows(k, s, &c, a.Rows, 1, a)
}
