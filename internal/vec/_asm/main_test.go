package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The assembly in the package equals the output of this generator.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: run go run . -out ..", name)
		}
	}
}
