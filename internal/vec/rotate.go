package vec

// TurnDim is the number of elements of a head that are rotated.
const TurnDim = 64

// Turn is a rotation of 32 pairs by an angle each, prepared for many heads.
type Turn struct {
	by     [2 * TurnDim]float32 // cosine of every element, then the sine that multiplies the element's partner
	halves bool
}

// Set prepares the rotation with the given 32 cosines and sines. The pairs are adjacent elements or, if halves is true,
// element i and element i + 32. If inverse is true, it rotates by the negative angles.
func (t *Turn) Set(cos, sin []float32, halves, inverse bool) {
	needLen("Turn.Set", "cos", len(cos), TurnDim/2)
	needLen("Turn.Set", "sin", len(sin), TurnDim/2)
	t.halves = halves
	for i, c := range cos {
		x, y, s := 2*i, 2*i+1, sin[i]
		if halves {
			x, y = i, i+TurnDim/2
		}
		if inverse {
			s = -s
		}
		t.by[x], t.by[y] = c, c
		t.by[TurnDim+x], t.by[TurnDim+y] = -s, s
	}
}

// partner returns the other element of the pair of element i.
func (t *Turn) partner(i int) int {
	if t.halves {
		return (i + TurnDim/2) % TurnDim
	}
	return i ^ 1
}

// Rotate rotates the first 64 elements of each head; the heads in x begin ld elements apart. Both products are rounded
// before they are added.
func (t *Tier) Rotate(x []float32, heads, ld int, by *Turn) {
	needMatrix("Rotate", "x", len(x), heads, TurnDim, ld)
	if heads > 0 {
		t.ops.rotate(x, heads, ld, by)
	}
}

func rotateGo(x []float32, heads, ld int, by *Turn) {
	for h := range heads {
		v := x[h*ld:][:TurnDim]
		var old [TurnDim]float32
		copy(old[:], v)
		for i := range v {
			a, b := old[i]*by.by[i], old[by.partner(i)]*by.by[TurnDim+i]
			v[i] = a + b
		}
	}
}
