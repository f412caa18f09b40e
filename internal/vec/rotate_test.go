package vec

import (
	"math"
	"testing"
)

// Every tier is bitwise equal to the plain rotation, for both pairings and both directions, and changes no other
// element.
func TestRotate(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		r := newRand(5)
		for _, heads := range []int{0, 1, 2, 7, 65} {
			for _, c := range []struct{ halves, inverse bool }{{}, {halves: true}, {inverse: true},
				{halves: true, inverse: true}} {
				const ld = TurnDim + 5
				x := normals(r, heads*ld+TurnDim)
				cos, sin := normals(r, TurnDim/2), normals(r, TurnDim/2)
				want := append([]float32(nil), x...)
				for h := range heads {
					for i := range TurnDim / 2 {
						a, b := h*ld+2*i, h*ld+2*i+1
						if c.halves {
							a, b = h*ld+i, h*ld+i+TurnDim/2
						}
						p, q, s := want[a], want[b], sin[i]
						if c.inverse {
							s = -s
						}
						pc, qs, qc, ps := p*cos[i], q*s, q*cos[i], p*s
						want[a], want[b] = float32(pc)-float32(qs), float32(qc)+float32(ps)
					}
				}
				var turn Turn
				turn.Set(cos, sin, c.halves, c.inverse)
				tier.Rotate(x, heads, ld, &turn)
				for i := range x {
					if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%d heads, %+v: element %d is %v, want %v", heads, c, i, x[i], want[i])
					}
				}
			}
		}
	})
}
