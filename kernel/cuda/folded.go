package cuda

// This file has products with e2m1 weights whose scales can be folded into e4m3 codes (kernel.Weight.Folds;
// src/sm90/product/folded.cuh). They are bitwise equal to products with these codes.

// UnfoldArgs are the arguments of the kernel that writes the e4m3 codes.
type UnfoldArgs struct {
	From    Ptr
	To      Ptr
	Stride  int64
	Rows    int32
	Columns int32
	Tiles   int32
	Blocks  int32
}

const (
	foldedRows      = 256   // weight rows of a tile
	foldedTileBytes = 17408 // bytes of a tile for a block of 128 columns
	foldedRoom      = 5120  // bytes of a pipeline stage for 64 rows
	// FoldedFew is the maximum number of rows for which a product reads e2m1 weights directly; for more rows, they are
	// first converted to e4m3 codes.
	FoldedFew = 64
	// foldedBytes is the maximum number of bytes of codes that are in scratch memory at a time.
	foldedBytes = 128 << 20
)

// FoldedBytes returns the device memory in bytes of a matrix [rows, columns]: of its codes, and of the scales of its
// blocks.
func FoldedBytes(rows, columns int32) (codes, scales int64) {
	tiles, blocks := int64(ceilDiv(rows, foldedRows)), int64(ceilDiv(columns, 128))
	return tiles * blocks * foldedTileBytes, 2 * tiles * blocks * 4
}

// Fold packs a matrix. The caller sets a.First, its scales, To and ScalesTo (sizes: FoldedBytes), strides, Rows and
// Columns.
func Fold(k *Kernels, s *Stream, a *PackE2M1Args) error {
	c := checks{kernel: "sparrow_product_fold"}
	c.positive("rows", a.Rows)
	c.multiple("columns", int64(a.Columns), 32, 32)
	c.memory("codes", a.First, 16)
	c.memory("scales", a.FirstScales, 1)
	c.memory("packed", a.To, 128)
	c.memory("packed scales", a.ScalesTo, 8)
	if a.Tiles = ceilDiv(a.Rows, foldedRows); a.Tiles > maxGridY {
		c.fail("there are %d rows, want at most %d", a.Rows, maxGridY*foldedRows)
	}
	if c.err != nil {
		return c.err
	}
	a.Blocks = ceilDiv(a.Columns, 128)
	return runGrid(k, s, &c, Dim{X: uint32(a.Blocks), Y: uint32(a.Tiles)}, a)
}

// foldedBand returns the number of result columns whose weights are converted to codes in scratch memory at a time.
func (x *Product) foldedBand() int32 {
	return min(max(foldedBytes/x.K/foldedRows, 1)*foldedRows, ceilDiv(x.Columns, foldedRows)*foldedRows)
}

// UnfoldedBytes returns the size of the scratch memory of MultiplyFolded.
func (x *Product) UnfoldedBytes() int64 {
	if x.Rows <= FoldedFew {
		return 0
	}
	return int64(x.foldedBand()) * int64(x.K)
}

// FoldedCalls holds the launches of a product with a folded weight.
type FoldedCalls struct {
	unfold []UnfoldArgs
	calls  []ProductCall
}

// EncodeFolded checks the memory of a product whose Weight is folded, with WeightScales as Fold writes them. Scratch
// has UnfoldedBytes bytes at a multiple of 16.
func (x *Product) EncodeFolded(d *Device, scratch Ptr) (FoldedCalls, error) {
	if x.Rows <= FoldedFew {
		y := *x
		y.Folded = true
		call, err := y.Encode(d)
		return FoldedCalls{calls: []ProductCall{call}}, err
	}
	var all FoldedCalls
	each, blocks := x.foldedBand(), ceilDiv(x.K, 128)
	size := int64(2)
	if x.OutF32 {
		size = 4
	}
	for first := int32(0); first < x.Columns; first += each {
		y := *x
		y.Columns, y.Whole, y.Weight, y.WeightStride = min(each, x.Columns-first), x.Columns, scratch, int64(x.K)
		y.Out = x.Out.Add(int64(first) * size)
		y.WeightScales = x.WeightScales.Add(int64(first/128) * int64(blocks) * 4)
		call, err := y.Encode(d)
		if err != nil {
			return FoldedCalls{}, err
		}
		tile := int64(first / foldedRows)
		all.unfold = append(all.unfold, UnfoldArgs{From: x.Weight.Add(tile * int64(blocks) * foldedTileBytes),
			To: scratch, Stride: int64(x.K), Rows: y.Columns, Columns: x.K, Tiles: ceilDiv(y.Columns, foldedRows),
			Blocks: blocks})
		all.calls = append(all.calls, call)
	}
	return all, nil
}

// MultiplyFolded launches a product with a folded weight.
func MultiplyFolded(k *Kernels, s *Stream, f *FoldedCalls) error {
	for i := range f.calls {
		if i < len(f.unfold) {
			c := checks{kernel: "sparrow_product_unfold"}
			a := &f.unfold[i]
			if err := runGrid(k, s, &c, Dim{X: uint32(a.Blocks), Y: uint32(a.Tiles)}, a); err != nil {
				return err
			}
		}
		if err := Multiply(k, s, &f.calls[i]); err != nil {
			return err
		}
	}
	return nil
}
