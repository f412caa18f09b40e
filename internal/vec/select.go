package vec

// CollectSlack is the number of elements by which the outputs of [Tier.Collect] are longer than its input.
const CollectSlack = 16

// CountAbove returns the number of elements of x that are at least floor. NaN is not counted.
func (t *Tier) CountAbove(x []float32, floor float32) int {
	if len(x) == 0 {
		return 0
	}
	return t.ops.countAbove(x, floor)
}

// Collect writes the elements of x that are at least floor to kept, in order, and their positions to at: base+i for
// x[i] or, if places is given, places[i]. It returns their number. NaN is not collected. at and kept have
// len(x)+CollectSlack elements and may be overwritten to the end; they may be places and x themselves.
func (t *Tier) Collect(at []int32, kept []float32, x []float32, places []int32, base int32, floor float32) int {
	const method = "Collect"
	n := len(x)
	needMatrix(method, "at", len(at), 1, n+CollectSlack, n+CollectSlack)
	needMatrix(method, "kept", len(kept), 1, n+CollectSlack, n+CollectSlack)
	if places != nil {
		needLen(method, "places", len(places), n)
	}
	if n == 0 {
		return 0
	}
	return t.ops.collect(at, kept, x, places, base, floor)
}

func countAboveGo(x []float32, floor float32) int {
	n := 0
	for _, v := range x {
		if v >= floor {
			n++
		}
	}
	return n
}

func collectGo(at []int32, kept []float32, x []float32, places []int32, base int32, floor float32) int {
	n := 0
	for i, v := range x {
		p := base + int32(i)
		if places != nil {
			p = places[i]
		}
		at[n], kept[n] = p, v
		if v >= floor {
			n++
		}
	}
	return n
}
