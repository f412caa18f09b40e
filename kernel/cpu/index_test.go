package cpu

import (
	"slices"
	"testing"
)

// Positions are found in pages of any size. If positions are outside the table, locatePaged returns the first of them.
func TestPositionsOutsideTheTable(t *testing.T) {
	for _, tokens := range []int{3, 4, 64, 100} {
		table := []int32{5, 0, 2}
		end := int32(len(table) * tokens)
		out := make([]int32, 4)
		in := []int32{0, end - 1, -1, int32(tokens)}
		want := []int32{int32(5 * tokens), int32(2*tokens + tokens - 1), -1, 0}
		if bad := locatePaged(out, in, table, tokens); bad != -1 || !slices.Equal(out, want) {
			t.Errorf("pages of %d: slots %v and position %d outside the table, want slots %v", tokens, out, bad, want)
		}
		for _, p := range []int32{end, end + 1, end + int32(tokens)} {
			if bad := locatePaged(out, []int32{0, p, end + 7, 1}, table, tokens); bad != p {
				t.Errorf("pages of %d: position %d: %d is named", tokens, p, bad)
			}
		}
	}
}
