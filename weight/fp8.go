package weight

import (
	"fmt"
	"slices"
	"strings"
)

// fp8Block is the rows and columns of FP8 blocks if the configuration does not set them.
const fp8Block = 128

// fp8 reads e4m3 values [o, i] with scales for blocks of br x bc values, for rows or for the whole matrix:
//
//	weight_scale_inv, scale   [ceil(o/br), ceil(i/bc)]
//	weight_scale              the same, also as [ceil(o/br), 1, ceil(i/bc), 1]; a row [o] or [o, 1]; all [] or [1]
func (m *module) fp8(data, scale *Tensor) (Matrix, error) {
	if scale == nil {
		return Matrix{}, missingScale(data, scaleNames(data.Name)...)
	}
	switch scale.DType {
	case F32, BF16, F16, F8E8M0, U8:
	default:
		return Matrix{}, scaleError(data, scale, "a scale must be F32, BF16, F16, F8_E8M0 or U8 (e8m0 bytes)")
	}
	out := Matrix{Data: data, Rows: data.Shape[0], Cols: data.Shape[1], Values: F8E4M3, RowBytes: rowBytes(data)}
	shape := scale.Shape
	if len(shape) == 4 && shape[1] == 1 && shape[3] == 1 {
		shape = []int{shape[0], shape[2]}
	}
	if strings.HasSuffix(scale.Name, "_scale") {
		out.arrange = finiteScales
		switch {
		case len(shape) == 0, len(shape) == 1 && shape[0] == 1:
			out.BlockRows, out.BlockCols = max(out.Rows, 1), max(out.Cols, 1)
			shape = []int{min(out.Rows, 1), min(out.Cols, 1)}
		case len(shape) == 1 && shape[0] == out.Rows,
			len(shape) == 2 && shape[0] == out.Rows && shape[1] == 1 && out.Rows > 1 && !m.blocksFit(&out, shape):
			out.BlockRows, out.BlockCols = 1, max(out.Cols, 1)
			shape = []int{out.Rows, min(out.Cols, 1)}
		}
	}
	if out.BlockRows == 0 {
		if err := m.fp8Blocks(&out, scale, shape); err != nil {
			return Matrix{}, err
		}
	}
	out.Scale = shaped(scale, shape...)
	return out, nil
}

// blocksFit reports whether a scale has the shape for the configured block size.
func (m *module) blocksFit(out *Matrix, shape []int) bool {
	b := m.c.Scheme.Block
	return b[0] > 0 && b[1] > 0 && slices.Equal(shape, []int{blocks(out.Rows, b[0]), blocks(out.Cols, b[1])})
}

// fp8Blocks sets the block size: the configured one or, if there is none, the common one that agrees with the shape of
// the scales.
func (m *module) fp8Blocks(out *Matrix, scale *Tensor, shape []int) error {
	size := m.c.Scheme.Block
	given := size[0] > 0 && size[1] > 0
	if given && m.blocksFit(out, shape) {
		out.BlockRows, out.BlockCols = size[0], size[1]
		return nil
	}
	for _, b := range [][2]int{{fp8Block, fp8Block}, {64, 64}, {32, 32}, {1, 128}, {1, 64}, {1, 32}} {
		if !slices.Equal(shape, []int{blocks(out.Rows, b[0]), blocks(out.Cols, b[1])}) {
			continue
		}
		if given {
			return scaleError(out.Data, scale, fmt.Sprintf("weight_block_size is %v, but the shapes of weight and "+
				"scale mean blocks of %d x %d", size, b[0], b[1]))
		}
		out.BlockRows, out.BlockCols = b[0], b[1]
		return nil
	}
	if !given {
		size = [2]int{fp8Block, fp8Block}
	}
	return scaleError(out.Data, scale, fmt.Sprintf("blocks of %d x %d over %d x %d values need scale shape [%d %d]",
		size[0], size[1], out.Rows, out.Cols, blocks(out.Rows, size[0]), blocks(out.Cols, size[1])))
}
