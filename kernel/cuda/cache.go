package cuda

import (
	"math"

	"sparrow/layout"
)

// WriteMainArgs are the arguments of the main-cache writers.
type WriteMainArgs struct {
	Pool         PoolView
	Rotary       RotaryView
	Latent       Ptr // bf16 [Tokens, 512], normalised unless there is a norm
	Key          Ptr // bf16 [Tokens, 64], before rotation, pairs (2i, 2i+1)
	Positions    Ptr // i32 [Tokens]
	Slots        Ptr // i32 [Tokens]; negative: do not write
	Faults       Ptr // address of a u32 of fault bits, or zero
	Norm         Ptr // f32 [512]: the weight of the RMSNorm of the latent, rounded to bf16; or zero
	Epsilon      float64
	LatentStride int64 // elements between tokens, multiple of 8
	KeyStride    int64 // elements between tokens, multiple of 2
	Tokens       int32
	KScale       float32 // FP8Row576 only: scale of all values of the pool
}

// GatherSlotsArgs are the arguments of gathers by slot list.
type GatherSlotsArgs struct {
	Pool     PoolView
	Source   SlotListView
	Rows     Ptr   // [Count] output rows
	Faults   Ptr   // one u32 of fault bits, or zero
	RowBytes int64 // bytes between output rows, multiple of 16
	Count    int32
	KScale   float32 // FP8Row576 only
}

// GatherPagesArgs are the arguments of gathers through page tables.
type GatherPagesArgs struct {
	Pool     PoolView
	Source   PageTableView
	Rows     Ptr   // [Count] output rows
	Faults   Ptr   // one u32 of fault bits, or zero
	RowBytes int64 // bytes between output rows, multiple of 16
	Count    int32 // maximum rows to write; rows from Starts[Requests] on are not written
	KScale   float32
}

// mainKernels holds the names of the kernels for one layout.
type mainKernels struct {
	write, slots, pages, store string
	rowBytes                   int64
}

func kernelsOf(kind layout.Kind) (mainKernels, error) {
	switch kind {
	case layout.BF16Row1152:
		return mainKernels{"write_main_bf16", "gather_slots_bf16", "gather_pages_bf16",
			"store_latent_bf16", layout.BF16RowBytes}, nil
	case layout.FP8Row656:
		return mainKernels{"write_main_block", "gather_slots_block", "gather_pages_block",
			"store_latent_block", layout.BlockRowBytes}, nil
	case layout.FP8Row576:
		return mainKernels{"write_main_raw", "gather_slots_raw", "gather_pages_raw",
			"store_latent_raw", layout.RawRowBytes}, nil
	case layout.BF16Row1024:
		return mainKernels{write: "write_nope_bf16", slots: "gather_slots_nope_bf16",
			rowBytes: layout.NopeBF16Bytes}, nil
	case layout.FP8Row528:
		return mainKernels{write: "write_nope_block", slots: "gather_slots_nope_block",
			rowBytes: layout.NopeRowBytes}, nil
	}
	return mainKernels{}, argumentError("layout %v has no CUDA kernels; want %v, %v, %v, %v or %v", kind,
		layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576, layout.BF16Row1024, layout.FP8Row528)
}

// scale checks the scale that all 576-byte rows of a pool have.
func (c *checks) scale(kind layout.Kind, k float32) {
	if kind == layout.FP8Row576 && !(k > 0 && k <= math.MaxFloat32) {
		c.fail("scale %g of %v must be positive and finite", k, kind)
	}
}

// WriteMain rotates the keys and stores one row of the layout per token. The bytes equal those of layout.Main.Encode
// for the latent and the rotated key, both rounded to bf16. Layouts without a rotated part have no keys.
func WriteMain(k *Kernels, s *Stream, kind layout.Kind, a *WriteMainArgs) error {
	names, err := kernelsOf(kind)
	if err != nil {
		return err
	}
	c := checks{kernel: names.write}
	a.check(&c, kind, names)
	return runRows(k, s, &c, a.Tokens, longRows, a)
}

func (a *WriteMainArgs) check(c *checks, kind layout.Kind, names mainKernels) {
	c.pool(a.Pool, names.rowBytes)
	c.memory("latent", a.Latent, 16)
	c.memory("slots", a.Slots, 4)
	if layout.Width(kind) > layout.LatentDim {
		c.rotary(a.Rotary)
		c.memory("key", a.Key, 4)
		c.memory("positions", a.Positions, 4)
		c.multiple("key stride", a.KeyStride, 2, layout.RopeDim)
	}
	if a.Norm != 0 {
		c.memory("norm", a.Norm, 16)
	}
	c.multiple("latent stride", a.LatentStride, 8, layout.LatentDim)
	c.count("tokens", a.Tokens)
	c.scale(kind, a.KScale)
}

// gathered checks the arguments that are common to gathers by slots and by pages.
func (c *checks) gathered(pool PoolView, fromBytes int64, rows Ptr, rowBytes, toBytes int64, count int32) {
	c.pool(pool, fromBytes)
	c.memory("rows", rows, 16)
	c.multiple("row bytes", rowBytes, 16, toBytes)
	c.count("count", count)
}

// GatherSlots copies the listed rows of a pool to consecutive dequantised bf16 rows of 1152 bytes, or of 1024 bytes in
// layouts without a rotated part.
func GatherSlots(k *Kernels, s *Stream, kind layout.Kind, a *GatherSlotsArgs) error {
	names, err := kernelsOf(kind)
	if err != nil {
		return err
	}
	return gatherSlots(k, s, names.slots, kind, names.rowBytes, 2*int64(layout.Width(kind)), a)
}

// RawToBlockSlots converts the listed 576-byte rows of a pool to consecutive 656-byte rows. The conversion is exact for
// a power-of-two scale; for another scale, values are quantised again.
func RawToBlockSlots(k *Kernels, s *Stream, a *GatherSlotsArgs) error {
	return gatherSlots(k, s, "raw_to_block_slots", layout.FP8Row576, layout.RawRowBytes, layout.BlockRowBytes, a)
}

func gatherSlots(k *Kernels, s *Stream, kernel string, kind layout.Kind, from, to int64, a *GatherSlotsArgs) error {
	c := checks{kernel: kernel}
	c.gathered(a.Pool, from, a.Rows, a.RowBytes, to, a.Count)
	c.memory("slots", a.Source.Slots, 4)
	c.scale(kind, a.KScale)
	return runRows(k, s, &c, a.Count, longRows, a)
}

// GatherPages copies all tokens of the listed requests to consecutive bf16 rows of 1152 bytes, dequantised.
func GatherPages(k *Kernels, s *Stream, kind layout.Kind, a *GatherPagesArgs) error {
	names, err := kernelsOf(kind)
	if err != nil {
		return err
	}
	if names.pages == "" {
		return argumentError("rows of layout %v cannot be gathered by pages; gather them by slots", kind)
	}
	return gatherPages(k, s, names.pages, kind, names.rowBytes, layout.BF16RowBytes, a)
}

// RawToBlockPages is RawToBlockSlots for all tokens of the listed requests.
func RawToBlockPages(k *Kernels, s *Stream, a *GatherPagesArgs) error {
	return gatherPages(k, s, "raw_to_block_pages", layout.FP8Row576, layout.RawRowBytes, layout.BlockRowBytes, a)
}

func gatherPages(k *Kernels, s *Stream, kernel string, kind layout.Kind, from, to int64, a *GatherPagesArgs) error {
	c := checks{kernel: kernel}
	c.gathered(a.Pool, from, a.Rows, a.RowBytes, to, a.Count)
	c.pages(a.Source)
	c.scale(kind, a.KScale)
	return runRows(k, s, &c, a.Count, longRows, a)
}
