// Package table compares results of code for many inputs with a table in testdata. Every changed result is a changed
// line of the table, which can be reviewed. To write the tables anew after an intended change, run the package's tests
// with WRITE_TABLES=1 and read the difference.
package table

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fact = regexp.MustCompile(`E\d\d|[a-z0-9]+(?:[-_.:/][a-z0-9]+)+|\d+`)

// Facts returns the words of a text that contain digits, dashes or underscores, such as names and numbers. A table of
// facts does not change if other words of the text change.
func Facts(text string) string { return strings.Join(fact.FindAllString(text, -1), " ") }

// Check compares lines with testdata/name.
func Check(t testing.TB, name string, lines []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := []byte(strings.Join(lines, "\n") + "\n")
	if os.Getenv("WRITE_TABLES") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; WRITE_TABLES=1 writes it", err)
	}
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if bytes.Equal(got, want) {
		return
	}
	old := strings.Split(strings.TrimSuffix(string(want), "\n"), "\n")
	const most = 8
	shown := 0
	for i := range max(len(old), len(lines)) {
		before, now := at(old, i), at(lines, i)
		if before == now {
			continue
		}
		if shown++; shown > most {
			break
		}
		t.Errorf("%s:%d:\n got %s\nwant %s", path, i+1, around(now, before), around(before, now))
	}
	t.Errorf("%s has %d lines, want %d; if the change is intended, write the table with WRITE_TABLES=1 and read the "+
		"difference", path, len(lines), len(old))
}

// around returns the part of a line where it differs from the other line.
func around(line, other string) string {
	same := 0
	for same < min(len(line), len(other)) && line[same] == other[same] {
		same++
	}
	const before, after = 120, 200
	if from := same - before; from > 0 {
		line, same = line[:40]+" ... "+line[from:], 45+before
	}
	if len(line) > same+after {
		line = line[:same+after] + " ..."
	}
	return line
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "no such line"
}
