package vec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"sparrow/internal/num"
)

// groupCase holds random weights whose scales belong to groups, and the values of the weights.
type groupCase struct {
	w    GroupWeights
	wide []float32 // values of the weights, [n, k]
}

func newGroupCase(r *rand.Rand, codes Codes, scale ScaleType, zeros bool, n, k, group int) groupCase {
	size, groups := k, (k+group-1)/group
	if codes.nibbles() {
		size = k / 2
	}
	ld, ldScale := size+3, groups+1 // rows with gaps between them
	g := groupCase{w: GroupWeights{Codes: codes, Group: group, Data: make([]byte, n*ld), Ld: ld, Type: scale,
		LdScale: ldScale, Scale: make([]byte, n*ldScale*scale.size())}, wide: make([]float32, n*k)}
	for i := range g.w.Data {
		g.w.Data[i] = byte(r.Uint32())
	}
	values := make([]float32, n*ldScale)
	for i := range values {
		v := float32(r.Float64() + 0.25)
		switch at := g.w.Scale[i*scale.size():]; scale {
		case ScaleF32:
			binary.LittleEndian.PutUint32(at, math.Float32bits(v))
		case ScaleBF16:
			binary.LittleEndian.PutUint16(at, num.BF16(v))
			v = num.RoundBF16(v)
		case ScaleF16:
			binary.LittleEndian.PutUint16(at, 0x3800|uint16(i)%1024) // float16 scales from 0.5 to 1
			v = num.FromF16(0x3800 | uint16(i)%1024)
		case ScaleE4M3:
			at[0] = num.E4M3(v)
			v = num.FromE4M3(at[0]) * 0.75
			g.w.Factor = 0.75
		}
		values[i] = v
	}
	if zeros {
		g.w.Zero, g.w.LdZero = make([]byte, n*groups), groups
		for i := range g.w.Zero {
			g.w.Zero[i] = byte(r.IntN(16))
		}
	}
	for i := range g.wide {
		row, c := i/k, i%k
		data, at := g.w.Data[row*ld:], row*groups+c/group
		zero := float32(0)
		if zeros {
			zero = float32(g.w.Zero[at])
		}
		var v float32
		switch codes {
		case CodesU4:
			v = float32(data[c/2]>>(c%2*4)&15) - 8
			if zeros {
				v += 8 - zero
			}
		case CodesE2M1:
			v = num.FromE2M1(data[c/2] >> (c % 2 * 4) & 15)
		case CodesU8:
			v = float32(data[c]) - 128
			if zeros {
				v += 128 - zero
			}
		default:
			v = float32(int8(data[c]))
		}
		g.wide[i] = v * values[row*ldScale+c/group]
	}
	return g
}

// times multiplies x by the weights. If alone is set, each row of x is multiplied in its own call.
func (g *groupCase) times(t *Tier, x []float32, m, k, n int, alone bool) []float32 {
	y := make([]float32, m*n)
	var rows BlockRows
	t.ResetBlocks(&rows, m, k, g.w.Codes.Quant(), alone)
	for i := range rows.Units() {
		t.QuantUnit(&rows, i, x, k)
	}
	if !alone {
		t.MulGroups(BlockCut{Y: y, Ldy: n, X: &rows, M1: m, N: n}, g.w)
		return y
	}
	for i := range m {
		t.MulGroups(BlockCut{Y: y[i*n:], Ldy: n, X: &rows, M0: i, M1: i + 1, N: n}, g.w)
	}
	return y
}

// Every tier multiplies weights whose scales belong to groups: for all codes, scale types and group sizes, and rows
// that do not end with a whole block. A result differs from the exact one by at most the rounding of x to eight bits,
// and is bitwise equal in any batch.
func TestMulGroups(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		if tier.ops.blocks == nil || tier.ops.blocks.groups == nil {
			t.Skip("this tier has no products with scales per group")
		}
		r := newRand(77)
		for i, c := range []struct {
			codes   Codes
			scale   ScaleType
			zeros   bool
			n, k, g int
		}{
			{CodesU4, ScaleBF16, false, 5, 256, 128}, {CodesU4, ScaleBF16, false, 70, 192, 32},
			{CodesU4, ScaleF16, true, 9, 512, 128}, {CodesU4, ScaleF32, true, 3, 96, 32},
			{CodesU4, ScaleF16, false, 4, 100, 100},
			{CodesU4, ScaleBF16, false, 7, 4096, 64}, {CodesU4, ScaleBF16, false, 2, 512, 256},
			{CodesU4, ScaleF16, true, 67, 1152, 256}, {CodesU4, ScaleF16, true, 3, 384, 384},
			{CodesU8, ScaleBF16, true, 5, 192, 128}, {CodesI8, ScaleF32, false, 5, 640, 512},
			{CodesE2M1, ScaleE4M3, false, 6, 256, 16}, {CodesE2M1, ScaleE4M3, false, 33, 7168, 16},
			{CodesE2M1, ScaleE4M3, false, 5, 48, 16}, {CodesU8, ScaleBF16, false, 5, 256, 64},
			{CodesU8, ScaleF32, true, 4, 192, 32}, {CodesU8, ScaleF16, false, 6, 1024, 128},
			{CodesU8, ScaleBF16, true, 4, 130, 130}, {CodesI8, ScaleBF16, false, 5, 96, 96},
			{CodesI8, ScaleF32, false, 8, 2048, 2048},
		} {
			if !tier.Groups(c.codes, c.g, c.k) {
				t.Errorf("case %d: groups of %d of %d are not supported", i, c.g, c.k)
				continue
			}
			g := newGroupCase(r, c.codes, c.scale, c.zeros, c.n, c.k, c.g)
			const m = 6
			x := normals(r, m*c.k)
			y := g.times(tier, x, m, c.k, c.n, false)
			wantSame(t, fmt.Sprintf("case %d: rows alone", i), g.times(tier, x, m, c.k, c.n, true), y)
			for a := range m {
				for b := range c.n {
					want, size := 0.0, 0.0
					for j := range c.k {
						p := float64(x[a*c.k+j]) * float64(g.wide[b*c.k+j])
						want, size = want+p, size+p*p
					}
					if d := math.Abs(float64(y[a*c.n+b]) - want); !(d <= 0.05*math.Sqrt(size)+1e-6) {
						t.Fatalf("case %d: y[%d][%d] is %v, want %v of size %v", i, a, b, y[a*c.n+b], want,
							math.Sqrt(size))
					}
				}
			}
			// Results equal those of the portable tier up to the order of sums.
			for j, v := range g.times(portable, x, m, c.k, c.n, false) {
				most := 1e-4 * math.Sqrt(float64(c.k)) * math.Max(1, math.Abs(float64(v)))
				if d := math.Abs(float64(y[j] - v)); !(d <= most) {
					t.Fatalf("case %d: element %d is %v, the portable tier has %v", i, j, y[j], v)
				}
			}
		}
	})
}

// After buffers have grown, quantising rows and multiplying them allocates nothing.
func TestGroupProductsDoNotAllocate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const m, n, k = 5, 20, 512
	r := newRand(78)
	for _, tier := range Tiers() {
		if tier == portable {
			continue
		}
		for _, g := range []groupCase{newGroupCase(r, CodesU4, ScaleF16, true, n, k, 128),
			newGroupCase(r, CodesE2M1, ScaleE4M3, false, n, k, 16),
			newGroupCase(r, CodesU8, ScaleBF16, false, n, k, 64)} {
			if !tier.Groups(g.w.Codes, g.w.Group, k) {
				continue
			}
			x, y := normals(r, m*k), make([]float32, m*n)
			var rows BlockRows
			if a := testing.AllocsPerRun(20, func() {
				tier.ResetBlocks(&rows, m, k, g.w.Codes.Quant(), false)
				for i := range rows.Units() {
					tier.QuantUnit(&rows, i, x, k)
				}
				tier.MulGroups(BlockCut{Y: y, Ldy: n, X: &rows, M1: m, N: n, Add: true}, g.w)
			}); a != 0 {
				t.Errorf("%s: codes %d: %v allocations", tier.Name, g.w.Codes, a)
			}
		}
	}
}
