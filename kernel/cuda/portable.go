package cuda

import (
	"math"
	"strings"
)

// This file has the launches of portable kernels (src/sm80). They have the same arguments as the kernels for Hopper,
// but different grids. All portable kernels of an operation give bitwise equal results, so the result of a row does not
// depend on its batch. An operation without a portable kernel returns an error with the kernel's name
// (Kernels.Function).

// portableFewRows is the maximum number of rows for which products and experts use their smallest tiles.
const portableFewRows = 16

// portableShortBlocks is the maximum number of blocks of k for which k is divided between two warps in products of few
// rows.
const portableShortBlocks = 12

// portableMostStride is the maximum number of bytes between rows of an operand of a product: distances within a tile of
// 128 rows have 32 bits.
const portableMostStride = math.MaxUint32 / 128

// encodePortable builds the call of a portable product.
func (x *Product) encodePortable(d *Device) (ProductCall, error) {
	tileRows, tileColumns, name := int32(128), int32(128), "many"
	tiles := func(rows, columns int32) int64 {
		return int64(ceilDiv(x.Rows, rows)) * int64(ceilDiv(x.Columns, columns)) * int64(x.Batch)
	}
	switch {
	case x.Rows <= portableFewRows:
		// k is divided among all eight warps of a block, among four for 16 rows of FP8, or between two if k is short.
		// The other warps compute further columns.
		tileRows, tileColumns, name = 16, 16, "few16"
		if x.Type == ProductFP8 && x.Rows > 8 {
			tileColumns = 32
		}
		if x.blocks() <= portableShortBlocks {
			tileColumns, name = 64, "short16"
		}
		if x.Rows <= 8 {
			tileRows, name = 8, name[:len(name)-2]+"8"
		}
	case x.Rows <= 64 || tiles(128, 128) < int64(d.props.SMs):
		tileRows, tileColumns, name = 64, 64, "some"
	}
	size, kind, block := x.Type.element()
	if stride := max(x.WeightStride, x.InputStride) * size; stride > portableMostStride {
		return ProductCall{}, argumentError("%v product: rows are %d bytes apart, want at most %d", x.Type, stride,
			portableMostStride)
	}
	call := ProductCall{kernel: "portable_product_" + x.Type.String() + "_" + name, cluster: 1,
		tiles: Dim{X: uint32(ceilDiv(x.Rows, tileRows)), Y: uint32(ceilDiv(x.Columns, tileColumns)),
			Z: uint32(x.Batch)},
		Args: ProductArgs{WeightScales: x.WeightScales, Out: x.Out, OutStride: x.OutStride, OutBatch: x.OutBatch,
			Rows: x.Rows, Columns: x.Columns, Blocks: x.blocks(), Parts: 1, Batch: x.Batch}}
	if x.OutF32 {
		call.Args.OutF32 = 1
	}
	maps := []mapTarget{
		{&call.Args.WeightMap, x.operand(kind, x.Weight, x.K, x.Columns, x.WeightStride*size, x.WeightBatch*size,
			block, tileColumns)},
		{&call.Args.InputMap, x.operand(kind, x.Input, x.K, x.Rows, x.InputStride*size, x.InputBatch*size, block,
			tileRows)},
	}
	if x.Type == ProductFP8 {
		maps = append(maps, mapTarget{&call.Args.ScaleMap, MapSpec{Type: MapF32, Base: x.InputScales,
			Dims:    []uint64{uint64(x.Rows), uint64(x.blocks()) * uint64(x.Batch)},
			Strides: []uint64{uint64(x.ScaleStride) * 4}, Box: []uint32{uint32(tileRows), 1}}})
	}
	return call, encodeMaps(d, nil, maps)
}

// portableExperts runs gate and up, or down, of a layer's experts.
func portableExperts(k *Kernels, s *Stream, which expertKernel, a *ExpertsArgs, tiles int32) error {
	name := "portable_experts_gate_up_"
	if which.down {
		name = "portable_experts_down_"
	}
	name += map[expertKind]string{expertsE4M3: "fp8", expertsBF16: "bf16", expertsE2M1: "e2m1",
		expertsFolded: "folded"}[which.kind]
	switch {
	case a.Rows <= 8:
		name += "_few8"
	case a.Rows <= portableFewRows:
		name += "_few16"
	default:
		name += "_many"
	}
	items := min(int64(a.Rows)*int64(a.Top)*int64(tiles), math.MaxInt32) // an upper bound: every pair may be a group
	return runPersistent(k, s, name, int32(items), 1, a)
}

// scoreGrid returns the grid of index scores. An item has a few query rows with their keys; if there are few items,
// several blocks compute one item.
func scoreGrid(k *Kernels, items, keys int32) Dim {
	const blockKeys, waves = 128, 4
	share := min(ceilDiv(waves*int32(k.device.props.SMs), max(items, 1)), ceilDiv(keys, blockKeys), math.MaxUint16)
	return Dim{X: uint32(items), Y: uint32(max(share, 1))}
}

func portableScores[T any](k *Kernels, s *Stream, name string, heads int32, grid Dim, a *T) error {
	if grid.X == 0 {
		return nil
	}
	name += "_h64"
	if heads == 32 {
		name = name[:len(name)-2] + "32"
	}
	fn, err := k.Function(name)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: grid, Block: Dim{X: portableThreads}, Shared: fn.dynamic}, a)
}

// portableTopKWaves is the number of selection blocks per multiprocessor in a launch; if there are more rows, a block
// processes several rows.
const portableTopKWaves = 2

// portableSparse maps kernels of sparse attention, and of attention over every key, for Hopper to portable kernels.
var portableSparse = map[string]string{"sparrow_sparse_bf16": "portable_sparse_bf16",
	"sparrow_sparse_block": "portable_sparse_block", "sparrow_sparse_raw": "portable_sparse_raw",
	"sparrow_sparse_entry": "portable_sparse_entry", "sparrow_sparse_flat": "portable_sparse_flat",
	"sparrow_sparse_nope": "portable_sparse_nope", "sparrow_latent_bf16": "portable_latent_bf16",
	"sparrow_latent_block": "portable_latent_block", "sparrow_latent_raw": "portable_latent_raw"}

// portableTwoBlocks is the shared memory that a block can have on multiprocessors with room for two blocks of sparse
// attention.
const portableTwoBlocks = 163 << 10

// portableAttend computes sparse attention with one block for each 32 heads of a row and segment, and a kernel that
// combines segments. If a multiprocessor has room for only one such block, there are more blocks than multiprocessors,
// and no half of a block would be empty, a block has 64 heads, with bitwise equal results.
func portableAttend(k *Kernels, s *Stream, rows sparseRows, a *SparseAttendArgs) error {
	const threadsOfHead, combineThreads = 4, 128
	kernel := rows.kernel // without a portable kernel, the error names this kernel
	if portable := portableSparse[kernel]; portable != "" {
		kernel = portable
	}
	heads := int32(sparseHeads / 2)
	units := int64(a.Rows) * int64(a.Segments) * int64(ceilDiv(a.Heads, heads))
	if strings.HasPrefix(kernel, "portable_sparse_") && int64(k.device.props.SharedOptinBytes) < portableTwoBlocks &&
		units > int64(k.device.props.SMs) && a.Heads%sparseHeads == 0 {
		kernel, heads, units = kernel+"_wide", sparseHeads, units/2
	}
	fn, err := k.Function(kernel)
	if err != nil {
		return err
	}
	if units > math.MaxInt32 {
		return argumentError("sparse attention: %d rows in %d segments of %d heads are more than %d units of %d "+
			"heads: launch fewer rows", a.Rows, a.Segments, a.Heads, math.MaxInt32, heads)
	}
	if err := Run(s, fn, Launch{Grid: Dim{X: uint32(units)}, Block: Dim{X: uint32(threadsOfHead * heads)},
		Shared: fn.dynamic}, a); err != nil || a.Segments == 1 {
		return err
	}
	name := "portable_sparse_combine_f16"
	if rows.partBytes == 4 {
		name = "portable_sparse_combine_f32"
	}
	if fn, err = k.Function(name); err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Rows) * uint32(a.Heads)}, Block: Dim{X: combineThreads}}, a)
}

// portableDense maps kernels of dense attention for Hopper to portable kernels.
var portableDense = map[string]string{"sparrow_dense_d128": "portable_dense_d128",
	"sparrow_dense_d192": "portable_dense_d192", "sparrow_dense_d256": "portable_dense_d256"}
