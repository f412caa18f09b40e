package cuda

// ProductArgs are the arguments of a matrix product.
type ProductArgs struct {
	WeightMap    TensorMap // e4m3 or bf16 [Batch, Columns, k]
	InputMap     TensorMap // e4m3 or bf16 [Batch, Rows, k], as the weight
	ScaleMap     TensorMap // only e4m3: f32 [Batch * Blocks, Rows]
	OutMap       TensorMap // many rows, bf16 out: [Batch, Rows, Columns]
	WeightScales Ptr       // only e4m3: f32 [Batch, ceil(Columns/128), Blocks]
	Out          Ptr       // bf16 or f32 [Rows, OutStride]
	Sums         Ptr       // tiles of 256 rows if k has parts: f32 [blocks of the grid, 128 * 128]
	OutStride    int64     // elements between rows
	OutBatch     int64     // elements from one batch entry to the next
	Rows         int32
	Columns      int32
	Blocks       int32 // blocks of k: 128 columns of e4m3, 64 of bf16
	Parts        int32 // parts of k that are summed separately
	Batch        int32
	OutF32       int32    // 1: Out is f32
	Stages       int32    // few rows: stages of the shared-memory ring
	Ahead        int32    // few rows: stages whose weights are read before the previous kernel has ended
	Copied       int32    // narrow tiles and e2m1 weights: input rows of a copy
	Across       int32    // many rows: 1: the blocks of a cluster compute adjacent columns of one tile of rows
	Factors      Ptr      // e4m3 with Batch 1: f32 [Columns] that results are multiplied by, or 0
	Folded       Ptr      // few rows: e2m1 weights (folded.go), instead of WeightMap
	Beside       int32    // 1: runs in parallel with the previous kernel, whose output it does not read
	Leads        int32    // few rows: 1: the next product runs in parallel with this product
	_            [24]byte // padding to the maps' alignment of 64 bytes
}

// ProductType is the type of the operands of a product.
type ProductType int

// Types of operands. FP8 operands have scales: one for each 128 x 128 block of a weight, and one for each 128 columns
// of an input row.
const (
	ProductFP8 ProductType = iota
	ProductBF16
)

func (t ProductType) String() string {
	if t == ProductFP8 {
		return "fp8"
	}
	return "bf16"
}

// element returns the size of an element in bytes, its type for the copy engine, and the columns of k in a block of 128
// bytes.
func (t ProductType) element() (bytes int64, kind MapType, block int32) {
	if t == ProductFP8 {
		return 1, MapU8, 128
	}
	return 2, MapBF16, 64
}

// Product describes the memory of a matrix product: for each element of a batch, Out [Rows, Columns] = Input [Rows, K]
// * Weight [Columns, K] transposed. The result of a row depends only on the row and the weight, so it is bitwise equal
// in any batch of rows.
type Product struct {
	Type         ProductType
	Weight       Ptr // [Batch, Columns, K], rows WeightStride apart; multiple of 16
	WeightScales Ptr // FP8: f32 [Batch, ceil(Columns/128), ceil(K/128)]
	Input        Ptr // [Rows, K], rows InputStride apart; multiple of 16
	InputScales  Ptr // FP8: f32 [Batch, ceil(K/128), ScaleStride], of which Rows are used; multiple of 16
	Factors      Ptr // FP8 with Batch 1: f32 [Columns] that columns of the result are multiplied by; 0: none
	Out          Ptr // bf16 or f32 [Rows, Columns], rows OutStride apart; multiple of 16

	WeightStride, InputStride, ScaleStride, OutStride int64 // elements between rows
	// elements between entries of the batch; not used if Batch is 1
	WeightBatch, InputBatch, OutBatch int64

	Rows, Columns, K int32 // Columns and K are multiples of 16
	Batch            int32 // 1 for a plain product
	// Whole is the number of columns of the matrix that the weight is a part of. The result of a part is bitwise equal
	// to its columns in the product with the whole matrix. 0 means Columns.
	Whole  int32
	OutF32 bool
	Folded bool // FP8, up to FoldedFew rows: Weight is in the form that Fold writes (EncodeFolded)
	// Sums is memory for the sums of parts of k, SumBytes bytes at a multiple of 16. Without it the product runs in
	// smaller tiles, with bitwise equal results.
	Sums Ptr
	// Beside means that the previous launch is a product of the same input, which does not write what this product
	// reads and does not use its Out or Sums. If launches overlap, the two run in parallel.
	Beside bool
	Leads  bool // the next launch is a product with Beside set
}

// ProductCall is a matrix product ready to be launched. It is valid as long as the memory is allocated.
type ProductCall struct {
	Args    ProductArgs
	kernel  string
	grid    uint32
	tiles   Dim   // grid of a portable kernel, one block per tile; the zero Dim for Hopper kernels
	cluster int32 // blocks of a cluster
	shared  int   // bytes of dynamic shared memory; 0: the size in the kernel's source
}

// mostK is the maximum row length: the input scales of all blocks of a row must fit in shared memory in addition to the
// ring of stages.
const mostK = 32768

// Encode checks the memory and chooses the kernel for the number of rows.
func (x *Product) Encode(d *Device) (ProductCall, error) {
	c := checks{kernel: x.Type.String() + " product"}
	c.positive("rows", x.Rows)
	c.positive("batch", x.Batch)
	c.multiple("columns", int64(x.Columns), 16, 16)
	c.multiple("k", int64(x.K), 16, 16)
	size, _, _ := x.Type.element()
	c.memory("weight", x.Weight, 16)
	c.memory("input", x.Input, 16)
	c.memory("out", x.Out, 16)
	aligned := 16 / size // elements in 16 bytes
	c.multiple("weight stride", x.WeightStride, aligned, int64(x.K))
	c.multiple("input stride", x.InputStride, aligned, int64(x.K))
	outAligned := int64(8)
	if x.OutF32 {
		outAligned = 4
	}
	c.multiple("out stride", x.OutStride, outAligned, int64(x.Columns))
	if x.Batch > 1 {
		c.multiple("weight batch", x.WeightBatch, aligned, int64(x.K))
		c.multiple("input batch", x.InputBatch, aligned, int64(x.K))
		c.multiple("out batch", x.OutBatch, outAligned, int64(x.Columns))
	}
	if x.Type == ProductFP8 {
		c.memory("weight scales", x.WeightScales, 4)
		c.memory("input scales", x.InputScales, 16)
		c.multiple("scale stride", x.ScaleStride, 4, int64(x.Rows))
	}
	if x.Factors != 0 {
		c.memory("factors", x.Factors, 8)
		if x.Type != ProductFP8 || x.Batch > 1 || d.portable {
			c.fail("factors of columns are given, which only a single FP8 product on a Hopper GPU supports")
		}
	}
	const mostTiles = 1 << 22
	if tiles := (int64(x.Rows)/stripeRows + 1) * (int64(x.Columns)/stripeRows + 1) * int64(x.Batch); tiles > mostTiles {
		c.fail("%d x %d results in a batch of %d are %d tiles, want at most %d; launch fewer rows", x.Rows, x.Columns,
			x.Batch, tiles, mostTiles)
	}
	if x.Sums%16 != 0 {
		c.fail("sums are at %#x, want a multiple of 16", x.Sums)
	}
	if x.K > mostK {
		c.fail("k is %d, want at most %d", x.K, mostK)
	}
	if c.err != nil {
		return ProductCall{}, c.err
	}
	if x.Folded && (x.Type != ProductFP8 || x.Batch > 1 || d.portable || x.Rows > FoldedFew) {
		return ProductCall{}, argumentError("a %v product of %d rows has folded weights, which only a single FP8 "+
			"product of up to %d rows on a Hopper GPU supports", x.Type, x.Rows, FoldedFew)
	}
	if d.portable {
		return x.encodePortable(d)
	}
	return x.encode(d, x.choose(int32(d.props.SMs)))
}

// SumBytes returns the size of Sums with which a product of many rows is faster, or 0 if Sums makes no difference.
func (x *Product) SumBytes(d *Device) int64 {
	// Decodes call SumBytes for every product, so it returns early for them.
	if d.portable || x.Type != ProductFP8 || x.Rows <= mostFew || x.parts() == 1 || x.Factors != 0 {
		return 0
	}
	with := *x
	with.Sums = 1
	if c := with.choose(int32(d.props.SMs)); c.sums {
		return int64(d.props.SMs) * int64(c.inputs) / 2 * int64(c.weights) * 4
	}
	return 0
}

// encode builds the call for a chosen kernel.
func (x *Product) encode(d *Device, choice productChoice) (ProductCall, error) {
	size, kind, block := x.Type.element()
	call := ProductCall{kernel: choice.kernel, cluster: 2, Args: ProductArgs{
		WeightScales: x.WeightScales, Out: x.Out, Sums: x.Sums, OutStride: x.OutStride, OutBatch: x.OutBatch,
		Factors: x.Factors, Rows: x.Rows, Columns: x.Columns, Blocks: x.blocks(), Parts: x.parts(), Batch: x.Batch,
		Stages: choice.stages, Ahead: choice.ahead, Copied: choice.inputs,
	}}
	if x.OutF32 {
		call.Args.OutF32 = 1
	}
	if x.Beside {
		call.Args.Beside = 1
	}
	if x.Leads {
		call.Args.Leads = 1
	}
	tiles := func(of, by int32) int64 { return (int64(of) + int64(by) - 1) / int64(by) }
	count := int64(x.tiles(choice.weights))
	if choice.few {
		call.cluster = x.parts()
		if choice.narrow {
			call.cluster = 2
		}
		call.shared = x.fewBytes(&choice, choice.stages)
	}
	switch {
	case choice.resident: // a block computes some tiles of rows of one batch entry
		call.cluster = 1
		splits := max(1, int64(d.props.SMs)/int64(x.Batch))
		count = min(int64(x.Batch)*min(splits, tiles(x.Rows, choice.inputs)), int64(d.props.SMs))
	case choice.across:
		call.Args.Across = 1
		count = int64(x.tiles(2*choice.weights)) * tiles(x.Rows, choice.inputs)
	case !choice.few:
		count *= tiles(x.Rows, 2*choice.inputs)
	case call.cluster > 1:
		count *= tiles(x.Rows, choice.inputs)
	}
	// Blocks are persistent, with two exceptions that have one tile each: clusters that divide k, and blocks that keep
	// input scales in shared memory.
	kept := choice.few && x.Type == ProductFP8 && x.Batch > 1
	if !choice.resident && (!choice.few || call.cluster == 1) && !kept {
		count = min(count, int64(choice.perSM)*int64(d.props.SMs)/int64(call.cluster))
	}
	// In the kernel for few rows, one TMA copy loads all weights or inputs of a tile, or the input scales of several
	// blocks of k. In the kernel for many rows, it loads half of a tile's weights or inputs, or the input scales of one
	// block.
	weightBox, inputBox, scaleRows := choice.weights, choice.inputs, int32(scaleBox)
	if !choice.few && !choice.resident {
		weightBox, inputBox, scaleRows = choice.weights/2, choice.inputs/2, 1
	}
	if x.Folded && x.parts() == 1 { // all rows are in one tile
		inputBox = x.Rows
		call.Args.Copied = x.Rows
	}
	call.grid = uint32(count) * uint32(call.cluster)
	weightMap := mapTarget{&call.Args.WeightMap, x.operand(kind, x.Weight, x.K, x.Columns, x.WeightStride*size,
		x.WeightBatch*size, block, weightBox)}
	maps := []mapTarget{weightMap,
		{&call.Args.InputMap, x.operand(kind, x.Input, x.K, x.Rows, x.InputStride*size, x.InputBatch*size, block,
			inputBox)},
	}
	if x.Folded {
		call.Args.Folded, maps = x.Weight, maps[1:]
	}
	if x.Type == ProductFP8 {
		maps = append(maps, mapTarget{&call.Args.ScaleMap, MapSpec{Type: MapF32, Base: x.InputScales,
			Dims:    []uint64{uint64(x.Rows), uint64(x.blocks()) * uint64(x.Batch)},
			Strides: []uint64{uint64(x.ScaleStride) * 4}, Box: []uint32{uint32(choice.inputs), uint32(scaleRows)},
			L2: 2}})
	}
	if !choice.few && !x.OutF32 {
		boxColumns, boxRows := int32(64), int32(16) // box of the store of a warp
		if choice.weights%boxColumns != 0 {
			boxColumns = choice.weights
		}
		out := x.operand(MapBF16, x.Out, x.Columns, x.Rows, x.OutStride*2, x.OutBatch*2, boxColumns, boxRows)
		if boxColumns != 64 {
			out.Swizzle = 0
		}
		maps = append(maps, mapTarget{&call.Args.OutMap, out})
	}
	return call, encodeMaps(d, nil, maps)
}

// operand returns the tensor map of a tensor [Batch, rows, columns]. A copy loads a box of boxRows rows of 128 bytes.
// stride and batch are in bytes.
func (x *Product) operand(kind MapType, base Ptr, columns, rows int32, stride, batch int64, boxColumns,
	boxRows int32) MapSpec {
	if x.Batch == 1 {
		batch = stride // not used, but must be valid
	}
	return MapSpec{Type: kind, Base: base, Dims: []uint64{uint64(columns), uint64(rows), uint64(x.Batch)},
		Strides: []uint64{uint64(stride), uint64(batch)},
		Box:     []uint32{uint32(boxColumns), uint32(boxRows), 1}, Swizzle: Swizzle128, L2: 3}
}

// Multiply launches a product. With Stream.SetOverlap the kernel may read the weight and its scales before the previous
// kernel has ended, so the previous kernel must not write them.
func Multiply(k *Kernels, s *Stream, call *ProductCall) error {
	fn, err := k.Function(call.kernel)
	if err != nil {
		return err
	}
	l := Launch{Grid: Dim{X: call.grid}, Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: call.shared,
		Overlap: s.overlap}
	if l.Shared == 0 {
		l.Shared = fn.dynamic
	}
	if call.tiles != (Dim{}) {
		l.Grid = call.tiles
	}
	if call.cluster > 1 {
		l.Cluster = Dim{X: uint32(call.cluster)}
	}
	return Run(s, fn, l, &call.Args)
}
