package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"sparrow/layout"
)

// ScoreV41Args are the arguments of index scores over FP4 keys.
type ScoreV41Args struct {
	Pool        PoolView // pages of PageTokens keys of 64 bytes, then PageTokens times 4 exponents
	Queries     Ptr      // bf16 [Rows, 32, 128]
	Weights     Ptr      // f32 [Rows, 32]
	Table       Ptr      // i32 [Tables, TableStride]: pages
	TableRows   Ptr      // i32 [Rows]
	Lengths     Ptr      // i32 [Rows]: columns to score
	Blocks      Ptr      // i32 [Rows, BlockStride]: numbers of the blocks of keys that are scored; zero: all keys
	Scores      Ptr      // f32 [Rows, Stride]
	Faults      Ptr      // one u32 of fault bits, or zero
	TableStride int64
	BlockStride int64
	Stride      int64
	Rows        int32
	Columns     int32 // columns of Scores
	Skip        int32 // rows with at most this many columns are not scored
	Tables      int32 // rows of the table
	Pages       int32 // columns of the table
	PageShift   int32 // set by ScoreV41
	BlockShift  int32 // a block has 2^BlockShift keys
	MostBlocks  int32 // columns of Blocks
}

// BlockMaxArgs are the arguments of the largest scores of blocks.
type BlockMaxArgs struct {
	Scores    Ptr // f32 [Rows, Stride]
	Lengths   Ptr // i32 [Rows]: keys of a row
	Out       Ptr // f32 [Rows, OutStride]
	Stride    int64
	OutStride int64
	Rows      int32
	Columns   int32 // columns of Scores
	Size      int32 // keys of a block
	Skip      int32 // rows with at most this many keys are not written
}

// EngramArgs are the arguments of the kernel that adds values of n-gram tables to residual streams.
type EngramArgs struct {
	X            Ptr     // bf16 [Rows, Streams*Hidden], updated in place
	KV           Ptr     // bf16 [Rows, (Streams+1)*Hidden]: a key for each stream, then the value
	Weight       Ptr     // f32 [Streams, Hidden]
	Epsilon      float64 // added to means of squares
	XStride      int64
	KVStride     int64
	WeightStride int64
	Rows         int32
	Hidden       int32 // multiple of 8
	Streams      int32 // at most EngramStreams
	Reserved     int32
}

// EngramStreams is the maximum number of streams that values of n-gram tables are added to.
const EngramStreams = 4

// ReadTableArgs are the arguments of the kernel that gathers rows of a table in host memory.
type ReadTableArgs struct {
	Values    Ptr // [TableRows, Dim]: f32, bf16 or e4m3; memory that the device reads (Reachable)
	Scales    Ptr // u8 [TableRows, Dim/32]: exponents of e4m3, or zero
	IDs       Ptr // i32 [Rows, IDStride]
	Out       Ptr // bf16 [Rows, OutStride]: Columns*Dim values
	Faults    Ptr // one u32 of fault bits, or zero
	TableRows int64
	IDStride  int64
	OutStride int64
	Rows      int32
	Columns   int32 // rows of the table that are gathered for each output row
	Dim       int32 // multiple of 8
	Type      int32 // bytes of a value: 1, 2 or 4
}

// CollapseArgs are the arguments of the sum of residual streams with given weights.
type CollapseArgs struct {
	X            Ptr // bf16 [Rows, Streams*Hidden]
	Weights      Ptr // f32 [Rows, Streams]
	Out          Ptr // bf16 [Rows, Hidden]
	XStride      int64
	WeightStride int64
	OutStride    int64
	Rows         int32
	Hidden       int32
	Streams      int32
	Reserved     int32
}

// WriteV41 rotates and quantises one row per token and stores it in its page: a window row of 528 bytes, or a
// compressed entry of 288 bytes. If Norm is given, it normalises the row first.
func WriteV41(k *Kernels, s *Stream, kind layout.Kind, a *WriteV4Args) error {
	c, rowBytes := checks{kernel: "write_v41_entry"}, int64(layout.V41EntryBytes)
	if kind == layout.V41Window528 {
		c.kernel, rowBytes = "write_v41_window", layout.V41WindowBytes
	}
	a.checkRows(&c, rowBytes)
	return runRows(k, s, &c, a.Tokens, longRows, a)
}

// WriteKeysV41 normalises, rotates and quantises one FP4 indexer key per token and stores it in its page.
func WriteKeysV41(k *Kernels, s *Stream, a *WriteIndexKeyArgs) error {
	c := checks{kernel: "write_key_v41"}
	a.checkKeys(&c, layout.IndexFP4Bytes)
	if a.Beta != 0 {
		c.fail("the norm has a beta, but the norm of FP4 keys has none")
	}
	return runRows(k, s, &c, a.Tokens, shortRows, a)
}

// PrepareQueriesV41 rotates indexer queries and rounds them to FP4; they are written as bf16.
func PrepareQueriesV41(k *Kernels, s *Stream, a *IndexQueryArgs) error {
	c := checks{kernel: "query_v41"}
	a.check(&c)
	return runGrid(k, s, &c, Dim{X: uint32(a.Tokens), Y: a.blocks()}, a)
}

const (
	v41ScoreHeads = 32
	v41ScoreKeys  = 1024 // columns of scores of a block
)

// ScoreV41 computes index scores over FP4 keys.
func ScoreV41(k *Kernels, s *Stream, a *ScoreV41Args) error {
	c := checks{kernel: "score_v41"}
	c.pool(a.Pool, layout.IndexFP4Bytes)
	if n := a.Pool.PageTokens; n < 8 || n&(n-1) != 0 {
		c.fail("pages have %d keys, want a power of two of at least 8", n)
	}
	a.PageShift = int32(bits.TrailingZeros32(uint32(a.Pool.PageTokens)))
	c.memory("queries", a.Queries, 16)
	c.memory("weights", a.Weights, 4)
	c.memory("table", a.Table, 4)
	c.memory("table rows", a.TableRows, 4)
	c.memory("lengths", a.Lengths, 4)
	c.memory("scores", a.Scores, 4)
	if a.Blocks != 0 {
		c.memory("blocks", a.Blocks, 4)
		c.multiple("block stride", a.BlockStride, 1, int64(a.MostBlocks))
		c.positive("blocks of a row", a.MostBlocks)
		c.count("shift of blocks", a.BlockShift)
	}
	c.multiple("table stride", a.TableStride, 1, int64(a.Pages))
	c.multiple("score stride", a.Stride, 1, int64(a.Columns))
	c.count("rows", a.Rows)
	c.positive("columns", a.Columns)
	return runGrid(k, s, &c, Dim{X: uint32(max(a.Rows, 0)), Y: rowBlocks(a.Columns, v41ScoreKeys)}, a)
}

// BlockMax computes the largest score of every block of keys; the block with the newest key gets +Inf.
func BlockMax(k *Kernels, s *Stream, a *BlockMaxArgs) error {
	c := checks{kernel: "block_max"}
	c.memory("scores", a.Scores, 4)
	c.memory("lengths", a.Lengths, 4)
	c.memory("out", a.Out, 4)
	c.positive("keys of a block", a.Size)
	c.positive("columns", a.Columns)
	c.count("rows", a.Rows)
	if c.err != nil {
		return c.err
	}
	blocks := (a.Columns + a.Size - 1) / a.Size
	c.multiple("score stride", a.Stride, 1, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 1, int64(blocks))
	return runGrid(k, s, &c, Dim{X: uint32(a.Rows), Y: rowBlocks(blocks, portableThreads)}, a)
}

// Engram adds the value of the n-gram tables, multiplied by a gate, to every residual stream.
func Engram(k *Kernels, s *Stream, a *EngramArgs) error {
	c := checks{kernel: "engram"}
	c.streams(a.Streams, a.Hidden)
	if a.Streams > EngramStreams || a.Hidden%8 != 0 {
		c.fail("there are %d streams of %d columns, want at most %d streams of a multiple of 8", a.Streams, a.Hidden,
			EngramStreams)
	}
	n, h := int64(a.Streams), int64(a.Hidden)
	c.memory("x", a.X, 16)
	c.memory("kv", a.KV, 16)
	c.memory("weight", a.Weight, 4)
	c.multiple("x stride", a.XStride, 8, n*h)
	c.multiple("kv stride", a.KVStride, 8, (n+1)*h)
	c.multiple("weight stride", a.WeightStride, 1, h)
	c.count("rows", a.Rows)
	return runRows(k, s, &c, a.Rows, 1, a)
}

// ReadTable gathers rows of a table in host memory.
func ReadTable(k *Kernels, s *Stream, a *ReadTableArgs) error {
	c := checks{kernel: "read_table"}
	align := 8 // eight codes (8 bytes) are read at a time
	switch a.Type {
	case 1:
		c.memory("scales", a.Scales, 1)
	case 2, 4:
		align = int(a.Type)
	default:
		c.fail("values have %d bytes, want 1, 2 or 4", a.Type)
	}
	c.memory("values", a.Values, align)
	c.memory("ids", a.IDs, 4)
	c.memory("out", a.Out, 16)
	c.positive("rows of the table for each row", a.Columns)
	c.multiple("values of a row", int64(a.Dim), 8, 8)
	c.multiple("id stride", a.IDStride, 1, int64(a.Columns))
	c.multiple("out stride", a.OutStride, 8, int64(a.Columns)*int64(a.Dim))
	c.count("rows", a.Rows)
	blocks := (int64(a.Rows)*int64(a.Columns) + longRows - 1) / longRows
	if blocks > maxGrid {
		c.fail("%d rows of %d values are more than %d in all: launch fewer "+
			"rows", a.Rows, a.Columns, int64(maxGrid)*longRows)
	}
	return runGrid(k, s, &c, Dim{X: uint32(blocks)}, a)
}

// Collapse computes the sum of residual streams with given weights.
func Collapse(k *Kernels, s *Stream, a *CollapseArgs) error {
	c := checks{kernel: "collapse"}
	c.streams(a.Streams, a.Hidden)
	c.memory("x", a.X, 2)
	c.memory("weights", a.Weights, 4)
	c.memory("out", a.Out, 2)
	c.multiple("x stride", a.XStride, 1, int64(a.Streams)*int64(a.Hidden))
	c.multiple("weight stride", a.WeightStride, 1, int64(a.Streams))
	c.multiple("out stride", a.OutStride, 1, int64(a.Hidden))
	c.count("rows", a.Rows)
	return runGrid(k, s, &c, Dim{X: uint32(max(a.Rows, 0)), Y: rowBlocks(a.Hidden, postColumns)}, a)
}

// Reachable is host memory that kernels can read.
type Reachable struct {
	device *Device
	bytes  []byte // kept so that the garbage collector does not free memory that the device reads
	copied *HostBuffer
}

// Reach makes host memory readable by kernels: in place if the system can lock its pages, otherwise as a copy in
// page-locked memory. The caller must not write to the memory before Free.
func (d *Device) Reach(bytes []byte) (*Reachable, error) {
	if len(bytes) == 0 {
		return nil, argumentError("reach: the size is 0 bytes, want 1 or more")
	}
	r, failed := d.register(bytes, registerInPlace|registerReadOnly)
	if failed != nil {
		r, failed = d.register(bytes, registerInPlace)
	}
	if failed == nil {
		return r, nil
	}
	copied, err := d.AllocHost(int64(len(bytes)))
	if err != nil {
		return nil, fmt.Errorf("cuda: %d bytes of host memory for kernels to read: %w", len(bytes),
			errors.Join(failed, err))
	}
	copy(copied.Bytes(), bytes)
	return &Reachable{device: d, copied: copied}, nil
}

// Lock makes host memory readable by the copy engine and by kernels, in place. The caller may write to the memory.
func (d *Device) Lock(bytes []byte) (*Reachable, error) {
	if len(bytes) == 0 {
		return nil, argumentError("lock: the size is 0 bytes, want 1 or more")
	}
	return d.register(bytes, registerInPlace)
}

// Flags of cuMemHostRegister: in place, for every context and at the same address on the device; and memory that the
// process cannot write is allowed.
const (
	registerInPlace  = 1 | 2
	registerReadOnly = 8
)

func (d *Device) register(bytes []byte, flags uintptr) (*Reachable, error) {
	err := d.plain(cuMemHostRegister, uintptr(unsafe.Pointer(&bytes[0])), uintptr(len(bytes)), flags)
	if err != nil {
		return nil, err
	}
	return &Reachable{device: d, bytes: bytes}, nil
}

// Ptr returns the address at which kernels read the memory.
func (r *Reachable) Ptr() Ptr {
	if r.copied != nil {
		return r.copied.Ptr()
	}
	return Ptr(uintptr(unsafe.Pointer(&r.bytes[0])))
}

// Free ends the kernels' access. The memory itself is not freed.
func (r *Reachable) Free() error {
	switch {
	case r == nil:
		return nil
	case r.copied != nil:
		return r.copied.Free()
	case r.bytes == nil:
		return nil
	}
	at := uintptr(unsafe.Pointer(&r.bytes[0]))
	err := r.device.plain(cuMemHostUnregister, at)
	r.bytes = nil
	return err
}
