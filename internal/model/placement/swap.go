package placement

import (
	"cmp"
	"slices"

	"sparrow/internal/model/usage"
)

// Swap is an exchange of two experts of a layer: In, which is in host memory, becomes resident instead of Out.
type Swap struct {
	Layer, In, Out int
	Gain           uint64 // choices of In minus choices of Out
}

// An expert replaces another expert only if it was chosen more often by this ratio and by this number. Smaller
// differences are random, and experts would move back and forth: with 64 choices of each expert, the standard deviation
// is 8.
const (
	swapRatio = 1.5
	swapMore  = 16
)

// Swaps returns exchanges of experts in host memory with resident experts that are chosen less often, those with the
// largest gain first. Experts that are resident in only one phase are not moved.
func (p *Placement) Swaps(u *usage.Table) []Swap {
	var out []Swap
	for l, counts := range u.Counts {
		if len(counts) == 0 || l >= len(p.Decode) {
			continue
		}
		var far, near []int
		for e := range p.Decode[l] {
			switch decode, prefill := p.Decode[l][e], p.Prefill[l][e]; {
			case decode == Resident && prefill == Resident:
				near = append(near, e)
			case decode != Resident && prefill != Resident:
				far = append(far, e)
			}
		}
		slices.SortStableFunc(far, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
		slices.SortStableFunc(near, func(a, b int) int { return cmp.Compare(counts[a], counts[b]) })
		for i := range min(len(far), len(near)) {
			in, there := counts[far[i]], counts[near[i]]
			if float64(in) < swapRatio*float64(there)+swapMore {
				break
			}
			out = append(out, Swap{Layer: l, In: far[i], Out: near[i], Gain: in - there})
		}
	}
	slices.SortStableFunc(out, func(a, b Swap) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}

// Swap exchanges the methods of two experts of a layer.
func (p *Placement) Swap(s Swap) error { return p.Layer(s.Layer).Swap(s.In, s.Out) }
