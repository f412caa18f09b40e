package cuda

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// build compiles a small program that uses this package and reports whether it needs a dynamic linker.
func build(t *testing.T, tags string) (interpreter bool) {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to build with")
	}
	out := filepath.Join(t.TempDir(), "probe")
	cmd := exec.Command(goTool, "build", "-tags", tags, "-o", out, "./testdata/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build -tags %q: %v\n%s", tags, err, text)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			interpreter = true
		}
	}
	text, err := exec.Command(out).CombinedOutput()
	if err != nil {
		t.Errorf("the program built with tags %q failed: %v\n%s", tags, err, text)
	}
	return interpreter
}

func TestTagNocudaGivesAStaticBinary(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" || testing.Short() {
		t.Skip("needs linux/amd64 and a build")
	}
	if build(t, "nocuda") {
		t.Error("built with nocuda, the binary still needs a dynamic linker")
	}
	if !build(t, "") {
		t.Error("built without the tag, the binary cannot load the driver: it has no dynamic linker")
	}
}
