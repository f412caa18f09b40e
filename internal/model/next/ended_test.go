package next

import (
	"errors"
	"testing"

	"sparrow/internal/model"
	"sparrow/plan"
)

// A drafting pass can continue the rows of a pass that succeeded, but not those of a pass that failed or was refused,
// nor those of a pass before it.
func TestRowsOfFailedPassesAreInvalid(t *testing.T) {
	w := &workspace{m: &Model{}}
	p := pass{m: w.m, work: w, plan: &plan.Plan{Rows: 3}}
	s, d := &target{pass: p}, &draft{pass: p}
	for name, x := range map[string]struct {
		model.Pass
		rows *int
	}{"the target": {s, &w.streams.rows}, "the drafting layer": {d, &w.drafted.rows}} {
		if x.Ended(errors.New("fault")); *x.rows != 0 {
			t.Errorf("%s: %d rows of a pass that failed can be continued", name, *x.rows)
		}
		if x.Ended(nil); *x.rows != 3 {
			t.Errorf("%s: %d rows can be continued, want 3", name, *x.rows)
		}
	}
	if err := s.Prepare(&model.Input{}, nil); err == nil || w.streams.rows != 0 {
		t.Errorf("%d rows can be continued after a pass that was refused with %v", w.streams.rows, err)
	}
}
