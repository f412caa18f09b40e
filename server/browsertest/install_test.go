package browsertest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sparrow/internal/pinned"
)

// installTime is the maximum time for installing Chromium or axe-core.
const installTime = 5 * time.Minute

//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// findChromium returns the path of Chromium. If Chromium is missing and this process may install it, findChromium
// installs it.
func findChromium(ctx context.Context) (string, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("no %s is in PATH, and this user cannot install Debian's package; install Chromium",
			strings.Join(names, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	quiet := []string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", names[0]}} {
		if _, err := pinned.Output(ctx, "", "env", append(slices.Clone(quiet), args...)...); err != nil {
			return "", fmt.Errorf("apt-get %s: %w", args[0], err)
		}
	}
	return exec.LookPath(names[0])
}

// findAxe returns the source of axe-core; npm installs it on the first call.
func findAxe(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	home, err := pinned.Cache()
	if err != nil {
		return "", err
	}
	dir, err := pinned.Node(ctx, home, "axe", packageJSON, packageLock)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(text), err
}
