package kernels

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sparrow/kernel/ref"
)

// Every operation of the interfaces has a case: this test fails for a new operation until it has a case.
func TestEveryOperationHasACase(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{"TallyArgs": true} // Tally is measured by BenchmarkTally of package model
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bkernel\.(\w+Args)\b`).FindAllSubmatch(text, -1) {
			called[string(m[1])] = true
		}
	}
	for _, op := range ref.Operations() {
		if !called[op.Name()] {
			t.Errorf("%s has no case", op.Name())
		}
	}
}
