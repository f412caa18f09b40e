package kernel

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"sync"

	"sparrow/internal/num"
)

// A block of a matrix of e2m1, 128 rows by 128 columns, can be folded if its e8m0 scales differ by a factor of at most
// 2^14. e4m3 represents every value of e2m1 times 2^-8 to 2^6, so each value times its scale is exactly an e4m3 code
// times one scale of the block. Such matrices may be multiplied as e4m3, with rows that are quantised per 128 columns.

const (
	foldSide    = 128
	foldBinades = 14
	scaleNaN    = 255 // e8m0 code of NaN
)

// Fold reports whether all matrices are e2m1 in groups of 32 and all their blocks can be folded. It reads the scales
// with all cores. Matrices whose scales are Repeated buffers with the same Pattern are checked once.
func (w *ExpertWeights) Fold() bool {
	all := slices.Concat(w.Gate, w.Up, w.Down)
	if slices.ContainsFunc(all, func(w Weight) bool { return !w.inGroups() }) {
		return false
	}
	all = onePattern(all)
	parts := min(runtime.GOMAXPROCS(0), len(all))
	folds := make([]bool, parts)
	var wait sync.WaitGroup
	for p := range parts {
		wait.Go(func() {
			folds[p] = true
			for i := p; i < len(all) && folds[p]; i += parts {
				folds[p] = all[i].folds()
			}
		})
	}
	wait.Wait()
	return parts > 0 && !slices.Contains(folds, false)
}

// Folds reports whether the matrix is e2m1 in groups of 32 and all its blocks can be folded.
func (w Weight) Folds() bool { return w.inGroups() && w.folds() }

// foldGroups is the number of scales of one row of a block.
const foldGroups = foldSide / 32

// inGroups reports whether a matrix is e2m1 with an e8m0 scale for each 32 values of a row.
func (w Weight) inGroups() bool {
	return w.Data.DType == E2M1x2 && w.Scale.DType == E8M0 && w.BlockRows == 1 &&
		w.BlockCols == foldSide/foldGroups && w.SkipRows == 0
}

// onePattern removes matrices whose scales are Repeated buffers with the same Pattern as an earlier matrix.
func onePattern(all []Weight) []Weight {
	seen := map[*byte]bool{}
	return slices.DeleteFunc(all, func(w Weight) bool {
		r, ok := w.Scale.Buf.(Repeated)
		if !ok || len(r.Pattern) == 0 {
			return false
		}
		first := &r.Pattern[0]
		again := seen[first]
		seen[first] = true
		return again
	})
}

// folds reports whether all blocks can be folded, for a matrix that inGroups accepts.
func (w *Weight) folds() bool {
	const groups = foldGroups
	s := w.Scale
	var bytes []byte
	switch b := s.Buf.(type) {
	case HostBuffer:
		bytes = b[s.Off:]
	case Repeated: // any part of the pattern may be a block
		return foldTogether(b.Pattern)
	default:
		return false
	}
	for row := 0; row < s.Rows; row += foldSide {
		for col := 0; col < s.Cols; col += groups {
			least, most := byte(scaleNaN), byte(0)
			for r := row; r < min(row+foldSide, s.Rows); r++ {
				for _, v := range bytes[r*s.Stride+col : r*s.Stride+min(col+groups, s.Cols)] {
					least, most = min(least, v), max(most, v)
				}
			}
			if most == scaleNaN || most-least > foldBinades {
				return false
			}
		}
	}
	return true
}

// foldTogether reports whether the scales of one block are within foldBinades of each other and not NaN, so that the
// block folds.
func foldTogether(scales []byte) bool {
	least, most := slices.Min(scales), slices.Max(scales)
	return most != scaleNaN && most-least <= foldBinades
}

// Blocks of e4m3 that are smaller than 128 x 128, such as 32 x 32, can be merged if their scales are powers of two that
// differ by a factor of at most 2^6 in each 128 x 128. The merged block has the largest of these scales. A code times
// the quotient of the two scales is again a code, unless it is below 2^-6: it is then rounded to a multiple of 2^-9.
// Small blocks have a code of at least 224 if their scales are the smallest possible ones. The rounding error is then
// at most 2^-11 of the largest value of the small block.

const mergeBinades = 6

// Merges reports whether the matrix is e4m3 in blocks that can be merged. Such matrices may be multiplied as e4m3 in
// blocks of 128 x 128. The checkpoint must be made for rows that are quantised with powers of two, because a row's
// scale for 128 columns then gives the same values as scales for fewer columns, except for values below 2^-13 of the
// largest one.
func (w Weight) Merges() bool {
	if w.Data.DType != E4M3 || w.Scale.DType != F32 || !w.Pow2Rows || w.SkipRows != 0 || w.BlockRows <= 0 ||
		w.BlockCols <= 0 || foldSide%w.BlockRows != 0 || foldSide%w.BlockCols != 0 || w.BlockCols%4 != 0 ||
		w.BlockRows == foldSide && w.BlockCols == foldSide {
		return false
	}
	switch b := w.Scale.Buf.(type) {
	case HostBuffer:
		return w.merges(b[w.Scale.Off:])
	case Drawn:
		return b.Spread == 0 && num.IsPow2(b.Mean)
	}
	return false
}

// merges checks every 128 x 128 of a matrix with the given scales.
func (w *Weight) merges(scales HostBuffer) bool {
	s, rows, cols := w.Scale, foldSide/w.BlockRows, foldSide/w.BlockCols
	for row := 0; row < s.Rows; row += rows {
		for col := 0; col < s.Cols; col += cols {
			least, most := float32(math.MaxFloat32), float32(0)
			for r := row; r < min(row+rows, s.Rows); r++ {
				for c := col; c < min(col+cols, s.Cols); c++ {
					v := math.Float32frombits(binary.NativeEndian.Uint32(scales[4*(r*s.Stride+c):]))
					if !num.IsPow2(v) {
						return false
					}
					least, most = min(least, v), max(most, v)
				}
			}
			if most > least*(1<<mergeBinades) {
				return false
			}
		}
	}
	return true
}
