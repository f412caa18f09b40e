package cost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Figures that were saved are loaded unchanged. A file that is corrupt, outdated, invalid or from another machine is
// ignored.
func TestFiguresAreKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const machine = "a GPU, 8 cores"
	path, err := KeptPath(machine)
	if err != nil {
		t.Skip("this system has no cache folder")
	}
	if other, _ := KeptPath("another"); other == path || filepath.Base(filepath.Dir(path)) != "sparrow" {
		t.Errorf("two machines have the files %s and %s", path, other)
	}
	if _, ok := LoadFigures(path, machine); ok {
		t.Error("figures were loaded although no file exists")
	}
	want := Figures{Bus: H200().Bus, CPU: H200().CPU}
	if err := SaveFigures(path, machine, want); err != nil {
		t.Fatal(err)
	}
	if got, ok := LoadFigures(path, machine); !ok || got != want {
		t.Errorf("loaded %+v, %v; want %+v", got, ok, want)
	}
	if _, ok := LoadFigures(path, "another machine"); ok {
		t.Error("the figures were loaded for another machine")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty": "", "cut": string(text[:len(text)/2]), "of another version": strings.Replace(string(text),
			`"version": 1`, `"version": 0`, 1),
		"without a rate": strings.Replace(string(text), `"Stream": 136000`, `"Stream": 0`, 1),
	} {
		if bad == string(text) {
			t.Fatalf("%s: the test did not change the file", name)
		}
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, ok := LoadFigures(path, machine); ok {
			t.Errorf("a file that is %s was loaded as %+v", name, got)
		}
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1 {
		t.Errorf("the folder has the files %v, error %v", files, err)
	}
}
