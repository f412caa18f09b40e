package planread

import (
	"slices"
	"testing"
)

// Fields that no code reads belong to plans of other engines' kernels; TestPlansSayWhatRuns and every test of an engine
// show that our plans leave them unset.
func TestUnreadFieldsAreThoseOfOtherEngines(t *testing.T) {
	list, err := Unread()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(list, unread) {
		t.Errorf("nothing that runs reads %q, want %q", list, unread)
	}
}
