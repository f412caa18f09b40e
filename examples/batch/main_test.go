package main

import (
	"strings"
	"testing"
)

func TestEveryLineBecomesAnObject(t *testing.T) {
	var out strings.Builder
	in := strings.NewReader("Sofia, aged 89, comes from Havana.\nOscar, aged 31, comes from Oslo.\n" +
		"Nothing about anybody.\n")
	if err := run(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != `{"name": "Sofia", "age": 89, "city": "Havana"}` ||
		lines[1] != `{"name": "Oscar", "age": 31, "city": "Oslo"}` || !strings.HasPrefix(lines[2], `{"name": "`) {
		t.Errorf("%s", out.String())
	}
}
