// Package compare holds scripts that compare llama.cpp with sparrow; this test runs the scripts without llama.cpp.
package compare

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// If a program or Python module is missing, a script prints one line that names what to install, and no traceback.
func TestScriptsSayWhatIsMissing(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const checkpoint = "../../testdata/oracle/deepseek_v32-1"
	file, server := write("x.gguf", "GGUF"), write("llama-server", "#!/bin/sh\nexit 1\n")
	// The converter script imports a package that does not exist.
	script := write("convert_hf_to_gguf.py", "import no_such_package.part\n")
	write("lacking/conversion/__init__.py", "")
	write("lacking/conversion/base.py", "import no_such_package\n")
	whole := "class Any:\n    pass\n\n\nTextModel = DeepseekV32Model = GlmMoeDsaModel = Any\n"
	for _, name := range []string{"base", "deepseek", "glm"} {
		write("whole/conversion/"+name+".py", whole)
	}
	write("whole/conversion/__init__.py", "")
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		name        string
		environment []string
		args        []string
		want        []string
	}{
		{"no llama-server", []string{"LLAMA_SERVER=" + none + " -v"}, []string{"agree.py", file},
			[]string{none, "apt-get install llama.cpp-tools", "LLAMA_SERVER"}},
		{"no sparrow", []string{"LLAMA_SERVER=" + server, "SPARROW=" + none}, []string{"agree.py", file},
			[]string{none, "go build"}},
		{"no second llama-server", []string{"LLAMA_SERVER=" + server, "LLAMA_OTHER=" + none},
			[]string{"agree.py", file}, []string{none, "LLAMA_OTHER"}},
		{"no file", nil, []string{"agree.py", none}, []string{none, "sparrow quantize"}},
		{"no converter", []string{"TOOLS=" + none}, []string{"convert.py", checkpoint, file},
			[]string{none, "apt-get install llama.cpp-tools", "TOOLS"}},
		{"no script", []string{"TOOLS=" + dir, "SCRIPT=" + none}, []string{"convert.py", checkpoint, file},
			[]string{none, "apt-get install llama.cpp-tools", "SCRIPT"}},
		{"other modules", []string{"TOOLS=" + dir, "SCRIPT=" + script}, []string{"convert.py", checkpoint, file},
			[]string{dir + " has no module conversion", "apt-get install llama.cpp-tools"}},
		{"no package of a module", []string{"TOOLS=" + dir + "/lacking", "SCRIPT=" + script},
			[]string{"convert.py", checkpoint, file}, []string{"pip install no_such_package;"}},
		{"no package of the script", []string{"TOOLS=" + dir + "/whole", "SCRIPT=" + script},
			[]string{"convert.py", checkpoint, file}, []string{"pip install no_such_package;"}},
		{"no checkpoint", nil, []string{"convert.py", none, file}, []string{none, "sparrow synth"}},
	} {
		cmd := exec.Command(python, c.args...)
		cmd.Env = append(os.Environ(), append(c.environment, "PYTHONDONTWRITEBYTECODE=1")...)
		out, err := cmd.CombinedOutput()
		if text := strings.TrimSpace(string(out)); err == nil || strings.Contains(text, "\n") {
			t.Errorf("%s: error %v, want an error and one line:\n%s", c.name, err, text)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: output %s does not contain %q", c.name, out, want)
			}
		}
	}
}
