package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/weight/gguf"
)

// quantize --calibrate computes the importance matrix, names the text in the file, and reports how many matrices have
// it.
func TestQuantizeCalibrates(t *testing.T) {
	dir := t.TempDir()
	text, file := filepath.Join(dir, "texts.txt"), filepath.Join(dir, "x.gguf")
	if err := os.WriteFile(text, []byte(strings.Repeat("A garden has seven trees. ", 120)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := mustDrive(t, "", "quantize", "builtin", file, "--type", "q4_k_m", "--calibrate", text)
	// Of the types of this small model, only that of its head uses an importance.
	for _, want := range []string{"chunks of 512 tokens of " + text, "with importance", "1 of 1 matrices"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Metadata["quantize.imatrix.file"]; got != "texts.txt" {
		t.Errorf("the file names %v as its importance matrix, want texts.txt", got)
	}
	short := filepath.Join(dir, "short.txt")
	if err := os.WriteFile(short, []byte("A garden."), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := invoke("quantize", "builtin", filepath.Join(dir, "y.gguf"), "--calibrate", short)
	if status == 0 || !strings.Contains(stderr, "want at least one chunk of 512") {
		t.Errorf("a text of a few tokens: status %d, %s", status, stderr)
	}
}
