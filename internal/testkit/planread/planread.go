// Package planread checks that code reads every field that is set in plans. Only tests import it.
package planread

import (
	"reflect"
	"testing"

	"sparrow/plan"
)

const planned = "sparrow/plan"

// told lists the fields that only explain reads, each with the name of the test that compares it with the actual
// behaviour.
var told = map[string]string{
	"Plan.Graph":             "step TestPlansSayHowTheyWereEnqueued",
	"Plan.Collectives":       "plan TestCollectives",
	"Plan.Key":               "plan TestKeyCoversEverythingAGraphDependsOn",
	"Plan.Shape":             "plan TestEqualShapesGiveEqualPlans",
	"Plan.TransientBytes":    "plan TestLimitsAndMemory",
	"Plan.Reasons":           "step TestPlansSayWhatRuns",
	"Segment.Reasons":        "step TestPlansSayWhatRuns",
	"Segment.Rejected":       "plan TestSparrowResolution",
	"Segment.Limit":          "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
	"Segment.KernelRows":     "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
	"Segment.Keys":           "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
	"Segment.Requests":       "step TestPlansSayWhatRuns",
	"Segment.SplitsFixed":    "step TestRowBitsDoNotDependOnTheBatch",
	"Segment.TransientBytes": "plan TestLimitsAndMemory",
	"Indexer.Chunks":         "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
	"Launch.FirstSpan":       "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
	"Launch.Spans":           "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
	"Launch.Keys":            "plan TestLaunchesCoverRowsOnceWithinEveryLimit",
}

// unread lists the fields that no code reads except for plans of other engines. A test compares the list with the
// fields that the sources read, which takes seconds.
var unread = []string{"Indexer.Schedule", "Segment.FusedTopK", "Segment.HeadRepeat", "Segment.RopeInKernel"}

// Check fails the test for every field that is set in the plans and that no code reads.
func Check(t testing.TB, plans ...*plan.Plan) {
	t.Helper()
	fields := map[string]bool{}
	for _, p := range plans {
		set(reflect.ValueOf(p), fields)
	}
	for _, f := range unread {
		if fields[f] {
			t.Errorf("plans set %s, but no running code reads it: use the field where passes run, or omit it", f)
		}
	}
}

func name(t reflect.Type, i int) string { return t.Name() + "." + t.Field(i).Name }

// set records the fields of plan's types that are not zero. It skips fields inside the fields in told.
func set(v reflect.Value, into map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			set(v.Elem(), into)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			set(v.Index(i), into)
		}
	case reflect.Struct:
		if v.Type().PkgPath() != planned {
			return
		}
		for i := range v.NumField() {
			if f := name(v.Type(), i); !v.Field(i).IsZero() {
				into[f] = true
				if told[f] == "" {
					set(v.Field(i), into)
				}
			}
		}
	}
}
