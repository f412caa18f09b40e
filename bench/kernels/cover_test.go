package kernels

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sparrow/kernel"
)

// Every operation of the interfaces is run by a case: a new one fails here until it is measured.
func TestEveryOperationHasACase(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:Run:|run := |(?:rowwise|repeated|routed|latent)\()`+
			`(?s:.{0,220}?)\b(?:d|dev)\.(\w+)\(`).FindAllSubmatch(text, -1) {
			called[string(m[1])] = true
		}
	}
	ops := reflect.TypeFor[kernel.Operations]()
	for i := range ops.NumMethod() {
		if name := ops.Method(i).Name; !called[name] {
			t.Errorf("%s has no case", name)
		}
	}
}
