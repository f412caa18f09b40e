package explain_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sparrow/plan"
	"sparrow/plan/explain"
)

// The titles of rules equal the headings of docs/spec, and every numbered section has a title.
func TestTitlesAreTheHeadingsOfTheSpecs(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^## (\d+)\. (.+)$`)
	for document, sections := range map[string]int{"design": 6, "dispatch": 20} {
		data, err := os.ReadFile("../../docs/spec/" + document + ".md")
		if err != nil {
			t.Fatal(err)
		}
		found := heading.FindAllStringSubmatch(string(data), -1)
		if len(found) != sections {
			t.Errorf("%s.md has %d numbered sections, want %d", document, len(found), sections)
		}
		for _, f := range found {
			if got := explain.Title(document + " " + f[1]); got != f[2] {
				t.Errorf("%s %s has the title %q, the section is %q", document, f[1], got, f[2])
			}
		}
	}
}

// Every rule that the planner names is a section of the specs, and docs/plan.md has a row with its title.
func TestEveryRuleOfThePlannerHasATitle(t *testing.T) {
	rule := regexp.MustCompile(`(?:Reason\{|Reason\(|Because\(|Notice\([\w.]+, |Rule: )"([^"]+)"`)
	doc, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, f := range rule.FindAllStringSubmatch(string(data), -1) {
			seen++
			title := explain.Title(f[1])
			if title == "" {
				t.Errorf("%s names %q, which is no section of docs/spec", path, f[1])
			}
			if row := "| " + f[1] + " | " + title + " |"; filepath.Base(path) != "rule.go" &&
				!strings.Contains(string(doc), row) {
				t.Errorf("docs/plan.md has no row %q for the rule that %s names", row, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Errorf("%d rules are named below plan, want at least 20: does the pattern still find them?", seen)
	}
}

func TestReasonNamesTitleThenNumber(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{"dispatch 5", "short (DenseMHA one-shot rule, dispatch 5)"},
		{"design 3", "short (Segments, design 3)"},
		{"this build", "short (this build)"},
	} {
		if got := explain.Reason(plan.Reason{Rule: c.rule, Text: "short"}); got != c.want {
			t.Errorf("reason %q, want %q", got, c.want)
		}
		if got := explain.Notice(plan.Notice{Rule: c.rule, Text: "short"}); got != c.want {
			t.Errorf("notice %q, want %q", got, c.want)
		}
	}
}
