package clienttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/testkit/await"
	"sparrow/server"
)

// installTime is the maximum time for installing the JavaScript suite. If the installation takes longer, the suite is
// skipped.
const installTime = 45 * time.Second

// suiteFiles lists the files of an installation; the first two determine what npm installs.
var suiteFiles = []string{"package.json", "package-lock.json", "suite.mjs"}

// TestJavaScriptClient runs js/suite.mjs and turns each of its cases into a subtest.
func TestJavaScriptClient(t *testing.T) {
	dir := install(t)
	keys, err := server.ReadKeys(strings.NewReader("k-one"))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, sparrow.Config{}, server.Options{Keys: keys})
	ctx, cancel := context.WithTimeout(t.Context(), await.Hang)
	defer cancel()
	var faults bytes.Buffer
	cmd := exec.CommandContext(ctx, "node", "suite.mjs", s.url(), "k-one", model)
	cmd.Dir, cmd.Stderr = dir, &faults
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("node: %v\n%s", err, faults.String())
	}
	cases := 0
	for line := range bytes.Lines(out) {
		var c struct {
			Name  string
			Error *string
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatalf("a line that is no result: %v: %s", err, line)
		}
		cases++
		t.Run(c.Name, func(t *testing.T) {
			if c.Error != nil {
				t.Error(*c.Error)
			}
		})
	}
	if cases < 10 {
		t.Errorf("only %d cases ran", cases)
	}
	s.unharmed(t)
}

// install returns a folder with the suite and OpenAI's package, or skips the test. The package is downloaded once for
// each version of the lock file and kept in .build, which git ignores.
func install(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the JavaScript client needs node and npm: %v", err)
		}
	}
	files := make([][]byte, len(suiteFiles))
	for i, name := range suiteFiles {
		var err error
		if files[i], err = os.ReadFile(filepath.Join("js", name)); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(bytes.Join(files[:2], []byte{0}))
	ready := filepath.Join("js", ".build", fmt.Sprintf("%x", sum[:8]))
	if _, err := os.Stat(ready); errors.Is(err, os.ErrNotExist) {
		fetch(t, files, ready)
	}
	// The suite may have changed since the package was downloaded.
	if err := os.WriteFile(filepath.Join(ready, suiteFiles[2]), files[2], 0o644); err != nil {
		t.Fatal(err)
	}
	return ready
}

// fetch installs the suite into a temporary folder and renames the folder when it is complete, so that other runs never
// find an incomplete one.
func fetch(t *testing.T, files [][]byte, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), "install-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // does nothing if the folder was renamed
	for i, name := range suiteFiles {
		if err := os.WriteFile(filepath.Join(dir, name), files[i], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
		"--loglevel=error")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		t.Skipf("the JavaScript client could not be installed: npm ci: %v: %s", err, first)
	}
	if err := os.Rename(dir, to); err != nil {
		if _, there := os.Stat(to); there != nil {
			t.Fatal(err)
		}
	}
}
