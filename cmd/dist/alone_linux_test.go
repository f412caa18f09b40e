package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

var distFolder = flag.String("dist", "", "folder that cmd/dist made")

// The static binary of this platform runs and serves in a read-only file system without other files, as an unprivileged
// user, as in a container with an empty image.
func TestAlone(t *testing.T) {
	if *distFolder == "" {
		t.Skip("make dist runs this")
	}
	program := programOf(t, *distFolder)
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "sparrow"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	alone := func(args string) *exec.Cmd {
		script := fmt.Sprintf(`mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s && `+
			`exec chroot --userspec=65532:65532 %[1]s /sparrow %[2]s`, root, args)
		c := exec.Command("unshare", "--mount", "sh", "-c", script)
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		return c
	}
	if out, err := alone("version").CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ermission") || strings.Contains(string(out), "not permitted") ||
			errors.Is(err, exec.ErrNotFound) {
			t.Skipf("this system lets nobody make a file system of their own: %v: %s", err, out)
		}
		t.Fatalf("version: %v: %s", err, out)
	}
	out, err := alone(`run "Rolf plants 22 trees every day for 7 days. How many trees is that?"`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "154") {
		t.Errorf("run: %v: %s", err, out)
	}
	serve := alone("serve --port 18436")
	var said bytes.Buffer
	serve.Stdout, serve.Stderr = &said, &said
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	var health error
	for range 100 {
		if health = alone("health --url http://127.0.0.1:18436").Run(); health == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := errors.Join(serve.Process.Signal(os.Interrupt), serve.Wait()); err != nil || health != nil {
		t.Errorf("serve: %v, health: %v\n%s", err, health, &said)
	}
}

// programOf extracts the binary of this platform from its archive, after comparing the archive with SHA256SUMS.
func programOf(t *testing.T, dist string) []byte {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, "sparrow-*-linux-"+runtime.GOARCH+".tar.gz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("archives %v, %v", found, err)
	}
	archive, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dist, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("%x  %s\n", sha256.Sum256(archive), filepath.Base(found[0]))
	if !strings.Contains(string(sums), line) {
		t.Errorf("%s lacks %s", sumsName, line)
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("no binary: %v", err)
		}
		if filepath.Base(h.Name) == "sparrow" {
			program, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return program
		}
	}
}
