package tree

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every test that the tables of docs/reliability.md and docs/pains.md name exists, in the package before its name if a
// package is given.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	const root = "../.."
	packages := map[string][]string{} // the packages that declare each test
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, found := range function.FindAllSubmatch(text, -1) {
			packages[string(found[1])] = append(packages[string(found[1])], filepath.ToSlash(dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// word matches a package in backquotes, the word root, a test after it, or the end of a line.
	word := regexp.MustCompile("`[a-z0-9/]+`|\\broot\\b|\\b(?:Test|Fuzz)[A-Z]\\w*|\n")
	for _, document := range []string{"reliability.md", "pains.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", document))
		if err != nil {
			t.Fatal(err)
		}
		named, dir := 0, ""
		for _, w := range word.FindAllString(string(text), -1) {
			switch {
			case w == "\n":
				dir = ""
			case w == "root":
				dir = "."
			case w[0] == '`':
				dir = strings.Trim(w, "`")
			default:
				named++
				if len(packages[w]) == 0 || dir != "" && !slices.Contains(packages[w], dir) {
					t.Errorf("%s: %s of package %q is in %v", document, w, dir, packages[w])
				}
			}
		}
		if named < 20 {
			t.Errorf("%s names %d tests", document, named)
		}
	}
}
