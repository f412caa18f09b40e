package cuda

// HyperStepArgs are the arguments of the kernel that adds a sublayer's output to four residual streams and computes the
// input of the next sublayer.
type HyperStepArgs struct {
	WeightMap TensorMap    // bf16 [24, 4*Hidden]
	Add       HyperSumArgs // without results of experts only Post is computed
	Step      MixNormArgs  // of the streams that Add.Post writes; its product Mix.Mix is not read
	_         [32]byte     // padding to the map's alignment of 64 bytes
}

// HyperStep describes the work of HyperPost or HyperPostSum, of the product of the streams with the matrix of the next
// sublayer, and of MixNorm.
type HyperStep struct {
	Product Product // of Add.Post.X; its result is Step.Mix.Mix, which is only written to Step.Mix.Kept
	Add     HyperSumArgs
	Step    MixNormArgs
}

const (
	stepParts       = 8   // blocks of a cluster
	stepRows        = 8   // rows of a cluster
	stepMixes       = 24  // columns of the product
	stepMostRows    = 64  // with more rows, not all clusters would run at the same time
	stepLeastHidden = 512 // minimum columns of a stream, for eight parts of k
)

// HyperStepFits reports whether HyperStep can run for a number of rows, with the given sizes of streams.
func HyperStepFits(d *Device, rows, streams, hidden int32) bool {
	return !d.portable && rows > 0 && rows <= stepMostRows && streams == 4 && hidden%128 == 0 &&
		hidden >= stepLeastHidden && hidden <= mixColumns
}

// adjoins reports whether the product is of the streams that the addition writes, in parts and in memory that the joint
// kernels support.
func (x *HyperStep) adjoins() bool {
	p, w := &x.Add.Post, &x.Product
	return p.X%16 == 0 && p.XStride%8 == 0 && p.Sub%16 == 0 && p.SubStride%8 == 0 && w.Type == ProductBF16 &&
		w.Batch == 1 && w.Input == p.X && w.InputStride == p.XStride && w.Rows == p.Rows &&
		w.K == p.Streams*p.Hidden && w.parts() == stepParts
}

// Joins reports whether the arguments of the three kernels belong together.
func (x *HyperStep) Joins(d *Device) bool {
	p, m, w := &x.Add.Post, &x.Step.Mix, &x.Product
	return HyperStepFits(d, m.Rows, m.Streams, m.Hidden) && p.Streams == m.Streams && p.Hidden == m.Hidden &&
		p.Rows == m.Rows && p.X == m.X && p.XStride == m.XStride && m.Next == 0 && m.Carried == 0 && x.adjoins() &&
		w.Columns >= stepMixes && w.Out == m.Mix
}

// StepStreams runs a HyperStep in one launch. Results are bitwise equal to those of separate launches.
func StepStreams(k *Kernels, s *Stream, x *HyperStep) error {
	c := checks{kernel: "sparrow_hyper_step"}
	a := HyperStepArgs{Add: x.Add, Step: x.Step}
	a.Add.Post.check(&c)
	if n := &a.Add.Sum; n.Results != 0 {
		n.check(&c)
	}
	a.Step.Mix.check(&c)
	a.Step.Norm.check(&c)
	if !x.Joins(k.device) || !x.Step.Mix.Joins(&x.Step.Norm) {
		c.fail("%d rows of %d streams of %d columns do not fit; want up to %d rows of four aligned streams of %d to "+
			"%d columns, a multiple of 128, and their product and norm", a.Step.Mix.Rows, a.Step.Mix.Streams,
			a.Step.Mix.Hidden, stepMostRows, stepLeastHidden, mixColumns)
	}
	err := encodeMaps(k.device, c.err, []mapTarget{{&a.WeightMap, MapSpec{Type: MapBF16, Base: x.Product.Weight,
		Dims: []uint64{uint64(x.Product.K), stepMixes}, Strides: []uint64{2 * uint64(x.Product.WeightStride)},
		Box: []uint32{64, stepMixes}, Swizzle: Swizzle128, L2: 3}}})
	if err != nil {
		return err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: stepParts * rowBlocks(a.Step.Mix.Rows, stepRows)},
		Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: fn.dynamic, Overlap: s.overlap, Cluster: Dim{X: stepParts}},
		&a)
}

// HyperManyArgs are the arguments of the kernel that adds a sublayer's output to four residual streams and multiplies
// the streams.
type HyperManyArgs struct {
	WeightMap TensorMap    // bf16 [Columns, 4*Hidden]
	Add       HyperSumArgs // without results of experts only Post is computed
	Out       Ptr          // f32 [Rows, Columns]
	OutStride int64        // elements between rows of Out
	Columns   int32        // multiple of 8
	Reserved  int32
	_         [40]byte // padding to the map's alignment of 64 bytes
}

const (
	manyStepRows    = 64 // rows of a block
	manyStepColumns = 32 // maximum columns of the product
)

// HyperManyFits reports whether the output of a sublayer can be added to streams in the launch that multiplies the
// streams. A block has 64 rows and an SM for itself, so the launch is slower than two separate ones if it leaves many
// SMs without a block.
func HyperManyFits(d *Device, rows, streams, hidden int32) bool {
	blocks := int64(rowBlocks(rows, manyStepRows))
	return !d.portable && rows > stepMostRows && 4*blocks >= 3*int64(d.props.SMs) && streams == 4 && hidden%128 == 0 &&
		hidden >= stepLeastHidden
}

// JoinsMany reports whether AddAndMultiply supports the addition and the product.
func (x *HyperStep) JoinsMany(d *Device) bool {
	p, w := &x.Add.Post, &x.Product
	return HyperManyFits(d, p.Rows, p.Streams, p.Hidden) && x.adjoins() && w.OutF32 && w.Columns <= manyStepColumns
}

// AddAndMultiply adds a sublayer's output to the streams and computes their product, the first two parts of a
// HyperStep, in one launch. Results are bitwise equal to those of separate launches.
func AddAndMultiply(k *Kernels, s *Stream, x *HyperStep) error {
	c := checks{kernel: "sparrow_hyper_many"}
	a := HyperManyArgs{Add: x.Add, Out: x.Product.Out, OutStride: x.Product.OutStride, Columns: x.Product.Columns}
	a.Add.Post.check(&c)
	if n := &a.Add.Sum; n.Results != 0 {
		c.kernel = "sparrow_hyper_many_sum"
		n.check(&c)
	}
	c.memory("product", a.Out, 8)
	c.multiple("stride of the product", a.OutStride, 2, int64(a.Columns))
	if !x.JoinsMany(k.device) {
		c.fail("%d rows of %d streams of %d columns do not fit; want many rows of four aligned streams, whose columns "+
			"are a multiple of 128, and their product", a.Add.Post.Rows, a.Add.Post.Streams, a.Add.Post.Hidden)
	}
	w := &x.Product
	err := encodeMaps(k.device, c.err, []mapTarget{{&a.WeightMap, MapSpec{Type: MapBF16, Base: w.Weight,
		Dims: []uint64{uint64(w.K), uint64(w.Columns)}, Strides: []uint64{2 * uint64(w.WeightStride)},
		Box: []uint32{64, manyStepColumns}, Swizzle: Swizzle128, L2: 3}}})
	if err != nil {
		return err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: Dim{X: rowBlocks(a.Add.Post.Rows, manyStepRows)},
		Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: fn.dynamic, Overlap: s.overlap}, &a)
}
