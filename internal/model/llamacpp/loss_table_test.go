package llamacpp

import (
	"testing"

	"sparrow/internal/testkit/table"
)

// A report of losses has a column about importances only if some were used.
func TestTableOfLosses(t *testing.T) {
	var r Report
	table.Fill(&r)
	lines := table.Written(t, "with importances", r, r.Print)
	r[0].Weighed, r[1].Weighed, r[0].Error = 0, 0, 0.0123
	table.Check(t, "losses.txt", append(lines, table.Written(t, "without importances", r, r.Print)...))
}
