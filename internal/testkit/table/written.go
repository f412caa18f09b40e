package table

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// Written returns the lines of what the functions write, and of the value as JSON, each after a line with the title.
func Written(t testing.TB, title string, value any, write ...func(io.Writer) error) []string {
	t.Helper()
	lines := []string{title}
	add := func(text []byte) {
		for line := range strings.Lines(string(text)) {
			lines = append(lines, "  "+strings.TrimRight(line, "\n"))
		}
	}
	for _, w := range write {
		var b bytes.Buffer
		if err := w(&b); err != nil {
			t.Errorf("%s: %v", title, err)
		}
		add(b.Bytes())
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Errorf("%s: %v", title, err)
	}
	add(text)
	return lines
}
