package cuda

import "math"

// ProductArgs are the arguments of a matrix product.
type ProductArgs struct {
	WeightMap    TensorMap // e4m3 or bf16 [Batch, Columns, k]
	InputMap     TensorMap // the same type [Batch, Rows, k]
	ScaleMap     TensorMap // e4m3 alone: f32 [Blocks, Rows]
	OutMap       TensorMap // many rows, bf16 out: [Batch, Rows, Columns]
	WeightScales Ptr       // e4m3 alone: f32 [ceil(Columns/128), Blocks]
	Out          Ptr       // bf16 or f32 [Rows, OutStride]
	OutStride    int64     // elements between rows
	OutBatch     int64     // elements from one of the batch to the next
	Rows         int32
	Columns      int32
	Blocks       int32 // of k: 128 columns of e4m3, 64 of bf16
	Parts        int32 // of k that are summed apart
	Batch        int32
	OutF32       int32 // 1: Out is f32
	Stages       int32 // few rows: stages of the ring
	Ahead        int32 // few rows: stages whose weights are asked for before the kernel in front has ended
}

// ProductType is what the operands of a product are.
type ProductType int

// The types. FP8 operands carry scales: a weight one for each 128 x 128 block, an input one for each row and 128 columns.
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

// element is the size of an element in bytes, its type for the copy engine, and the columns of k in a block of 128 bytes.
func (t ProductType) element() (bytes int64, kind MapType, block int32) {
	if t == ProductFP8 {
		return 1, MapU8, 128
	}
	return 2, MapBF16, 64
}

// Product says over which memory a matrix product is computed: for each of a batch Out [Rows, Columns] = Input [Rows, K] * Weight
// [Columns, K] transposed. A row's bits depend on the row and the weight alone: they are the same in any batch of rows.
type Product struct {
	Type         ProductType
	Weight       Ptr // [Batch, Columns, K], rows WeightStride apart; multiple of 16
	WeightScales Ptr // FP8: f32 [ceil(Columns/128), ceil(K/128)]
	Input        Ptr // [Rows, K], rows InputStride apart; multiple of 16
	InputScales  Ptr // FP8: f32 [ceil(K/128), ScaleStride], of which Rows are used; multiple of 16
	Out          Ptr // bf16 or f32 [Rows, Columns], rows OutStride apart; multiple of 16

	WeightStride, InputStride, ScaleStride, OutStride int64 // elements between rows
	WeightBatch, InputBatch, OutBatch                 int64 // elements from one of the batch to the next; not used when Batch is 1

	Rows, Columns, K int32 // Columns and K are multiples of 16
	Batch            int32 // 1 for a plain product; FP8 products have no batch
	OutF32           bool
}

// ProductCall is a product ready to be launched. It stays valid while the memory stays where it is.
type ProductCall struct {
	Args   ProductArgs
	kernel string
	grid   uint32
	shared int // 0: what the kernel's source names
	block  int // blocks of a cluster
}

const (
	productStripe = 64  // weight rows of a tile of few rows, and columns of a part's choice
	productSMs    = 132 // for which parts are chosen: a constant, so that bits do not depend on the device
	manyRows      = 128 // rows of a tile of many rows

	productScaleBox = 8 // blocks of k whose input scales one copy fetches
)

// productParts is into how many parts k is cut: as many as keep the SMs busy when there are few rows. It depends on the weight's shape
// alone, because it decides the order of summation.
func productParts(columns, blocks, batch int32) int32 {
	tiles := (columns + productStripe - 1) / productStripe * batch
	parts := int32(1)
	for next := int32(2); next <= 8 && tiles*next <= productSMs; next *= 2 {
		each := (blocks + next - 1) / next
		if each < 4 || (next-1)*each >= blocks {
			break
		}
		parts = next
	}
	return parts
}

// productChoice is a kernel and the shape of its tiles.
type productChoice struct {
	kernel  string
	inputs  int32 // input rows of a tile
	weights int32 // weight rows of a tile
	few     bool
	stages  int32 // few rows: stages of the ring
	ahead   int32 // few rows: stages whose weights are asked for before the kernel in front has ended
	perSM   int32 // few rows: blocks that share an SM
}

// fewBytes is the shared memory of a block of few rows, as in few.cuh.
func (x *Product) fewBytes(c *productChoice, stages int32) int {
	groups, scales, sums := c.weights/productStripe, int32(0), int32(0)
	if x.Type == ProductFP8 {
		scales = (x.partBlocks() + productScaleBox - 1) / productScaleBox * productScaleBox * c.inputs * 4
	}
	if x.parts() > 1 {
		sums = groups * 2048 * max(c.inputs/8, 8)
	}
	const align, barriers = 1024, 640
	return int(align + stages*(c.weights+c.inputs)*128 + 4*groups*c.inputs*32 + barriers + scales + sums)
}

// fill gives the choice as many stages as fit into a number of bytes.
func (x *Product) fill(c *productChoice, bytes int) {
	const most = 32
	for c.stages = 2; c.stages < most && x.fewBytes(c, c.stages+1) <= bytes; c.stages++ {
	}
	c.ahead = min(c.stages, 6)
}

// Shared memory that one block, or each of two blocks of an SM, can have.
const (
	wholeShared = 232448
	halfShared  = 115712
)

// choose picks the kernel for a number of rows. Every choice gives the same bits.
func (x *Product) choose(parts int32) productChoice {
	name := "sparrow_product_" + x.Type.String()
	if x.Rows <= 128 {
		c := productChoice{few: true, weights: productStripe, perSM: 1}
		for c.inputs = 8; c.inputs < x.Rows; c.inputs *= 2 {
		}
		c.kernel = name + map[int32]string{8: "_few8", 16: "_few16", 32: "_few32", 64: "_few64", 128: "_few128"}[c.inputs]
		if c.inputs == 64 && parts == 1 && (x.Columns+127)/128*x.Batch >= productSMs {
			c.kernel += "_wide"
			c.weights *= 2
		}
		if parts > 1 {
			x.fill(&c, halfShared)
		} else {
			x.fill(&c, wholeShared)
		}
		return c
	}
	columns := int32(128)
	if x.Type == ProductFP8 {
		columns = 192
	}
	return x.many(parts, columns)
}

// many is the kernel of many rows with tiles of some columns.
func (x *Product) many(parts, columns int32) productChoice {
	name := "sparrow_product_" + x.Type.String() + map[int32]string{128: "_many128", 192: "_many192", 256: "_many256"}[columns]
	if parts > 1 {
		name += "_parts"
	}
	return productChoice{kernel: name, inputs: manyRows, weights: columns}
}

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
	aligned := 16 / size // elements of 16 bytes
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
		if x.Batch > 1 {
			c.fail("a batch of %d, supported is 1: use bf16, or launch one after the other", x.Batch)
		}
	}
	if int64(x.Rows)*int64(x.Batch) > math.MaxInt32/64 {
		c.fail("%d rows in a batch of %d are too many for one launch: launch fewer rows", x.Rows, x.Batch)
	}
	if c.err != nil {
		return ProductCall{}, c.err
	}
	return x.encode(d, x.choose(x.parts()))
}

// parts is the number of parts of k.
func (x *Product) parts() int32 {
	_, _, block := x.Type.element()
	return productParts(x.Columns, (x.K+block-1)/block, x.Batch)
}

// partBlocks is the number of blocks of k of a part.
func (x *Product) partBlocks() int32 {
	_, _, block := x.Type.element()
	blocks, parts := (x.K+block-1)/block, x.parts()
	return (blocks + parts - 1) / parts
}

// encode builds the call for a chosen kernel.
func (x *Product) encode(d *Device, choice productChoice) (ProductCall, error) {
	size, kind, block := x.Type.element()
	blocks := (x.K + block - 1) / block
	parts := x.parts()
	call := ProductCall{kernel: choice.kernel, Args: ProductArgs{
		WeightScales: x.WeightScales, Out: x.Out, OutStride: x.OutStride, OutBatch: x.OutBatch, Rows: x.Rows, Columns: x.Columns, Blocks: blocks, Parts: parts, Batch: x.Batch,
		Stages: choice.stages, Ahead: choice.ahead,
	}}
	if x.OutF32 {
		call.Args.OutF32 = 1
	}
	tiles := func(of, by int32) int64 { return (int64(of) + int64(by) - 1) / int64(by) }
	weights := choice.weights
	sms := int64(d.props.SMs)
	if choice.few {
		count := tiles(x.Columns, choice.weights) * int64(x.Batch)
		if parts == 1 { // blocks are persistent; with several parts a cluster has one tile
			count = min(count, int64(choice.perSM)*sms)
		}
		call.block = int(parts)
		call.grid = uint32(count * int64(parts))
		call.shared = x.fewBytes(&choice, choice.stages)
	} else {
		count := tiles(x.Rows, 2*choice.inputs) * tiles(x.Columns, choice.weights) * int64(x.Batch)
		call.block = 2
		call.grid = uint32(2 * min(count, sms/2))
		weights /= 2 // each block of a cluster fetches half
	}
	operand := func(base Ptr, rows int32, stride, batch int64, box int32) MapSpec {
		if x.Batch == 1 {
			batch = stride
		}
		return MapSpec{Type: kind, Base: base, Dims: []uint64{uint64(x.K), uint64(rows), uint64(x.Batch)}, Strides: []uint64{uint64(stride * size), uint64(batch * size)},
			Box: []uint32{uint32(block), uint32(box), 1}, Swizzle: Swizzle128, L2: 3}
	}
	maps := []mapTarget{
		{&call.Args.WeightMap, operand(x.Weight, x.Columns, x.WeightStride, x.WeightBatch, weights)},
		{&call.Args.InputMap, operand(x.Input, x.Rows, x.InputStride, x.InputBatch, choice.inputs)},
	}
	if x.Type == ProductFP8 {
		box := uint32(1)
		if choice.few {
			box = productScaleBox
		}
		maps = append(maps, mapTarget{&call.Args.ScaleMap, MapSpec{Type: MapF32, Base: x.InputScales, Dims: []uint64{uint64(x.Rows), uint64(blocks)},
			Strides: []uint64{uint64(x.ScaleStride) * 4}, Box: []uint32{uint32(choice.inputs), box}, L2: 2}})
	}
	if !choice.few && !x.OutF32 {
		batch := x.OutBatch
		if x.Batch == 1 {
			batch = x.OutStride
		}
		const boxColumns, boxRows = 64, 16 // of a warp's store
		maps = append(maps, mapTarget{&call.Args.OutMap, MapSpec{Type: MapBF16, Base: x.Out, Dims: []uint64{uint64(x.Columns), uint64(x.Rows), uint64(x.Batch)},
			Strides: []uint64{uint64(x.OutStride) * 2, uint64(batch) * 2}, Box: []uint32{boxColumns, boxRows, 1}, Swizzle: Swizzle128}})
	}
	return call, encodeMaps(d, nil, maps)
}

// Multiply launches a product.
func (k *Kernels) Multiply(s *Stream, call *ProductCall) error {
	fn, err := k.Function(call.kernel)
	if err != nil {
		return err
	}
	l := Launch{Grid: Dim{X: call.grid}, Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: call.shared, Overlap: s.overlap}
	if l.Shared == 0 {
		l.Shared = fn.dynamic
	}
	if call.block > 1 {
		l.Cluster = Dim{X: uint32(call.block)}
	}
	return Run(s, fn, l, &call.Args)
}
