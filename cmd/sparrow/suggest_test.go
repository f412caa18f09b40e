package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMisspeltWordsAreRecognised(t *testing.T) {
	known := []string{"run", "serve", "inspect", "--model", "--max-tokens", "--temperature"}
	for word, want := range map[string]string{
		"rnu": "run", "serv": "serve", "srve": "serve", "inspekt": "inspect", "insp": "inspect", "--modle": "--model",
		"--max-token": "--max-tokens", "--temprature": "--temperature", "--temp": "--temperature",
		"banana": "", "x": "", "--zzz": "",
	} {
		got := suggestion(word, known)
		if want == "" && got != "" || want != "" && got != "; did you mean "+want+"?" {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

// For a misspelt command or flag the error suggests the one that was probably meant.
func TestWrongArgumentsGetASentence(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "model.safetensors")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"rnu"}, []string{`no command "rnu"; did you mean run?`}},
		{[]string{"bench", "srve"}, []string{`no command "srve"; did you mean serve?`}},
		{[]string{"banana"}, []string{"want one of bench,"}},
		{[]string{"run", "--modle", "x", "hi"}, []string{"unknown flag: --modle; did you mean --model?"}},
		{[]string{"serve", "--prot", "1"}, []string{"did you mean --port?"}},
		{[]string{"run", "--schema", "x", "hi"}, []string{"did you mean --json-schema?"}},
		{[]string{"run", "--zzzzzz", "hi"}, []string{"unknown flag: --zzzzzz; see 'sparrow run --help'"}},
		{[]string{"run", "--model", "nowhere/at-all", "hi"},
			[]string{"--model nowhere/at-all: there is no such folder", "config.json", "omit --model"}},
		{[]string{"serve", "--model", "/etc/passwd"}, []string{"--model /etc/passwd: this is a file", "config.json"}},
		{[]string{"run", "--model", file, "hi"},
			[]string{"this is a file", "give the folder it is in: --model " + folder}},
		{[]string{"run", "--model", folder, "hi"}, []string{"config.json", folder}},
		{[]string{"run", "--control-tokens", "no", "hi"},
			[]string{"--control-tokens no: want text or allow"}},
	} {
		status, _, stderr := invoke(c.args...)
		for _, want := range c.want {
			if status != 1 || !strings.Contains(stderr, want) {
				t.Errorf("%v: status %d, %q; want %q", c.args, status, stderr, want)
			}
		}
	}
}
