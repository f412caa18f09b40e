package ref

import (
	"math"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// In addition to activations, which are bf16, matrix products of a GPU round these values:
//
//   - Weights that are not e4m3 blocks of 128 x 128, and up-projections of latent rows, are stored as bf16. Experts of
//     e2m1 that fold (kernel.ExpertWeights.Fold), and e2m1 matrices that fold (kernel.Weight.Folds), count as such
//     blocks; other e2m1 weights are exact in bf16. e4m3 in smaller blocks that merge (kernel.Weight.Merges), and e4m3
//     with one scale for each row or for all rows, count as such blocks, except in experts. The rounding of small codes
//     of merged blocks is not repeated here.
//   - Rows that multiply such blocks are quantised to e4m3 for each 128 columns.
//   - Rows between an expert's products are quantised to e4m3 if the weight is such blocks, otherwise rounded to bf16.
//   - The result of an expert, and a product that is added to other rows, are rounded to bf16.
//   - Latent rows are rounded to bf16 before they are encoded, in every layout. V4 entries and compressed indexer keys
//     are rounded to bf16 before they are rotated.
//   - Attention weights are rounded to bf16 before they multiply values, in dense attention and over bf16 rows (weigh).
//     Over FP8 rows a GPU rounds them to half precision, which the reference does not do.

// blockSide is the number of columns of a row that have one scale, and the number of rows and columns of a weight
// block.
const blockSide = 128

// met returns row x as a GPU rounds it before the multiplication by w.
func (d *Device) met(x []float32, w *host.Matrix) []float32 {
	if !d.Rounded || !quantised(w) {
		return x
	}
	mode := num.ScaleF32
	if w.Pow2Rows {
		mode = num.ScalePow2
	}
	out, codes := make([]float32, len(x)), make([]byte, blockSide)
	for at := 0; at < len(x); at += blockSide {
		part := x[at:min(at+blockSide, len(x))]
		scale := num.QuantE4M3(codes, part, mode)
		num.DequantE4M3(out[at:at+len(part)], codes[:len(part)], scale)
	}
	return out
}

// stored rounds a row of a weight to the values that a GPU stores.
func (d *Device) stored(row []float64, w *host.Matrix) {
	// NVFP4 values are exact in bf16, and the factor multiplies the sums.
	if !d.Rounded || quantised(w) || w.Factor != 0 && w.Role() != kernel.Latent {
		return
	}
	for i, v := range row {
		row[i] = float64(num.RoundBF16(float32(v)))
	}
}

// between returns the input row of an expert's second product as a GPU rounds it.
func (d *Device) between(x []float32, w *host.Matrix) []float32 {
	if !d.Rounded || quantised(w) {
		return d.met(x, w)
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = num.RoundBF16(v)
	}
	return out
}

// Mean relative difference between sums of a GPU and exact sums, measured for products on an H200. Sums of e4m3
// products have 13 bits after the leading bit, until they are added to float32 sums.
const (
	movedE4M3 = 1.0 / (1 << 13)
	movedSum  = 1.0 / (1 << 17)
)

// sum returns the sum of a product with a weight. With Moved, it changes the sum by up to twice the mean difference, by
// a pseudo-random factor that depends only on the sum.
func (d *Device) sum(v float64, w *host.Matrix) float64 {
	if !d.Moved {
		return v
	}
	most := movedSum
	if quantised(w) {
		most = movedE4M3
	}
	draw := math.Float64bits(v) * 0x9E3779B97F4A7C15
	return v * (1 + most*(float64(draw>>11)/(1<<52)-1))
}

// tiles describes how an attention kernel of a GPU divides keys: the number of keys of a tile, and whether it starts
// with the last tile.
type tiles struct {
	keys     int
	fromLast bool
}

// weigh converts scores to weights and returns the values that softmax returns. With Rounded, weights are rounded to
// bf16 where a GPU rounds them: relative to a base, which is the largest score of the first tile and is raised if a
// later tile exceeds it by a factor of 2^8. The sum uses the weights before rounding.
func (d *Device) weigh(scores []float64, t tiles) (largest, sum float64) {
	if !d.Rounded || len(scores) == 0 {
		return softmax(scores)
	}
	const slack = 8
	largest = slices.Max(scores)
	base := math.Inf(-1) // base of the weights, as an exponent of two
	count := (len(scores) + t.keys - 1) / t.keys
	bases := make([]float64, count)
	for n := range count {
		if t.fromLast {
			n = count - 1 - n
		}
		tile := scores[n*t.keys : min((n+1)*t.keys, len(scores))]
		if high := slices.Max(tile) * math.Log2E; high > base+slack {
			base = high
		}
		bases[n] = base
	}
	for i, s := range scores {
		own := bases[i/t.keys]
		p := math.Exp2(s*math.Log2E - own)
		sum += p * math.Exp2(own-base)
		scores[i] = float64(num.RoundBF16(float32(p))) * math.Exp2(own-base)
	}
	for i := range scores {
		scores[i] /= sum
	}
	return largest, sum * math.Exp(base/math.Log2E-largest)
}

// term rounds v to bf16 if Rounded is set: v is a product that is added to other rows.
func (d *Device) term(v float32) float32 {
	if d.Rounded {
		return num.RoundBF16(v)
	}
	return v
}

// kept rounds a normalised row to bf16 if Rounded is set, before the row is encoded.
func (d *Device) kept(row []float32) {
	if d.Rounded {
		for i, v := range row {
			row[i] = num.RoundBF16(v)
		}
	}
}

// result rounds the result of an expert to bf16 if Rounded is set.
func (d *Device) result(v float64) float64 {
	if d.Rounded {
		return float64(num.RoundBF16(float32(v)))
	}
	return v
}

func quantised(w *host.Matrix) bool {
	return w.Folded || w.Role() == kernel.Projected && w.Data.DType == kernel.E4M3 &&
		(w.BlockRows == blockSide && w.BlockCols == blockSide || w.Channels() && !w.Expert)
}

// Prepare keeps a matrix in its stored form and records whether a GPU multiplies it as e4m3.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	m, err := d.Memory.Matrix(w, role)
	if err != nil {
		return nil, err
	}
	m.Folded = d.Rounded && role == kernel.Projected && (w.Folds() || w.Merges())
	return m, nil
}

// PrepareExperts keeps experts in their stored form and records whether a GPU multiplies them as e4m3.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	x, err := d.Memory.Experts(w)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Concat(x.Gate, x.Up, x.Down) {
		m.Expert = true
		m.Folded = d.Rounded && w.Fold()
	}
	return x, nil
}

// denseTiles returns the tiles of dense attention; they have fewer keys if value heads are wide.
func denseTiles(d kernel.LatentDims) tiles {
	if d.V > 128 {
		return tiles{keys: 64, fromLast: true}
	}
	return tiles{keys: 128, fromLast: true}
}
