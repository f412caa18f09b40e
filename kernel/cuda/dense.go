package cuda

import "math"

// DenseAttendArgs are the arguments of dense attention, and of the kernel that divides its rows into tiles.
type DenseAttendArgs struct {
	QueryMap    TensorMap // bf16 [Rows, Heads*(nope+64)]
	KeyMap      TensorMap // bf16 [Keys, Heads*(nope+values)]: the keys of a head
	RopeMap     TensorMap // bf16 [Keys, 64]
	ValueMap    TensorMap // bf16 [Keys, Heads*(nope+values)]: the values of a head
	Start       Ptr       // i32 [Rows, StartStride]: the first key of a row
	Lens        Ptr       // i32 [Rows, LenStride]: number of keys of a row
	Out         Ptr       // bf16 [Rows, OutStride], multiple of 16
	LSE         Ptr       // f32 [Rows, LSEStride]; or zero
	Plan        Ptr       // scratch memory of DensePlanBytes bytes
	Faults      Ptr       // one u32 of fault bits (FaultKeys), or zero
	StartStride int64     // elements between rows; the following strides are also in elements
	LenStride   int64
	OutStride   int64
	LSEStride   int64
	Rows        int32
	Keys        int32
	Heads       int32
	ScoreScale  float32  // scale of q . k, times log2(e)
	_           [32]byte // padding to the maps' alignment of 64 bytes
}

// Dense describes the memory of dense attention. Row r attends to the keys Start[r] to Start[r]+Lens[r]-1. Tiles of
// keys begin at Start[r], also for adjacent rows with equal starts, which are computed together; so a row's result is
// bitwise equal alone and in any batch. Keys that are masked for all rows of a tile may have any value.
type Dense struct {
	Q      Ptr // bf16 [Rows, QStride]: Heads of Nope+64 columns, rotated; multiple of 16
	KV     Ptr // bf16 [Keys, KVStride]: Heads of Nope columns of keys, then Values columns of values; multiple of 16
	Rope   Ptr // bf16 [Keys, RopeStride]: 64 rotated columns that all heads share; multiple of 16
	Start  Ptr // i32 [Rows, StartStride]
	Lens   Ptr // i32 [Rows, LenStride]
	Out    Ptr // bf16 [Rows, OutStride]: Heads of Values columns; multiple of 16; zeros for a row without keys
	LSE    Ptr // f32 [Rows, LSEStride], natural logarithm, +inf for a row without keys; or zero
	Plan   Ptr // scratch of DensePlanBytes(Rows), multiple of 16
	Faults Ptr // one u32 of fault bits, or zero

	QStride, KVStride, RopeStride, StartStride, LenStride, OutStride, LSEStride int64 // elements

	Rows, Keys, Heads int32
	Nope, Values      int32 // columns of a head: 64 and 64, 128 and 128, or 192 and 256
	Scale             float32
}

// DensePlanBytes returns the size of the scratch memory of a launch: 16 bytes, and 16 bytes for each tile of rows and
// for one additional tile. There can be as many tiles as rows.
func DensePlanBytes(rows int32) int64 { return 16 + 16*(int64(rows)+1) }

// denseShape is the kernel for one pair of head sizes.
type denseShape struct {
	kernel string
	keys   uint32 // keys of a tile
}

// denseShapes are the kernels by the number of unrotated key columns and of value columns of a head.
var denseShapes = map[[2]int32]denseShape{
	{64, 64}:   {"sparrow_dense_d128", 128},
	{128, 128}: {"sparrow_dense_d192", 128},
	{192, 256}: {"sparrow_dense_d256", 64},
}

// DenseSupported reports whether there is a kernel for heads with nope + 64 key columns and values value columns.
func DenseSupported(nope, values int32) bool { return denseShapes[[2]int32{nope, values}].kernel != "" }

const (
	denseTile  = 64 // columns of a tile in shared memory, and rows of a warpgroup
	denseRope  = 64 // rotated columns
	planKernel = "sparrow_dense_plan"
)

// Encode checks the memory and builds the kernel's arguments with their tensor maps. They are valid as long as the
// memory is allocated.
func (x *Dense) Encode(d *Device) (DenseAttendArgs, error) {
	c := checks{kernel: "dense attention"}
	shape := denseShapes[[2]int32{x.Nope, x.Values}]
	if shape.kernel == "" {
		c.fail("heads have %d and %d columns, want 64 and 64, 128 and 128, or 192 and 256", x.Nope, x.Values)
	}
	c.positive("rows", x.Rows)
	c.positive("keys", x.Keys)
	c.positive("heads", x.Heads)
	if int64(x.Rows)*int64(x.Heads) > math.MaxInt32 {
		c.fail("%d rows of %d heads are more than %d units of work; launch fewer rows", x.Rows, x.Heads, math.MaxInt32)
	}
	for _, m := range []struct {
		name  string
		at    Ptr
		align int
	}{{"q", x.Q, 16}, {"kv", x.KV, 16}, {"rope", x.Rope, 16}, {"start", x.Start, 4}, {"lens", x.Lens, 4},
		{"out", x.Out, 16}, {"plan", x.Plan, 16}} {
		c.memory(m.name, m.at, m.align)
	}
	heads := int64(x.Heads)
	query, kv := heads*int64(x.Nope+denseRope), heads*int64(x.Nope+x.Values)
	c.multiple("q stride", x.QStride, 8, query)
	c.multiple("kv stride", x.KVStride, 8, kv)
	c.multiple("rope stride", x.RopeStride, 8, denseRope)
	c.multiple("start stride", x.StartStride, 1, 1)
	c.multiple("len stride", x.LenStride, 1, 1)
	c.multiple("out stride", x.OutStride, 8, heads*int64(x.Values))
	if x.LSE != 0 {
		c.memory("lse", x.LSE, 4)
		c.multiple("lse stride", x.LSEStride, 1, heads)
	}
	if !(x.Scale > 0 && x.Scale <= math.MaxFloat32) {
		c.fail("scale %g must be positive and finite", x.Scale)
	}
	a := DenseAttendArgs{
		Start: x.Start, Lens: x.Lens, Out: x.Out, LSE: x.LSE, Plan: x.Plan, Faults: x.Faults,
		StartStride: x.StartStride, LenStride: x.LenStride, OutStride: x.OutStride, LSEStride: x.LSEStride,
		Rows: x.Rows, Keys: x.Keys, Heads: x.Heads, ScoreScale: x.Scale * math.Log2E,
	}
	// Columns are divided into tiles of 64, and the tile is the outermost dimension, so that one copy loads several
	// consecutive tiles.
	tiles := func(base Ptr, rows int32, columns, stride int64, boxRows uint32, box int32) MapSpec {
		return MapSpec{Type: MapBF16, Base: base, Dims: []uint64{denseTile, uint64(rows), uint64(columns / denseTile)},
			Strides: []uint64{uint64(stride) * 2, denseTile * 2},
			Box:     []uint32{denseTile, boxRows, uint32(box / denseTile)}, Swizzle: Swizzle128, L2: 3}
	}
	err := encodeMaps(d, c.err, []mapTarget{
		{&a.QueryMap, tiles(x.Q, x.Rows, query, x.QStride, denseTile, x.Nope+denseRope)},
		{&a.KeyMap, tiles(x.KV, x.Keys, kv, x.KVStride, shape.keys, x.Nope)},
		{&a.RopeMap, MapSpec{Type: MapBF16, Base: x.Rope, Dims: []uint64{denseRope, uint64(x.Keys)},
			Strides: []uint64{uint64(x.RopeStride) * 2}, Box: []uint32{denseRope, shape.keys}, Swizzle: Swizzle128,
			L2: 3}},
		{&a.ValueMap, tiles(x.KV, x.Keys, kv, x.KVStride, shape.keys, x.Values)},
	})
	return a, err
}

// DenseAttend plans the tiles of the rows and computes attention with the kernel for heads of nope + 64 and values
// columns, for which the arguments were encoded.
func DenseAttend(k *Kernels, s *Stream, nope, values int32, a *DenseAttendArgs) error {
	shape := denseShapes[[2]int32{nope, values}]
	if shape.kernel == "" {
		return argumentError("dense attention: heads have %d and %d columns, want 64 and 64, 128 and 128, or 192 and "+
			"256", nope, values)
	}
	if a.Rows == 0 {
		return nil
	}
	if err := runPersistent(k, s, planKernel, 1, 1, a); err != nil {
		return err
	}
	if k.device.portable {
		const perSM, halves = 2, 2 // blocks per SM; units of work per tile of rows (each half of a tile is one)
		units := min(int64(a.Rows)*int64(a.Heads)*halves, math.MaxInt32)
		return runPersistent(k, s, portableDense[shape.kernel], int32(units), perSM, a)
	}
	return runPersistent(k, s, shape.kernel, a.Rows*a.Heads, 1, a)
}
