package plan

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryCodeIsRaised checks that code outside of tests uses every error code that has a title, and every function
// that words a refusal.
func TestEveryCodeIsRaised(t *testing.T) {
	var source strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if path == filepath.Join("..", "plan", "errors.go") || path == filepath.Join("..", "plan", "errors_run.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		source.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	words, err := os.ReadFile("errors_run.go")
	if err != nil {
		t.Fatal(err)
	}
	raised := map[string]bool{}
	for _, f := range regexp.MustCompile(`(?s)func (Err\w+)\(.*?Code: (E\d\d)`).FindAllStringSubmatch(string(words),
		-1) {
		if !strings.Contains(source.String(), f[1]+"(") {
			t.Errorf("%s is called by tests alone", f[1])
		}
		raised[f[2]] = true
	}
	for code := range codeTitles {
		if !raised[string(code)] && !regexp.MustCompile(`\b`+string(code)+`\b`).MatchString(source.String()) {
			t.Errorf("nothing raises %s", code.Error())
		}
	}
}
