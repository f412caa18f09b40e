package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The plots in the repository match the tables that they are drawn from.
func TestPicturesAreDrawnFromTheTables(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/benchmarks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	for _, page := range pages {
		list, err := draw(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			drawn++
			if got, err := os.ReadFile(p.file); err != nil || !bytes.Equal(got, p.svg) {
				t.Errorf("%s is not what its table says (%v); run make plots", p.file, err)
			}
		}
	}
	if drawn < 3 {
		t.Errorf("%d pictures", drawn)
	}
}

func TestTablesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"<!-- plot a.svg: b -->":                                    "want <!-- plot FILE",
		"<!-- plot a.svg: b: c: d -->\n| x | y |":                   "the table has 1 lines",
		"<!-- plot a.svg: b: c: d -->\n| x | y |\n|-|-|\n| a | 1 |": `" a " is not a number`,
		"<!-- plot a.svg: b: c: d -->\n| x | y |\n|-|-|\n| 1 | a |": "no column of numbers",
	} {
		file := filepath.Join(t.TempDir(), "x.md")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := draw(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
