package browsertest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// installTime bounds each installation.
const installTime = 5 * time.Minute

//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// findChromium gives the program, which is installed where it is missing and this process may do so.
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
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-qq", "-y", "--no-install-recommends", names[0]}} {
		if err := command(ctx, "", "apt-get", args...); err != nil {
			return "", err
		}
	}
	return exec.LookPath(names[0])
}

// findAxe gives the source of axe-core, which npm installs once into the user's cache folder, or into the one that
// SPARROW_CLIENTS names.
func findAxe(ctx context.Context) (string, error) {
	home := os.Getenv("SPARROW_CLIENTS")
	if home == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w; name a folder in SPARROW_CLIENTS", err)
		}
		home = filepath.Join(user, "sparrow-clients")
	}
	dir := filepath.Join(home, fmt.Sprintf("axe-%x", sha256.Sum256(packageLock))[:16])
	file := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	text, err := os.ReadFile(file)
	if err == nil {
		return string(text), nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "package.json"), packageJSON, 0o644),
		os.WriteFile(filepath.Join(dir, "package-lock.json"), packageLock, 0o644)); err != nil {
		return "", err
	}
	if err := command(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
		"--loglevel=error"); err != nil {
		return "", err
	}
	text, err = os.ReadFile(file)
	return string(text), err
}

// command runs a program; an error has what it printed last.
func command(ctx context.Context, dir, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s %s: %w: %s", program, args[0], err, lines[len(lines)-1])
	}
	return nil
}
