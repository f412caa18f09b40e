// Package plantable writes plans and configurations as lines of a table, for tests that compare all of them.
package plantable

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// Config returns the lines of a configuration: the decisions without the user's settings, then reasons, rejections and
// notices.
func Config(t testing.TB, cfg any, notices []plan.Notice) []string {
	t.Helper()
	m := fields(t, cfg)
	for _, given := range []string{"hardware", "model", "asked", "fingerprint"} {
		delete(m, given)
	}
	lines := split(t, "  ", m)
	for _, n := range notices {
		lines = append(lines, fmt.Sprintf("  notice %v (%s) %s", n.Level, n.Rule, table.Facts(n.Text)))
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
			delete(m, "rejected") // rejections are listed with the configuration
		}
		lines = append(lines, split(t, "      ", m)...)
	}
	return lines
}

// split returns the fields as one line, followed by one line for each list of reasons.
func split(t testing.TB, indent string, m map[string]any) []string {
	t.Helper()
	lists := []string{"reasons", "rejected"} // the table has names and numbers of these lists, not their wording
	var more []string
	for _, name := range lists {
		list, _ := m[name].([]any)
		for _, x := range list {
			fields := x.(map[string]any)
			line := indent + "  " + name
			for _, field := range slices.Sorted(maps.Keys(fields)) {
				line += " " + field + " " + table.Facts(text(t, fields[field]))
			}
			more = append(more, line)
		}
		delete(m, name)
	}
	for _, name := range []string{"limit", "dense_against"} {
		if v, ok := m[name]; ok {
			m[name] = table.Facts(text(t, v))
		}
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
