package vec

import "fmt"

// DenseHead is causal attention of one head for several rows, over keys and values of one request:
//
//	p = exp(Scale*(q·key + q·rope) - the largest), over the keys that a row attends to; out = Σ p*value / Σ p
//
// Q [rows, Nope+Rope], Keys [n, Nope], Ropes [n, Rope], Values [n, V], Out [rows, V]; Ld... is the distance between
// rows in elements. Row i attends to the first Seen[i] keys; n is the maximum of Seen. The output of a row without keys
// is zero.
type DenseHead struct {
	Q, Keys, Ropes, Values, Out           []float32
	LdQ, LdKeys, LdRopes, LdValues, LdOut int
	Seen                                  []int
	Nope, Rope, V                         int
	Scale                                 float32
}

// row returns the attention of row i alone.
func (h *DenseHead) row(i int) DenseHead {
	one := *h
	one.Q, one.Out, one.Seen = h.Q[i*h.LdQ:], h.Out[i*h.LdOut:], h.Seen[i:i+1]
	return one
}

// longest returns the maximum number of keys of a row.
func (h *DenseHead) longest() int {
	n := 0
	for _, seen := range h.Seen {
		n = max(n, seen)
	}
	return n
}

// denseColumns must divide the number of value columns.
const denseColumns = 32

// AttendsDense reports whether [Tier.AttendDense] supports the given number of value columns.
func (t *Tier) AttendsDense(values int) bool {
	return t.Tiled() && values%denseColumns == 0
}

// AttendDense computes the attention on tiles. Queries, keys, values and weights are sums of two bfloat16, within 2^-17
// of the float32; products of two rounding errors are omitted. Keys are processed in blocks of 256, counted from the
// first key, so that a row is bitwise equal alone and with other rows. Keys and values of 2^127 and more may give NaN.
func (t *Tier) AttendDense(h DenseHead) {
	const method = "AttendDense"
	if !t.AttendsDense(h.V) {
		panic(fmt.Sprintf("vec: %s: tier %s does not support rows of %d values", method, t.Name, h.V))
	}
	rows, n := len(h.Seen), h.longest()
	needMatrix(method, "q", len(h.Q), rows, h.Nope+h.Rope, h.LdQ)
	needMatrix(method, "out", len(h.Out), rows, h.V, h.LdOut)
	needMatrix(method, "keys", len(h.Keys), n, h.Nope, h.LdKeys)
	needMatrix(method, "ropes", len(h.Ropes), n, h.Rope, h.LdRopes)
	needMatrix(method, "values", len(h.Values), n, h.V, h.LdValues)
	if h.Nope < 1 || h.Rope < 1 {
		panic(fmt.Sprintf("vec: %s: the keys have %d and %d elements, too few", method, h.Nope, h.Rope))
	}
	if rows > 0 && h.V > 0 {
		t.ops.tiled.dense(&h)
	}
}
