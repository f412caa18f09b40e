package cuda

import (
	"fmt"
	"math"
	"strings"

	"sparrow/internal/num"
)

// ListedView is an entry of the list that the sorting kernel writes: one expert that has rows.
type ListedView struct {
	Expert int32
	First  int32 // index of its first row in the sorted order
	Count  int32 // number of its rows
	Before int32 // number of groups of the experts listed before it
}

// ExpertsArgs are the arguments of the expert kernels; Experts.Encode fills them.
type ExpertsArgs struct {
	GateUp       Ptr
	GateUpScales Ptr
	Down         Ptr
	DownScales   Ptr
	X            Ptr
	Out          Ptr
	IDs          Ptr
	Weights      Ptr
	Faults       Ptr
	Codes        Ptr
	CodeScales   Ptr
	Order        Ptr
	List         Ptr
	Totals       Ptr
	Inner        Ptr
	InnerScales  Ptr
	Results      Ptr
	XStride      int64
	OutStride    int64
	IDStride     int64
	WeightStride int64
	Rows         int32
	Experts      int32
	Top          int32
	Hidden       int32
	InnerColumns int32
	HiddenPitch  int32
	InnerPitch   int32
	HiddenBlocks int32
	InnerBlocks  int32
	HiddenTiles  int32
	InnerTiles   int32
	GroupRows    int32
	Pow2         int32
	Limit        float32
}

// PackExpertArgs are the arguments of the kernel that packs an expert's matrices; PackExpert fills them.
type PackExpertArgs struct {
	First        Ptr
	Second       Ptr
	FirstScales  Ptr
	SecondScales Ptr
	To           Ptr
	ScalesTo     Ptr
	Stride       int64
	ScaleStride  int64
	Rows         int32
	RowBytes     int32
	Tiles        int32
	Blocks       int32
}

// PackE2M1Args are the arguments of the kernel that packs an expert's matrices of e2m1; PackExpert fills them.
type PackE2M1Args struct {
	First        Ptr
	Second       Ptr
	FirstScales  Ptr
	SecondScales Ptr
	To           Ptr
	ScalesTo     Ptr
	Stride       int64
	ScaleStride  int64
	Rows         int32
	Columns      int32
	Tiles        int32
	Blocks       int32
}

// ExpertShape is the shape of a layer's experts: gate and up [Inner, Hidden], down [Hidden, Inner]. All matrices are
// e4m3 with a float32 scale for each 128 x 128 block, or bf16, or e2m1 with an e8m0 scale for each 32 values of a row.
// Both sizes are multiples of 16; of 32 for e2m1. If the scales allow it (kernel.ExpertWeights.Fold), e2m1 weights are
// multiplied like e4m3 weights, with quantised rows; otherwise like bf16 weights, with rows of bf16.
type ExpertShape struct {
	Experts int32 // at most MaxExperts
	Hidden  int32
	Inner   int32
	BF16    bool // rows and activations are bf16
	E2M1    bool // weights are e2m1 and are widened in the product: to bf16 with BF16, otherwise to e4m3
	// Packed is the format of gate and up, and PackedDown that of down, if products read packed weights; rows are then
	// bf16. Instead of scales each expert has two factors.
	Packed, PackedDown PackedFormat
}

// Limits of the expert kernels.
const (
	MaxExperts = 512
	// MaxExpertPairs is the maximum number of pairs of a row and a choice in one call: 16384 rows with 8 choices each.
	MaxExpertPairs = 1 << 17

	expertTile     = 256 * 128            // bytes of a packed tile: 256 weight rows by 128 bytes of k
	expertTileE2M1 = 256 * (64/2 + 64/32) // tile of e2m1 for bf16: 64 values of each row and scales; for e4m3 doubled
	// expertFewRows is the maximum number of pairs in a group of the kernels for few rows. These kernels run if an
	// expert has at most expertFewMean pairs on average. For e2m1 widened to e4m3 this limit is expertFewFolded,
	// because the kernels for many rows (groups of expertWideRows) widen the same number of weights for 64 pairs as for
	// 256. This format has further kernels for even fewer rows, with two blocks per SM.
	expertFewRows      = 64
	expertFewMean      = 16
	expertFewFolded    = 96
	expertSingleRows   = 16
	expertSingleMean   = 8
	expertSingleBlocks = 2
	expertManyRows     = 128
	expertWideRows     = 256
	expertWideCluster  = 2 // blocks that share an item of expertWideRows
	placedAlign        = 8 // the gathered rows of an expert start at a multiple of placedAlign
	gatherParts        = 4 // warps that share eight gathered rows
	prepareThreads     = 512
	prepareTiles       = prepareThreads / 16
	combineColumns     = 8 * portableThreads
	expertAlign        = 256
	expertListBytes    = 16
)

func ceilDiv(a, b int32) int32 { return (a + b - 1) / b }

// elementBytes returns the size of an element of the rows, and of a weight that is not widened.
func (e ExpertShape) elementBytes() int32 {
	if e.BF16 {
		return 2
	}
	return 1
}

// innerTiles and hiddenTiles are the numbers of packed tiles of gate and up, and of down. hiddenBlocks and innerBlocks
// are the numbers of 128-byte blocks of k of these matrices.
func (e ExpertShape) innerTiles() int32   { return ceilDiv(e.Inner, 128) }
func (e ExpertShape) hiddenTiles() int32  { return ceilDiv(e.Hidden, 256) }
func (e ExpertShape) hiddenBlocks() int32 { return ceilDiv(e.Hidden*e.elementBytes(), 128) }
func (e ExpertShape) innerBlocks() int32  { return e.innerTiles() * e.elementBytes() }

// PackedBytes returns the sizes in bytes of one expert's packed weights: gate and up together, and down. The sizes of
// scales are 0 if tiles contain the scales, and for bf16.
func (e ExpertShape) PackedBytes() (gateUp, gateUpScales, down, downScales int64) {
	if e.Packed != "" {
		return e.Packed.Bytes(e.innerTiles()*packedRows, e.Hidden), 8, e.PackedDown.Bytes(e.Hidden, e.Inner), 8
	}
	gateUp = int64(e.innerTiles()) * int64(e.hiddenBlocks())
	down = int64(e.hiddenTiles()) * int64(e.innerBlocks())
	if !e.BF16 {
		gateUpScales, downScales = 8*gateUp, 8*down
	}
	tile := e.tileBytes()
	return gateUp * tile, gateUpScales, down * tile, downScales
}

// tileBytes returns the size in bytes of a packed tile: 256 weight rows by 128 bytes of k in the type that is
// multiplied.
func (e ExpertShape) tileBytes() int64 {
	switch {
	case !e.E2M1:
		return expertTile
	case e.BF16:
		return expertTileE2M1
	}
	return 2 * expertTileE2M1
}

// expertSide must divide the inner and hidden sizes of packed experts.
const expertSide = 16

// CheckExperts returns an error if no kernel supports the number or the sizes of a rank's experts of a layer. It is
// called when a model is loaded and when its size is estimated.
func CheckExperts(experts, hidden, inner int) error {
	if experts > MaxExperts || hidden%expertSide != 0 || inner%expertSide != 0 {
		return fmt.Errorf("a layer has %d experts of %d x %d on a GPU, want at most %d with sizes that are multiples "+
			"of %d; divide them over more GPUs (--tp), or run on the CPU (--kernels "+
			"cpu)", experts, inner, hidden, MaxExperts,
			expertSide)
	}
	return nil
}

// check checks that there is a kernel for the sizes.
func (e ExpertShape) check(c *checks) {
	if e.Experts <= 0 || e.Experts > MaxExperts || e.Hidden <= 0 || e.Inner <= 0 || e.Hidden%16 != 0 ||
		e.Inner%16 != 0 {
		c.fail("there are %d experts of %d x %d, want 1 to %d with sizes that are multiples of 16", e.Experts, e.Inner,
			e.Hidden, MaxExperts)
	}
	if e.E2M1 && (e.Hidden%32 != 0 || e.Inner%32 != 0) {
		c.fail("e2m1 experts have sizes %d x %d, want multiples of 32", e.Inner, e.Hidden)
	}
}

// Matrix is a row-major weight in device memory with its block scales.
type Matrix struct {
	Data        Ptr   // multiple of 16
	Scales      Ptr   // f32 [ceil(rows/128), ceil(columns/128)]; e2m1: e8m0 [rows, columns/32]; zero for bf16
	Stride      int64 // elements between rows; in bytes a multiple of 16
	ScaleStride int64 // scales between rows of Scales
}

// PackedExperts are the packed weights of a layer's experts, one after the other; PackedBytes is the size of each.
type PackedExperts struct {
	GateUp       Ptr
	GateUpScales Ptr
	Down         Ptr
	DownScales   Ptr
}

func (p PackedExperts) at(e ExpertShape, expert int32) PackedExperts {
	a, b, c, d := e.PackedBytes()
	n := int64(expert)
	return PackedExperts{p.GateUp.Add(n * a), p.GateUpScales.Add(n * b), p.Down.Add(n * c), p.DownScales.Add(n * d)}
}

// PackExpert copies one expert's matrices into the packed weights of its layer. The matrices may be freed when the
// kernel has run.
func PackExpert(k *Kernels, s *Stream, e ExpertShape, expert int32, gate, up, down Matrix, to PackedExperts) error {
	c := checks{kernel: "sparrow_experts_pack"}
	e.check(&c)
	if expert < 0 || expert >= e.Experts {
		c.fail("expert %d was given, want one below %d", expert, e.Experts)
	}
	size := int64(e.elementBytes())
	matrix := func(name string, m Matrix, columns int32) {
		c.memory(name, m.Data, 16)
		if e.E2M1 {
			c.multiple(name+" stride", m.Stride, 32, int64(columns))
			c.memory(name+" scales", m.Scales, 1)
			c.multiple(name+" scale stride", m.ScaleStride, 1, int64(columns/32))
			return
		}
		c.multiple(name+" stride in bytes", m.Stride*size, 16, int64(columns)*size)
		if !e.BF16 {
			c.memory(name+" scales", m.Scales, 4)
			c.multiple(name+" scale stride", m.ScaleStride, 1, int64(ceilDiv(columns, 128)))
		}
	}
	matrix("gate", gate, e.Hidden)
	matrix("up", up, e.Hidden)
	matrix("down", down, e.Inner)
	if gate.Stride != up.Stride || gate.ScaleStride != up.ScaleStride {
		c.fail("gate and up have strides of %d and %d, and their scales strides of %d and %d; want equal strides for "+
			"both", gate.Stride, up.Stride,
			gate.ScaleStride, up.ScaleStride)
	}
	e.packed(&c, to)
	if c.err != nil {
		return c.err
	}
	at := to.at(e, expert)
	if e.E2M1 {
		return packE2M1(k, s, e, gate, up, down, at)
	}
	a := PackExpertArgs{First: gate.Data, Second: up.Data, FirstScales: gate.Scales, SecondScales: up.Scales,
		To: at.GateUp, ScalesTo: at.GateUpScales,
		Stride: gate.Stride * size, ScaleStride: gate.ScaleStride, Rows: e.Inner, RowBytes: e.Hidden * int32(size),
		Tiles: e.innerTiles(), Blocks: e.hiddenBlocks()}
	b := PackExpertArgs{First: down.Data, FirstScales: down.Scales, To: at.Down, ScalesTo: at.DownScales,
		Stride: down.Stride * size, ScaleStride: down.ScaleStride,
		Rows: e.Hidden, RowBytes: e.Inner * int32(size), Tiles: e.hiddenTiles(), Blocks: e.innerBlocks()}
	if e.BF16 {
		a.ScalesTo, b.ScalesTo = 0, 0
	}
	if err := runGrid(k, s, &c, Dim{X: uint32(a.Blocks), Y: uint32(a.Tiles)}, &a); err != nil {
		return err
	}
	return runGrid(k, s, &c, Dim{X: uint32(b.Blocks), Y: uint32(b.Tiles)}, &b)
}

// packE2M1 packs one expert whose matrices are e2m1.
func packE2M1(k *Kernels, s *Stream, e ExpertShape, gate, up, down Matrix, at PackedExperts) error {
	c := checks{kernel: "sparrow_experts_pack_folded"}
	if e.BF16 {
		c.kernel = "sparrow_experts_pack_e2m1"
	}
	a := PackE2M1Args{First: gate.Data, Second: up.Data, FirstScales: gate.Scales, SecondScales: up.Scales,
		To: at.GateUp, ScalesTo: at.GateUpScales, Stride: gate.Stride / 2, ScaleStride: gate.ScaleStride, Rows: e.Inner,
		Columns: e.Hidden, Tiles: e.innerTiles(), Blocks: e.hiddenBlocks()}
	b := PackE2M1Args{First: down.Data, FirstScales: down.Scales, To: at.Down, ScalesTo: at.DownScales,
		Stride: down.Stride / 2, ScaleStride: down.ScaleStride, Rows: e.Hidden, Columns: e.Inner,
		Tiles: e.hiddenTiles(), Blocks: e.innerBlocks()}
	if err := runGrid(k, s, &c, Dim{X: uint32(a.Blocks), Y: uint32(a.Tiles)}, &a); err != nil {
		return err
	}
	return runGrid(k, s, &c, Dim{X: uint32(b.Blocks), Y: uint32(b.Tiles)}, &b)
}

func (e ExpertShape) packed(c *checks, p PackedExperts) {
	c.memory("packed gate and up", p.GateUp, 128)
	c.memory("packed down", p.Down, 128)
	if !e.BF16 || e.Packed != "" {
		c.memory("packed scales of gate and up", p.GateUpScales, 4)
		c.memory("packed scales of down", p.DownScales, 4)
	}
}

// Experts describes the memory of a layer's experts: Out[t] += sum over j of Weights[t,j] * down[e]( silu(gate[e] X[t])
// * up[e] X[t] ), e = IDs[t,j], in the order of the choice.
//
// For e4m3, and for e2m1 that is widened to e4m3, X is quantised per 128 columns. Products with gate and up are float32
// sums, and their activation is quantised per 128 inner columns directly from float32. For bf16 the activation is
// rounded to bf16. The result of each expert is rounded to bf16; the weighted sum is float32 and is rounded once with
// Out. The result of a row does not depend on other rows.
type Experts struct {
	Shape        ExpertShape
	Packed       PackedExperts
	X            Ptr // bf16 [Rows, Hidden], multiple of 16
	Out          Ptr // bf16 [Rows, Hidden], multiple of 16
	IDs          Ptr // i32 [Rows, Top]: negative is no expert; an unknown expert raises FaultExpert and adds nothing
	Weights      Ptr // f32 [Rows, Top]
	Faults       Ptr // one u32 of fault bits, or zero
	Scratch      Ptr // ScratchBytes bytes, multiple of 256
	XStride      int64
	OutStride    int64
	IDStride     int64
	WeightStride int64
	Rows         int32
	Top          int32
	Limit        float32       // limit of gate and up, 0 for none
	Scales       num.ScaleMode // how scales of quantised activations are rounded
}

// scratch returns the sizes in bytes of the parts of scratch memory, in the order of the fields of ExpertsArgs, and
// their sum.
func (e ExpertShape) scratch(rows, top int32) (sizes [8]int64, total int64) {
	pairs := int64(rows) * int64(top)
	sizes = [8]int64{
		0, 0, // codes, scales of codes
		4 * pairs,                           // order
		expertListBytes * int64(e.Experts),  // list
		16,                                  // totals
		pairs * int64(e.innerTiles()) * 128, // inner
		0,                                   // inner scales
		pairs * int64(e.Hidden) * 2,         // results
	}
	if e.BF16 {
		sizes[5] *= 2
	} else {
		sizes[0], sizes[1] = int64(rows)*int64(e.Hidden), 4*int64(rows)*int64(e.hiddenBlocks())
		sizes[6] = 4 * pairs * int64(e.innerBlocks())
	}
	if e.groupRows(rows, top) == expertWideRows { // rows are gathered by expert, those of x in the memory of results
		placed := pairs + placedAlign*int64(e.Experts)
		sizes[5], sizes[6] = placed*int64(e.innerBlocks())*128, placed*int64(e.innerBlocks())*4
		sizes[7] = max(sizes[7], placed*int64(e.hiddenBlocks())*(128+4))
	}
	for i := range sizes {
		sizes[i] = (sizes[i] + expertAlign - 1) / expertAlign * expertAlign
		total += sizes[i]
	}
	return sizes, total
}

// groupRows returns the maximum number of pairs in a group. It affects only the time: results are bitwise equal.
func (e ExpertShape) groupRows(rows, top int32) int32 {
	pairs, mean := int64(rows)*int64(top), int64(expertFewMean)
	if e.kind() == expertsFolded {
		mean = expertFewFolded
	}
	switch {
	case e.Packed != "":
		return packedGroup(e, rows, top)
	// Up to 32 pairs are sorted without dividing experts into groups, so an expert may then have only one group.
	case e.kind() == expertsFolded && pairs <= expertSingleMean*int64(e.Experts) &&
		(rows <= expertSingleRows || pairs > 32):
		return expertSingleRows
	case rows <= expertFewRows || pairs <= mean*int64(e.Experts):
		return expertFewRows
	case e.kind() == expertsFolded:
		return expertWideRows
	}
	return expertManyRows
}

// ScratchBytes returns the size of the scratch memory for rows with top choices each.
func (e ExpertShape) ScratchBytes(rows, top int32) int64 {
	_, total := e.scratch(rows, top)
	return max(total, expertAlign)
}

// Encode checks the memory and builds the kernels' arguments.
func (x *Experts) Encode() (ExpertsArgs, error) {
	c := checks{kernel: "experts"}
	e := x.Shape
	e.check(&c)
	e.packed(&c, x.Packed)
	c.memory("x", x.X, 16)
	c.memory("out", x.Out, 16)
	c.memory("ids", x.IDs, 4)
	c.memory("weights", x.Weights, 4)
	c.memory("scratch", x.Scratch, expertAlign)
	c.multiple("x stride", x.XStride, 8, int64(e.Hidden))
	c.multiple("out stride", x.OutStride, 8, int64(e.Hidden))
	c.multiple("id stride", x.IDStride, 1, int64(x.Top))
	c.multiple("weight stride", x.WeightStride, 1, int64(x.Top))
	c.count("rows", x.Rows)
	c.positive("choices of a row", x.Top)
	c.limit(x.Limit)
	pairs := int64(x.Rows) * int64(x.Top)
	bytes := max(pairs*int64(e.innerTiles())*256, int64(x.Rows)*max(x.XStride*2, int64(e.Hidden)))
	if pairs > MaxExpertPairs || bytes > math.MaxUint32 {
		c.fail("%d rows of %d choices exceed %d pairs or 4 GiB of activations: run fewer rows at a time", x.Rows,
			x.Top, MaxExpertPairs)
	}
	if c.err != nil {
		return ExpertsArgs{}, c.err
	}
	a := ExpertsArgs{
		GateUp: x.Packed.GateUp, GateUpScales: x.Packed.GateUpScales, Down: x.Packed.Down,
		DownScales: x.Packed.DownScales, X: x.X, Out: x.Out, IDs: x.IDs,
		Weights: x.Weights, Faults: x.Faults, XStride: x.XStride, OutStride: x.OutStride, IDStride: x.IDStride,
		WeightStride: x.WeightStride, Rows: x.Rows,
		Experts: e.Experts, Top: x.Top, Hidden: e.Hidden, InnerColumns: e.Inner, HiddenPitch: e.Hidden,
		InnerPitch:   e.innerTiles() * 128 * e.elementBytes(),
		HiddenBlocks: e.hiddenBlocks(), InnerBlocks: e.innerBlocks(), HiddenTiles: e.hiddenTiles(),
		InnerTiles: e.innerTiles(), GroupRows: e.groupRows(x.Rows, x.Top), Limit: x.Limit,
	}
	if x.Scales == num.ScalePow2 {
		a.Pow2 = 1
	}
	sizes, _ := e.scratch(x.Rows, x.Top)
	at := x.Scratch
	for i, p := range []*Ptr{&a.Codes, &a.CodeScales, &a.Order, &a.List, &a.Totals, &a.Inner, &a.InnerScales,
		&a.Results} {
		*p = at
		at = at.Add(sizes[i])
	}
	return a, nil
}

// RunExperts runs the experts of a layer in four launches, without waiting on the host.
func RunExperts(k *Kernels, s *Stream, e ExpertShape, a *ExpertsArgs) error {
	if err := PrepareExperts(k, s, e, a); err != nil {
		return err
	}
	if err := MultiplyGateUp(k, s, e, a); err != nil {
		return err
	}
	if err := MultiplyDown(k, s, e, a); err != nil {
		return err
	}
	return CombineExperts(k, s, a)
}

// PrepareExperts sorts the pairs of rows and choices by expert, and quantises the rows.
func PrepareExperts(k *Kernels, s *Stream, e ExpertShape, a *ExpertsArgs) error {
	if a.Rows == 0 {
		return nil
	}
	fn, err := k.Function("sparrow_experts_prepare")
	if err != nil {
		return err
	}
	args := grouped(k, e, *a)
	return Run(s, fn, Launch{Grid: Dim{X: 1 + quantiseBlocks(e, a)}, Block: Dim{X: prepareThreads},
		Overlap: s.overlap}, &args)
}

// RouteExpertsArgs are the arguments of the kernel that chooses experts, sorts and quantises.
type RouteExpertsArgs struct {
	Route    RouteArgs   // IDs and Weights must be those of Experts
	Experts  ExpertsArgs // arguments made by Experts.Encode
	Arrived  Ptr         // u32: zero before and after the launch
	Blocks   int32       // set by RouteAndPrepare
	Reserved int32
}

// RouteAndPrepare does the work of RouteExperts and PrepareExperts in one launch.
func RouteAndPrepare(k *Kernels, s *Stream, e ExpertShape, a *RouteExpertsArgs) error {
	c := checks{kernel: "sparrow_experts_route"}
	a.Route.check(&c)
	c.memory("arrived", a.Arrived, 4)
	r, x := &a.Route, &a.Experts
	if r.IDs != x.IDs || r.Weights != x.Weights || r.Rows != x.Rows || r.Top != x.Top || r.Experts != x.Experts ||
		r.IDStride != x.IDStride || r.WeightStride != x.WeightStride {
		c.fail("%d rows of %d choices among %d experts were routed, but %d rows of %d choices among %d are run; want "+
			"the same", r.Rows,
			r.Top, r.Experts, x.Rows, x.Top, x.Experts)
	}
	if c.err != nil || r.Rows == 0 {
		return c.err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	a.Blocks = ceilDiv(r.Rows, prepareThreads/32)
	a.Experts = grouped(k, e, a.Experts)
	return Run(s, fn, Launch{Grid: Dim{X: uint32(a.Blocks) + quantiseBlocks(e, x)}, Block: Dim{X: prepareThreads},
		Overlap: s.overlap}, a)
}

// grouped returns the arguments with the group size that this device's products use.
func grouped(k *Kernels, e ExpertShape, a ExpertsArgs) ExpertsArgs {
	switch {
	case k.device.portable && e.Packed != "":
		a.GroupRows = portablePackedGroup(a.GroupRows)
	case k.device.portable:
		a.GroupRows = expertFewRows
	}
	return a
}

// quantiseBlocks returns the number of blocks that quantise the rows.
func quantiseBlocks(e ExpertShape, a *ExpertsArgs) uint32 {
	if e.BF16 {
		return 0
	}
	return uint32((int64(a.Rows)*int64(a.HiddenBlocks) + prepareTiles - 1) / prepareTiles)
}

// MultiplyGateUp multiplies the rows by gate and up and applies the gated activation.
func MultiplyGateUp(k *Kernels, s *Stream, e ExpertShape, a *ExpertsArgs) error {
	if e.Packed != "" {
		return multiplyPacked(k, s, e, a, false)
	}
	return multiplyExperts(k, s, expertKernel{false, e.kind(), a.GroupRows}, a, a.InnerTiles)
}

// MultiplyDown multiplies the activations by down.
func MultiplyDown(k *Kernels, s *Stream, e ExpertShape, a *ExpertsArgs) error {
	if e.Packed != "" {
		return multiplyPacked(k, s, e, a, true)
	}
	return multiplyExperts(k, s, expertKernel{true, e.kind(), a.GroupRows}, a, a.HiddenTiles)
}

// expertKernel identifies a product kernel of experts.
type expertKernel struct {
	down      bool
	kind      expertKind
	groupRows int32
}

// expertKind is the kind of the weights of experts.
type expertKind uint8

const (
	expertsE4M3 expertKind = iota
	expertsBF16
	expertsE2M1   // e2m1 widened to bf16
	expertsFolded // e2m1 widened to e4m3
)

func (e ExpertShape) kind() expertKind {
	switch {
	case e.E2M1 && e.BF16:
		return expertsE2M1
	case e.E2M1:
		return expertsFolded
	case e.BF16:
		return expertsBF16
	}
	return expertsE4M3
}

var expertKernels = map[expertKernel]string{
	{false, expertsE4M3, expertFewRows}:      "sparrow_experts_gate_up_fp8_few",
	{false, expertsE4M3, expertManyRows}:     "sparrow_experts_gate_up_fp8_many",
	{false, expertsBF16, expertFewRows}:      "sparrow_experts_gate_up_bf16_few",
	{false, expertsBF16, expertManyRows}:     "sparrow_experts_gate_up_bf16_many",
	{false, expertsE2M1, expertFewRows}:      "sparrow_experts_gate_up_e2m1_few",
	{false, expertsE2M1, expertManyRows}:     "sparrow_experts_gate_up_e2m1_many",
	{false, expertsFolded, expertSingleRows}: "sparrow_experts_gate_up_folded_single",
	{true, expertsFolded, expertSingleRows}:  "sparrow_experts_down_folded_single",
	{false, expertsFolded, expertFewRows}:    "sparrow_experts_gate_up_folded_few",
	{false, expertsFolded, expertWideRows}:   "sparrow_experts_gate_up_folded_wide",
	{true, expertsFolded, expertWideRows}:    "sparrow_experts_down_folded_wide",
	{true, expertsE4M3, expertFewRows}:       "sparrow_experts_down_fp8_few",
	{true, expertsE4M3, expertManyRows}:      "sparrow_experts_down_fp8_many",
	{true, expertsBF16, expertFewRows}:       "sparrow_experts_down_bf16_few",
	{true, expertsBF16, expertManyRows}:      "sparrow_experts_down_bf16_many",
	{true, expertsE2M1, expertFewRows}:       "sparrow_experts_down_e2m1_few",
	{true, expertsE2M1, expertManyRows}:      "sparrow_experts_down_e2m1_many",
	{true, expertsFolded, expertFewRows}:     "sparrow_experts_down_folded_few",
}

func multiplyExperts(k *Kernels, s *Stream, which expertKernel, a *ExpertsArgs, tiles int32) error {
	if k.device.portable {
		return portableExperts(k, s, which, a, tiles)
	}
	items := min(int64(a.Rows)*int64(a.Top)*int64(tiles), math.MaxInt32) // an upper bound: every pair may be a group
	perSM, name := int32(1), expertKernels[which]
	switch {
	case which.groupRows == expertWideRows:
		return multiplyWide(k, s, which, a, items)
	case which.groupRows != expertSingleRows:
	case items <= int64(k.device.props.SMs): // one block per SM: it can use more registers
		name = strings.TrimSuffix(name, "_single") + "_lone"
	default:
		perSM = expertSingleBlocks
	}
	return runPersistent(k, s, name, int32(items), perSM, a)
}

// multiplyWide launches the kernels with groups of expertWideRows. Before gate and up it gathers the rows by expert.
func multiplyWide(k *Kernels, s *Stream, which expertKernel, a *ExpertsArgs, items int64) error {
	if items == 0 {
		return nil
	}
	if !which.down {
		c := checks{kernel: "sparrow_experts_gather"}
		eights := int64(a.Rows)*int64(a.Top)/placedAlign + int64(a.Experts) + 1
		if err := runGrid(k, s, &c, Dim{X: rowBlocks(int32(eights), longRows), Y: gatherParts}, a); err != nil {
			return err
		}
	}
	fn, err := k.Function(expertKernels[which])
	if err != nil {
		return err
	}
	clusters := min(items, int64(k.device.props.SMs/expertWideCluster))
	return Run(s, fn, Launch{Grid: Dim{X: uint32(clusters) * expertWideCluster},
		Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Cluster: Dim{X: expertWideCluster}, Shared: fn.dynamic,
		Overlap: s.overlap}, a)
}

// CombineExperts adds the weighted sum of the experts' results to the rows.
func CombineExperts(k *Kernels, s *Stream, a *ExpertsArgs) error {
	c := checks{kernel: "sparrow_experts_combine"}
	return runGrid(k, s, &c, Dim{X: uint32(a.Rows), Y: uint32(ceilDiv(a.Hidden, combineColumns))}, a)
}
