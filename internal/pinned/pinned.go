// Package pinned installs third-party programs from package registries, once, into folders that are named after their
// contents.
package pinned

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// complete is the name of a file that is written when an installation has succeeded.
const complete = "complete"

// Cache returns the folder of installations: the folder named by SPARROW_CLIENTS, or one in the user's cache.
func Cache() (string, error) {
	home := os.Getenv("SPARROW_CLIENTS")
	if home == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w; name a folder in SPARROW_CLIENTS", err)
		}
		home = filepath.Join(user, "sparrow-clients")
	}
	return filepath.Abs(home)
}

// Python returns the interpreter of a virtual environment with the packages of a lock file, which lists all of them
// with their versions.
func Python(ctx context.Context, home, name string, lock []byte) (python string, err error) {
	version, err := Output(ctx, "", "python3", "-c", "import sys; print(*sys.version_info[:2], sep='.')")
	if err != nil {
		return "", fmt.Errorf("python3 is not available: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major != 3 || minor < 11 {
		return "", fmt.Errorf("python3 is %s, and the pinned packages need 3.11 or later", version)
	}
	dir := Folder(home, "python-"+name, lock, []byte(version))
	python = filepath.Join(dir, "bin", "python")
	if runtime.GOOS == "windows" {
		python = filepath.Join(dir, "Scripts", "python.exe")
	}
	return python, Once(dir, func() error {
		if _, err := Output(ctx, "", "python3", "-m", "venv", dir); err != nil {
			return fmt.Errorf("the virtual environment could not be made: %w", err)
		}
		list := filepath.Join(dir, "requirements.txt")
		if err := os.WriteFile(list, lock, 0o644); err != nil {
			return err
		}
		if _, err := Output(ctx, "", python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
			"--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "30", "-r", list); err != nil {
			return fmt.Errorf("pip could not install the pinned packages: %w", err)
		}
		return nil
	})
}

// Node returns a folder with the packages of a lock file in node_modules. manifest is the package.json of the lock
// file.
func Node(ctx context.Context, home, name string, manifest, lock []byte) (dir string, err error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is not installed: %w", program, err)
		}
	}
	dir = Folder(home, name, manifest, lock)
	return dir, Once(dir, func() error {
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o644),
			os.WriteFile(filepath.Join(dir, "package-lock.json"), lock, 0o644)); err != nil {
			return err
		}
		if _, err := Output(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
			"--loglevel=error"); err != nil {
			return fmt.Errorf("npm could not install the pinned packages: %w", err)
		}
		return nil
	})
}

// Folder returns the folder of an installation, which depends on its contents.
func Folder(home, name string, contents ...[]byte) string {
	sum := sha256.New()
	for _, text := range contents {
		sum.Write(text)
		sum.Write([]byte{0})
	}
	return filepath.Join(home, fmt.Sprintf("%s-%x", name, sum.Sum(nil)[:6]))
}

// Once calls install for a folder, unless an earlier installation there has succeeded. Remains of an interrupted
// installation are removed first.
func Once(dir string, install func() error) error {
	mark := filepath.Join(dir, complete)
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := install(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.WriteFile(mark, nil, 0o644)
}

// Output runs a program and returns its output. An error contains the first line of the output that mentions an
// error, or otherwise the last line.
func Output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if ctx.Err() != nil {
		return "", fmt.Errorf("the program did not end in time: %w", ctx.Err())
	}
	if err != nil {
		lines := strings.Split(text, "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(strings.ToLower(l), "error") })
		if at < 0 {
			at = len(lines) - 1
		}
		return "", fmt.Errorf("%w: %s", err, lines[at])
	}
	return text, nil
}
