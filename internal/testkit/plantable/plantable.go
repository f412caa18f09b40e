// Package plantable writes plans and configurations as lines of a table, for tests that compare them all.
package plantable

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"sparrow/plan"
)

// Config returns the lines of a configuration: what was decided, without what was given, then reasons, rejections and
// notices.
func Config(t testing.TB, cfg any, notices []plan.Notice) []string {
	t.Helper()
	m := fields(t, cfg)
	for _, given := range []string{"hardware", "model", "asked", "fingerprint"} {
		delete(m, given)
	}
	lines := split(t, "  ", m)
	for _, n := range notices {
		lines = append(lines, fmt.Sprintf("  notice %v (%s) %s", n.Level, n.Rule, n.Text))
	}
	return lines
}

// Plan returns the lines of a plan and of its segments, without keys of graphs.
func Plan(t testing.TB, p *plan.Plan) []string {
	t.Helper()
	m := fields(t, p)
	delete(m, "key")
	delete(m, "segments")
	lines := split(t, "    ", m)
	for i := range p.Segments {
		m := fields(t, &p.Segments[i])
		if len(p.Segments[i].Rejected) > 1 {
			delete(m, "rejected") // a part of the configuration's
		}
		lines = append(lines, split(t, "      ", m)...)
	}
	return lines
}

// split writes lists of reasons as lines of their own, after the other fields.
func split(t testing.TB, indent string, m map[string]any) []string {
	t.Helper()
	lists := []string{"reasons", "rejected"}
	var more []string
	for _, name := range lists {
		list, _ := m[name].([]any)
		for _, x := range list {
			more = append(more, indent+"  "+name+" "+text(t, x))
		}
		delete(m, name)
	}
	line := indent
	for _, name := range slices.Sorted(maps.Keys(m)) {
		line += name + " " + text(t, m[name]) + " "
	}
	return append([]string{line[:len(line)-1]}, more...)
}

func fields(t testing.TB, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func text(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
