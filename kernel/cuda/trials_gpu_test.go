package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sparrow/layout"
)

// trying is a rig whose kernels try something.
func (r *rig) trying(t Trials) *rig {
	c := *r
	c.k = r.k.With(t)
	return &c
}

// A unit of work gives the same bits in one thread block and in a cluster: of 656-byte rows with 128 heads 1 and 8 are
// computed by clusters of eight, 20 by clusters of four, 70 by one thread block for each unit and the last four by
// clusters of eight.
func TestGPUTeamsGiveTheBitsOfOneThreadBlock(t *testing.T) {
	r := onGPU(t)
	teams := r.trying(Trials{Teams: true})
	lens := []int32{2048, 1024, 1023, 1, 513, 512, 0, 700, 65, 64, 63, 5000, -3, 2047}
	for len(lens) < 70 {
		lens = append(lens, lens...)
	}
	lens = lens[:70]
	for i, kind := range []layout.Kind{layout.FP8Row656, layout.BF16Row1152, 0} {
		for _, heads := range []int{128, 64, 100, 16} {
			rng := rand.New(rand.NewPCG(21, uint64(i)))
			c := newSparseCase(r, rng, kind, heads, heads == 16, newSparseStream(r, rng, kind, 4096, 64, 2048, lens))
			want := c.run(r, 0, len(lens), 0)
			for _, rows := range []int{1, 8, 20, 70} {
				name := fmt.Sprintf("%v, %d heads, %d rows", kind, heads, rows)
				again := c.prepare(teams, 0, rows, 0)
				got := again()
				for row := range rows {
					got.row(row, heads).same(t, fmt.Sprintf("%s, row %d", name, row), want.row(row, heads))
				}
				for range repeats {
					again().same(t, name+" again", got)
				}
			}
			few := newSparseCase(r, rng, kind, heads, false, newSparseStream(r, rng, kind, 640, 64, 320, lens[:12]))
			few.check(t, fmt.Sprintf("%v, %d heads against the host", kind, heads), few.run(teams, 0, 12, 0))
		}
	}
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
