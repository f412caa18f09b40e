package llamacpp

import (
	"slices"
	"testing"
)

// The importances of a matrix have the mean 1. Inputs that were always zero have a thousandth of it, not zero.
func TestImportancesOfColumns(t *testing.T) {
	x := tensor{name: "x", matrices: 2, shape: []int{2, 1, 4}}
	m := Importance{"x": {{0, 4, 0, 12}, nil}}
	if got := m.of(&x, 0); !slices.Equal(got, []float32{0.001, 1, 0.001, 3}) {
		t.Errorf("importances %v", got)
	}
	if got := m.of(&x, 1); got != nil {
		t.Errorf("importances %v of a matrix without inputs", got)
	}
}
