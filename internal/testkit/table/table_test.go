package table

import (
	"fmt"
	"os"
	"testing"
)

// record counts the errors of a check.
type record struct {
	testing.TB
	errors int
}

func (r *record) Helper()                   {}
func (r *record) Errorf(string, ...any)     { r.errors++ }
func (r *record) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("WRITE_TABLES", "1")
	Check(t, "x.txt", []string{"one", "two"})
	os.Unsetenv("WRITE_TABLES")
	for _, c := range []struct {
		lines  []string
		errors int
	}{{[]string{"one", "two"}, 0}, {[]string{"one", "three"}, 2}, {[]string{"one"}, 2},
		{[]string{"one", "two", ""}, 2}} {
		r := &record{TB: t}
		if Check(r, "x.txt", c.lines); r.errors != c.errors {
			t.Errorf("%q: %d errors, want %d", c.lines, r.errors, c.errors)
		}
	}
}
