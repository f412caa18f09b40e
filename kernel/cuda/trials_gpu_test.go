package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// trying is a rig whose kernels try something.
func (r *rig) trying(t Trials) *rig {
	c := *r
	c.k = r.k.With(t)
	return &c
}

// More rows than SMs, short enough to be held: every distribution, lengths around k and around what a block holds.
func TestGPUTopKOfHeldRowsIsExact(t *testing.T) {
	r := onGPU(t).trying(Trials{HeldRows: true})
	rng := rand.New(rand.NewPCG(22, 1))
	var lengths []int32
	for i := range 150 {
		edge := []int32{0, -4, 1, 255, 256, 257, 2047, 2048, 2049, 8187, 8188, 8100}
		if i < len(edge) {
			lengths = append(lengths, edge[i])
		} else {
			lengths = append(lengths, int32(rng.IntN(8188)))
		}
	}
	for name, score := range distributions {
		for _, c := range []topKCase{
			{k: 256, kind: TopKPaged, lengths: lengths}, {k: 2048, kind: TopKPaged, lengths: lengths[:140]},
			{k: 2048, kind: TopKRagged, lengths: lengths[3:], starts: true, columns: 8188},
			{k: 7, kind: TopKPosition, lengths: lengths},
		} {
			c.score = score
			s := c.build(r, rng)
			if s.args.Columns == 0 {
				s.args.Columns = 8192
			}
			s.run(r, fmt.Sprintf("%s, k %d, %v", name, c.k, c.kind))
		}
	}
}
