package expect

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"sparrow/internal/num"
)

// Quantised returns the values of a row after quantisation in groups of 128 columns.
func Quantised(v []float32, mode num.ScaleMode) []float32 {
	out, codes := make([]float32, len(v)), make([]byte, 128)
	for from := 0; from < len(v); from += 128 {
		to := min(from+128, len(v))
		scale := num.QuantE4M3(codes, v[from:to], mode)
		num.DequantE4M3(out[from:to], codes[:to-from], scale)
	}
	return out
}

// Gated returns silu(gate) * up. If limit is above zero, gate is first clamped to at most limit, and up to [-limit,
// limit].
func Gated(gate, up float64, limit float32) float64 {
	if l := float64(limit); l > 0 {
		gate, up = min(gate, l), min(max(up, -l), l)
	}
	return gate / (1 + math.Exp(-gate)) * up
}

// Dot returns the dot product of two rows in float64.
func Dot(a []float64, b []float32) (sum float64) {
	for i, v := range b {
		sum += a[i] * float64(v)
	}
	return sum
}

// SortPairs returns the pairs row*top+choice ordered by expert. Pairs of one expert keep their order, and ids outside
// [0, experts) are omitted.
func SortPairs(ids []int32, experts int32) []int32 {
	var order []int32
	for p, id := range ids {
		if id >= 0 && id < experts {
			order = append(order, int32(p))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(ids[a] - ids[b]) })
	return order
}

// PackedAt returns the offset of byte b of row r in a packed tile: 256 rows of 128 bytes, swizzled.
func PackedAt(r, b int) int { return r*128 + (b/16^r%8)*16 + b%16 }

// These constants describe a packed tile of e2m1 that is widened to e4m3: 256 rows of 128 values in groups of 16 rows,
// each with codes and then scales.
const (
	FoldedCodes = 16 * 64
	FoldedPiece = FoldedCodes + 16*4
	FoldedTile  = 16 * FoldedPiece
)

// Folded returns the value in column c of row r of a packed e2m1 tile, divided by the scale of its half. A 32-bit word
// holds eight of 32 columns: four adjacent columns, and the four that are 16 columns later. Each value has three bits
// in a nibble and a sign bit: bits 7, 15, 23 and 31 for the first four values, bits 3, 11, 19 and 27 for the others.
func Folded(tile []byte, r, c int) float64 {
	piece, group, line, lower := tile[r/16*FoldedPiece:], c/32, r%8, r/8%2
	word := binary.LittleEndian.Uint32(piece[group/2*512+(line*4+c%16/4)*16+group%2*8+lower*4:])
	i := c%4 + c%32/16*4
	sign := word >> (8*(i%4) + 7 - i/4*4) & 1
	exponent := int(piece[FoldedCodes+line*8+lower*4+group])/8 - 8
	return math.Ldexp(float64(num.FromE2M1(byte(word>>(4*i)&7|sign<<3))), exponent)
}

// GateUpRow returns the row of a packed tile that contains inner column i, below 128, of gate or of up.
func GateUpRow(i int, up bool) int {
	if up {
		return 128 + i
	}
	return i
}

// Candidates returns the columns of the n largest logits of a row and the row's log-sum-exp. Among equal logits the
// lower column comes first, and NaN counts as minus infinity. The log-sum-exp is NaN if the row has a NaN, or the best
// logit if that is infinite.
func Candidates(logits []float32, n int) (ids []int32, logSum float64) {
	order, values := make([]int32, len(logits)), make([]float64, len(logits))
	high, bad := math.Inf(-1), false
	for i, v := range logits {
		order[i], values[i] = int32(i), float64(v)
		if v != v {
			values[i], bad = math.Inf(-1), true
		}
		high = max(high, values[i])
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(values[b], values[a]) })
	var sum float64
	for _, v := range values {
		sum += math.Exp(v - high)
	}
	switch {
	case bad:
		logSum = math.NaN()
	case math.IsInf(high, 0):
		logSum = high
	default:
		logSum = high + math.Log(sum)
	}
	return order[:n], logSum
}
