package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorsOfOtherPlatforms checks that the command finds errors which a module has on only one platform.
func TestErrorsOfOtherPlatforms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module m\n\ngo 1.26\n",
		"a.go":         "package m\n\nimport \"os\"\n\nfunc F() *os.File { return system() }\n\nfunc sum(v int) int\n",
		"a_linux.go":   "package m\n\nimport \"os\"\n\nfunc system() *os.File { return os.Stdout }\n",
		"a_windows.go": "package m\n\nfunc system() int { return 1 }\n",
		"a_amd64.s":    "",
		"b/b.go":       "package b\n\nimport \"m\"\n\nvar File = m.F()\n\nconst Large int = 1 << 40\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		platform string
		want     []string
	}{
		{"linux/amd64", nil},
		{"linux/arm64", []string{"no body of sum"}},
		{"windows/amd64", []string{"cannot use system()"}},
		{"darwin/arm64", []string{"undefined: system", "no body of sum"}},
		{"linux/386", []string{"no body of sum", "overflows"}},
	} {
		err := check(dir, c.platform, []string{"./..."})
		if err == nil && c.want != nil || err != nil && c.want == nil {
			t.Errorf("%s: %v, want errors about %q", c.platform, err, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want one about %q", c.platform, err, w)
			}
		}
	}
}
