package shard

import (
	"slices"
	"testing"
)

// Every rank numbers its window pages from 0; pages that a sequence does not have are unchanged.
func TestWindowPagesOfARank(t *testing.T) {
	m := &windowed{ranks: ranks{windows: 4}}
	given := []int32{-1, 0, 3, 4, 9, 15}
	if got, want := m.local(given), []int32{-1, 0, 3, 0, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("pages %v, want %v", got, want)
	}
	if given[3] != 4 {
		t.Error("the caller's pages were changed")
	}
}
