package main

import (
	"strings"
	"testing"
)

func TestUnknownCommandsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"wash"}, {"bench", "wash"}} {
		status, out, errs := invoke(args...)
		if status != 1 || out != "" || !strings.Contains(errs, `no command "wash"; want one of `) {
			t.Errorf("%v: status %d, printed %q and %q", args, status, out, errs)
		}
	}
	if status, out, _ := invoke("bench"); status != 0 || !strings.Contains(out, "serve") {
		t.Errorf("bench alone: status %d, printed %q", status, out)
	}
}
